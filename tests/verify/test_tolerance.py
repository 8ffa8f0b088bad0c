"""Bounds follow their formula, and cover what rounding really does."""

import math

import numpy as np
import pytest

from proof_lm.verify.tolerance import rounding_bound


def test_the_bound_is_twice_ten_roots_of_the_chain_times_u_condition_and_magnitude() -> None:
    bound = rounding_bound(400, 3.0, condition=5.0, extra=1e-13)
    assert bound.rounding == pytest.approx(2 * 10 * 20 * 2**-53 * 15 + 1e-13, rel=1e-12)
    assert bound.fault == pytest.approx(3.0 * math.sqrt(2**-53), rel=1e-12)
    assert "sqrt(400)" in bound.derivation


def test_a_fault_is_never_smaller_than_the_rounding() -> None:
    bound = rounding_bound(100, 1.0, condition=1e12)
    assert bound.fault == bound.rounding


@pytest.mark.parametrize("length", [64, 4096])
def test_dot_products_in_two_orders_lie_within_the_bound_and_float32_does_not(length: int) -> None:
    generator = np.random.default_rng(3)
    left, right = generator.standard_normal((2, 50, length))
    forward = np.add.accumulate(left * right, axis=1)[:, -1]
    backward = np.add.accumulate((left * right)[:, ::-1], axis=1)[:, -1]
    magnitude = float(np.abs(left * right).sum(1).max())
    bound = rounding_bound(length, magnitude)
    assert np.abs(forward - backward).max() <= bound.rounding
    narrow = np.add.accumulate((left * right).astype(np.float32), axis=1)[:, -1]
    assert np.abs(narrow - backward).max() > bound.rounding
