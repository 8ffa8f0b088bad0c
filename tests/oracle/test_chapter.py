"""The chapter's functions: printed values, torch as a peer, and the texts of the errors."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

from proof_lm import oracle

CLOSE = {"rtol": 1e-12, "atol": 1e-13}


@pytest.fixture
def chapter() -> tuple[np.ndarray, list[np.ndarray]]:
    """Hidden (5, 6) and the four projections of the chapter's example."""
    rng = np.random.default_rng(41)
    return rng.normal(size=(5, 6)), [rng.normal(scale=0.25, size=(6, 6)) for _ in range(4)]


def torch_attention(x: torch.Tensor, projections: list[torch.Tensor], heads: int) -> torch.Tensor:
    q, k, v = ((x @ w).unflatten(-1, (heads, -1)).transpose(0, 1) for w in projections[:3])
    mixed = nnf.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(0, 1).flatten(-2) @ projections[3]


def block_weights(rng: np.random.Generator, width: int, inner: int) -> tuple[tuple, tuple]:
    def draw(*shape: int) -> np.ndarray:
        return rng.normal(scale=0.5, size=shape)

    square = [draw(width, width) for _ in range(4)]
    mlp = (draw(width, inner), draw(inner), draw(inner, width), draw(width))
    return (1 + draw(width), draw(width), *square), (1 + draw(width), draw(width), *mlp)


def torch_block(x: torch.Tensor, attention: tuple, mlp: tuple, heads: int) -> torch.Tensor:
    gamma1, beta1, *projections = (torch.tensor(w) for w in attention)
    gamma2, beta2, w1, b1, w2, b2 = (torch.tensor(w) for w in mlp)
    width = x.shape[-1:]
    x = x + torch_attention(nnf.layer_norm(x, width, gamma1, beta1), projections, heads)
    inner = nnf.layer_norm(x, width, gamma2, beta2) @ w1 + b1
    return x + nnf.gelu(inner, approximate="tanh") @ w2 + b2


def test_single_head_printed_weights(chapter: tuple) -> None:
    hidden, projections = chapter
    output, weights, attended = oracle.single_head_attention(hidden, *projections)
    assert np.array_equal(weights[-1].round(3), [0.276, 0.127, 0.206, 0.256, 0.135])
    assert not np.triu(weights, 1).any()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-15)
    expected = torch_attention(torch.tensor(hidden), [torch.tensor(w) for w in projections], 1)
    np.testing.assert_allclose(output, expected, **CLOSE)
    np.testing.assert_allclose(attended @ projections[3], output, **CLOSE)


def test_multi_head_and_batch_agree_with_sdpa(chapter: tuple) -> None:
    hidden, projections = chapter
    output, weights, merged = oracle.multi_head_attention(hidden, *projections, 3)
    expected = torch_attention(torch.tensor(hidden), [torch.tensor(w) for w in projections], 3)
    assert weights.shape == (3, 5, 5)
    np.testing.assert_allclose(output, expected, **CLOSE)
    np.testing.assert_allclose(merged @ projections[3], output, **CLOSE)
    batch = np.stack([hidden, hidden[::-1]])
    outputs, all_weights = oracle.batched_multi_head_attention(batch, *projections, 3)
    assert all_weights.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(outputs[0], output, **CLOSE)
    np.testing.assert_allclose(all_weights[0], weights, **CLOSE)
    other = torch_attention(torch.tensor(hidden[::-1].copy()), [torch.tensor(w) for w in projections], 3)
    np.testing.assert_allclose(outputs[1], other, **CLOSE)


def test_split_and_merge() -> None:
    values = np.arange(12.0).reshape(2, 6)
    split = oracle.split_heads(values, 3)
    assert np.array_equal(split, [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]])
    assert np.array_equal(oracle.merge_heads(split), values)


