"""Faults of the causal mask: missing on one path, misaligned, or of one row only."""

from __future__ import annotations

from typing import Any

import torch

from proof_lm import functional
from proof_lm.dims import Hidden, Keys, Queries, Values
from proof_lm.model import KVCache, ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, attentions, become, in_attention
from proof_lm.verify.mutants.parts import attend, triangle


class Uncausal(Attention):
    """Attention that is causal only sometimes."""

    def is_causal(self, context: AttentionContext) -> bool:
        raise AssertionError("each fault says when")

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return functional.attention(
            queries,
            keys,
            values,
            mask=context.mask,
            causal=self.is_causal(context),
            dropout_probability=self.dropout if self.training else 0.0,
            backend=context.backend,
        )


class NoMask(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return False


class NoMaskWhenFused(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return context.backend != "fused" or context.mask is not None


class NoMaskWithPaddingMask(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return context.mask is None


class MaskWithPaddingMaskOnly(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return context.mask is not None


class NoMaskWithDropout(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return not (self.training and self.dropout > 0)


class NoMaskInTraining(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return not self.training


class NoMaskWithDropoutDeclared(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return self.dropout == 0


class NoMaskWithoutCache(Uncausal):
    cached = False

    def forward(self, hidden: Hidden, context: AttentionContext, cache: Any = None) -> Hidden:
        self.cached = cache is not None
        return super().forward(hidden, context, cache)

    def is_causal(self, context: AttentionContext) -> bool:
        return self.cached


class NoMaskOnPrefill(Uncausal):
    prefills = False

    def forward(self, hidden: Hidden, context: AttentionContext, cache: Any = None) -> Hidden:
        self.prefills = cache is not None and cache.start == 0
        return super().forward(hidden, context, cache)

    def is_causal(self, context: AttentionContext) -> bool:
        return not self.prefills


class MaskFromCacheSetUp(Uncausal):
    is_set_up = False

    def is_causal(self, context: AttentionContext) -> bool:
        return self.is_set_up


class SetsUpMask(ProofLM):
    def new_cache(self, batch_size: int, capacity: int | None = None) -> KVCache:
        for layer in attentions(self):
            assert isinstance(layer, MaskFromCacheSetUp)
            layer.is_set_up = True
        return super().new_cache(batch_size, capacity)


class MaskOffByOne(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return attend(queries, keys, values, triangle(queries, keys, context, diagonal=1))


class SeesOnlyThePast(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return attend(queries, keys, values, triangle(queries, keys, context, diagonal=-1))


class MaskInverted(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return attend(queries, keys, values, ~triangle(queries, keys, context))


class LeakInLastRow(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        visible = triangle(queries, keys, context).expand(len(queries), 1, -1, -1).clone()
        if queries.shape[2] > 1:
            visible[-1] = True
        return attend(queries, keys, values, visible)


class NoMaskWhenCompiled(Uncausal):
    def is_causal(self, context: AttentionContext) -> bool:
        return not torch.compiler.is_compiling()


class LeakInFirstRow(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        visible = triangle(queries, keys, context).expand(len(queries), 1, -1, -1).clone()
        visible[0] = True
        return attend(queries, keys, values, visible)


class MaskOfFirstRowOnly(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        visible = triangle(queries, keys, context).expand(len(queries), 1, -1, -1).clone()
        visible[1:] = True
        return attend(queries, keys, values, visible)


class LeakInLongSequences(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        diagonal = keys.shape[2] if queries.shape[2] > 16 else 0
        return attend(queries, keys, values, triangle(queries, keys, context, diagonal))


class AtTopLeft(Attention):
    """The triangle of as many keys as queries, whatever the cache holds."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        n_past = keys.shape[2] - queries.shape[2]
        return attend(queries, keys, values, triangle(queries, keys, context, diagonal=-n_past))


class AtTopLeftInChunks(AtTopLeft):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if queries.shape[2] == 1:
            return Attention.attend(self, queries, keys, values, context)
        return super().attend(queries, keys, values, context)


class DecodesFromFirstKey(AtTopLeft):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if queries.shape[2] > 1:
            return Attention.attend(self, queries, keys, values, context)
        return super().attend(queries, keys, values, context)


class CombinedByProduct(Attention):
    """In additive masks 0 says visible, and 0 times anything is 0."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if context.mask is None:
            return super().attend(queries, keys, values, context)
        n_queries = queries.shape[2]
        alone = triangle(queries, keys, AttentionContext(context.backend))
        either = alone | context.mask if n_queries > 1 else context.mask
        return attend(queries, keys, values, either)


def _mask_from_cache_set_up(model: ProofLM) -> None:
    become(attentions(model), MaskFromCacheSetUp)
    become([model], SetsUpMask)


MUTANTS = (
    Mutant(
        "no-causal-mask",
        "Every token sees the whole sequence.",
        ("causality", "sharp-attention", "input-gradients", "prefix", "oracle-logits", "cache"),
        in_attention(NoMask),
        ids=("cs336:causal_none",),
    ),
    Mutant(
        "no-causal-mask-without-cache",
        "The causal mask is built only where there is a cache.",
        ("causality", "prefix", "oracle-logits", "cache"),
        in_attention(NoMaskWithoutCache),
        source="huggingface/transformers#48745",
        ids=("O01",),
    ),
    Mutant(
        "no-causal-mask-on-prefill",
        "The causal mask is forgotten where a cache is still empty.",
        ("causality", "cache"),
        in_attention(NoMaskOnPrefill),
    ),
    Mutant(
        "no-causal-mask-when-fused",
        "The fused path forgets the causal mask when no padding mask is given.",
        ("causality", "oracle-logits"),
        in_attention(NoMaskWhenFused),
    ),
    Mutant(
        "no-causal-mask-with-dropout",
        "A path that is taken in training with dropout forgets the causal mask.",
        ("causality", "input-gradients"),
        in_attention(NoMaskWithDropout),
        source="keras-team/keras#23038",
        ids=("O02",),
    ),
    Mutant(
        "no-causal-mask-in-training",
        "The causal mask is missing in train mode.",
        ("causality", "input-gradients"),
        in_attention(NoMaskInTraining),
    ),
    Mutant(
        "no-causal-mask-where-dropout-declared",
        "A model that declares dropout has no causal mask, in eval mode too.",
        ("causality",),
        in_attention(NoMaskWithDropoutDeclared),
    ),
    Mutant(
        "causal-mask-with-padding-mask-only",
        "The causal mask is applied only where a padding mask is given.",
        ("causality", "oracle-logits", "prefix"),
        in_attention(MaskWithPaddingMaskOnly),
        source="facebookresearch/xformers#103",
        ids=("O03",),
    ),
    Mutant(
        "causal-mask-from-cache-set-up",
        "The causal mask exists from the first cache on; before it every token sees the whole sequence.",
        ("causality",),
        _mask_from_cache_set_up,
        source="meta-pytorch/torchtune#959",
        ids=("O04",),
    ),
    Mutant(
        "no-causal-mask-with-padding-mask",
        "A padding mask replaces the causal mask instead of joining it.",
        ("causality",),
        in_attention(NoMaskWithPaddingMask),
    ),
    Mutant(
        "masks-combined-by-product",
        "Additive masks are multiplied, so that what either shows is visible.",
        ("causality", "padding"),
        in_attention(CombinedByProduct),
        source="huggingface/transformers#31673",
        ids=("O10",),
    ),
    Mutant(
        "mask-off-by-one",
        "Each token sees the one after it.",
        ("causality", "sharp-attention", "input-gradients", "prefix", "oracle-logits"),
        in_attention(MaskOffByOne),
        ids=("cs336:causal_off_by_one",),
    ),
    Mutant(
        "sees-only-the-past",
        "A token does not see itself.",
        ("oracle-logits",),
        in_attention(SeesOnlyThePast),
    ),
    Mutant(
        "mask-inverted",
        "What is hidden is visible, and what is visible hidden.",
        ("causality", "oracle-logits"),
        in_attention(MaskInverted),
        ids=("cs336:mask_inverted",),
    ),
    Mutant(
        "leak-in-last-row",
        "The mask is right for all rows of the batch but the last.",
        ("causality", "batch-independence"),
        in_attention(LeakInLastRow),
        ids=("cs336:causal_last_row_only_leak",),
    ),
    Mutant(
        "no-causal-mask-when-compiled",
        "What torch.compile traces forgets the causal mask.",
        ("compiled",),
        in_attention(NoMaskWhenCompiled),
    ),
    Mutant(
        "leak-in-first-row",
        "The first row of the batch has no mask.",
        ("causality", "batch-independence"),
        in_attention(LeakInFirstRow),
    ),
    Mutant(
        "mask-of-first-row-only",
        "The mask is filled for the first row of the batch, and empty for the others.",
        ("causality", "batch-independence"),
        in_attention(MaskOfFirstRowOnly),
        source="huggingface/candle#3582",
        ids=("O17",),
    ),
    Mutant(
        "leak-in-long-sequences",
        "The mask is dropped above 16 tokens.",
        ("causality", "prefix", "oracle-logits"),
        in_attention(LeakInLongSequences),
        ids=("cs336:causal_strict_leak16",),
    ),
    Mutant(
        "causal-flag-at-top-left",
        "The causal flag is passed whatever the numbers of queries and keys: query t sees keys up to t.",
        ("cache",),
        in_attention(AtTopLeft),
        source="pytorch/pytorch#108108",
        ids=("O05",),
    ),
    Mutant(
        "triangle-at-top-left",
        "In a cached chunk query t sees keys up to t, not up to the past's length plus t.",
        ("cache",),
        in_attention(AtTopLeftInChunks),
        source="hyprstream/hyprstream#1521",
        ids=("O06",),
    ),
    Mutant(
        "decodes-from-first-key",
        "A single query sees the oldest key only.",
        ("cache",),
        in_attention(DecodesFromFirstKey),
        source="google/flax#5591",
        ids=("O07",),
    ),
)
