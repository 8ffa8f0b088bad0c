"""A verification as a JSON object."""

import math
import platform
from typing import Any

import numpy
import torch

from proof_lm import __version__
from proof_lm.verify.verdict import ContractResult, Measurement, Verdict, Verification

SCHEMA_VERSION = 2


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
        "contracts": [_contract(result) for result in verification.results],
    }


def _contract(result: ContractResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "statement": result.statement,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
        "smallest": result.smallest,
        "measurements": [_measurement(measurement) for measurement in result.measurements],
    }


def _measurement(measurement: Measurement) -> dict[str, Any]:
    bound = measurement.bound
    return {
        "path": measurement.path,
        "quantity": measurement.quantity,
        "verdict": measurement.verdict.value,
        "measured": _number(measurement.measured),
        "must_be": "greater than 0" if bound is None else "at most the bound",
        "bound": None if bound is None else bound.rounding,
        "violated_from": None if bound is None else bound.fault,
        "derivation": None if bound is None else bound.derivation,
        "where": measurement.where,
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
