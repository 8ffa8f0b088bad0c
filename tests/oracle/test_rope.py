"""RoPE against written-out angles, complex multiplication and rotate_half."""

import math

import numpy as np
import pytest
import torch

from oracle.cases import BASE
from oracle.torch_peer import peer_rotate
from proof_lm.errors import InputError
from proof_lm.oracle import rope_angles, rotate_backward, rotate_forward


def test_angles_written_out() -> None:
    expected = [[0.0, 0.0], [1.0, 0.01], [5.0, 0.05]]  # 10000^(-2i/4) is 1, then 1/100
    np.testing.assert_allclose(rope_angles([0, 1, 5], 4, 10000.0), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [("interleaved", [-2.0, 1.0, 3.0, 4.0]), ("half", [-3.0, 2.0, 1.0, 4.0])],
)
def test_a_quarter_turn_of_the_first_pair(layout: str, expected: list[float]) -> None:
    rotated = rotate_forward([[1.0, 2.0, 3.0, 4.0]], [[math.pi / 2, 0.0]], layout)
    np.testing.assert_allclose(rotated, [expected], atol=1e-15)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rotation_and_gradient_agree_with_torch(layout: str) -> None:
    rng = np.random.default_rng(0)
    config = BASE.with_(rope_layout=layout, head_dim=6, rope_theta=50.0)
    vectors, grad = rng.standard_normal((2, 5, 6)), rng.standard_normal((2, 5, 6))
    positions = np.array([[0, 1, 2, 3, 4], [9, 0, 4, 4, 700]])
    t = torch.tensor(vectors, requires_grad=True)
    expected = peer_rotate(t[:, None], torch.tensor(positions), config)[:, 0]
    expected.backward(torch.tensor(grad))
    angles = rope_angles(positions, 6, 50.0)
    # Angles up to 700 carry a rounding of 700 * 2.2e-16 into sine and cosine.
    np.testing.assert_allclose(rotate_forward(vectors, angles, layout), expected.detach(), atol=1e-12)
    np.testing.assert_allclose(rotate_backward(grad, angles, layout), t.grad, atol=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_scores_depend_on_the_distance_only(layout: str) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 1, 8))

    def score(at_query: int, at_key: int) -> float:
        q = rotate_forward(query, rope_angles([at_query], 8, 10000.0), layout)
        k = rotate_forward(key, rope_angles([at_key], 8, 10000.0), layout)
        return float((q * k).sum())

    assert score(7, 3) == pytest.approx(score(107, 103), abs=1e-12)
    assert abs(score(7, 3) - score(7, 4)) > 1e-2


def test_refusals() -> None:
    with pytest.raises(InputError, match="head_width must be even to rotate pairs, got 5"):
        rope_angles([0], 5, 10000.0)
    with pytest.raises(InputError, match="layout must be 'interleaved' or 'half', got 'neox'"):
        rotate_forward(np.zeros((1, 4)), np.zeros((1, 2)), "neox")
    with pytest.raises(InputError, match=r"angles must have shape \(\.\.\., 3, 2\), got \(3, 4\)"):
        rotate_forward(np.zeros((3, 4)), np.zeros((3, 4)), "half")
    with pytest.raises(InputError, match="position_ids must hold integers, got dtype float64"):
        rope_angles([0.5], 4, 10000.0)
