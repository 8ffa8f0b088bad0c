"""The loss against torch.nn.functional.cross_entropy, and what stands where nothing counts."""

import math

import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.functional import cross_entropy
from tolerances import UNIT_ROUNDOFF, rounding

ROWS, VOCAB = (5, 7), 31


def draw() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = 3.0 * torch.randn(*ROWS, VOCAB, dtype=torch.float64)
    return logits, torch.randint(0, VOCAB, ROWS), torch.rand(ROWS) < 0.6


def test_loss_and_gradient_are_torchs() -> None:
    """Excludes a sum instead of a mean, and bits instead of nats."""
    logits, labels, _ = draw()
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss, expected = cross_entropy(ours, labels), nnf.cross_entropy(theirs.flatten(0, 1), labels.flatten())
    loss.backward()
    expected.backward()
    assert abs(loss - expected) <= rounding(2 * VOCAB + 35, 10.0)
    assert (ours.grad - theirs.grad).abs().max() <= rounding(2 * VOCAB, 1.0 / 35)


def test_only_counted_rows_count_and_the_others_may_hold_anything() -> None:
    """Excludes a mask that is ignored, a mean over all rows, and NaN let through by a product with 0."""
    logits, labels, mask = draw()
    chosen = labels.masked_fill(~mask, -100)
    theirs = logits.clone().requires_grad_()
    expected = nnf.cross_entropy(theirs.flatten(0, 1), chosen.flatten(), ignore_index=-100)
    expected.backward()
    ours = logits.masked_fill(~mask[..., None], math.nan).requires_grad_()
    loss = cross_entropy(ours, chosen, mask)
    loss.backward()
    assert abs(loss - expected) <= rounding(2 * VOCAB + 35, 10.0)
    assert (ours.grad - theirs.grad).abs().max() <= rounding(2 * VOCAB, 1.0)
    assert torch.equal(ours.grad[~mask], torch.zeros(int((~mask).sum()), VOCAB, dtype=torch.float64))
    assert abs(cross_entropy(logits, labels) - expected) > 1e-3
    assert abs(loss * mask.sum() / mask.numel() - expected) > 1e-3


def test_no_counted_row_gives_zero_and_zero_gradients() -> None:
    """Excludes 0 / 0 on a shard without labels."""
    logits, labels, _ = draw()
    logits.requires_grad_()
    loss = cross_entropy(logits, labels, torch.zeros(ROWS, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logits.grad, torch.zeros_like(logits))
    assert nnf.cross_entropy(logits.flatten(0, 1), torch.full((35,), -100), ignore_index=-100).isnan()


@pytest.mark.parametrize("logit", [1e4, -1e4])
def test_large_logits_do_not_overflow(logit: float) -> None:
    """Excludes log(sum(exp)) without the shift."""
    loss = cross_entropy(torch.full((1, VOCAB), logit, dtype=torch.float64), torch.tensor([3]))
    assert abs(loss - math.log(VOCAB)) <= rounding(VOCAB, 1e4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_summed_in_float32(dtype: torch.dtype) -> None:
    """Excludes a sum of exponentials, or a mean, in half precision."""
    loss = cross_entropy(torch.zeros(1, 50000, dtype=dtype), torch.tensor([7]))
    assert loss.dtype == torch.float32
    assert abs(loss.double() - math.log(50000)) <= rounding(50000, 11.0, torch.float32)
    assert rounding(50000, 11.0, torch.float32) < 11.0 * UNIT_ROUNDOFF[dtype]
