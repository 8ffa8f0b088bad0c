"""A violation found again for its file, and measured again from it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract, Level
from proof_lm.verify.fingerprint import fingerprint
from proof_lm.verify.probe import Probe
from proof_lm.verify.runner import planned_probes
from proof_lm.verify.subjects import Subject
from proof_lm.verify.threads import threads
from proof_lm.verify.verdict import ContractResult, Measurement, Verdict, Verification
from proof_lm.verify.violation import BY_NAME, Origin, Violation, file_digest, versions

MAX_IDS = 1024  # token ids that are noted of a call
MAX_TEXT = 2000  # characters that are kept of what a subject raised, and of a mask or positions
_FOLDERS = re.compile(r"(?<![\w./\\-])(?:[A-Za-z]:)?[/\\](?:[^/\\\s:'\"]+[/\\])+")


@dataclass(frozen=True)
class Replay:
    """What was measured when a violation was looked for again.

    Attributes:
        violation: what was looked for.
        result: what its contract gives now in that case.
        last_call: as of the violation.
        fingerprint: of the subject's weights now; empty where its process was lost.
    """

    violation: Violation
    result: ContractResult
    last_call: Mapping[str, Any] | None
    fingerprint: str

    @property
    def now(self) -> Measurement | None:
        """What violates the contract now, or leaves it open; where it holds, what is in the place of what was then."""
        then = self.violation.measurement
        if self.result.verdict is not Verdict.HOLDS:
            return self.result.first_violating or self.result.worst
        same = [m for m in self.result.measurements if then is not None and _is_same(m, then)]
        return max(same, key=lambda m: m.severity, default=None)

    @property
    def is_same(self) -> bool:
        """Whether what violates the contract now is the same quantity on the same path, or raising again."""
        then, now = self.violation.measurement, self.now
        return now is None if then is None else now is not None and _is_same(now, then)

    @property
    def outcome(self) -> str:
        """``"shown again"`` where the contract is violated in that case, ``"gone"`` where it holds and the same
        quantity was measured, else ``"undecided"``."""
        if self.result.verdict is Verdict.VIOLATED:
            return "shown again"
        return "gone" if self.result.verdict is Verdict.HOLDS and self.is_same else "undecided"

    @property
    def exit_status(self) -> int:
        """1 shown again, 0 gone, 3 undecided."""
        return {"shown again": 1, "gone": 0}.get(self.outcome, 3)

    @property
    def reason(self) -> str:
        """What the subject raised now, or why nothing is decided; empty where there is nothing to say."""
        if self.result.reason or self.outcome != "undecided":
            return _public(self.result.reason)
        if self.result.verdict is Verdict.INCONCLUSIVE:
            return "what is measured now lies between what rounding explains and what only a fault does"
        then = self.violation.measurement
        assert then is not None
        return f"what was measured then, {then.quantity} on path {then.path}, is not measured now"


def violation_files(
    verification: Verification,
    subject: Subject,
    *,
    target: str | None,
    arguments: Sequence[str] = (),
    map_file: Path | None = None,
) -> dict[str, dict[str, Any]]:
    """For each violation the name of a file and its document, from measuring it once more.

    That is in the smallest case where one was found, else with the probe that finds it. A violation which is not
    found again, since it depends on more than the case, is written as it was. Contracts that are not among
    ``CONTRACTS`` cannot be named to a replay, and are left out.

    Args:
        verification: the results.
        subject: what was verified.
        target: what the subject was loaded from, as the user gave it; None for the embedded decoder.
        arguments: the name=value pairs that its callable was given.
        map_file: of its weights, as the user gave it.
    """
    digest = None if map_file is None else file_digest(map_file)
    origin = Origin(target, tuple(arguments), None if map_file is None else str(map_file), digest)
    weights = fingerprint(subject.native)
    violated = [
        result
        for result in verification.results
        if result.verdict is Verdict.VIOLATED and result.name in BY_NAME
    ]
    files = {}
    for result in violated:
        probe, found, last_call = _found_again(verification, subject, result)
        measurement = found.first_violating
        violation = Violation(
            contract=result.name,
            statement=result.statement,
            measurement=measurement,
            raised=_public(found.reason) if measurement is None else "",
            seed=verification.seed,
            level=verification.level,
            probe_seed=probe.seed,
            n_rows=probe.n_rows,
            n_tokens=probe.n_tokens,
            exhaustive=probe.exhaustive,
            last_call=last_call,
            origin=origin,
            fingerprint=weights,
            versions=versions(),
        )
        files[f"{result.name}.json"] = violation.to_dict()
    return files


def replay(violation: Violation, subject: Subject) -> Replay:
    """Measures the violation's contract on the subject in exactly that case."""
    contract, weights = BY_NAME[violation.contract], fingerprint(subject.native)
    if violation.n_tokens > subject.context_length:
        reason = (
            f"the case has rows of {violation.n_tokens} tokens, and its context is {subject.context_length}"
        )
        result = ContractResult(contract.name, contract.statement, Verdict.NOT_APPLICABLE, reason=reason)
        return Replay(violation, result, None, weights)
    probe = Probe(
        subject,
        violation.probe_seed,
        n_rows=violation.n_rows,
        n_tokens=violation.n_tokens,
        exhaustive=violation.exhaustive,
    )
    result, last_call = _measure(contract, subject, probe)
    return Replay(violation, result, last_call, weights)


