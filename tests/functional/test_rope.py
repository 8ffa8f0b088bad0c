"""Rotary positions: the oracle's rotation, lengths kept, relative offsets, and angles in half precision."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from proof_lm.functional import rope_rotation, rotate
from proof_lm.oracle import rope_angles, rotate_backward, rotate_forward
from tolerances import UNIT_ROUNDOFF, rounding

layouts = st.sampled_from(["interleaved", "half"])
widths = st.sampled_from([2, 6, 10])
positions = st.integers(0, 2000)


def turn(vectors: torch.Tensor, position_ids: torch.Tensor, layout: str, theta: float = 50.0) -> torch.Tensor:
    rotation = rope_rotation(position_ids, vectors.shape[-1], theta, layout, vectors.dtype)
    return rotate(vectors, rotation)


def draw(seed: int, *size: int) -> torch.Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def angle_error(position: float) -> float:
    """An angle is a product with a power, 4 roundings; cosine and sine err by as much, times |vector| below 10."""
    return rounding(4, 10.0 * (1.0 + position))


@few
@given(seeds, layouts, widths, st.sampled_from([50.0, 10000.0]))
def test_rotation_and_its_gradient_are_the_oracles(seed: int, layout: str, width: int, theta: float) -> None:
    """Excludes the other layout, a sign, a frequency off by one pair, one row's positions for all rows."""
    vectors = draw(seed, 5, 3, 7, width).requires_grad_()
    position_ids = torch.randint(0, 2000, (5, 7), generator=torch.Generator().manual_seed(seed))
    upstream = draw(seed + 1, 5, 3, 7, width)
    turned = turn(vectors, position_ids, layout, theta)
    (turned * upstream).sum().backward()
    angles = rope_angles(position_ids.numpy(), width, theta)
    for head in range(3):
        expected = rotate_forward(vectors.detach()[:, head].numpy(), angles, layout)
        gradient = rotate_backward(upstream[:, head].numpy(), angles, layout)
        assert np.abs(turned.detach()[:, head].numpy() - expected).max() <= angle_error(2000)
        assert np.abs(vectors.grad[:, head].numpy() - gradient).max() <= angle_error(2000)


@few
@given(seeds, layouts, widths, positions)
def test_lengths_are_kept(seed: int, layout: str, width: int, position: int) -> None:
    """Excludes a cosine and a sine of different angles, and pairs that overlap."""
    vectors = draw(seed, 1, 3, 1, width)
    turned = turn(vectors, torch.tensor([[position]]), layout)
    assert (turned.norm(dim=-1) - vectors.norm(dim=-1)).abs().max() <= rounding(width + 6, 10.0)
    if position:
        assert (turned - vectors).abs().max() > 1e-3


@few
@given(seeds, layouts, widths, positions, positions, st.integers(1, 2000))
def test_scores_depend_on_the_offset_alone(
    seed: int, layout: str, width: int, query_at: int, key_at: int, shift: int
) -> None:
    """Excludes absolute positions, and rotation of only one of queries and keys."""
    query, key = draw(seed, 1, 1, 1, width), draw(seed + 1, 1, 1, 1, width)

    def score(at_query: int, at_key: int) -> float:
        turned = (turn(x, torch.tensor([[p]]), layout) for x, p in ((query, at_query), (key, at_key)))
        return float((next(turned) * next(turned)).sum())

    bound = width * angle_error(4000)
    assert abs(score(query_at, key_at) - score(query_at + shift, key_at + shift)) <= bound
    assert any(abs(score(query_at, key_at) - score(query_at + step, key_at)) > bound for step in (1, 2, 3))


@few
@given(seeds, st.sampled_from([4, 6, 10]))
def test_the_layouts_differ_by_a_fixed_permutation(seed: int, width: int) -> None:
    """Excludes a 'half' that is 'interleaved' under another name, and one with other frequencies."""
    vectors, position_ids = draw(seed, 5, 3, 7, width), torch.arange(7).expand(5, 7)
    to_half = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    interleaved = turn(vectors, position_ids, "interleaved")
    half = turn(vectors[..., to_half], position_ids, "half")
    assert torch.equal(half, interleaved[..., to_half])
    assert (turn(vectors, position_ids, "half") - interleaved).abs().max() > 0.1


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_position_zero_is_the_identity(layout: str) -> None:
    vectors = draw(1, 5, 3, 1, 6)
    assert torch.equal(turn(vectors, torch.zeros(5, 1, dtype=torch.int64), layout), vectors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_angles_at_position_8001_are_right_to_float32(dtype: torch.dtype) -> None:
    """Excludes positions or frequencies in bfloat16, where 8001 is 8000, an angle wrong by 1 radian."""
    position_ids = torch.arange(7990, 8002)[None]
    rotation = rope_rotation(position_ids, 64, 10000.0, "half", dtype)
    exact = rope_angles(position_ids.numpy(), 64, 10000.0)
    # theta ** x errs by the rounding of x times ln(theta) = 9.2, then by itself, then the product: 12 u |angle|.
    bound = 12 * UNIT_ROUNDOFF[torch.float32] * np.abs(exact) + 2 * UNIT_ROUNDOFF[torch.float32]
    assert (np.abs(rotation.cos[:, 0].double().numpy() - np.cos(exact)) <= bound).all()
    assert (np.abs(rotation.sin[:, 0].double().numpy() - np.sin(exact)) <= bound).all()
    narrow = torch.from_numpy(exact).to(torch.bfloat16).double().cos().numpy()
    assert (np.abs(narrow - np.cos(exact)) > bound).any()


def test_float64_models_get_float64_angles() -> None:
    """Excludes angles in float32 for everyone: their error at 8001 is far above float64's."""
    position_ids = torch.tensor([[8001]])
    exact = np.cos(rope_angles(position_ids.numpy(), 64, 10000.0))
    wide = rope_rotation(position_ids, 64, 10000.0, "half", torch.float64).cos[:, 0].numpy()
    narrow = rope_rotation(position_ids, 64, 10000.0, "half", torch.float32).cos[:, 0].double().numpy()
    bound = 12 * UNIT_ROUNDOFF[torch.float64] * 8001
    assert np.abs(wide - exact).max() <= bound < np.abs(narrow - exact).max()


def test_rotated_vectors_keep_their_dtype() -> None:
    vectors = draw(1, 5, 3, 7, 6).to(torch.bfloat16)
    assert turn(vectors, torch.arange(7).expand(5, 7), "half").dtype == torch.bfloat16
