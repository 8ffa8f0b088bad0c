"""The sampling filters against distributions computed by hand, and the draws against the distribution."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from generate.stand_in import FixedLogits
from proof_lm.generate import generate, keep_top_k, keep_top_p, next_token_distribution
from tolerances import rounding

PROBABILITIES = np.array([0.5, 0.3, 0.15, 0.05])
ORDERS = list(itertools.permutations(range(4)))


def kept(logits: torch.Tensor) -> list[set[int]]:
    return [set(row.nonzero()[:, 0].tolist()) for row in logits > -math.inf]


def by_hand(logits: np.ndarray, temperature: float, k: int | None, p: float | None) -> np.ndarray:
    """One row's distribution: temperature, then the k largest, then the smallest set of the rest with mass p."""
    weights = np.exp((logits - logits.max()) / temperature)
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    chosen = order[:k] if k is not None else order
    if p is not None:
        total, mass = sum(weights[i] for i in chosen), 0.0
        for count, i in enumerate(chosen, start=1):
            mass += weights[i] / total
            if mass >= p:
                chosen = chosen[:count]
                break
    result = np.zeros_like(weights)
    result[chosen] = weights[chosen]
    return result / result.sum()


@pytest.mark.parametrize(
    ("p", "size"), [(0.01, 1), (0.4, 1), (0.6, 2), (0.8, 2), (0.81, 3), (0.95, 3), (1.0, 4)]
)
def test_the_nucleus_is_the_smallest_set_with_the_mass(p: float, size: int) -> None:
    """Excludes dropping the token that crosses p, keeping one more, and an order taken for granted."""
    for order in ORDERS:
        logits = torch.tensor(PROBABILITIES[list(order)], dtype=torch.float32).log()[None]
        assert kept(keep_top_p(logits, p)) == [{place for place, rank in enumerate(order) if rank < size}]


def test_the_nucleus_is_chosen_row_by_row() -> None:
    logits = torch.tensor(np.stack([PROBABILITIES, PROBABILITIES[::-1], np.full(4, 0.25)])).log()
    assert kept(keep_top_p(logits, 0.6)) == [{0, 1}, {2, 3}, {0, 1, 2}]


@pytest.mark.parametrize(
    ("k", "expected"),
    [(1, {1}), (2, {1, 3}), (3, {1, 3, 4}), (4, {0, 1, 3, 4}), (6, set(range(6))), (99, set(range(6)))],
)
def test_top_k_keeps_exactly_k_and_the_lower_ids_among_equals(k: int, expected: set[int]) -> None:
    """Excludes a threshold, which keeps all that are equal to the k-th, and k larger than the vocabulary."""
    logits = torch.tensor([[1.0, 5.0, 1.0, 3.0, 3.0, 1.0]])
    assert kept(keep_top_k(logits, k)) == [expected]
    survivors = keep_top_k(logits, k)
    assert torch.equal(survivors[survivors > -math.inf], logits[survivors > -math.inf])


@few
@given(
    seeds,
    st.floats(0.1, 5.0),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(0.01, 1.0),
)
def test_the_distribution_is_the_one_computed_by_hand(
    seed: int, temperature: float, k: int | None, p: float | None
) -> None:
    """Excludes temperature after the filters, top-p before top-k, and mass that is not renormalized between."""
    logits = 2.0 * np.random.default_rng(seed).standard_normal((5, 11))
    result = next_token_distribution(torch.tensor(logits), temperature=temperature, top_k=k, top_p=p)
    for row, expected in zip(
        result.numpy(), (by_hand(row, temperature, k, p) for row in logits), strict=True
    ):
        assert np.array_equal(row > 0, expected > 0)
        assert np.abs(row - expected).max() <= rounding(40, 1.0)


def test_the_order_of_the_filters_matters_for_the_hand_computed_case() -> None:
    """Of (.5, .3, .15, .05) top-k 2 leaves (.625, .375): p = .6 then keeps one, while p first would keep two."""
    logits = torch.tensor(PROBABILITIES).log()[None]
    result = next_token_distribution(logits, temperature=1.0, top_k=2, top_p=0.6)
    assert result.tolist() == [[1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("p", [None, 1e-6, 0.5, 1.0])
def test_the_most_probable_token_is_never_filtered_out(
    temperature: float, k: int | None, p: float | None
) -> None:
    """Excludes an empty support, from which nothing can be drawn; all logits are negative."""
    logits = torch.randn(50, 31) - 1000.0
    result = next_token_distribution(logits, temperature=temperature, top_k=k, top_p=p)
    assert (result.gather(1, logits.argmax(1, keepdim=True)) > 0).all()
    assert torch.allclose(result.sum(1), torch.ones(50))
    if k == 1:
        assert torch.equal(result.argmax(1), logits.argmax(1))
        assert torch.equal((result > 0).sum(1), torch.ones(50, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_become_float32_probabilities(dtype: torch.dtype) -> None:
    logits = torch.randn(2, 1000).to(dtype)
    result = next_token_distribution(logits, temperature=0.7, top_k=None, top_p=None)
    assert result.dtype == torch.float32
    assert torch.allclose(result, (logits.float() / 0.7).softmax(-1), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(
    ("temperature", "k", "p"), [(1.0, None, None), (0.5, None, None), (2.0, 3, None), (1.0, None, 0.9)]
)
def test_draws_follow_the_distribution(temperature: float, k: int | None, p: float | None) -> None:
    """Pearson's chi-square of 30,000 draws: mean df, variance 2 df, so 5 deviations above is out of reach."""
    n, logits = 30_000, np.log(PROBABILITIES)
    model = FixedLogits(torch.tensor(logits, dtype=torch.float32).expand(n, 4))
    prompt = torch.zeros(n, 1, dtype=torch.int64)
    drawn = generate(model, prompt, 1, temperature=temperature, top_k=k, top_p=p, seed=5)[:, 1]
    counts = np.bincount(drawn.numpy(), minlength=4)
    expected = n * by_hand(logits, temperature, k, p)
    assert (counts[expected == 0] == 0).all()
    support = expected > 0
    degrees = support.sum() - 1

    def chi_square(wanted: np.ndarray) -> float:
        return float(((counts[support] - wanted[support]) ** 2 / wanted[support]).sum())

    assert chi_square(expected) < degrees + 5.0 * math.sqrt(2.0 * degrees)
    if temperature != 1.0 or k or p:
        assert chi_square(n * PROBABILITIES) > 10 * degrees
