"""The chapter's functions: one sequence, hidden (time, width), weights that multiply from the right.

Heads come first: (heads, time, head_width). Everything is causal; nothing has positions of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.errors import InputError
from proof_lm.oracle.activation import activation_forward
from proof_lm.oracle.arrays import BoolArray, FloatArray
from proof_lm.oracle.norm import layer_norm_forward
from proof_lm.oracle.softmax import softmax_forward

AttentionWeights = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike]
FeedForwardWeights = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike, ArrayLike]


def row_softmax(scores: ArrayLike) -> FloatArray:
    """exp(z) / sum exp(z) over the last axis; -inf has weight 0; any shape."""
    return softmax_forward(scores)


def causal_mask(time: int) -> BoolArray:
    """(time, time), True where the query (row) sees the key (column): on and below the diagonal.

    Raises:
        InputError: "time must be positive".
    """
    if time < 1:
        raise InputError("time must be positive")
    return np.tri(time, dtype=np.bool_)


def single_head_attention(
    hidden: ArrayLike, wq: ArrayLike, wk: ArrayLike, wv: ArrayLike, wo: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """softmax(Q K^T / sqrt(width of a key)) V Wo with Q = X Wq, K = X Wk, V = X Wv, causal.

    Args:
        hidden: X, (time, width).
        wq: (width, key width).
        wk: (width, key width).
        wv: (width, value width).
        wo: (value width, width).

    Returns:
        output (time, width), weights (time, time), attended (time, value width).
    """
    x = _float64(hidden)
    weights, attended = _attend(x @ _float64(wq), x @ _float64(wk), x @ _float64(wv))
    return attended @ _float64(wo), weights, attended


def split_heads(values: ArrayLike, heads: int) -> FloatArray:
    """(time, width) -> (heads, time, width / heads); head h takes the h-th run of columns.

    Raises:
        InputError: "width must be divisible by heads".
    """
    array = _float64(values)
    if heads < 1 or array.shape[-1] % heads:
        raise InputError("width must be divisible by heads")
    return array.reshape(array.shape[0], heads, -1).transpose(1, 0, 2)


def merge_heads(values: ArrayLike) -> FloatArray:
    """(heads, time, head_width) -> (time, heads * head_width); the inverse of :func:`split_heads`."""
    array = _float64(values)
    return array.transpose(1, 0, 2).reshape(array.shape[1], -1)


def multi_head_attention(
    hidden: ArrayLike, wq: ArrayLike, wk: ArrayLike, wv: ArrayLike, wo: ArrayLike, heads: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Causal attention in each head separately, merged and projected by Wo; all matrices (width, width).

    Returns:
        output (time, width), weights (heads, time, time), merged (time, width).

    Raises:
        InputError: "width must be divisible by heads".
    """
    x = _float64(hidden)
    queries, keys, values = (split_heads(x @ _float64(w), heads) for w in (wq, wk, wv))
    pairs = [_attend(q, k, v) for q, k, v in zip(queries, keys, values, strict=True)]
    merged = merge_heads(np.stack([attended for _, attended in pairs]))
    return merged @ _float64(wo), np.stack([weights for weights, _ in pairs]), merged


def batched_multi_head_attention(
    hidden_batch: ArrayLike, wq: ArrayLike, wk: ArrayLike, wv: ArrayLike, wo: ArrayLike, heads: int
) -> tuple[FloatArray, FloatArray]:
    """:func:`multi_head_attention` of every sequence of the batch.

    Returns:
        outputs (batch, time, width), weights (batch, heads, time, time).

    Raises:
        InputError: "hidden_batch must have shape (batch, time, width)"; "width must be divisible by heads".
    """
    batch = _float64(hidden_batch)
    if batch.ndim != 3:
        raise InputError("hidden_batch must have shape (batch, time, width)")
    results = [multi_head_attention(hidden, wq, wk, wv, wo, heads) for hidden in batch]
    return np.stack([output for output, _, _ in results]), np.stack([weights for _, weights, _ in results])


def layer_norm(values: ArrayLike, gamma: ArrayLike, beta: ArrayLike, epsilon: float = 1e-5) -> FloatArray:
    """(x - mean) / sqrt(var + epsilon) * gamma + beta over the last axis, with the biased variance."""
    return layer_norm_forward(values, gamma, beta, eps=epsilon)[0]


