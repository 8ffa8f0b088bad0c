"""The layout that a module's parameter names and shapes are of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from proof_lm.errors import MapError
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts import LAYOUTS, Layout
from proof_lm.verify.maps.weight_map import WeightMap
from proof_lm.weights.documents import first_few

_HINT = "if a DecoderConfig describes it, a map file can give that and say where the weights lie"


@dataclass(frozen=True)
class _Failure:
    """Why a layout did not fit; failures are ordered by how near it came."""

    n_known: int
    has_config: bool
    layout: Layout
    reason: MapError

    @property
    def nearness(self) -> tuple[int, bool]:
        return self.n_known, self.has_config


def find_map(module: nn.Module) -> WeightMap:
    """The map from a module of a known layout; the module is not run.

    A layout fits when every parameter of the module is accounted for, by name and by shape. Wrappers, which have
    all their parameters in one child, are seen through.

    Raises:
        MapError: none fits; the message says which came nearest, and what did not fit.
    """
    failures = []
    for prefix, part in _levels(module):
        foreign = Foreign(part)
        for layout in LAYOUTS:
            found = _try(layout, foreign)
            if isinstance(found, WeightMap):
                return found.inside(prefix)
            failures.append(found)
    raise MapError(f"{type(module).__name__} is of no known layout: {_why(module, failures)}; {_HINT}")


def _try(layout: Layout, foreign: Foreign) -> WeightMap | _Failure:
    n_known = layout.count_known(foreign)
    has_config = False
    if not n_known:
        return _Failure(0, has_config, layout, MapError("it knows none of the parameters' names"))
    try:
        config = layout.read_config(foreign)
        has_config = True
        return layout.lay_out(foreign, config)
    except MapError as reason:
        return _Failure(n_known, has_config, layout, reason)


def _levels(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The module, and, as long as one child holds all parameters, that child, with the prefix of its names."""
    prefix = ""
    part: object = module
    while isinstance(part, nn.Module):
        yield prefix, part
        children = {name.split(".", 1)[0] for name, _ in part.named_parameters()}
        if len(children) != 1:
            return
        child = children.pop()
        prefix, part = f"{prefix}{child}.", getattr(part, child)


def _why(module: nn.Module, failures: list[_Failure]) -> str:
    names = [name for name, _ in module.named_parameters()]
    best = max(failure.nearness for failure in failures)
    if not best[0]:
        return f"none knows its parameters' names ({first_few(names) or 'it has none'})"
    nearest = [failure for failure in failures if failure.nearness == best]
    reasons = "; ".join(f"{failure.layout.name}: {failure.reason}" for failure in nearest)
    return f"nearest, with {best[0]} of {len(names)} names, {reasons}"
