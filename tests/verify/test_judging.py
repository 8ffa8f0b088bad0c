"""How the runs of a check become a verdict: several probes, residuals near a bound, the smallest case."""

from collections.abc import Iterator

import pytest

from proof_lm.verify import Contract, ProofSubject, Subject, Verdict, randomized
from proof_lm.verify.probe import Probe
from proof_lm.verify.verdict import Bound, Measurement
from sizes import SMALL

BOUND = Bound(1e-12, 1e-8, "stated")
NEAR, CLEAR, SOUND = 5e-8, 1.0, 1e-14


def _judge(residuals: dict[tuple[int, int], float]) -> tuple[Verdict, str, str]:
    """The verdict where a check measures, by (rows, seed), these residuals, and otherwise a sound one."""

    def check(subject: Subject, probe: Probe) -> Iterator[Measurement]:
        yield Measurement("explicit", "residual", residuals.get((probe.n_rows, probe.seed), SOUND), BOUND)

    subject = ProofSubject("subject", randomized(SMALL, 0))
    probes = Probe(subject, 0), Probe(subject, 0, n_rows=6, n_tokens=6)
    result = Contract("c", "s", frozenset(), check).judge(subject, *probes)
    return result.verdict, result.reason, "" if result.smallest is None else str(result.smallest)


def test_a_residual_near_a_bound_counts_only_if_a_fresh_seed_agrees() -> None:
    assert _judge({(3, 0): NEAR})[:2] == (
        Verdict.INCONCLUSIVE,
        "near a bound, and a fresh seed says otherwise",
    )
    assert _judge({(3, 0): NEAR, (3, 1): NEAR})[0] is Verdict.VIOLATED
    assert _judge({(3, 0): 1e-10, (3, 1): 1e-10})[0] is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("clear_rows", [3, 6])
def test_a_clear_violation_is_not_forgiven_for_one_near_a_bound(clear_rows: int) -> None:
    near_rows = 9 - clear_rows
    verdict, _, _ = _judge({(clear_rows, 0): CLEAR, (near_rows, 0): NEAR})
    assert verdict is Verdict.VIOLATED


def test_the_smallest_case_is_the_first_in_which_it_is_found_again() -> None:
    assert _judge({(3, 0): CLEAR, (2, 0): CLEAR})[2] == "2 rows of 2 tokens, explicit: residual = 1"
    assert _judge({(6, 0): CLEAR})[2] == ""
