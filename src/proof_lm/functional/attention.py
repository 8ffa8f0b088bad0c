"""Scaled dot-product attention for any number of KV heads: the specification, and the fused kernel.

Multi-head, grouped-query and multi-query attention are one computation: query head h reads KV head
floor(h / (N / K)), so the N query heads are K groups of G = N / K consecutive heads, and a group's queries
are simply more rows against the same keys.
"""

import math
from typing import Literal

import torch
from torch.nn.functional import scaled_dot_product_attention

from proof_lm.dims import Bool, Float, Keys, Queries, Tensor, Values
from proof_lm.functional.dropout import dropout
from proof_lm.functional.softmax import softmax

AttentionBackend = Literal["explicit", "fused"]
VisibleMask = Bool[Tensor, "#B #N #T S"]


def attention(
    queries: Queries,
    keys: Keys,
    values: Values,
    *,
    mask: VisibleMask | None = None,
    causal: bool = True,
    window: int | None = None,
    dropout_probability: float = 0.0,
    backend: AttentionBackend = "explicit",
) -> Float[Tensor, "B N T H"]:
    """softmax(Q K^T / sqrt(H)) V over the visible keys, per head.

    Args:
        queries: (B, N, T, H).
        keys: (B, K, S, H), K dividing N.
        values: (B, K, S, H).
        mask: boolean, True = visible, broadcastable to (B, N, T, S): what it shows must be shown by ``causal``
            and ``window`` too. A key that it hides from every query may hold NaN or Inf without effect.
        causal: query t sees keys s <= t + (S - T): the last query sees all keys, as decoding needs.
        window: W, at least 1, for causal attention: of those keys, query t sees the last W only,
            s > t + (S - T) - W. None: all of them.
        dropout_probability: on the weights; the caller passes 0 outside training.
        backend: ``"explicit"`` is the specification; ``"fused"`` is PyTorch's kernel, for speed.

    A query that sees no key gives zeros, with finite gradients. Source: Vaswani et al. 2017, equation 1;
    Ainslie et al. 2023 for the groups; Child et al. 2019 for the window.
    """
    if window is not None:
        assert causal, "a window is of the past"
        keys, values, mask, window = _within_reach(queries, keys, values, mask, window)
    if backend == "fused":
        return _fused_attention(queries, keys, values, mask, causal, window, dropout_probability)
    visible = _visible_mask(queries, keys, mask, causal, window)
    if mask is not None:
        keys, values = _clear_hidden(keys, visible), _clear_hidden(values, visible)
    weights = dropout(attention_weights(queries, keys, visible), dropout_probability)
    return _ungroup(_group(weights, keys) @ values, queries)


def attention_weights(queries: Queries, keys: Keys, visible: VisibleMask | None) -> Float[Tensor, "B N T S"]:
    """softmax(Q K^T / sqrt(H)), where hidden scores are -inf: the rows of visible weights sum to 1."""
    scale = 1.0 / math.sqrt(queries.shape[-1])
    scores = _ungroup(_group(queries * scale, keys) @ keys.mT, queries)
    return softmax(scores, visible=visible)


def causal_mask(
    n_queries: int, n_keys: int, device: torch.device | None = None, *, window: int | None = None
) -> Bool[Tensor, "T S"]:
    """True where query t may see key s: s <= p, with p = t + (n_keys - n_queries); in a window also s > p - window."""
    everything = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    past = everything.tril(n_keys - n_queries)
    return past if window is None else past.triu(n_keys - n_queries - window + 1)


