"""A contract: a property that a decoder must have, and the check that measures it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subject import Capability, Subject, SubjectError
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

        A subject that raises, where the contract lets it do only what it says it can, is in violation. Too
        little memory, or an error of the check itself, decides nothing; a violation measured before it stands.
        """
        missing = [subject.absent[need] for need in sorted(self.needs) if need in subject.absent]
        if missing:
            return self._result(Verdict.NOT_APPLICABLE, [], "; ".join(dict.fromkeys(missing)))
        start = time.perf_counter()
        measurements: list[Measurement] = []
        reason = ""
        try:
            for measurement in self.check(subject, probe):
                # one by one, so that what was measured stands if the check breaks off
                measurements.append(measurement)  # noqa: PERF402
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
        return self._result(verdict, measurements, reason, time.perf_counter() - start)

    def _result(
        self, verdict: Verdict, measurements: list[Measurement], reason: str, seconds: float = 0.0
    ) -> ContractResult:
        return ContractResult(self.name, self.statement, verdict, tuple(measurements), reason, seconds)
