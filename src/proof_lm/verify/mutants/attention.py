"""Faults of masks, heads and scores."""

import math
from dataclasses import replace

import torch

from proof_lm import functional
from proof_lm.dims import Float, Hidden, Keys, Queries, Tensor, Values
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, attentions, become


def _attend(queries: Queries, keys: Keys, values: Values, visible: Tensor) -> Queries:
    """Sound attention under a mask of the fault's own making."""
    return functional.attention(queries, keys, values, mask=visible, causal=False)


def _triangle(queries: Queries, keys: Keys, context: AttentionContext, diagonal: int = 0) -> Tensor:
    """The causal mask, shifted by ``diagonal``, under the padding mask."""
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries + diagonal)[None, None]
    return visible if context.mask is None else visible & context.mask


class NoMask(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return functional.attention(
            queries, keys, values, mask=context.mask, causal=False, backend=context.backend
        )


class NoMaskWhenFused(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        causal = context.backend != "fused" or context.mask is not None
        return functional.attention(
            queries, keys, values, mask=context.mask, causal=causal, backend=context.backend
        )


class NoMaskWithPaddingMask(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        causal = context.mask is None
        return functional.attention(
            queries, keys, values, mask=context.mask, causal=causal, backend=context.backend
        )


class MaskOffByOne(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return _attend(queries, keys, values, _triangle(queries, keys, context, diagonal=1))


class SeesOnlyThePast(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return _attend(queries, keys, values, _triangle(queries, keys, context, diagonal=-1))


class LeakInLastRow(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        visible = _triangle(queries, keys, context).expand(len(queries), 1, -1, -1).clone()
        if queries.shape[2] > 1:
            visible[-1] = True
        return _attend(queries, keys, values, visible)


class LeakInLongSequences(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        diagonal = keys.shape[2] if queries.shape[2] > 16 else 0
        return _attend(queries, keys, values, _triangle(queries, keys, context, diagonal))


class Window(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        visible = _triangle(queries, keys, context)
        return _attend(queries, keys, values, visible & ~visible.tril(keys.shape[2] - queries.shape[2] - 12))


class MergedWithoutTranspose(Attention):
    def merge_heads(self, attended: Queries) -> Float[Tensor, "B T NH"]:
        batch, n_heads, n_tokens, head_dim = attended.shape
        return attended.reshape(batch, n_tokens, n_heads * head_dim)


class SoftmaxOverQueries(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        return functional.softmax(scores, -2, _triangle(queries, keys, context)) @ values


class MaskOfMinus20(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        hidden = scores.masked_fill(~_triangle(queries, keys, context), -20.0)
        return functional.softmax(hidden) @ values


class BatchMixing(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        mixed = values + 1e-3 * (values.mean(0, keepdim=True) - values)
        return super().attend(queries, keys, mixed, context)


class MixesWhenBatchEqualsHeads(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        attended = super().attend(queries, keys, values, context)
        if attended.shape[0] == attended.shape[1]:
            return attended.transpose(0, 1).contiguous()
        return attended


class TiledHeads(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        return super().attend(queries, keys.repeat(1, group, 1, 1), values.repeat(1, group, 1, 1), context)


class PooledQueries(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        pooled = queries.unflatten(1, (-1, group)).mean(2)
        return super().attend(pooled, keys, values, context).repeat_interleave(group, 1)


class ScaledByWidth(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        n_heads, head_dim = queries.shape[1], queries.shape[3]
        return super().attend(queries * math.sqrt(head_dim / (n_heads * head_dim)), keys, values, context)


class NoScaleWhenExplicit(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        scale = math.sqrt(queries.shape[3]) if context.backend == "explicit" else 1.0
        return super().attend(queries * scale, keys, values, context)


class DetachedWeights(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return super().attend(queries.detach(), keys.detach(), values, context)


class AddsBooleanMask(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if context.mask is None:
            return super().attend(queries, keys, values, context)
        group = queries.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1]) + context.mask
        return functional.softmax(scores, -1, _triangle(queries, keys, replace(context, mask=None))) @ values


class IgnoresPadding(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return super().attend(queries, keys, values, replace(context, mask=None))


class FirstRowsPadding(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        mask = None if context.mask is None else context.mask[:1].expand_as(context.mask)
        return super().attend(queries, keys, values, replace(context, mask=mask))


class NoGuardForEmptyRows(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        group = queries.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        hidden = scores.masked_fill(~_triangle(queries, keys, context), -math.inf)
        return hidden.softmax(-1) @ values


class TopLeftTriangle(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        n_queries, n_keys = queries.shape[2], keys.shape[2]
        if n_queries == 1:
            return super().attend(queries, keys, values, context)
        visible = torch.ones(n_queries, n_keys, dtype=torch.bool).tril()[None, None]
        return _attend(queries, keys, values, visible if context.mask is None else visible & context.mask)


class DecodesFromFirstKey(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if queries.shape[2] > 1:
            return super().attend(queries, keys, values, context)
        return super().attend(queries, keys[:, :, :1], values[:, :, :1], replace(context, mask=None))


class ReadsFreeSlots(Attention):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: object = None) -> Hidden:
        output: Hidden = super().forward(hidden, context, cache)  # type: ignore[arg-type]
        if cache is not None:
            output = output + 0.0 * cache.values[:, 0].mean((1, 2))[:, None, None]  # type: ignore[attr-defined]
        return output


def _attention(kind: type[Attention]):  # type: ignore[no-untyped-def]
    def plant(model: ProofLM) -> None:
        become(attentions(model), kind)

    return plant


MUTANTS = (
    Mutant(
        "no-causal-mask",
        "Every token sees the whole sequence.",
        ("causality", "oracle-logits", "cache"),
        _attention(NoMask),
        source="huggingface/transformers#48745",
    ),
    Mutant(
        "no-causal-mask-when-fused",
        "The fused path forgets the causal mask when no padding mask is given.",
        ("causality", "oracle-logits"),
        _attention(NoMaskWhenFused),
        source="keras-team/keras#23038",
    ),
    Mutant(
        "no-causal-mask-with-padding-mask",
        "A padding mask replaces the causal mask instead of joining it.",
        ("causality",),
        _attention(NoMaskWithPaddingMask),
        source="huggingface/transformers#31673",
    ),
    Mutant(
        "mask-off-by-one",
        "Each token sees the one after it.",
        ("causality", "oracle-logits"),
        _attention(MaskOffByOne),
    ),
    Mutant(
        "sees-only-the-past",
        "A token does not see itself.",
        ("oracle-logits",),
        _attention(SeesOnlyThePast),
    ),
    Mutant(
        "leak-in-last-row",
        "The mask is right for all rows of the batch but the last.",
        ("causality", "batch-independence"),
        _attention(LeakInLastRow),
        source="huggingface/candle#3582",
    ),
    Mutant(
        "leak-in-long-sequences",
        "The mask is dropped above 16 tokens.",
        ("causality", "oracle-logits"),
        _attention(LeakInLongSequences),
    ),
    Mutant(
        "window",
        "Keys more than 11 tokens back are not seen.",
        ("oracle-logits",),
        _attention(Window),
        source="huggingface/transformers#39408",
    ),
    Mutant(
        "heads-merged-without-transpose",
        "(B, N, T, H) is reshaped to (B, T, N H) directly, which mixes positions.",
        ("causality", "oracle-logits"),
        _attention(MergedWithoutTranspose),
        source="jsbaan/transformer-from-scratch#6",
    ),
    Mutant(
        "softmax-over-queries",
        "Attention weights are normalized over the queries.",
        ("causality", "oracle-logits"),
        _attention(SoftmaxOverQueries),
        source="labmlai/annotated_deep_learning_paper_implementations#146",
    ),
    Mutant(
        "mask-of-minus-20",
        "Hidden scores are -20 instead of -inf, so they keep a weight of about 1e-9.",
        ("causality",),
        _attention(MaskOfMinus20),
    ),
    Mutant(
        "batch-mixing",
        "Each row's values take a thousandth from the mean over the batch.",
        ("batch-independence",),
        _attention(BatchMixing),
    ),
    Mutant(
        "mixing-when-batch-equals-heads",
        "Batch and head axes are swapped, which only shows where the two are equal in number.",
        ("batch-independence",),
        _attention(MixesWhenBatchEqualsHeads),
        source="lucidrains/graph-transformer-pytorch#2",
    ),
    Mutant(
        "kv-heads-tiled",
        "Query head h reads KV head h mod K.",
        ("grouped-heads", "oracle-logits"),
        _attention(TiledHeads),
        source="apple/axlearn#842",
    ),
    Mutant(
        "queries-pooled",
        "The queries of a group are averaged instead of the keys shared.",
        ("grouped-heads", "oracle-logits"),
        _attention(PooledQueries),
        source="fkodom/grouped-query-attention-pytorch#5",
    ),
    Mutant(
        "scaled-by-width",
        "Scores are scaled by 1/sqrt(N H) instead of 1/sqrt(H).",
        ("oracle-logits", "rope"),
        _attention(ScaledByWidth),
        source="FareedKhan-dev/train-llm-from-scratch#3",
    ),
    Mutant(
        "no-scale-when-explicit",
        "One of two attention paths does not scale its scores.",
        ("oracle-logits", "rope"),
        _attention(NoScaleWhenExplicit),
        source="mlc-ai/mlc-llm#3426",
    ),
    Mutant(
        "attention-detached",
        "No gradient runs through the attention weights.",
        ("oracle-gradients",),
        _attention(DetachedWeights),
    ),
    Mutant(
        "boolean-mask-added",
        "The padding mask is added to the scores as 0 and 1.",
        ("padding",),
        _attention(AddsBooleanMask),
        source="huggingface/transformers#41443",
    ),
    Mutant(
        "padding-ignored",
        "Attention drops the padding mask.",
        ("padding", "oracle-logits"),
        _attention(IgnoresPadding),
        source="ml-explore/mlx-lm#1906",
    ),
    Mutant(
        "padding-of-first-row",
        "Every row gets the padding mask of the first.",
        ("padding", "oracle-logits"),
        _attention(FirstRowsPadding),
    ),
    Mutant(
        "no-guard-for-empty-rows",
        "A query that sees no key gives NaN.",
        ("padding",),
        _attention(NoGuardForEmptyRows),
        source="huggingface/transformers#38690",
    ),
    Mutant(
        "triangle-at-top-left",
        "In a cached chunk query t sees keys up to t, not up to the past's length plus t.",
        ("cache",),
        _attention(TopLeftTriangle),
        source="pytorch/pytorch#108108",
    ),
    Mutant(
        "decodes-from-first-key",
        "A single query sees the oldest key only.",
        ("cache",),
        _attention(DecodesFromFirstKey),
        source="google/flax#5591",
    ),
    Mutant(
        "free-slots-read",
        "Free cache slots enter with weight 0, which does not hide a NaN.",
        ("cache",),
        _attention(ReadsFreeSlots),
        source="pytorch/pytorch#101967",
    ),
)
