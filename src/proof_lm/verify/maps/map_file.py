"""A map that somebody wrote: a JSON file with a decoder's config and where its weights lie."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError, MapError, WeightsError
from proof_lm.sheet import tensors
from proof_lm.verify.maps.foreign import Foreign, Shape
from proof_lm.verify.maps.weight_map import Place, WeightMap, fit
from proof_lm.weights.documents import first_few, read_json_object

_BLOCK = "{i}"  # stands for the number of a block, in our names and in theirs
_FORMS = 'a name, {"name": NAME, "transposed": true, "part": 0, "n_parts": 3}, or {"name": NAME, "rows": [START, STOP]}'
_NUMBER = re.compile(r"^blocks\.\d+\.")


def read_map(path: Path, module: nn.Module) -> WeightMap:
    """The map in a JSON file, for this module.

    The file holds ``{"config": {...}, "weights": {...}}``: the fields of :class:`DecoderConfig`, and for each of
    its tensors the module's parameter, with ``{i}`` in both for the number of the block. A parameter may be
    stored transposed, (in, out), and may hold several of our tensors, as one of so many equal parts or as rows
    START to STOP - 1 of its outputs. A tied head needs no entry; with one, it is the tying contract's to see
    whether the parameter is the embedding's. ``"conventions": {"positions_follow_mask": true}`` declares that
    positions are counted by the mask inside the module, which then has to.

    Args:
        path: the file.
        module: any; it is not run.

    Raises:
        MapError: the file cannot be read, its config is none, an entry is for no tensor of the config or does not
            fit the module, or an entry is missing for one of either; the message names file and entry.
    """
    try:
        return _Reader(path, module).read()
    except MapError as error:
        raise MapError(f"{path}: {error}") from error.__cause__


@dataclass(frozen=True)
class _Entry:
    """One value under "weights", for one of our tensors."""

    name: str
    transposed: bool = False
    part: int = 0
    n_parts: int = 1
    rows: tuple[int, int] | None = None

    def place(self, foreign: Foreign, ours: Shape) -> Place:
        """Where our tensor of that shape lies; the parameter's own shape must be the right one."""
        shape = foreign.shape(self.name)
        n_rows = shape[-1 if self.transposed else 0]
        start, stop, expected = self.part * ours[0], (self.part + 1) * ours[0], self.n_parts * ours[0]
        if self.rows is not None:
            (start, stop), expected = self.rows, n_rows
            if stop > n_rows or stop - start != ours[0]:
                raise MapError(
                    f"rows {[start, stop]} of the {n_rows} rows of {self.name} are not the {ours[0]} of ours"
                )
        whole = (expected, *ours[1:])
        whole = whole[::-1] if self.transposed else whole
        if shape != whole:
            raise MapError(
                f"{self.name} has shape {list(shape)}, expected {list(whole)} for ours of shape {list(ours)}"
            )
        return Place(self.name, whole, start, stop, self.transposed)


