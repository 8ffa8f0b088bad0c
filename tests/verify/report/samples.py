"""Verifications to report, with text that means mischief wherever a subject's own text can stand."""

import math

from proof_lm.verify.verdict import (
    EXACT,
    AttentionMap,
    Bound,
    Case,
    ContractResult,
    Influence,
    Measurement,
    Verdict,
    Verification,
)

SCRIPT = "<script>alert('x')</script>"
TARGET = f"a [bold] `name` | {SCRIPT} \x1b[31m\u202e"
WHERE = f"row 1: token 3 moves position 2 {SCRIPT}"
REASON = f"nothing [is] *rotated* | {SCRIPT}\x00 & https://example.org @all"

BOUND = Bound(rounding=1e-12, fault=1e-7, derivation=f"derived [somehow] {SCRIPT}")
LEAK = Measurement("explicit", "max |change|", 0.5, EXACT, WHERE)
NAN = Measurement("fused", "max |change|", math.nan, BOUND)
NO_REACH = Measurement("fused", "min |change|", 0.0, None)
SMALL = Measurement("explicit", "max |difference|", 1e-15, BOUND)
BETWEEN = Measurement("-", "max |difference|", 1e-9, BOUND)


def holding(name: str) -> ContractResult:
    return ContractResult(name, "Equal.", Verdict.HOLDS, (SMALL,), "", 1.0)


def mixed() -> Verification:
    """One contract of each verdict, and one that was not decided."""
    results = [
        holding("oracle-logits"),
        ContractResult(
            "causality",
            "No token moves an earlier one.",
            Verdict.VIOLATED,
            (LEAK, NAN, NO_REACH, LEAK),
            seconds=0.25,
            smallest=Case(0, 1, 3, LEAK),
        ),
        ContractResult("prefix", "A beginning stays.", Verdict.INCONCLUSIVE, (BETWEEN,)),
        ContractResult("rope", "Turns.", Verdict.NOT_APPLICABLE, reason=REASON),
    ]
    planned = (*(result.name for result in results), "padding")
    return Verification(
        TARGET, 0, planned, results, diagnosis=f"behaves as {SCRIPT}", influences=(leaking(),)
    )


def sound() -> Verification:
    """Everything that applies holds."""
    results = [holding("oracle-logits"), holding("causality")]
    results.append(ContractResult("window", "Ends.", Verdict.NOT_APPLICABLE, reason="no window is declared"))
    return Verification("sound", 3, tuple(result.name for result in results), results)


def leaking() -> Influence:
    """Three tokens: token 2 moves position 0, and token 0 does not reach position 1."""
    moved = ((0.5, 0.0, 0.25), (0.0, 1.0, 1e-3), (0.125, 0.0, 2.0))
    weights = ((0.75, 0.0, 0.25), (0.5, 0.5, 0.0), (0.1, 0.2, 0.7))
    gradients = ((1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, math.inf))
    return Influence(
        "explicit", (4, 9, 7), moved, gradients, (AttentionMap(1, (weights,)),), {"gradients": SCRIPT}
    )
