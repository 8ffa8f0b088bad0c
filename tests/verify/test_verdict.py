"""How measurements become verdicts, and verdicts an exit status."""

import math

import pytest

from proof_lm.verify.verdict import (
    EXACT,
    Bound,
    ContractResult,
    Largest,
    Measurement,
    Smallest,
    Verdict,
    Verification,
    worst_verdict,
)

BOUND = Bound(rounding=1e-12, fault=1e-7, derivation="given")


@pytest.mark.parametrize(
    ("measured", "bound", "verdict"),
    [
        (0.0, BOUND, Verdict.HOLDS),
        (1e-12, BOUND, Verdict.HOLDS),
        (2e-12, BOUND, Verdict.INCONCLUSIVE),
        (1e-7, BOUND, Verdict.VIOLATED),
        (math.inf, BOUND, Verdict.VIOLATED),
        (math.nan, BOUND, Verdict.VIOLATED),
        (0.0, EXACT, Verdict.HOLDS),
        (5e-324, EXACT, Verdict.VIOLATED),
        (math.nan, EXACT, Verdict.VIOLATED),
        (5e-324, None, Verdict.HOLDS),
        (0.0, None, Verdict.VIOLATED),
        (math.nan, None, Verdict.VIOLATED),
    ],
)
def test_a_residual_must_not_exceed_its_bound_and_a_reach_must_exceed_zero(
    measured: float, bound: Bound | None, verdict: Verdict
) -> None:
    assert Measurement("explicit", "something", measured, bound).verdict is verdict


def test_the_worst_measurement_decides_and_none_decides_nothing() -> None:
    holds, unsure, violated = (Measurement("p", "q", x, BOUND) for x in (0.0, 1e-9, 1.0))
    assert worst_verdict((holds, holds)) is Verdict.HOLDS
    assert worst_verdict((holds, unsure)) is Verdict.INCONCLUSIVE
    assert worst_verdict((violated, unsure, holds)) is Verdict.VIOLATED
    assert worst_verdict(()) is Verdict.INCONCLUSIVE


def test_extremes_keep_a_nan_whatever_follows() -> None:
    largest, smallest = Largest(), Smallest()
    for value, where in ((1.0, "a"), (math.nan, "b"), (1e-15, "c"), (7.0, "d"), (-1.0, "e")):
        largest.see(value, where)
        smallest.see(value, where)
    assert math.isnan(largest.value)
    assert math.isnan(smallest.value)
    assert largest.where == smallest.where == "b"


def test_extremes_find_the_largest_and_the_smallest_and_where() -> None:
    largest, smallest = Largest(), Smallest()
    for value, where in ((1.0, "a"), (3.0, "b"), (0.5, "c"), (2.0, "d")):
        largest.see(value, where)
        smallest.see(value, where)
    assert (largest.value, largest.where, smallest.value, smallest.where) == (3.0, "b", 0.5, "c")


def test_the_worst_is_the_one_furthest_over_its_bound_and_nan_is_further_than_any() -> None:
    near = Measurement("p", "near", 9e-13, BOUND)
    far = Measurement("p", "far", 1.0, BOUND)
    nan = Measurement("p", "nan", math.nan, BOUND)
    assert _result(near, far).worst is far
    assert _result(nan, far).worst is nan
    assert _result().worst is None


@pytest.mark.parametrize(
    ("verdicts", "planned", "status"),
    [
        ([Verdict.HOLDS, Verdict.HOLDS], 2, 0),
        ([Verdict.HOLDS, Verdict.NOT_APPLICABLE], 2, 0),
        ([Verdict.NOT_APPLICABLE], 1, 3),
        ([Verdict.HOLDS, Verdict.INCONCLUSIVE], 2, 3),
        ([Verdict.HOLDS], 2, 3),
        ([Verdict.INCONCLUSIVE, Verdict.VIOLATED], 2, 1),
    ],
)
def test_exit_status_counts_nothing_undecided_as_holding(
    verdicts: list[Verdict], planned: int, status: int
) -> None:
    results = [ContractResult(f"c{i}", "", verdict) for i, verdict in enumerate(verdicts)]
    run = Verification("t", 0, tuple(f"c{i}" for i in range(planned)), results)
    assert run.exit_status == status
    assert run.undecided == tuple(f"c{i}" for i in range(len(verdicts), planned))


def _result(*measurements: Measurement) -> ContractResult:
    return ContractResult("c", "s", worst_verdict(measurements), measurements)
