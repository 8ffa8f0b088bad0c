"""What a contract measures, and how a measurement becomes a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """The four things that can be said of a contract."""

    HOLDS = "holds"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Bound:
    """How large a residual rounding alone can make, and from where on only a fault explains it.

    Attributes:
        rounding: a residual up to this holds.
        fault: a residual from this on is a violation; between the two nothing is decided.
        derivation: where the numbers come from.
    """

    rounding: float
    fault: float
    derivation: str


EXACT = Bound(0.0, 0.0, "same shapes through the same kernels: every bit must be equal")


@dataclass(frozen=True)
class Measurement:
    """One number that a contract measured, and what it was held against.

    Attributes:
        path: the way through the subject, such as ``"explicit"`` or ``"fused"``.
        quantity: what was measured, in words.
        measured: the number.
        bound: for a residual, which must not exceed it; None for a reach, which must exceed zero.
        where: the place of the worst value, such as ``"row 1, position 3"``.
    """

    path: str
    quantity: str
    measured: float
    bound: Bound | None
    where: str = ""

    @property
    def is_reach(self) -> bool:
        """Whether this is an influence that there must be, rather than a residual that there must not be."""
        return self.bound is None

    @property
    def verdict(self) -> Verdict:
        """NaN is a violation either way."""
        if self.bound is None:
            return Verdict.HOLDS if self.measured > 0 else Verdict.VIOLATED
        if self.measured <= self.bound.rounding:
            return Verdict.HOLDS
        decided = math.isnan(self.measured) or self.measured >= self.bound.fault
        return Verdict.VIOLATED if decided else Verdict.INCONCLUSIVE

    @property
    def severity(self) -> tuple[int, float]:
        """Orders measurements by how near they are to a violation, the nearest last."""
        rank = [Verdict.HOLDS, Verdict.INCONCLUSIVE, Verdict.VIOLATED].index(self.verdict)
        if self.bound is None:
            return rank, -1.0
        if math.isnan(self.measured):
            return rank, math.inf
        return rank, self.measured / self.bound.rounding if self.bound.rounding else self.measured


class Largest:
    """The largest value seen, and where; a NaN is larger than any number and stays."""

    def __init__(self) -> None:
        self.value, self.where = 0.0, ""

    def see(self, value: float, where: str = "") -> None:
        """Takes note of one more value."""
        if not (math.isnan(self.value) or value <= self.value):
            self.value, self.where = value, where


class Smallest:
    """The smallest value seen, and where; a NaN is smaller than any number and stays."""

    def __init__(self) -> None:
        self.value, self.where = math.inf, ""

    def see(self, value: float, where: str = "") -> None:
        """Takes note of one more value."""
        if not (math.isnan(self.value) or value >= self.value):
            self.value, self.where = value, where


@dataclass(frozen=True)
class Case:
    """An input in which a violation is found again: the probe's seed and sizes, and what is measured there."""

    seed: int
    n_rows: int
    n_tokens: int
    measurement: Measurement

    def __str__(self) -> str:
        m = self.measurement
        rows, tokens = (
            f"{n} {word}{'s' * (n > 1)}" for n, word in ((self.n_rows, "row"), (self.n_tokens, "token"))
        )
        place = f" at {m.where}" if m.where else ""
        return f"{rows} of {tokens}, {m.path}: {m.quantity} = {m.measured:.3g}{place}"


@dataclass(frozen=True)
class ContractResult:
    """One contract's verdict on one subject, with the evidence.

    Attributes:
        name: the contract.
        statement: what it says, in a sentence.
        verdict: the worst of its measurements' verdicts.
        measurements: the evidence.
        reason: why it does not apply, or what the subject raised.
        seconds: wall time.
        smallest: of a violation, the smallest input in which it was found again; None where none smaller was.
    """

    name: str
    statement: str
    verdict: Verdict
    measurements: tuple[Measurement, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    smallest: Case | None = None

    @property
    def worst(self) -> Measurement | None:
        """The measurement nearest to, or furthest into, a violation."""
        return max(self.measurements, key=lambda m: m.severity, default=None)

    @property
    def first_violating(self) -> Measurement | None:
        """The first measurement that is a violation."""
        return next((m for m in self.measurements if m.verdict is Verdict.VIOLATED), None)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths measured, in order of first appearance."""
        return tuple(dict.fromkeys(m.path for m in self.measurements))


Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class AttentionMap:
    """What the heads of one layer attend to: ``heads[h][t][s]`` is the weight of position s for query t."""

    layer: int
    heads: tuple[Matrix, ...]


@dataclass(frozen=True)
class Influence:
    """Which token of one row moves which position's logits, on one path.

    ``[k][t]`` is what token k does to position t, so where t < k the future moves the past.

    Attributes:
        path: the way through the subject.
        tokens: the row's token ids, all different; empty where no row could be made.
        by_intervention: the largest change of position t's logits when token k alone is replaced.
        by_gradient: the largest entry of the gradient of a logit at position t for the embedding of token k.
        attention: the maps of some or all layers.
        absent: which of the three could not be had, with the reason; that one is empty then.
    """

    path: str
    tokens: tuple[int, ...]
    by_intervention: Matrix = ()
    by_gradient: Matrix = ()
    attention: tuple[AttentionMap, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Verification:
    """The results of one run over one subject, complete or cut short.

    Attributes:
        target: what was verified.
        seed: of every random choice.
        planned: names of the contracts that were to be decided.
        results: those that were.
        level: how much was looked at.
        diagnosis: what the subject behaves as, where something is violated and its weights are known.
        influences: what moves what, path by path, where that was measured.
    """

    target: str
    seed: int
    planned: tuple[str, ...]
    results: list[ContractResult] = field(default_factory=list)
    level: str = "standard"
    diagnosis: str = ""
    influences: tuple[Influence, ...] = ()

    @property
    def undecided(self) -> tuple[str, ...]:
        """Contracts that the run did not get to."""
        return self.planned[len(self.results) :]

    def count(self, verdict: Verdict) -> int:
        """How many contracts got this verdict."""
        return sum(result.verdict is verdict for result in self.results)

    @property
    def exit_status(self) -> int:
        """0 all hold, 1 something is violated, 3 nothing is but something is undecided or nothing applied."""
        if self.count(Verdict.VIOLATED):
            return 1
        undecided = bool(self.undecided) or bool(self.count(Verdict.INCONCLUSIVE))
        return 3 if undecided or not self.count(Verdict.HOLDS) else 0


def worst_verdict(measurements: tuple[Measurement, ...]) -> Verdict:
    """Violated if any is, else inconclusive if any is or if nothing was measured, else holds."""
    verdicts = {m.verdict for m in measurements}
    for verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.HOLDS if verdicts else Verdict.INCONCLUSIVE
