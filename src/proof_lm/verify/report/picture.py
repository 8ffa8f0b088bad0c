"""An influence as a picture: cells to draw, and what they show in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from proof_lm.verify.verdict import AttentionMap, Influence, Matrix

Kind = Literal["leak", "zero", "passes", "blind"]
SHADES = 5
WEIGHTS = (0.05, 0.2, 0.4, 0.7)  # attention weights from which on the next shade begins


@dataclass(frozen=True)
class Cell:
    """Row t and column k of a picture: what token k does to position t.

    Attributes:
        t: the position.
        k: the token.
        kind: "leak" and "zero" lie in the future (k > t), "passes" and "blind" (exactly 0) do not.
        shade: 1 (faint) to 5; 0 for zeros.
        says: the same in words.
    """

    t: int
    k: int
    kind: Kind
    shade: int
    says: str


@dataclass(frozen=True)
class Picture:
    """A (T, T) picture, rows positions and columns tokens, and what there is to see in it."""

    title: str
    size: int
    cells: tuple[Cell, ...]
    says: str
    worst_leak: str

    @property
    def leaks(self) -> bool:
        """Whether the future moves the past."""
        return bool(self.worst_leak)


@dataclass(frozen=True)
class HeadPicture:
    """One head's attention: the path to draw for each shade, and for what it sees of the future."""

    layer: int
    head: int
    size: int
    shades: tuple[str, ...]
    leak: str
    says: str


def pictures(influence: Influence) -> list[Picture]:
    """By interventions and by gradients, where there are any."""
    found = []
    if influence.by_intervention:
        found.append(
            _picture(
                "By replacing tokens",
                influence.by_intervention,
                lambda t, k, value: f"replacing token {k} moves position {t} by {value:.2g}",
            )
        )
    if influence.by_gradient:
        found.append(
            _picture(
                "By gradients",
                influence.by_gradient,
                lambda t, k, value: f"the gradient of position {t} for token {k} is {value:.2g}",
            )
        )
    return found


def head_pictures(attention: AttentionMap) -> list[HeadPicture]:
    """One for each head of a layer."""
    return [_head(attention.layer, index, weights) for index, weights in enumerate(attention.heads)]


def _picture(title: str, matrix: Matrix, tell: Callable[[int, int, float], str]) -> Picture:
    size = len(matrix)
    finite = [value for row in matrix for value in row if math.isfinite(value)]
    largest = max(finite, default=0.0)
    cells, worst = [], (-1.0, "")
    for t in range(size):
        for k in range(size):
            value = matrix[k][t]
            kind: Kind = (
                ("zero" if value == 0.0 else "leak") if k > t else ("blind" if value == 0.0 else "passes")
            )
            says = tell(t, k, value) if value else f"token {k} does nothing to position {t}: exactly 0"
            cells.append(Cell(t, k, kind, _shade(value, largest), says))
            if kind == "leak" and not value <= worst[0]:
                worst = (math.inf if math.isnan(value) else value, says)
    return Picture(title, size, tuple(cells), _summary(size, cells, worst[1]), worst[1])


def _summary(size: int, cells: list[Cell], worst: str) -> str:
    n_leaks, n_blind = (sum(cell.kind == kind for cell in cells) for kind in ("leak", "blind"))
    n_future = size * (size - 1) // 2
    if n_leaks:
        says = f"Leak: {n_leaks} of {n_future} cells of the future are not 0. The worst: {worst}."
    else:
        says = f"No leak: all {n_future} cells of the future are exactly 0."
    if n_blind:
        says += f" Not reached: {n_blind} of {size * (size + 1) // 2} cells of the past and present are exactly 0."
    return says


def _shade(value: float, largest: float) -> int:
    """Each shade is a factor of ten, down from the largest; what is not finite gets the strongest."""
    if value == 0.0:
        return 0
    if not math.isfinite(value):
        return SHADES
    return max(1, SHADES - int(math.log10(largest / abs(value))))


def _head(layer: int, head: int, weights: Matrix) -> HeadPicture:
    shades: list[list[str]] = [[] for _ in range(SHADES)]
    leak, n_leaks = [], 0
    for t, s, weight in _places(weights):
        square = f"M{s} {t}h1v1h-1z"
        if s > t:
            leak.append(square)
            n_leaks += 1
        else:
            shades[sum(weight >= least for least in WEIGHTS)].append(square)
    seen = f"{n_leaks} cells of the future have weight" if n_leaks else "nothing of the future has weight"
    says = f"layer {layer}, head {head}: {seen}"
    return HeadPicture(layer, head, len(weights), tuple(map("".join, shades)), "".join(leak), says)


def _places(weights: Matrix) -> Iterator[tuple[int, int, float]]:
    """Query, key and weight wherever the weight is not exactly 0."""
    for t, row in enumerate(weights):
        for s, weight in enumerate(row):
            if weight != 0.0:
                yield t, s, weight