class _Reader:
    """Reads one file for one module; messages name the entry, and the caller adds the file."""

    def __init__(self, path: Path, module: nn.Module) -> None:
        self.path = path
        self.foreign = Foreign(module)

    def read(self) -> WeightMap:
        try:
            document = read_json_object(self.path)
        except WeightsError as error:
            raise MapError(f"is no map: {error}") from error
        _require_keys("the file", document, {"config", "weights"}, {"config", "weights", "conventions"})
        config, entries = self.config(document["config"]), document["weights"]
        if not isinstance(entries, dict) or not entries:
            raise MapError("\"weights\" must be an object from our tensors' names to the module's")
        shapes = {spec.name: spec.shape for spec in tensors(config)}
        places: dict[str, Place] = {}
        second_head = None
        if config.tie_embeddings and "head.weight" in entries:
            second_head = self.second_head(entries.pop("head.weight"))
        for template, value in entries.items():
            for name, place in self.places(template, value, shapes, config).items():
                if name in places:
                    raise MapError(f'"weights" gives {name} twice, the second time as {template!r}')
                places[name] = place
        if second_head == self.foreign.own_name(places["embedding.weight"].name):
            second_head = None
        self.require_all(places, shapes, second_head)
        found = fit(self.foreign, f"map file {self.path.name}", config, places, second_head)
        follow = self.positions_follow_mask(document.get("conventions", {}))
        return replace(found, positions_follow_mask=follow)

    def second_head(self, value: object) -> str:
        """The parameter of a head that is declared tied."""
        if not isinstance(value, str):
            raise MapError(
                f"\"weights\", entry 'head.weight': with tie_embeddings it must be a name, got {value!r}"
            )
        self.require_parameter(value)
        return self.foreign.own_name(value)

    def positions_follow_mask(self, conventions: object) -> bool:
        """What the file declares of the module beside its config."""
        if not isinstance(conventions, dict):
            raise MapError(f'"conventions" must be an object, got {conventions!r}')
        _require_keys('"conventions"', conventions, set(), {"positions_follow_mask"})
        follow = conventions.get("positions_follow_mask", False)
        if not isinstance(follow, bool):
            raise MapError(f'"conventions": positions_follow_mask must be true or false, got {follow!r}')
        return follow

    def config(self, fields: object) -> DecoderConfig:
        if not isinstance(fields, dict):
            raise MapError(f'"config" must be an object with the fields of a DecoderConfig, got {fields!r}')
        try:
            config = DecoderConfig.from_dict(fields)
        except ConfigError as error:
            raise MapError(f'"config": {error}') from error
        n_parameters = len(self.foreign.shapes)
        if config.n_layers > n_parameters:
            raise MapError(
                f'"config": n_layers is {config.n_layers}, and the module has {n_parameters} parameters'
            )
        return config

    def places(
        self, template: str, value: object, shapes: Mapping[str, Shape], config: DecoderConfig
    ) -> dict[str, Place]:
        """The places of the tensors that one entry is for: one in each block where it has a ``{i}``."""
        try:
            entry = _entry(value)
            if (_BLOCK in template) != (_BLOCK in entry.name):
                lacking, having = (entry.name, template) if _BLOCK in template else (template, entry.name)
                raise MapError(f"{lacking!r} lacks the {_BLOCK} that {having!r} has")
            places = {}
            for index in range(config.n_layers) if _BLOCK in template else [0]:
                name = template.replace(_BLOCK, str(index))
                if name not in shapes:
                    raise MapError(_unknown(template, shapes))
                theirs = entry.name.replace(_BLOCK, str(index))
                self.require_parameter(theirs)
                one = _Entry(theirs, entry.transposed, entry.part, entry.n_parts, entry.rows)
                places[name] = one.place(self.foreign, shapes[name])
            return places
        except MapError as error:
            raise MapError(f'"weights", entry {template!r}: {error}') from error

    def require_parameter(self, name: str) -> None:
        if name not in self.foreign:
            raise MapError(f"the module has no parameter {name!r}{_close(name, list(self.foreign.shapes))}")

    def require_all(
        self, places: Mapping[str, Place], shapes: Mapping[str, Shape], second_head: str | None
    ) -> None:
        """Every tensor of ours has an entry, and every parameter of the module is in one."""
        missing = list(dict.fromkeys(_template(name) for name in shapes if name not in places))
        if missing:
            raise MapError(f'"weights" has no entry for {first_few(missing)}')
        used = {self.foreign.own_name(place.name) for place in places.values()} | {second_head}
        unused = [name for name in self.foreign.shapes if name not in used]
        if unused:
            raise MapError(
                f'no entry of "weights" mentions {first_few(unused)}; each parameter of the module must be one of ours'
            )


def _entry(value: object) -> _Entry:
    """The entry, its types checked."""
    if isinstance(value, str):
        return _Entry(value)
    if not isinstance(value, dict):
        raise MapError(f"must be {_FORMS}, got {value!r}")
    known = {"name", "transposed", "part", "n_parts", "rows"}
    _require_keys("it", value, {"name"}, known)
    name, transposed = value["name"], value.get("transposed", False)
    if not isinstance(name, str) or not isinstance(transposed, bool):
        raise MapError(f"must be {_FORMS}, got {value!r}")
    if "rows" in value:
        return _Entry(name, transposed, rows=_rows(value))
    if ("part" in value) != ("n_parts" in value):
        raise MapError("part and n_parts go together")
    part, n_parts = value.get("part", 0), value.get("n_parts", 1)
    if not _is_whole(part) or not _is_whole(n_parts) or part >= n_parts:
        raise MapError(f"part must be a whole number from 0 to n_parts - 1, got {part!r} of {n_parts!r}")
    return _Entry(name, transposed, part, n_parts)


def _rows(value: dict[str, Any]) -> tuple[int, int]:
    rows = value["rows"]
    if "part" in value or "n_parts" in value:
        raise MapError("either rows or part and n_parts say which outputs are ours, not both")
    if not isinstance(rows, list) or len(rows) != 2 or not all(map(_is_whole, rows)) or rows[0] >= rows[1]:
        raise MapError(f"rows must be [START, STOP] with 0 <= START < STOP, got {rows!r}")
    return rows[0], rows[1]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _require_keys(what: str, found: Mapping[str, object], needed: set[str], known: set[str]) -> None:
    missing, unknown = sorted(needed - found.keys()), sorted(found.keys() - known)
    if missing:
        raise MapError(f"{what} lacks {', '.join(map(repr, missing))}")
    if unknown:
        raise MapError(
            f"{what} has unknown {', '.join(map(repr, unknown))}; known are {', '.join(sorted(known))}"
        )


def _unknown(template: str, shapes: Mapping[str, Shape]) -> str:
    names = list(dict.fromkeys(map(_template, shapes)))
    return f"the decoder of this config has no such tensor{_close(template, names)}"


def _template(name: str) -> str:
    return _NUMBER.sub(f"blocks.{_BLOCK}.", name)


def _close(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {first_few(names)}"
