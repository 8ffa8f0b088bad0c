"""Central differences on functions whose derivatives are known."""

import numpy as np
import pytest

from proof_lm.errors import InputError
from proof_lm.oracle import central_difference


def test_a_cubic_at_chosen_entries() -> None:
    x = np.array([[0.5, -2.0, 3.0], [40.0, 0.0, 1.0]])
    measured = central_difference(lambda a: float((a**3).sum()), x, [(0, 1), (1, 0), (1, 1)])
    # f is 6.4e4 for the 40 in it: rounding eps f / h = 2e-6 at h = 6e-6, and h = 2.4e-4 at 40 leaves h^2.
    np.testing.assert_allclose(measured, [12.0, 4800.0, 0.0], rtol=1e-9, atol=1e-5)


def test_order_two_in_the_step() -> None:
    x = np.array([0.7])
    errors = [
        abs(central_difference(lambda a: float(np.sin(a[0])), x, [(0,)], step)[0] - np.cos(0.7))
        for step in (1e-2, 5e-3)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=1e-3)


def test_the_default_step_is_near_the_best() -> None:
    x = np.array([0.7])

    def error(step: float | None) -> float:
        return abs(central_difference(lambda a: float(np.exp(a[0])), x, [(0,)], step)[0] - np.exp(0.7))

    assert error(None) < 1e-9
    assert error(1e-2) > 1e-5
    assert error(1e-12) > 1e-6


def test_the_array_is_changed_in_place_and_put_back() -> None:
    x = np.array([1.0, 2.0])
    seen = []
    central_difference(lambda a: seen.append((a is x, a.copy())) or 0.0, x, [(1,)], 0.25)
    assert [same for same, _ in seen] == [True, True]
    assert [list(a) for _, a in seen] == [[1.0, 2.25], [1.0, 1.75]]
    assert list(x) == [1.0, 2.0]

    def fails(_: np.ndarray) -> float:
        raise RuntimeError("no value")

    with pytest.raises(RuntimeError, match="no value"):
        central_difference(fails, x, [(0,)])
    assert list(x) == [1.0, 2.0]


def test_refusals() -> None:
    with pytest.raises(InputError, match="array must be float64, got float32"):
        central_difference(lambda a: 0.0, np.zeros(2, dtype=np.float32), [(0,)])
    with pytest.raises(InputError, match="step must be positive, got 0"):
        central_difference(lambda a: 0.0, np.zeros(2), [(0,)], 0.0)
