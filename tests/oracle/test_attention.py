"""Attention over heads against F.scaled_dot_product_attention, and behind the mask."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.errors import InputError
from proof_lm.oracle import (
    grouped_attention_backward,
    grouped_attention_forward,
    head_attention_backward,
    head_attention_forward,
)

CLOSE = {"rtol": 1e-12, "atol": 1e-13}  # some 10 products of order 1, softmax, some 10 more


@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("mask", ["causal", "random"])
def test_values_and_gradients_agree_with_sdpa(n_kv_heads: int, mask: str) -> None:
    rng = np.random.default_rng(n_kv_heads)
    shapes = ((2, 6, 5, 4), (2, n_kv_heads, 5, 4), (2, n_kv_heads, 5, 4), (2, 6, 5, 4))
    q, k, v, grad = (rng.standard_normal(shape) for shape in shapes)
    visible = np.tri(5, dtype=bool)
    if mask == "random":
        visible = rng.random((2, 5, 5)) < 0.5
        visible[1, 3] = False  # a query that sees nothing
    tensors = [torch.tensor(array, requires_grad=True) for array in (q, k, v)]
    expected = nnf.scaled_dot_product_attention(
        *tensors, attn_mask=torch.tensor(visible if mask == "causal" else visible[:, None]), enable_gqa=True
    )
    expected.backward(torch.tensor(grad))
    attended, traces = grouped_attention_forward(q, k, v, visible)
    np.testing.assert_allclose(attended, expected.detach(), **CLOSE)
    gradients = grouped_attention_backward(grad, traces, n_kv_heads=n_kv_heads)
    for ours, theirs in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.grad, **CLOSE)
    if mask == "random":
        assert not attended[1, :, 3].any()


def test_more_keys_than_queries_and_wider_values() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (torch.tensor(rng.standard_normal(shape)) for shape in ((2, 3, 4), (2, 7, 4), (2, 7, 5)))
    visible = np.tri(3, 7, 4, dtype=bool)
    expected = nnf.scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor(visible))
    np.testing.assert_allclose(head_attention_forward(q, k, v, visible)[0], expected, **CLOSE)


@pytest.mark.parametrize("stored", [np.nan, np.inf, -np.inf])
def test_what_is_stored_behind_the_mask_reaches_nothing(stored: float) -> None:
    rng = np.random.default_rng(0)
    q, k, v, grad = rng.standard_normal((4, 2, 5, 4))
    grad[:, 3:] = 0  # the loss reads the first three queries, which do not see key 3
    visible = np.tri(5, dtype=bool)
    visible[3:, 3] = False
    clean, clean_trace = head_attention_forward(q, k, v, visible)
    poisoned_k, poisoned_v = k.copy(), v.copy()
    poisoned_k[:, 3] = poisoned_v[:, 3] = stored
    attended, trace = head_attention_forward(q, poisoned_k, poisoned_v, visible)
    np.testing.assert_allclose(attended, clean, **CLOSE)
    expected = head_attention_backward(grad, clean_trace)
    for ours, theirs in zip(head_attention_backward(grad, trace), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)
    # Reach: where it is visible it does show.
    assert np.isnan(
        head_attention_forward(q, k, np.where(np.arange(5)[:, None] == 1, np.nan, v), visible)[0]
    ).any()


def test_refusals() -> None:
    ones = np.ones((2, 6, 5, 4))
    visible = np.tri(5, dtype=bool)
    with pytest.raises(InputError, match="must divide that of query heads, got 4 and 6"):
        grouped_attention_forward(ones, ones[:, :4], ones[:, :4], visible)
    with pytest.raises(InputError, match=r"keys must have shape \(2, K, S, 4\), got \(2, 6, 5, 3\)"):
        grouped_attention_forward(ones, ones[..., :3], ones, visible)
    with pytest.raises(InputError, match="visible must be boolean, got dtype float64"):
        grouped_attention_forward(ones, ones, ones, np.zeros((5, 5)))
    with pytest.raises(InputError, match=r"visible must broadcast to \(2, 5, 5\), got shape \(4, 5\)"):
        grouped_attention_forward(ones, ones, ones, visible[:4])
