"""Causal self-attention as a loop over query heads, each with its own slice of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.config import DecoderConfig
from proof_lm.errors import InputError
from proof_lm.oracle.arrays import BoolArray, FloatArray, IntArray, float_array, require_shape
from proof_lm.oracle.linear import linear_backward, linear_forward
from proof_lm.oracle.rope import rope_angles, rotate_backward, rotate_forward
from proof_lm.oracle.softmax import broadcast_mask, softmax_backward, softmax_forward


@dataclass(frozen=True, eq=False)
class HeadTrace:
    """One query head: queries (..., T, H), keys and values (..., S, H), mask and weights (..., T, S)."""

    queries: FloatArray
    keys: FloatArray
    values: FloatArray
    visible: BoolArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """The layer's input (B, T, D), the angles (B, T, H/2) or None, and every query head with its result."""

    hidden: FloatArray
    angles: FloatArray | None
    heads: tuple[HeadTrace, ...]
    attended: tuple[FloatArray, ...]

    @property
    def weights(self) -> FloatArray:
        """The attention weights of all heads, (B, N, T, S)."""
        return np.stack([head.weights for head in self.heads], axis=1)


def head_attention_forward(
    queries: ArrayLike, keys: ArrayLike, values: ArrayLike, visible: ArrayLike
) -> tuple[FloatArray, HeadTrace]:
    """softmax(Q K^T / sqrt(H)) V over the visible keys (Vaswani et al. 2017, eq. 1).

    A query that sees no key gives zeros. NaN and Inf in a key or value reach only the queries that see it.

    Args:
        queries: Q, (..., T, H).
        keys: K, (..., S, H).
        values: V, (..., S, H).
        visible: boolean, broadcast to (..., T, S), True = the query sees the key.

    Returns:
        (..., T, H), and the trace for :func:`head_attention_backward`.

    Raises:
        InputError: the shapes do not fit each other, or the mask is not boolean.
    """
    queries = float_array("queries", queries, (..., "T", "H"))
    keys = float_array("keys", keys, (*queries.shape[:-2], "S", queries.shape[-1]))
    values = float_array("values", values, (*keys.shape[:-1], "H"))
    visible = broadcast_mask(visible, (*queries.shape[:-1], keys.shape[-2]))
    scores = _visible_scores(queries, keys, visible) / math.sqrt(queries.shape[-1])
    weights = softmax_forward(scores, visible)
    return _visible_sum(weights, values, visible), HeadTrace(queries, keys, values, visible, weights)


