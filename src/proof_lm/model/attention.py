"""Causal self-attention with any number of KV heads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from proof_lm import functional
from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Float, Hidden, Int, Keys, Queries, Tensor, Values
from proof_lm.functional import AttentionBackend, Rotation
from proof_lm.model.cache import CacheLayer
from proof_lm.model.documents import same_document
from proof_lm.model.linear import Linear


@dataclass(frozen=True)
class AttentionContext:
    """What every layer of one forward pass shares.

    Attributes:
        backend: which of the two attention computations runs.
        mask: (B, 1, 1, S), True where a key may be seen at all, or (B, 1, T, S) where that depends on the
            query; None where all may.
        rotation: the rotary angles of this call's positions; None without rotary positions.
        window: how many tokens up to itself a token sees; None where it sees the whole past.
    """

    backend: AttentionBackend
    mask: Bool[Tensor, "B 1 #T S"] | None = None
    rotation: Rotation | None = None
    window: int | None = None

    def within(self, document_ids: Int[Tensor, "B T"]) -> AttentionContext:
        """The same, but tokens of different documents do not see each other."""
        same = same_document(document_ids)[:, None]
        return replace(self, mask=same if self.mask is None else self.mask & same)


class Attention(nn.Module):
    """out(attention(rotate(query(x)), rotate(key(x)), value(x))).

    Rows of the query, key and value weights are ordered head by head.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        query_width = config.n_heads * config.head_width
        kv_width = config.kv_heads * config.head_width
        self.head_dim = config.head_width
        self.dropout = config.dropout
        self.query = Linear(config.d_model, query_width, bias=config.attention_bias)
        self.key = Linear(config.d_model, kv_width, bias=config.attention_bias)
        self.value = Linear(config.d_model, kv_width, bias=config.attention_bias)
        self.out = Linear(query_width, config.d_model, bias=config.attention_out_bias)

    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        queries = self.split_heads(self.query(hidden))
        keys = self.split_heads(self.key(hidden))
        values = self.split_heads(self.value(hidden))
        queries, keys = self.rotate(queries, keys, context)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        return self.out(self.merge_heads(self.attend(queries, keys, values, context)))

    def rotate(self, queries: Queries, keys: Keys, context: AttentionContext) -> tuple[Queries, Keys]:
        """Queries and keys turned by this call's positions; unchanged without rotary positions."""
        if context.rotation is None:
            return queries, keys
        return functional.rotate(queries, context.rotation), functional.rotate(keys, context.rotation)

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        """Each query head's mixture of the values that it sees, (B, N, T, H)."""
        return functional.attention(
            queries,
            keys,
            values,
            mask=context.mask,
            causal=True,
            window=context.window,
            dropout_probability=self.dropout if self.training else 0.0,
            backend=context.backend,
        )

    def merge_heads(self, attended: Queries) -> Float[Tensor, "B T NH"]:
        """(B, N, T, H) to (B, T, N * H), head by head."""
        return attended.transpose(1, 2).flatten(2)

    def split_heads(self, rows: Float[Tensor, "B T X"]) -> Float[Tensor, "B X1 T H"]:
        """(B, T, heads * H) to (B, heads, T, H), for query heads and KV heads alike."""
        return rows.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
