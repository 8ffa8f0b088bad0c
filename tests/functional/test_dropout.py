"""Inverted dropout."""

import pytest
import torch

from proof_lm.functional import dropout
from tolerances import STANDARD_ERRORS


def test_probability_zero_returns_the_input_and_draws_nothing() -> None:
    """Excludes an evaluation that moves the random state, which would part resumed runs."""
    inputs, state = torch.randn(5, 7), torch.get_rng_state()
    assert dropout(inputs, 0.0) is inputs
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.75])
def test_survivors_are_scaled_and_counted(probability: float) -> None:
    """Excludes a missing 1 / (1 - p), and p read as the probability to keep."""
    n = 100_000
    outputs = dropout(torch.ones(n, dtype=torch.float64), probability)
    kept = outputs != 0.0
    assert outputs[kept].unique().tolist() == pytest.approx([1.0 / (1.0 - probability)], rel=1e-15)
    error = (probability * (1.0 - probability) / n) ** 0.5
    assert abs(kept.double().mean() - (1.0 - probability)) <= STANDARD_ERRORS * error


def test_the_gradient_goes_where_the_value_went() -> None:
    inputs = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    outputs = dropout(inputs, 0.3)
    outputs.sum().backward()
    assert torch.equal(inputs.grad, outputs.detach())
