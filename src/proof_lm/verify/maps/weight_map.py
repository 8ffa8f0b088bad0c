"""Where each of a decoder's tensors lies in a foreign module: a map of values and of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from proof_lm.config import DecoderConfig
from proof_lm.dims import Tensor
from proof_lm.errors import MapError
from proof_lm.verify.maps.foreign import Foreign, Shape
from proof_lm.weights.documents import first_few
from proof_lm.weights.names import Source


@dataclass(frozen=True)
class Place:
    """Where one of our tensors lies in a foreign parameter.

    Attributes:
        name: the foreign parameter.
        shape: its shape, as it is stored.
        start, stop: ours is these of its rows, where a row is an output: counted after the transposition.
        transposed: it is stored (in, out).
    """

    name: str
    shape: Shape
    start: int
    stop: int
    transposed: bool = False

    @classmethod
    def of(cls, source: Source, ours: Shape) -> Place:
        """The place that a source names, for a tensor of ours of that shape."""
        start = source.part * ours[0]
        return cls(source.name, source.shape(ours), start, start + ours[0], source.transposed)

    @property
    def n_rows(self) -> int:
        """Rows of the whole foreign parameter."""
        return self.shape[-1 if self.transposed else 0]

    @property
    def ours(self) -> Shape:
        """The shape of our tensor."""
        turned = self.shape[::-1] if self.transposed else self.shape
        return self.stop - self.start, *turned[1:]

    def take(self, whole: Tensor) -> Tensor:
        """Our tensor, as a view of the foreign one."""
        rows = whole.T if self.transposed and whole.ndim > 1 else whole
        return rows[self.start : self.stop]


@dataclass(frozen=True)
class WeightMap:
    """Where each of our tensors lies in a foreign module.

    The map is linear and orthogonal (tensors are renamed, transposed and cut into rows, and nothing is added
    or scaled), so the gradient with respect to our tensor lies where the tensor lies.

    Attributes:
        family: what the module was recognised as.
        config: the decoder that it is, in evaluation: where a family's config speaks of dropout, it is left out.
        places: by our name; every row of every parameter of the module is in one place exactly.
        second_head: the parameter that the module has for a head although the config says that it is tied: a fault,
            which the map lets a contract find.
        positions_follow_mask: whether it is declared that the module counts positions by its mask, so that
            nobody has to give them.
    """

    family: str
    config: DecoderConfig
    places: Mapping[str, Place]
    second_head: str | None = None
    positions_follow_mask: bool = False

    def to_oracle(self, tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
        """Our tensors, as views of the module's; for parameters and for their gradients alike.

        Args:
            tensors: one per parameter, by the names of ``module.named_parameters()``, others being passed over;
                None (no gradient) stays None.

        Raises:
            MapError: one is missing, or of another shape than the parameter.
        """
        ours: dict[str, Tensor | None] = {}
        for name, place in self.places.items():
            if place.name not in tensors:
                raise MapError(f"there is no tensor for {place.name}, where {name} lies")
            whole = tensors[place.name]
            ours[name] = None if whole is None else place.take(_checked(place.name, whole, place.shape))
        return ours

    def to_foreign(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The module's tensors by their names, from ours: the inverse of :meth:`to_oracle`.

        Raises:
            MapError: one of ours is missing, or of another shape than the config says.
        """
        parts: dict[str, list[tuple[Place, Tensor]]] = {}
        for name, place in self.places.items():
            if name not in ours:
                raise MapError(f"there is no tensor for {name}, which lies in {place.name}")
            tensor = _checked(name, ours[name], place.ours)
            parts.setdefault(place.name, []).append((place, tensor))
        foreign = {}
        for name, found in parts.items():
            found.sort(key=lambda pair: pair[0].start)
            whole = torch.cat([tensor for _, tensor in found]) if len(found) > 1 else found[0][1]
            is_turned = found[0][0].transposed and whole.ndim > 1
            foreign[name] = (whole.T if is_turned else whole).contiguous()
        return foreign

    def inside(self, prefix: str) -> WeightMap:
        """The same map for a module that holds this one under ``prefix``."""
        places = {name: replace(place, name=prefix + place.name) for name, place in self.places.items()}
        second_head = None if self.second_head is None else prefix + self.second_head
        return replace(self, places=places, second_head=second_head)


def fit(
    foreign: Foreign,
    family: str,
    config: DecoderConfig,
    places: Mapping[str, Place],
    second_head: str | None = None,
) -> WeightMap:
    """The map, after comparing it with the module.

    Raises:
        MapError: parameters are missing, left over or of the wrong shape (all are counted, the first few named),
            or rows of one are in no place or in two.
    """
    places = {name: replace(place, name=foreign.own_name(place.name)) for name, place in places.items()}
    expected = {place.name: place.shape for place in places.values()}
    found = {name: shape for name, shape in foreign.shapes.items() if name != second_head}
    groups = {
        "missing": sorted(expected.keys() - found.keys()),
        "left over": sorted(found.keys() - expected.keys()),
        "of the wrong shape": [
            f"{name} (expected {list(shape)}, found {list(found[name])})"
            for name, shape in expected.items()
            if name in found and found[name] != shape
        ],
    }
    problems = [f"{len(names)} {what}: {first_few(names)}" for what, names in groups.items() if names]
    if problems:
        raise MapError(f"the parameters are not those of its config: {'; '.join(problems)}")
    _require_each_row_once(places)
    return WeightMap(family, config, places, second_head)


def _require_each_row_once(places: Mapping[str, Place]) -> None:
    parts: dict[str, list[tuple[int, int, str]]] = {}
    n_rows: dict[str, int] = {}
    for ours, place in places.items():
        parts.setdefault(place.name, []).append((place.start, place.stop, ours))
        n_rows[place.name] = place.n_rows
    for name, found in parts.items():
        end, before = 0, ""
        for start, stop, ours in sorted(found):
            if start < end:
                raise MapError(
                    f"{before} and {ours} both lie in rows {start} to {min(end, stop) - 1} of {name}, which is one "
                    "parameter: is it shared?"
                )
            if start > end:
                raise MapError(f"rows {end} to {start - 1} of {name} are none of our tensors")
            end, before = stop, ours
        if end < n_rows[name]:
            raise MapError(f"rows {end} to {n_rows[name] - 1} of {name} are none of our tensors")


def _checked(name: str, tensor: Tensor, shape: Shape) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise MapError(f"the tensor for {name} must have shape {list(shape)}, got {list(tensor.shape)}")
    return tensor