def test_masks_softmax_norm_and_gelu() -> None:
    assert oracle.causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True] * 3]
    np.testing.assert_allclose(oracle.row_softmax([[0.0, np.log(3.0)]]), [[0.25, 0.75]], rtol=1e-15)
    rng = np.random.default_rng(0)
    x, gamma, beta = rng.normal(size=(3, 7)), rng.normal(size=7), rng.normal(size=7)
    expected = nnf.layer_norm(torch.tensor(x), (7,), torch.tensor(gamma), torch.tensor(beta), 1e-5)
    np.testing.assert_allclose(oracle.layer_norm(x, gamma, beta), expected, **CLOSE)
    assert np.abs(oracle.layer_norm(x, gamma, beta, epsilon=0.5) - expected.numpy()).max() > 1e-3
    np.testing.assert_allclose(oracle.gelu(x), nnf.gelu(torch.tensor(x), approximate="tanh"), **CLOSE)


def test_block_and_tiny_transformer_agree_with_torch() -> None:
    rng = np.random.default_rng(0)
    blocks = [block_weights(rng, 6, 10), block_weights(rng, 6, 11)]
    embedding, positions, projection = (rng.normal(size=shape) for shape in ((13, 6), (9, 6), (6, 13)))
    ids = [3, 12, 0, 3, 7]
    x = torch.tensor(embedding)[torch.tensor(ids)] + torch.tensor(positions)[:5]
    one = torch_block(x, *blocks[0], heads=2)
    np.testing.assert_allclose(oracle.decoder_block(x.numpy(), *blocks[0], 2), one, **CLOSE)
    logits = oracle.tiny_transformer_forward(ids, embedding, positions, blocks, projection, 2)
    expected = torch_block(one, *blocks[1], heads=2) @ torch.tensor(projection)
    assert logits.shape == (5, 13)
    np.testing.assert_allclose(logits, expected, rtol=1e-11, atol=1e-12)


def test_output_projection_gradient_is_the_central_difference() -> None:
    rng = np.random.default_rng(0)
    context, projection, upstream = (rng.normal(size=shape) for shape in ((5, 3), (3, 4), (5, 4)))
    loss, gradient = oracle.output_projection_loss_and_grad(context, projection, upstream)
    indices = list(np.ndindex(3, 4))
    measured = oracle.central_difference(
        lambda w: oracle.output_projection_loss_and_grad(context, w, upstream)[0], projection, indices
    )
    np.testing.assert_allclose(measured, gradient.ravel(), atol=1e-8)
    assert loss == pytest.approx((upstream * (context @ projection)).sum(), rel=1e-14)


@pytest.mark.parametrize(
    ("residual", "normalized", "printed"),
    [
        (False, False, "0.700 0.490 0.240 0.058 0.014"),
        (False, True, "0.150 0.022 0.001 0.000 0.000"),
        (True, False, "1.125 1.341 0.621 2.672 10.149"),
        (True, True, "0.987 0.982 0.855 0.777 0.927"),
    ],
)
def test_gradient_norms_as_printed(residual: bool, normalized: bool, printed: str) -> None:
    norms = [oracle.gradient_norm_by_depth(depth, residual, normalized) for depth in (1, 2, 4, 8, 12)]
    assert " ".join(f"{norm:.3f}" for norm in norms) == printed


def test_errors_are_value_errors_with_the_chapters_texts() -> None:
    square = [np.eye(6)] * 4
    with pytest.raises(ValueError, match=r"^time must be positive$"):
        oracle.causal_mask(0)
    with pytest.raises(ValueError, match=r"^width must be divisible by heads$"):
        oracle.split_heads(np.zeros((5, 6)), 4)
    with pytest.raises(ValueError, match=r"^width must be divisible by heads$"):
        oracle.multi_head_attention(np.zeros((5, 6)), *square, 0)
    with pytest.raises(ValueError, match=r"^hidden_batch must have shape \(batch, time, width\)$"):
        oracle.batched_multi_head_attention(np.zeros((5, 6)), *square, 2)
