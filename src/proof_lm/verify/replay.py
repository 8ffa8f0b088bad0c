"""A violation as a small file, and the same measurement made again."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from proof_lm import __version__
from proof_lm.dims import Tensor
from proof_lm.errors import ProofLMError
from proof_lm.verify.contract import Contract, Level
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.fingerprint import fingerprint
from proof_lm.verify.probe import Probe
from proof_lm.verify.report.machine import number
from proof_lm.verify.runner import planned_probes
from proof_lm.verify.subjects import Subject
from proof_lm.verify.threads import threads
from proof_lm.verify.verdict import Bound, ContractResult, Measurement, Verdict, Verification

FORMAT, VERSION = "proof-lm/violation", 1
MAX_BYTES = 1_000_000  # of a file; those that are written have some thousand
MAX_SIZE = 4096  # rows, or tokens of a row, that a file may ask for
MAX_SEED = 2**63 - 1  # what PyTorch's generators take
MAX_IDS = 1024  # token ids that are noted of a call
MAX_TEXT = 2000  # characters that are kept of what a subject raised, and of a mask or positions
BY_NAME = {contract.name: contract for contract in CONTRACTS}
_FOLDERS = re.compile(r"(?<![\w./\\-])(?:[A-Za-z]:)?[/\\](?:[^/\\\s:'\"]+[/\\])+")


class ViolationError(ProofLMError, ValueError):
    """A file that is no violation which can be replayed here; the message says why."""


@dataclass(frozen=True)
class Origin:
    """Where a subject came from, as the user named it.

    Attributes:
        target: None for the embedded decoder.
        arguments: name=value pairs for the callable.
        map_file: says where a foreign decoder's weights lie.
        map_digest: SHA-256 of the map file; None where there is none.
    """

    target: str | None
    arguments: tuple[str, ...] = ()
    map_file: str | None = None
    map_digest: str | None = None


@dataclass(frozen=True)
class Violation:
    """One contract violated by one subject in one case: all that is needed to measure it again.

    Attributes:
        contract: its name.
        statement: what it says.
        measurement: the first that was a violation; None where the subject raised instead.
        raised: what the subject raised; empty where it did not.
        seed: of the verification, and of the weights that are drawn on the way to the subject.
        level: of the verification.
        probe_seed: of the case; another than ``seed`` where a fresh one was tried.
        n_rows: of the case.
        n_tokens: of a row, at most.
        exhaustive: whether the case takes every way where others take some.
        last_call: the token ids that the subject was called with last before, and what else it was given, in
            words; None where its layers were called alone.
        origin: where the subject came from.
        fingerprint: of its weights, see :func:`proof_lm.verify.fingerprint.fingerprint`.
        versions: of proof_lm and torch.
    """

    contract: str
    statement: str
    measurement: Measurement | None
    raised: str
    seed: int
    level: str
    probe_seed: int
    n_rows: int
    n_tokens: int
    exhaustive: bool
    last_call: Mapping[str, Any] | None
    origin: Origin
    fingerprint: str
    versions: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """In JSON's own types; a number that is not finite is ``"nan"``, ``"inf"`` or ``"-inf"``."""
        origin = self.origin
        return {
            "format": FORMAT,
            "version": VERSION,
            "contract": self.contract,
            "statement": self.statement,
            **measured_to_dict(self.measurement),
            "raised": self.raised,
            "seed": self.seed,
            "level": self.level,
            "probe_seed": self.probe_seed,
            "n_rows": self.n_rows,
            "n_tokens": self.n_tokens,
            "exhaustive": self.exhaustive,
            "last_call": self.last_call,
            "target": origin.target,
            "arguments": list(origin.arguments),
            "map": None
            if origin.map_file is None
            else {"file": origin.map_file, "sha256": origin.map_digest},
            "fingerprint": self.fingerprint,
            "environment": dict(self.versions),
        }