def _found_again(
    verification: Verification, subject: Subject, result: ContractResult
) -> tuple[Probe, ContractResult, dict[str, Any] | None]:
    """The case in which the violation is found once more, and what is found; the first case, and what was found
    before, where it is in none."""
    cases = list(_cases(verification, subject, result))
    for probe in cases:
        found, last_call = _measure(BY_NAME[result.name], subject, probe)
        if found.verdict is Verdict.VIOLATED:
            return probe, found, last_call
    return cases[0], result, None


def _cases(verification: Verification, subject: Subject, result: ContractResult) -> Iterator[Probe]:
    case = result.smallest
    if case is not None:
        yield Probe(subject, case.seed, n_rows=case.n_rows, n_tokens=case.n_tokens)
    yield from planned_probes(subject, verification.seed, cast("Level", verification.level))


def _measure(
    contract: Contract, subject: Subject, probe: Probe
) -> tuple[ContractResult, dict[str, Any] | None]:
    calls = _LastCall()
    with threads(None if probe.is_large else 1):  # as the runner has it, since sums depend on it
        result = contract.until_violated(calls.recorded(subject), probe)
    return result, calls.to_dict()


class _LastCall:
    """The last call that was made of a subject."""

    def __init__(self) -> None:
        self.token_ids: Tensor | None = None
        self.given: dict[str, Any] = {}

    def recorded(self, subject: Subject) -> Subject:
        """The same subject, whose calls are noted here."""
        kind: Any = type(subject)

        def run(own: Any, module: Any, ids: Tensor, **given: Any) -> Any:
            self._note(ids, given)
            return kind.run(own, module, ids, **given)

        def loss(own: Any, ids: Tensor, labels: Tensor, loss_mask: Any, path: str, **given: Any) -> Any:
            self._note(ids, {"labels": labels, "loss_mask": loss_mask} | given)
            return kind.loss(own, ids, labels, loss_mask, path, **given)

        def generate(own: Any, ids: Tensor, max_new_tokens: int, path: str, **settings: Any) -> Any:
            self._note(ids, {"max_new_tokens": max_new_tokens} | settings)
            return kind.generate(own, ids, max_new_tokens, path, **settings)

        recorded = copy.copy(subject)
        # a subclass, and no attribute: contracts copy subjects, and each copy must call its own methods
        recorded.__class__ = type(kind.__name__, (kind,), {"run": run, "loss": loss, "generate": generate})
        return recorded

    def to_dict(self) -> dict[str, Any] | None:
        """Shape, token ids (whole rows, as many as there is room for) and, in words, what else was given."""
        if self.token_ids is None:
            return None
        shape = list(self.token_ids.shape)
        n_rows = max(1, MAX_IDS // max(1, shape[-1]))
        given = {
            name: _in_words(value, n_rows)[:MAX_TEXT]
            for name, value in self.given.items()
            if value is not None
        }
        return {"shape": shape, "token_ids": self.token_ids[:n_rows].tolist(), "given": given}

    def _note(self, ids: Tensor, given: Mapping[str, Any]) -> None:
        self.token_ids = ids.clone()
        self.given = {name: _kept(value) for name, value in given.items()}


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _in_words(value: Any, n_rows: int) -> str:
    """Masks as rows of 1 and 0, positions and labels as rows of numbers, an object as its type."""
    if not isinstance(value, Tensor):
        simple = isinstance(value, bool | int | float | str | tuple | list)
        return str(value) if simple else f"a {type(value).__name__}"
    if value.dim() != 2 or value.is_floating_point():
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    between = "" if value.dtype == torch.bool else " "
    return " / ".join(between.join(str(int(entry)) for entry in row) for row in value[:n_rows])


def _public(text: str) -> str:
    """What a subject raised, without the folders of absolute paths."""
    return _FOLDERS.sub("", text)[:MAX_TEXT]


def _is_same(measurement: Measurement, other: Measurement) -> bool:
    return (measurement.path, measurement.quantity) == (other.path, other.quantity)