def _fused_attention(
    queries: Queries,
    keys: Keys,
    values: Values,
    mask: VisibleMask | None,
    causal: bool,
    window: int | None,
    dropout_probability: float,
) -> Float[Tensor, "B N T H"]:
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    if mask is None and causal and window is None and n_queries == n_keys:
        # The kernel's own causal flag is anchored at the top left, so it is right for square scores only.
        return scaled_dot_product_attention(
            queries,
            keys,
            values,
            is_causal=True,
            dropout_p=dropout_probability,
            enable_gqa=_grouped(queries, keys),
        )
    visible = _visible_mask(queries, keys, mask, causal, window)
    empty = None
    if mask is not None:
        assert visible is not None
        keys, values = _clear_hidden(keys, visible), _clear_hidden(values, visible)
        empty = ~visible.any(-1, keepdim=True)  # kernels disagree on such rows: let them see, then zero them
        visible = visible | empty
    attended = _grouped_kernel(queries, keys, values, visible, dropout_probability)
    return attended if empty is None else attended.masked_fill(empty, 0.0)


def _grouped_kernel(
    queries: Queries,
    keys: Keys,
    values: Values,
    visible: VisibleMask | None,
    dropout_probability: float,
) -> Float[Tensor, "B N T H"]:
    """The fused kernel; one query a head becomes G rows of its KV head, which spares the expansion of keys."""
    heads_share_mask = visible is None or visible.shape[1] == 1
    if queries.shape[2] == 1 and heads_share_mask:
        rows = _group(queries, keys)
        attended = scaled_dot_product_attention(
            rows, keys, values, attn_mask=visible, dropout_p=dropout_probability
        )
        return _ungroup(attended, queries)
    return scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=visible,
        dropout_p=dropout_probability,
        enable_gqa=_grouped(queries, keys),
    )


def _grouped(queries: Queries, keys: Keys) -> bool:
    """Whether query heads share KV heads; a Python bool under torch.jit.trace too, where sizes are tensors."""
    return bool(queries.shape[1] != keys.shape[1])


def _within_reach(
    queries: Queries, keys: Keys, values: Values, mask: VisibleMask | None, window: int
) -> tuple[Float[Tensor, "B K R H"], Float[Tensor, "B K R H"], Bool[Tensor, "#B #N #T R"] | None, int | None]:
    """Without the keys that lie before every query's window; and no window where it hides nothing of the rest."""
    first = max(0, keys.shape[2] - queries.shape[2] - window + 1)
    keys, values = keys[:, :, first:], values[:, :, first:]
    rest = None if window >= keys.shape[2] else window
    return keys, values, None if mask is None else mask[..., first:], rest


def _visible_mask(
    queries: Queries, keys: Keys, mask: VisibleMask | None, causal: bool, window: int | None
) -> VisibleMask | None:
    """The causal triangle (or band) and the given mask in one; None where every query sees every key."""
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    if not causal or (n_queries == 1 and mask is not None):
        return mask
    if n_queries == 1:
        return None
    triangle = causal_mask(n_queries, n_keys, queries.device, window=window)[None, None]
    return triangle if mask is None else triangle & mask


def _clear_hidden(sources: Float[Tensor, "B K S H"], visible: VisibleMask | None) -> Float[Tensor, "B K S H"]:
    """Zeros in place of the keys or values that no query sees: a weight of 0 does not hide a NaN."""
    assert visible is not None
    seen = visible.any(dim=2).any(dim=1)
    return sources.masked_fill(~seen[:, None, :, None], 0.0)


def _group(rows: Float[Tensor, "B N T X"], keys: Keys) -> Float[Tensor, "B K GT X"]:
    """The rows of each group of query heads, one below the other, beside their KV head."""
    batch, n_heads, n_queries, width = rows.shape
    n_kv_heads = keys.shape[1]
    return rows.reshape(batch, n_kv_heads, n_heads // n_kv_heads * n_queries, width)


def _ungroup(rows: Float[Tensor, "B K GT X"], queries: Queries) -> Float[Tensor, "B N T X"]:
    """Undoes :func:`_group`: query heads apart again."""
    batch, n_heads, n_queries, _ = queries.shape
    return rows.reshape(batch, n_heads, n_queries, rows.shape[-1])
