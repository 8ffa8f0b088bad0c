"""A verification as a JSON object, and back."""

import math
import platform
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from proof_lm import __version__
from proof_lm.verify.verdict import Bound, Case, ContractResult, Measurement, Verdict, Verification

SCHEMA_VERSION = 3


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
        "environment": {
            "proof_lm": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "machine": platform.machine(),
        },
        "contracts": [result_to_dict(result) for result in verification.results],
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
        document["target"], document["seed"], planned, results, document["level"], document["diagnosis"]
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


def _measurement(measurement: Measurement) -> dict[str, Any]:
    bound = measurement.bound
    return {
        "path": measurement.path,
        "quantity": measurement.quantity,
        "verdict": measurement.verdict.value,
        "measured": _number(measurement.measured),
        "must_be": "greater than 0" if bound is None else "at most the bound",
        "bound": None if bound is None else _number(bound.rounding),
        "violated_from": None if bound is None else _number(bound.fault),
        "derivation": None if bound is None else bound.derivation,
        "where": measurement.where,
    }


def _to_measurement(measurement: Mapping[str, Any]) -> Measurement:
    bound = None
    if measurement["bound"] is not None:
        rounding, fault = float(measurement["bound"]), float(measurement["violated_from"])
        bound = Bound(rounding, fault, measurement["derivation"])
    return Measurement(
        measurement["path"],
        measurement["quantity"],
        float(measurement["measured"]),
        bound,
        measurement["where"],
    )


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
