"""Faults of heads: how they are split, shared and merged; and of the axes beside them, rows and time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from proof_lm import functional
from proof_lm.dims import Float, Hidden, Keys, Queries, Tensor, Values
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_attention


class MergedWithoutTranspose(Attention):
    def merge_heads(self, attended: Queries) -> Float[Tensor, "B T NH"]:
        batch, n_heads, n_tokens, head_dim = attended.shape
        return attended.reshape(batch, n_tokens, n_heads * head_dim)


class SplitByView(Attention):
    def split_heads(self, rows: Float[Tensor, "B T X"]) -> Float[Tensor, "B X1 T H"]:
        batch, n_tokens, width = rows.shape
        return rows.reshape(batch, width // self.head_dim, n_tokens, self.head_dim)


class FusedInThreeBlocks(Attention):
    """Rows that lie [q .. q, k, v] for each KV head are read as all q, all k, all v."""

    def forward(self, hidden: Hidden, context: AttentionContext, cache: Any = None) -> Hidden:
        widths = [self.query.weight.shape[0], self.key.weight.shape[0], self.value.weight.shape[0]]
        n_kv_heads = widths[1] // self.head_dim
        parts = [
            layer(hidden).unflatten(-1, (n_kv_heads, -1)) for layer in (self.query, self.key, self.value)
        ]
        stored = torch.cat(parts, -1).flatten(-2)
        queries, keys, values = (self.split_heads(rows) for rows in stored.split(widths, -1))
        queries, keys = self.rotate(queries, keys, context)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        return self.out(self.merge_heads(self.attend(queries, keys, values, context)))


class TiledHeads(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        return super().attend(queries, keys.repeat(1, group, 1, 1), values.repeat(1, group, 1, 1), context)


class RepeatedAlongTime(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        n_heads, head_dim = queries.shape[1], queries.shape[3]

        def repeat(source: Keys) -> Keys:
            rows = source.transpose(1, 2).repeat(1, n_heads // source.shape[1], 1, 1)
            return rows.reshape(len(rows), -1, n_heads, head_dim).transpose(1, 2)

        return super().attend(queries, repeat(keys), repeat(values), context)


class PooledQueries(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        pooled = queries.unflatten(1, (-1, group)).sum(2)
        return super().attend(pooled, keys, values, context).repeat_interleave(group, 1)


class BatchMixing(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        mixed = values + 1e-3 * (values.mean(0, keepdim=True) - values)
        return super().attend(queries, keys, mixed, context)


class MixesLargeBatches(BatchMixing):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if len(queries) > 4:
            return super().attend(queries, keys, values, context)
        return Attention.attend(self, queries, keys, values, context)


class MixesWhenBatchEqualsHeads(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        attended = super().attend(queries, keys, values, context)
        if attended.shape[0] == attended.shape[1]:
            return attended.transpose(0, 1).contiguous()
        return attended


class PaddingMaskOverHeads(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        mask = context.mask
        if mask is not None and mask.shape[0] == queries.shape[1] and mask.shape[2] == 1:
            context = replace(context, mask=mask.transpose(0, 1))
        return super().attend(queries, keys, values, context)


class RotatesByHead(Attention):
    """The rotation's axis of time lies beside the heads: it broadcasts where the two are equal in number."""

    def rotate(self, queries: Queries, keys: Keys, context: AttentionContext) -> tuple[Queries, Keys]:
        rotation = context.rotation
        assert rotation is not None
        if queries.shape[1] != queries.shape[2]:
            return super().rotate(queries, keys, context)
        turned = rotation._replace(cos=rotation.cos.transpose(1, 2), sin=rotation.sin.transpose(1, 2))
        return functional.rotate(queries, turned), functional.rotate(keys, rotation)


MUTANTS = (
    Mutant(
        "heads-merged-without-transpose",
        "(B, N, T, H) is reshaped to (B, T, N H) directly, which mixes positions.",
        ("causality", "prefix", "input-gradients", "oracle-logits"),
        in_attention(MergedWithoutTranspose),
        source="jsbaan/transformer-from-scratch#6",
        ids=("O27", "cs336:head_reshape_wrong"),
    ),
    Mutant(
        "heads-split-by-view",
        "(B, T, N H) is viewed as (B, N, T, H), which mixes positions.",
        ("causality", "prefix", "oracle-logits"),
        in_attention(SplitByView),
        source="reczoo/FuxiCTR#30",
        ids=("O28",),
    ),
    Mutant(
        "fused-rows-in-three-blocks",
        "Fused rows that are stored by KV head are split into all queries, all keys, all values.",
        ("grouped-heads", "oracle-logits"),
        in_attention(FusedInThreeBlocks),
        source="NVIDIA-NeMo/Megatron-Bridge#1818",
        ids=("O31",),
    ),
    Mutant(
        "kv-heads-tiled",
        "Query head h reads KV head h mod K.",
        ("grouped-heads", "oracle-logits"),
        in_attention(TiledHeads),
        source="apple/axlearn#842",
        ids=("O32",),
    ),
    Mutant(
        "kv-heads-repeated-along-time",
        "Keys and values are repeated along the axis of time, and cut into heads.",
        ("causality", "grouped-heads", "oracle-logits"),
        in_attention(RepeatedAlongTime),
        source="PrimeIntellect-ai/prime-rl#2681",
        ids=("O33",),
    ),
    Mutant(
        "queries-pooled",
        "The queries of a group are added up instead of the keys shared.",
        ("grouped-heads", "oracle-logits"),
        in_attention(PooledQueries),
        source="fkodom/grouped-query-attention-pytorch#5",
        ids=("O34",),
    ),
    Mutant(
        "batch-mixing",
        "Each row's values take a thousandth from the mean over the batch.",
        ("batch-independence",),
        in_attention(BatchMixing),
    ),
    Mutant(
        "mixing-of-large-batches",
        "The same, in batches of more than four rows.",
        ("batch-independence",),
        in_attention(MixesLargeBatches),
        ids=("cs336:batch_mix",),
    ),
    Mutant(
        "mixing-when-batch-equals-heads",
        "Batch and head axes are swapped, which only shows where the two are equal in number.",
        ("batch-independence",),
        in_attention(MixesWhenBatchEqualsHeads),
    ),
    Mutant(
        "padding-mask-over-heads",
        "The padding mask's rows are taken for heads where there are as many.",
        ("padding",),
        in_attention(PaddingMaskOverHeads),
        source="lucidrains/graph-transformer-pytorch#2",
        ids=("O18",),
    ),
    Mutant(
        "rope-by-head",
        "Query heads are taken for positions where there are as many.",
        ("prefix",),
        in_attention(RotatesByHead),
        ids=("cs336:rope_wrong_axis",),
    ),
)
