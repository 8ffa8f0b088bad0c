"""A contract: a property that a decoder must have, and the check that measures it."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Capability, Subject, SubjectError, copied
from proof_lm.verify.verdict import Case, ContractResult, Measurement, Verdict, worst_verdict

Check = Callable[[Any, Probe], Iterable[Measurement]]  # of a Subject, or of the kind that can what is needed
Level = Literal["quick", "standard", "thorough"]
LEVELS: tuple[Level, ...] = get_args(Level)
NEAR = 10.0  # a residual within this factor of a bound is measured again
SMALL_SIZES = (
    (1, 1),
    (1, 2),
    (2, 2),
    (1, 3),
    (2, 3),
    (1, 5),
    (2, 5),
    (3, 5),
    (1, 9),
    (2, 9),
    (1, 13),
    (1, 17),
)


@dataclass(frozen=True)
class Contract:
    """A named property, stated in one sentence, with what it needs and how it is measured.

    Attributes:
        name: short, in words joined by hyphens.
        statement: the property, in one sentence.
        needs: what the subject must be able to do.
        check: measures; its docstring is the explanation.
        level: the lowest that it belongs to.
        grows: whether what it finds can be looked for in smaller inputs.
        once: whether one probe is enough, since what is measured does not depend on sizes.
    """

    name: str
    statement: str
    needs: frozenset[Capability]
    check: Check
    level: Level = "standard"
    grows: bool = True
    once: bool = False

    @property
    def explanation(self) -> str:
        """How the property is measured, in full; a paragraph a line."""
        paragraphs = (inspect.getdoc(self.check) or "").split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    def judge(self, subject: Subject, *probes: Probe) -> ContractResult:
        """The verdict on one subject, from one probe or more.

        A subject that raises, where the contract lets it do only what it says it can, is in violation. Too
        little memory, or an error of the check itself, decides nothing; a violation measured before it stands.
        Where all that speaks against it is a residual near a bound, it is measured again with a fresh seed: when
        the two runs disagree, or both lie between the bounds, nothing is decided. A violation is looked for again
        in the smallest inputs.
        """
        reason = self._inapplicable(subject)
        if reason is not None:
            return ContractResult(self.name, self.statement, Verdict.NOT_APPLICABLE, (), reason, 0.0)
        start = time.perf_counter()
        probes = probes[:1] if self.once else probes
        subject = _fresh(subject, probes[0])
        runs = [self._measure(subject, probe) for probe in probes]
        worst = max(runs, key=lambda run: (_RANK[run.verdict], not run.is_near))
        if worst.is_near:
            worst = self._again(subject, probes[runs.index(worst)], worst)
        measurements = tuple(m for run in runs for m in run.measurements)
        if worst not in runs:
            measurements += worst.measurements
        smallest = self._smallest(subject, probes[0], worst) if worst.verdict is Verdict.VIOLATED else None
        seconds = time.perf_counter() - start
        return ContractResult(
            self.name, self.statement, worst.verdict, measurements, worst.reason, seconds, smallest
        )

    def first_violation(self, subject: Subject, probe: Probe) -> tuple[Verdict, Measurement | None]:
        """The verdict from one probe, without looking further once something is violated, and what violates it."""
        result = self.until_violated(subject, probe)
        return result.verdict, result.first_violating

    def until_violated(self, subject: Subject, probe: Probe) -> ContractResult:
        """What one probe gives, with all that was measured up to the first violation."""
        reason = self._inapplicable(subject)
        if reason is not None:
            return ContractResult(self.name, self.statement, Verdict.NOT_APPLICABLE, reason=reason)
        run = self._measure(_fresh(subject, probe), probe, until_violated=True)
        return ContractResult(self.name, self.statement, run.verdict, run.measurements, run.reason)

    def _inapplicable(self, subject: Subject) -> str | None:
        """Why the subject cannot be asked; None where it can."""
        missing = [subject.absent[need] for need in sorted(self.needs) if need in subject.absent]
        return "; ".join(dict.fromkeys(missing)) if missing else None

    def _again(self, subject: Subject, probe: Probe, first: _Run) -> _Run:
        second = self._measure(subject, probe.reseeded())
        if first.verdict is second.verdict:
            return second
        reason = "near a bound, and a fresh seed says otherwise"
        return _Run(Verdict.INCONCLUSIVE, second.measurements, reason)

    def _smallest(self, subject: Subject, probe: Probe, found: _Run) -> Case | None:
        """The smallest input in which the contract is still violated."""
        if not self.grows or probe.is_large or not found.measurements:
            return None
        for n_rows, n_tokens in SMALL_SIZES:
            if n_rows > probe.n_rows or n_tokens >= probe.n_tokens:
                continue
            smaller = Probe(subject, probe.seed, n_rows=n_rows, n_tokens=n_tokens)
            for measurement in self._measure(subject, smaller, until_violated=True).measurements:
                if measurement.verdict is Verdict.VIOLATED and not math.isinf(measurement.measured):
                    return Case(probe.seed, n_rows, n_tokens, measurement)
        return None

    def _measure(self, subject: Subject, probe: Probe, *, until_violated: bool = False) -> _Run:
        measurements: list[Measurement] = []
        reason = ""
        try:
            for measurement in self.check(subject, probe):
                # one by one, so that what was measured stands if the check breaks off
                measurements.append(measurement)
                if until_violated and measurement.verdict is Verdict.VIOLATED:
                    break
            verdict = worst_verdict(tuple(measurements))
        except Inapplicable as error:
            verdict, reason = Verdict.NOT_APPLICABLE, str(error)
        except SubjectError as error:
            verdict, reason = Verdict.VIOLATED, str(error)
        except (MemoryError, torch.OutOfMemoryError) as error:
            verdict, reason = Verdict.INCONCLUSIVE, f"not enough memory: {error}"
        except Exception as error:  # noqa: BLE001 - one check must not take the others' results with it
            verdict, reason = Verdict.INCONCLUSIVE, f"the check failed: {type(error).__name__}: {error}"
        if any(measurement.verdict is Verdict.VIOLATED for measurement in measurements):
            verdict = Verdict.VIOLATED
        return _Run(verdict, tuple(measurements), reason)


def _fresh(subject: Subject, probe: Probe) -> Subject:
    """A copy for one contract, so that state which another left in the subject hides nothing; a large one itself."""
    return subject if probe.is_large else subject.swapped(copied(subject.module))


_RANK = {
    verdict: rank
    for rank, verdict in enumerate(
        (Verdict.NOT_APPLICABLE, Verdict.HOLDS, Verdict.INCONCLUSIVE, Verdict.VIOLATED)
    )
}


@dataclass(frozen=True)
class _Run:
    """One run of a check over one probe."""

    verdict: Verdict
    measurements: tuple[Measurement, ...]
    reason: str

    @property
    def is_near(self) -> bool:
        """Whether all that speaks against the subject is a residual between the bounds, or little above them."""
        if self.reason:
            return False
        against = [m for m in self.measurements if m.verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE)]
        return bool(against) and all(
            m.bound is not None and 0.0 < m.measured < NEAR * m.bound.fault for m in against
        )