def gelu(values: ArrayLike) -> FloatArray:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2: the tanh form (Hendrycks & Gimpel 2016)."""
    return activation_forward("gelu_tanh", values)


def feed_forward(values: ArrayLike, w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike) -> FloatArray:
    """gelu(X W1 + b1) W2 + b2: (time, width) -> (time, width)."""
    return gelu(_float64(values) @ _float64(w1) + _float64(b1)) @ _float64(w2) + _float64(b2)


def decoder_block(
    values: ArrayLike,
    attention_weights: AttentionWeights,
    feed_forward_weights: FeedForwardWeights,
    heads: int,
) -> FloatArray:
    """M = X + attention(norm(X)), Y = M + feed_forward(norm(M)): the pre-norm block; (time, width).

    Args:
        values: X, (time, width).
        attention_weights: gamma1, beta1, wq, wk, wv, wo.
        feed_forward_weights: gamma2, beta2, w1, b1, w2, b2.
        heads: number of heads; divides the width.

    Raises:
        InputError: "width must be divisible by heads".
    """
    gamma1, beta1, wq, wk, wv, wo = attention_weights
    gamma2, beta2, w1, b1, w2, b2 = feed_forward_weights
    x = _float64(values)
    middle = x + multi_head_attention(layer_norm(x, gamma1, beta1), wq, wk, wv, wo, heads)[0]
    return middle + feed_forward(layer_norm(middle, gamma2, beta2), w1, b1, w2, b2)


def tiny_transformer_forward(
    token_ids: ArrayLike,
    token_embedding: ArrayLike,
    positional_embedding: ArrayLike,
    blocks: Sequence[tuple[AttentionWeights, FeedForwardWeights]],
    output_projection: ArrayLike,
    heads: int,
) -> FloatArray:
    """Logits (time, vocabulary) of one sequence: embed, add positions, blocks, project. No final norm.

    Args:
        token_ids: (time,).
        token_embedding: (vocabulary, width).
        positional_embedding: (at least time, width); the first ``time`` rows are used.
        blocks: for each block its attention weights and its feed-forward weights.
        output_projection: (width, vocabulary).
        heads: number of heads; divides the width.

    Raises:
        InputError: "width must be divisible by heads".
    """
    ids = np.asarray(token_ids)
    hidden = _float64(token_embedding)[ids] + _float64(positional_embedding)[: len(ids)]
    for attention_weights, feed_forward_weights in blocks:
        hidden = decoder_block(hidden, attention_weights, feed_forward_weights, heads)
    logits: FloatArray = hidden @ _float64(output_projection)
    return logits


def output_projection_loss_and_grad(
    context: ArrayLike, output_projection: ArrayLike, upstream: ArrayLike
) -> tuple[float, FloatArray]:
    """loss = sum(U * (C W)) and its gradient with respect to W, C^T U.

    Args:
        context: C, (time, width).
        output_projection: W, (width, out).
        upstream: U, (time, out).
    """
    c, u = _float64(context), _float64(upstream)
    return float((u * (c @ _float64(output_projection))).sum()), c.T @ u


def gradient_norm_by_depth(
    depth: int, residual: bool, normalized: bool, width: int = 8, seed: int = 41
) -> float:
    """Norm of a unit gradient after its way back through ``depth`` random linear blocks.

    A block's Jacobian is gain * Q, Q orthogonal (the Q factor of a normal matrix), gain 0.15 where the
    branch is normalised and 0.70 where not; with ``residual`` the identity is added. The matrices are
    drawn from the first block to the last, and the gradient g <- J^T g runs from the last to the first.
    """
    rng = np.random.default_rng(seed)
    factors = [np.linalg.qr(rng.normal(size=(width, width)))[0] for _ in range(depth)]
    gradient = np.ones(width) / math.sqrt(width)
    for orthogonal in reversed(factors):
        jacobian = (0.15 if normalized else 0.70) * orthogonal
        if residual:
            jacobian = jacobian + np.eye(width)
        gradient = jacobian.T @ gradient
    return float(np.linalg.norm(gradient))


def _attend(queries: FloatArray, keys: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Causal attention weights (time, time), and what they gather from the values."""
    scores = queries @ keys.T / math.sqrt(keys.shape[-1])
    weights = row_softmax(np.where(causal_mask(len(scores)), scores, -np.inf))
    return weights, weights @ values


def _float64(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)