@dataclass(frozen=True)
class Replay:
    """What was measured when a violation was looked for again.

    Attributes:
        violation: what was looked for.
        result: what its contract gives now in that case.
        last_call: as of the violation.
        fingerprint: of the subject's weights now.
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


def read_violation(path: Path) -> Violation:
    """The violation in a file.

    Raises:
        ViolationError: there is no such file, it is damaged or of a newer version, or its contract is unknown.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ViolationError(f"{path} is no violation file: it is larger than {MAX_BYTES:,} bytes")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ViolationError(f"cannot read {path}: {error.strerror}") from error
    except (RecursionError, UnicodeError, json.JSONDecodeError) as error:
        raise ViolationError(f"{path} is no violation file: it is not JSON") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ViolationError(f"{path} is no violation file: it does not say format {FORMAT!r}")
    version = document.get("version")
    if version != VERSION:
        hint = ": a newer proof-lm reads it" if isinstance(version, int) and version > VERSION else ""
        raise ViolationError(
            f"{path} has version {version!r}, and this proof-lm reads version {VERSION}{hint}"
        )
    try:
        violation = _from_dict(document)
    except ViolationError as error:
        raise ViolationError(f"{path} is damaged: {error}") from error
    if violation.contract not in BY_NAME:
        raise ViolationError(
            f"{path}: no contract named {violation.contract!r}; there are {', '.join(BY_NAME)}"
        )
    return violation


def measured_to_dict(measurement: Measurement | None) -> dict[str, Any]:
    """The keys of a document that say what was measured; null where nothing was."""
    if measurement is None:
        return {"path": None, "quantity": None, "where": None, "measured": None, "bound": None}
    bound = measurement.bound
    return {
        "path": measurement.path,
        "quantity": measurement.quantity,
        "where": measurement.where,
        "measured": number(measurement.measured),
        "bound": None
        if bound is None
        else {
            "rounding": number(bound.rounding),
            "fault": number(bound.fault),
            "derivation": bound.derivation,
        },
    }


def versions() -> dict[str, str]:
    """Of proof_lm and torch."""
    return {"proof_lm": __version__, "torch": torch.__version__}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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


def _from_dict(document: Mapping[str, Any]) -> Violation:
    """What :meth:`Violation.to_dict` wrote.

    Raises:
        ViolationError: an entry is missing, or not what it must be.
    """
    weights_map = _take(document, "map", dict, optional=True)
    arguments = _take(document, "arguments", list)
    environment = _take(document, "environment", dict)
    measurement, raised = _to_measurement(document), _take(document, "raised", str)
    if not raised and (measurement is None or measurement.verdict is not Verdict.VIOLATED):
        raise ViolationError("what was measured is no violation")
    return Violation(
        contract=_take(document, "contract", str),
        statement=_take(document, "statement", str),
        measurement=measurement,
        raised=raised,
        seed=_whole(document, "seed", 0, MAX_SEED),
        level=_take(document, "level", str),
        probe_seed=_whole(document, "probe_seed", 0, MAX_SEED + 1),
        n_rows=_whole(document, "n_rows", 1, MAX_SIZE),
        n_tokens=_whole(document, "n_tokens", 1, MAX_SIZE),
        exhaustive=_take(document, "exhaustive", bool),
        last_call=_take(document, "last_call", dict, optional=True),
        origin=Origin(
            _take(document, "target", str, optional=True),
            tuple(str(argument) for argument in arguments),
            None if weights_map is None else _take(weights_map, "file", str),
            None if weights_map is None else _take(weights_map, "sha256", str),
        ),
        fingerprint=_take(document, "fingerprint", str),
        versions={str(name): str(version) for name, version in environment.items()},
    )


def _to_measurement(document: Mapping[str, Any]) -> Measurement | None:
    if document.get("measured", "") is None:
        return None
    found = _take(document, "bound", dict, optional=True)
    bound = None
    if found is not None:
        bound = Bound(_real(found, "rounding"), _real(found, "fault"), _take(found, "derivation", str))
    return Measurement(
        _take(document, "path", str),
        _take(document, "quantity", str),
        _real(document, "measured"),
        bound,
        _take(document, "where", str),
    )


def _take(document: Mapping[str, Any], key: str, kind: type, *, optional: bool = False) -> Any:
    value = document.get(key)
    if not (isinstance(value, kind) or (optional and key in document and value is None)):
        raise ViolationError(f"{key} must be {_KINDS[kind]}" + (" or null" if optional else ""))
    return value


_KINDS = {str: "a string", bool: "true or false", dict: "an object", list: "a list"}


def _whole(document: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ViolationError(f"{key} must be a whole number from {least} to {most}")
    return value


def _real(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if value in ("nan", "inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value)
    raise ViolationError(f'{key} must be a number, "nan", "inf" or "-inf"')