def head_attention_backward(grad: ArrayLike, trace: HeadTrace) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of :func:`head_attention_forward` with respect to Q, K and V.

    With A the weights: dV = A^T g, dA = g V^T, dZ = softmax_backward(dA) / sqrt(H), dQ = dZ K, dK = dZ^T Q.

    Raises:
        InputError: the gradient does not have the shape of the forward's result.
    """
    grad = float_array("grad", grad, (*trace.queries.shape[:-1], trace.values.shape[-1]))
    seen_by = np.swapaxes(trace.visible, -1, -2)
    grad_values = _visible_sum(np.swapaxes(trace.weights, -1, -2), grad, seen_by)
    grad_weights = _visible_scores(grad, trace.values, trace.visible)
    grad_scores = softmax_backward(grad_weights, trace.weights) / math.sqrt(trace.queries.shape[-1])
    grad_queries = _visible_sum(grad_scores, trace.keys, trace.visible)
    grad_keys = _visible_sum(np.swapaxes(grad_scores, -1, -2), trace.queries, seen_by)
    return grad_queries, grad_keys, grad_values


def grouped_attention_forward(
    queries: ArrayLike, keys: ArrayLike, values: ArrayLike, visible: ArrayLike
) -> tuple[FloatArray, tuple[HeadTrace, ...]]:
    """Attention of N query heads over K key/value heads: query head h reads head h // (N / K).

    K = N is multi-head attention, K = 1 multi-query (Shazeer 2019), between them grouped-query attention
    (Ainslie et al. 2023).

    Args:
        queries: (B, N, T, H).
        keys: (B, K, S, H).
        values: (B, K, S, H).
        visible: boolean, broadcast to (B, T, S): the same for all heads.

    Returns:
        (B, N, T, H), and the traces of the N heads for :func:`grouped_attention_backward`.

    Raises:
        InputError: the shapes do not fit each other, K does not divide N, or the mask is not boolean.
    """
    queries = float_array("queries", queries, ("B", "N", "T", "H"))
    keys = float_array("keys", keys, (queries.shape[0], "K", "S", queries.shape[-1]))
    values = float_array("values", values, (*keys.shape[:-1], "H"))
    group = _group_size(queries.shape[1], keys.shape[1])
    heads = [
        head_attention_forward(queries[:, h], keys[:, h // group], values[:, h // group], visible)
        for h in range(queries.shape[1])
    ]
    return np.stack([attended for attended, _ in heads], axis=1), tuple(trace for _, trace in heads)


def grouped_attention_backward(
    grad: ArrayLike, traces: tuple[HeadTrace, ...], *, n_kv_heads: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of :func:`grouped_attention_forward`; a KV head gets the sum over the heads that read it.

    Returns:
        Gradients of queries (B, N, T, H), keys (B, K, S, H) and values (B, K, S, H).

    Raises:
        InputError: the gradient's shape does not fit, or ``n_kv_heads`` does not divide the number of heads.
    """
    grad = float_array("grad", grad, ("B", len(traces), "T", "H"))
    group = _group_size(len(traces), n_kv_heads)
    grad_queries = []
    grad_keys = [np.zeros_like(traces[g * group].keys) for g in range(n_kv_heads)]
    grad_values = [np.zeros_like(traces[g * group].values) for g in range(n_kv_heads)]
    for h, trace in enumerate(traces):
        to_queries, to_keys, to_values = head_attention_backward(grad[:, h], trace)
        grad_queries.append(to_queries)
        grad_keys[h // group] += to_keys
        grad_values[h // group] += to_values
    return np.stack(grad_queries, axis=1), np.stack(grad_keys, axis=1), np.stack(grad_values, axis=1)


def attention_forward(
    config: DecoderConfig,
    parameters: Mapping[str, FloatArray],
    hidden: FloatArray,
    *,
    visible: BoolArray,
    position_ids: IntArray,
) -> tuple[FloatArray, AttentionTrace]:
    """sum over heads h of attend(x Wq_h^T + bq_h, x Wk_g^T + bk_g, x Wv_g^T + bv_g) Wo_h^T, plus bo.

    g = h // (N / K); Wq_h is rows hH .. (h+1)H of the query weight, Wk_g and Wv_g rows gH .. (g+1)H of
    theirs, Wo_h columns hH .. (h+1)H of the output weight. Under RoPE queries and keys are rotated.

    Args:
        config: the decoder's definition.
        parameters: ``query.weight`` (NH, D), ``key.weight`` and ``value.weight`` (KH, D), ``out.weight``
            (D, NH), and the ``.bias`` (out,) of those that have one.
        hidden: x, (B, T, D).
        visible: boolean, broadcast to (B, T, T), True = visible.
        position_ids: (B, T).

    Returns:
        (B, T, D), and the trace for :func:`attention_backward`.

    Raises:
        InputError: the shapes do not fit each other.
    """
    require_shape("hidden", hidden.shape, ("B", "T", config.d_model))
    require_shape("position_ids", position_ids.shape, hidden.shape[:2])
    angles = None
    if config.position == "rope":
        angles = rope_angles(position_ids, config.head_width, config.rope_theta)
    keys = [_project(config, parameters, "key", g, hidden, angles) for g in range(config.kv_heads)]
    values = [_project(config, parameters, "value", g, hidden, None) for g in range(config.kv_heads)]
    heads, all_attended = [], []
    output = np.zeros_like(hidden)
    for h in range(config.n_heads):
        g = h // config.group_size
        queries = _project(config, parameters, "query", h, hidden, angles)
        attended, head = head_attention_forward(queries, keys[g], values[g], visible)
        output += linear_forward(attended, parameters["out.weight"][:, _rows(config, h)])
        heads.append(head)
        all_attended.append(attended)
    if config.attention_out_bias:
        output += parameters["out.bias"]
    return output, AttentionTrace(hidden, angles, tuple(heads), tuple(all_attended))


def attention_backward(
    config: DecoderConfig, parameters: Mapping[str, FloatArray], grad: FloatArray, trace: AttentionTrace
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Gradients of :func:`attention_forward`: with respect to the input, and to every parameter by name.

    A KV head's gradient is the sum over the query heads that read it.

    Raises:
        InputError: the gradient does not have the shape of the forward's result.
    """
    require_shape("grad", grad.shape, trace.hidden.shape)
    gradients = {name: np.zeros_like(parameter) for name, parameter in parameters.items()}
    grad_hidden = np.zeros_like(trace.hidden)
    grad_keys = [np.zeros_like(trace.heads[0].keys) for _ in range(config.kv_heads)]
    grad_values = [np.zeros_like(trace.heads[0].values) for _ in range(config.kv_heads)]
    for h, head in enumerate(trace.heads):
        columns, g = _rows(config, h), h // config.group_size
        grad_attended, grad_out, _ = linear_backward(
            grad, trace.attended[h], parameters["out.weight"][:, columns]
        )
        gradients["out.weight"][:, columns] = grad_out
        grad_queries, to_keys, to_values = head_attention_backward(grad_attended, head)
        grad_keys[g] += to_keys
        grad_values[g] += to_values
        grad_hidden += _project_backward(
            config, parameters, "query", h, grad_queries, trace.hidden, trace.angles, gradients
        )
    for g in range(config.kv_heads):
        for name, grads, angles in (("key", grad_keys, trace.angles), ("value", grad_values, None)):
            grad_hidden += _project_backward(
                config, parameters, name, g, grads[g], trace.hidden, angles, gradients
            )
    if config.attention_out_bias:
        gradients["out.bias"] = grad.sum(axis=(0, 1))
    return grad_hidden, gradients


def _project(
    config: DecoderConfig,
    parameters: Mapping[str, FloatArray],
    name: str,
    head: int,
    hidden: FloatArray,
    angles: FloatArray | None,
) -> FloatArray:
    """One head's queries, keys or values, (B, T, H); rotated where there are angles."""
    part, bias = _rows(config, head), parameters.get(f"{name}.bias")
    vectors = linear_forward(hidden, parameters[f"{name}.weight"][part], None if bias is None else bias[part])
    return vectors if angles is None else rotate_forward(vectors, angles, config.rope_layout)


def _project_backward(
    config: DecoderConfig,
    parameters: Mapping[str, FloatArray],
    name: str,
    head: int,
    grad: FloatArray,
    hidden: FloatArray,
    angles: FloatArray | None,
    gradients: dict[str, FloatArray],
) -> FloatArray:
    """Gradient of :func:`_project` with respect to the input; the parameters' go to their rows."""
    part = _rows(config, head)
    if angles is not None:
        grad = rotate_backward(grad, angles, config.rope_layout)
    grad_hidden, grad_weight, grad_bias = linear_backward(grad, hidden, parameters[f"{name}.weight"][part])
    gradients[f"{name}.weight"][part] = grad_weight
    if f"{name}.bias" in gradients:
        gradients[f"{name}.bias"][part] = grad_bias
    return grad_hidden


def _rows(config: DecoderConfig, head: int) -> slice:
    """The rows of a projection's weight that belong to one head."""
    return slice(head * config.head_width, (head + 1) * config.head_width)


def _group_size(n_heads: int, n_kv_heads: int) -> int:
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise InputError(
            f"the number of KV heads must divide that of query heads, got {n_kv_heads} and {n_heads}"
        )
    return n_heads // n_kv_heads


def _visible_scores(left: FloatArray, right: FloatArray, visible: BoolArray) -> FloatArray:
    """left (..., T, H) times right (..., S, H) transposed; where ``right`` is not finite, visible pairs only.

    What stands at the hidden pairs of the result is finite and otherwise of no meaning.
    """
    if np.isfinite(right).all():
        product: FloatArray = left @ np.swapaxes(right, -1, -2)
        return product
    scores = np.zeros(visible.shape)
    for s in range(right.shape[-2]):
        terms = np.zeros_like(left)
        np.multiply(left, right[..., s : s + 1, :], out=terms, where=visible[..., s, None])
        scores[..., s] = terms.sum(axis=-1)
    return scores


def _visible_sum(coefficients: FloatArray, right: FloatArray, visible: BoolArray) -> FloatArray:
    """Row t: the sum over visible s of coefficients (..., T, S) times right (..., S, H).

    The coefficients of hidden pairs are 0; the mask is applied all the same where ``right`` is not finite,
    because 0 times NaN is NaN.
    """
    if np.isfinite(right).all():
        product: FloatArray = coefficients @ right
        return product
    total = np.zeros((*coefficients.shape[:-1], right.shape[-1]))
    for s in range(right.shape[-2]):
        terms = np.zeros_like(total)
        factor = coefficients[..., s, None]
        np.multiply(factor, right[..., s : s + 1, :], out=terms, where=visible[..., s, None])
        total += terms
    return total
