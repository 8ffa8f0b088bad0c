"""How the terms of a forward pass grow with the length: lines on logarithmic axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from proof_lm.sheet.dimensions import dimensions
from proof_lm.sheet.flops import SCORES, terms
from proof_lm.sheet.report.words import scaled
from proof_lm.sheet.sheet import Sheet

WIDTH, HEIGHT = 460, 230  # of the drawing area, in the picture's own units
LEFT, TOP, RIGHT, BOTTOM = 62, 14, 118, 34  # around it
SHORTEST, LONGEST = 64, 16384


@dataclass(frozen=True)
class Line:
    """One term: its name, the points to draw, and where its name stands."""

    name: str
    points: str
    label_y: float


@dataclass(frozen=True)
class Tick:
    """A mark on an axis, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """FLOPs a token over T, as what is to be drawn.

    Attributes:
        lines: one a term.
        across: marks of the lengths.
        up: marks of the FLOPs.
        here: where the sheet's length is.
        says: the same in words.
    """

    lines: list[Line]
    across: list[Tick]
    up: list[Tick]
    here: float
    says: str
    width: int = LEFT + WIDTH + RIGHT
    height: int = TOP + HEIGHT + BOTTOM
    left: int = LEFT
    top: int = TOP
    right: int = LEFT + WIDTH
    bottom: int = TOP + HEIGHT


def plot(sheet: Sheet) -> Plot:
    """Each term's FLOPs a token, for lengths that double, up to the context, and to :data:`LONGEST` at least."""
    longest = max(sheet.config.context_length, LONGEST)
    lengths = [SHORTEST]
    while lengths[-1] < longest:
        lengths.append(lengths[-1] * 2)
    series: dict[str, list[float]] = {}
    for n_tokens in lengths:
        for term in terms(sheet.config, dimensions(sheet.config, 1, n_tokens)):
            series.setdefault(term.name, []).append(term.value / n_tokens)
    least = math.floor(math.log10(min(min(values) for values in series.values())))
    most = math.ceil(math.log10(max(max(values) for values in series.values())))

    def x(n_tokens: float) -> float:
        span = math.log2(lengths[-1] / lengths[0])
        return round(LEFT + WIDTH * min(1.0, max(0.0, math.log2(n_tokens / lengths[0]) / span)), 1)

    def y(flops: float) -> float:
        return round(TOP + HEIGHT * (1 - (math.log10(flops) - least) / (most - least)), 1)

    labels = _apart({name: y(values[-1]) for name, values in series.items()})
    lines = [
        Line(
            name,
            " ".join(f"{x(t)},{y(value)}" for t, value in zip(lengths, values, strict=True)),
            labels[name],
        )
        for name, values in series.items()
    ]
    every = max(1, len(lengths) // 6)
    across = [Tick(x(t), f"{t:,}") for t in lengths[::every]]
    up = [Tick(y(10.0**power), scaled(10.0**power)) for power in range(least, most + 1)]
    return Plot(lines, across, up, x(sheet.n_tokens), _says(series, lengths))


def _apart(places: dict[str, float]) -> dict[str, float]:
    """The same, moved down where they would be written over one another."""
    found: dict[str, float] = {}
    above = -math.inf
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        above = max(place, above + 13)
        found[name] = above
    return found


def _says(series: dict[str, list[float]], lengths: list[int]) -> str:
    scores = series[SCORES]
    rest = [sum(values) - score for score, *values in zip(scores, *series.values(), strict=True)]
    crossing = next((t for t, score, other in zip(lengths, scores, rest, strict=True) if score > other), None)
    constant = "Projections, feed-forward layer and head are constant a token; scores grow with T"
    if crossing is None:
        return f"{constant} and stay below the rest together up to {lengths[-1]:,}."
    return f"{constant}, and are more than the rest together from T = {crossing:,} on."
