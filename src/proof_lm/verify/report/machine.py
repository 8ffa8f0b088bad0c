"""A verification as a JSON object, and back, and the schema of that object."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy
import torch

from proof_lm import __version__
from proof_lm.verify.verdict import (
    AttentionMap,
    Bound,
    Case,
    ContractResult,
    Influence,
    Matrix,
    Measurement,
    Verdict,
    Verification,
)

SCHEMA_VERSION = 4


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of what :func:`to_dict` writes."""
    file = resources.files("proof_lm.verify.report").joinpath("verification.schema.json")
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def to_dict(verification: Verification) -> dict[str, Any]:
    """Everything that was measured, in JSON's own types.

    A number that is not finite is written as ``"nan"``, ``"inf"`` or ``"-inf"``, since JSON has none.
    """
    return {
        "format": "proof-lm/verification",
        "version": SCHEMA_VERSION,
        "target": verification.target,
        "seed": verification.seed,
        "level": verification.level,
        "diagnosis": verification.diagnosis,
        "exit_status": verification.exit_status,
        "counts": {verdict.value: verification.count(verdict) for verdict in Verdict},
        "undecided": list(verification.undecided),
        "environment": environment(),
        "contracts": [result_to_dict(result) for result in verification.results],
        "influences": [influence_to_dict(influence) for influence in verification.influences],
    }


def environment() -> dict[str, str]:
    """What computes here."""
    return {
        "proof_lm": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": platform.machine(),
    }


def from_dict(document: Mapping[str, Any]) -> Verification:
    """What :func:`to_dict` wrote.

    Raises:
        KeyError, TypeError or ValueError: it is no such document.
    """
    if document["format"] != "proof-lm/verification" or document["version"] != SCHEMA_VERSION:
        raise ValueError(f"not a verification of version {SCHEMA_VERSION}")
    results = [result_from_dict(contract) for contract in document["contracts"]]
    planned = (*(result.name for result in results), *document["undecided"])
    return Verification(
        document["target"],
        document["seed"],
        planned,
        results,
        document["level"],
        document["diagnosis"],
        tuple(influence_from_dict(influence) for influence in document["influences"]),
    )


def result_to_dict(result: ContractResult) -> dict[str, Any]:
    """One contract's part of the document."""
    case = result.smallest
    return {
        "name": result.name,
        "statement": result.statement,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
        "smallest": None
        if case is None
        else {
            "seed": case.seed,
            "n_rows": case.n_rows,
            "n_tokens": case.n_tokens,
            "measurement": _measurement(case.measurement),
        },
        "measurements": [_measurement(measurement) for measurement in result.measurements],
    }


def result_from_dict(contract: Mapping[str, Any]) -> ContractResult:
    """What :func:`result_to_dict` wrote."""
    case = contract["smallest"]
    smallest = None
    if case is not None:
        found = _to_measurement(case["measurement"])
        smallest = Case(case["seed"], case["n_rows"], case["n_tokens"], found)
    return ContractResult(
        contract["name"],
        contract["statement"],
        Verdict(contract["verdict"]),
        tuple(_to_measurement(measurement) for measurement in contract["measurements"]),
        contract["reason"],
        contract["seconds"],
        smallest,
    )


def influence_to_dict(influence: Influence) -> dict[str, Any]:
    """One path's influence; ``[k][t]`` and ``[t][s]`` as in :class:`Influence`."""
    return {
        "path": influence.path,
        "tokens": list(influence.tokens),
        "by_intervention": _rows(influence.by_intervention),
        "by_gradient": _rows(influence.by_gradient),
        "attention": [
            {"layer": each.layer, "heads": [_rows(head) for head in each.heads]}
            for each in influence.attention
        ],
        "absent": dict(influence.absent),
    }


def influence_from_dict(influence: Mapping[str, Any]) -> Influence:
    """What :func:`influence_to_dict` wrote."""
    return Influence(
        influence["path"],
        tuple(influence["tokens"]),
        _to_matrix(influence["by_intervention"]),
        _to_matrix(influence["by_gradient"]),
        tuple(
            AttentionMap(each["layer"], tuple(_to_matrix(head) for head in each["heads"]))
            for each in influence["attention"]
        ),
        dict(influence["absent"]),
    )


def _rows(matrix: Matrix) -> list[list[float | str]]:
    return [[number(value) for value in row] for row in matrix]


def _to_matrix(rows: Sequence[Sequence[float | str]]) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in rows)


def _measurement(measurement: Measurement) -> dict[str, Any]:
    bound = measurement.bound
    return {
        "path": measurement.path,
        "quantity": measurement.quantity,
        "verdict": measurement.verdict.value,
        "measured": number(measurement.measured),
        "must_be": "greater than 0" if bound is None else "at most the bound",
        "bound": None if bound is None else number(bound.rounding),
        "violated_from": None if bound is None else number(bound.fault),
        "derivation": None if bound is None else bound.derivation,
        "where": measurement.where,
    }


def _to_measurement(written: Mapping[str, Any]) -> Measurement:
    bound = None
    if written["bound"] is not None:
        derivation = take(written, "derivation", str)
        bound = Bound(real(written, "bound"), real(written, "violated_from"), derivation)
    return measurement_from_dict(written, bound)


def measurement_from_dict(written: Mapping[str, Any], bound: Bound | None) -> Measurement:
    """A measurement beside its bound, which each kind of document writes in its own way.

    Raises:
        ValueError: an entry is missing, or not what it must be.
    """
    return Measurement(
        take(written, "path", str),
        take(written, "quantity", str),
        real(written, "measured"),
        bound,
        take(written, "where", str),
    )


def number(value: float) -> float | str:
    """A number as JSON can hold it."""
    return value if math.isfinite(value) else str(value)


def real(written: Mapping[str, Any], key: str) -> float:
    """The number that :func:`number` wrote.

    Raises:
        ValueError: it is missing, or none, or a whole number that no float holds.
    """
    value: Any = written.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and value not in ("nan", "inf", "-inf"):
        raise ValueError(f'{key} must be a number, "nan", "inf" or "-inf"')
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{key} is too large a number") from error


_KINDS = {str: "a string", bool: "true or false", dict: "an object", list: "a list"}


def take(written: Mapping[str, Any], key: str, kind: type, *, optional: bool = False) -> Any:
    """The entry of that kind; None where it may be null, and is.

    Raises:
        ValueError: it is missing, or of another kind.
    """
    value = written.get(key)
    if not (isinstance(value, kind) or (optional and key in written and value is None)):
        raise ValueError(f"{key} must be {_KINDS[kind]}" + (" or null" if optional else ""))
    return value
