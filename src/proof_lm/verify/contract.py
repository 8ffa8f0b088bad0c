"""A contract: a property that a decoder must have, and the check that measures it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Capability, Subject
from proof_lm.verify.verdict import ContractResult, Measurement, Verdict, worst_verdict

Check = Callable[[Subject, Probe], Iterable[Measurement]]


@dataclass(frozen=True)
class Contract:
    """A named property, stated in one sentence, with what it needs and how it is measured.

    Attributes:
        name: short, in words joined by hyphens.
        statement: the property, in one sentence.
        needs: what the subject must be able to do.
        check: measures; its docstring is the explanation.
    """

    name: str
    statement: str
    needs: frozenset[Capability]
    check: Check

    @property
    def explanation(self) -> str:
        """How the property is measured, in full."""
        return inspect.getdoc(self.check) or ""

    def judge(self, subject: Subject, probe: Probe) -> ContractResult:
        """The verdict on one subject.

        A subject that raises where the contract lets it do only what it says it can is in violation.
        """
        missing = [subject.absent[need] for need in sorted(self.needs) if need in subject.absent]
        if missing:
            reason = "; ".join(dict.fromkeys(missing))
            return ContractResult(self.name, self.statement, Verdict.NOT_APPLICABLE, reason=reason)
        start = time.perf_counter()
        measurements: list[Measurement] = []
        try:
            measurements.extend(self.check(subject, probe))
        except Exception as error:  # noqa: BLE001 - the subject's code runs here: whatever it raises is evidence
            reason = f"raised {type(error).__name__}: {error}"
            verdict = Verdict.VIOLATED
        else:
            reason, verdict = "", worst_verdict(tuple(measurements))
        seconds = time.perf_counter() - start
        return ContractResult(self.name, self.statement, verdict, tuple(measurements), reason, seconds)
