"""A violation as a small file: what was found of which target in which case."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from proof_lm import __version__
from proof_lm.errors import ProofLMError
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.report.machine import measurement_from_dict, number, real, take
from proof_lm.verify.verdict import Bound, Measurement, Verdict

FORMAT, VERSION = "proof-lm/violation", 1
MAX_BYTES = 1_000_000  # of a file; those that are written have some thousand
MAX_SIZE = 4096  # rows, or tokens of a row, that a file may ask for
MAX_SEED = 2**63 - 1  # what PyTorch's generators take
BY_NAME = {contract.name: contract for contract in CONTRACTS}


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

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Violation:
        """What :meth:`to_dict` wrote.

        Raises:
            ValueError: an entry is missing, or not what it must be.
        """
        weights_map = take(document, "map", dict, optional=True)
        arguments = take(document, "arguments", list)
        environment = take(document, "environment", dict)
        measurement, raised = _to_measurement(document), take(document, "raised", str)
        if not raised and (measurement is None or measurement.verdict is not Verdict.VIOLATED):
            raise ValueError("what was measured is no violation")
        return cls(
            contract=take(document, "contract", str),
            statement=take(document, "statement", str),
            measurement=measurement,
            raised=raised,
            seed=_whole(document, "seed", 0, MAX_SEED),
            level=take(document, "level", str),
            probe_seed=_whole(document, "probe_seed", 0, MAX_SEED + 1),
            n_rows=_whole(document, "n_rows", 1, MAX_SIZE),
            n_tokens=_whole(document, "n_tokens", 1, MAX_SIZE),
            exhaustive=take(document, "exhaustive", bool),
            last_call=_to_call(document),
            origin=Origin(
                take(document, "target", str, optional=True),
                tuple(str(argument) for argument in arguments),
                None if weights_map is None else take(weights_map, "file", str),
                None if weights_map is None else take(weights_map, "sha256", str),
            ),
            fingerprint=take(document, "fingerprint", str),
            versions={str(name): str(version) for name, version in environment.items()},
        )


def read_violation(path: Path) -> Violation:
    """The violation in a file.

    Raises:
        ViolationError: there is no such file, it is damaged or of a newer version, or its contract is unknown.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ViolationError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ViolationError(f"{path} is no violation file: it is larger than {MAX_BYTES:,} bytes")
    try:
        document = json.loads(content.decode("utf-8"))
    except (RecursionError, ValueError) as error:
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
        violation = Violation.from_dict(document)
    except ValueError as error:
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


def _to_measurement(document: Mapping[str, Any]) -> Measurement | None:
    if document.get("measured", "") is None:
        return None
    found = take(document, "bound", dict, optional=True)
    bound = None
    if found is not None:
        bound = Bound(real(found, "rounding"), real(found, "fault"), take(found, "derivation", str))
    return measurement_from_dict(document, bound)


def _to_call(document: Mapping[str, Any]) -> dict[str, Any] | None:
    call = take(document, "last_call", dict, optional=True)
    if call is None:
        return None
    shape, rows, given = take(call, "shape", list), take(call, "token_ids", list), take(call, "given", dict)
    if not all(isinstance(row, list) for row in rows):
        raise ValueError("token_ids must be a list of rows")
    if not all(isinstance(number, int) for numbers in (shape, *rows) for number in numbers):
        raise ValueError("shape and token_ids must be whole numbers")
    return {
        "shape": shape,
        "token_ids": rows,
        "given": {str(name): take(given, name, str) for name in given},
    }


def _whole(document: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{key} must be a whole number from {least} to {most}")
    return value
