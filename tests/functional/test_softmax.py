"""Softmax: its defining properties, PyTorch's as a peer, and rows where nothing is visible."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from proof_lm.functional import softmax
from tolerances import rounding

axes = st.sampled_from([-3, -2, -1, 0, 1, 2])


def draw(seed: int, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(5, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@few
@given(seeds, axes)
def test_weights_sum_to_one_along_the_axis_and_agree_with_torch(seed: int, dim: int) -> None:
    """Excludes a softmax over a fixed axis, or over all of them."""
    scores = draw(seed)
    weights = softmax(scores, dim=dim)
    assert (weights.sum(dim) - 1.0).abs().max() <= rounding(7, 1.0)
    assert (weights - torch.softmax(scores, dim)).abs().max() <= rounding(14, 1.0)
    other = softmax(scores, dim=(dim + 1) % 3)
    assert (weights - other).abs().max() > 0.1


@few
@given(seeds, axes, st.floats(-1e4, 1e4))
def test_a_shift_changes_nothing_and_never_overflows(seed: int, dim: int, shift: float) -> None:
    """Excludes exp() without the largest score taken off: exp(1e4) is inf."""
    scores = draw(seed)
    moved = softmax(scores + shift, dim=dim)
    # The sum of a score and the shift is rounded once, which errs by u * |shift| in the exponent.
    assert (moved - softmax(scores, dim=dim)).abs().max() <= rounding(14, 1.0 + abs(shift))


@few
@given(seeds)
def test_hidden_entries_weigh_nothing_whatever_is_stored_there(seed: int) -> None:
    """Excludes a large finite number instead of -inf, and a mask that arithmetic on NaN defeats."""
    scores = draw(seed)
    visible = torch.rand(5, 3, 7, generator=torch.Generator().manual_seed(seed)) < 0.6
    visible[..., 2] = True
    poisoned = scores.masked_fill(~visible, math.nan)
    weights = softmax(poisoned, visible=visible)
    assert torch.equal(weights == 0.0, ~visible)
    expected = torch.softmax(scores.masked_fill(~visible, -math.inf), -1)
    assert (weights - expected).abs().max() <= rounding(14, 1.0)


def test_scores_far_below_every_finite_stand_in_stay_the_only_visible_ones() -> None:
    """Excludes masking by -1e9 or finfo.min: a visible score of -1e30 must beat every hidden one."""
    scores = torch.tensor([[-1e30, 5.0]], dtype=torch.float64)
    weights = softmax(scores, visible=torch.tensor([[True, False]]))
    assert weights.tolist() == [[1.0, 0.0]]
    finite_stand_in = scores.masked_fill(torch.tensor([[False, True]]), -1e9).softmax(-1)
    assert finite_stand_in.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_a_row_without_a_visible_entry_is_zero_with_zero_gradient(dim: int) -> None:
    """Excludes 0 / 0, forward and backward."""
    scores = draw(1).requires_grad_()
    visible = torch.ones(5, 3, 7, dtype=torch.bool)
    visible.select(2 if dim == 0 else 0, 1).fill_(False)
    weights = softmax(scores, dim=dim, visible=visible)
    assert torch.equal(weights[~visible], torch.zeros(int((~visible).sum()), dtype=torch.float64))
    (weights * draw(2)).sum().backward()
    assert torch.equal(scores.grad[~visible], torch.zeros(int((~visible).sum()), dtype=torch.float64))
    assert scores.grad[visible].abs().min() > 0.0
    assert torch.softmax(scores.detach().masked_fill(~visible, -math.inf), dim).isnan().any()


def test_minus_infinity_alone_is_an_empty_row_too() -> None:
    """Excludes NaN where the caller has masked the scores already."""
    scores = torch.full((2, 3), -math.inf, dtype=torch.float64)
    assert torch.equal(softmax(scores), torch.zeros(2, 3, dtype=torch.float64))


@few
@given(seeds, axes)
def test_the_gradient_is_torchs(seed: int, dim: int) -> None:
    """Excludes a gradient cut at the sum, or one that runs through the maximum."""
    ours, theirs, upstream = draw(seed).requires_grad_(), draw(seed).requires_grad_(), draw(seed + 1)
    (softmax(ours, dim=dim) * upstream).sum().backward()
    (torch.softmax(theirs, dim) * upstream).sum().backward()
    assert (ours.grad - theirs.grad).abs().max() <= rounding(30, float(upstream.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_float32(dtype: torch.dtype) -> None:
    """Excludes a sum in half precision: 1000 equal weights are each right to one rounding."""
    scores = torch.zeros(1, 1000, dtype=dtype)
    assert torch.equal(softmax(scores), torch.full((1, 1000), 1e-3, dtype=dtype))
