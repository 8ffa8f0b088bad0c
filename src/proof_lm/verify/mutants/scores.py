"""Faults of attention's scores and weights: their scale, hidden values, softmax and gradient."""

import math
from dataclasses import replace

import torch

from proof_lm import functional
from proof_lm.dims import Keys, Queries, Tensor, Values
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_attention
from proof_lm.verify.mutants.parts import expanded, scores_of, triangle


class Scored(Attention):
    """Explicit attention, whose weights each fault makes in its own way."""

    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        raise AssertionError("each fault says how")

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        visible = triangle(queries, keys, context)
        if context.mask is not None:
            empty = ~visible.any(2).any(1)[:, None, :, None]
            keys, values = keys.masked_fill(empty, 0.0), values.masked_fill(empty, 0.0)
        keys, values = expanded(queries, keys, values)
        return self.weights(scores_of(queries, keys), visible) @ values


class SoftmaxOverQueries(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return functional.softmax(scores, -2, visible)


class ScoresTransposed(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        square = scores.shape[-1] == scores.shape[-2]
        return functional.softmax(scores.mT if square else scores, visible=visible)


class Filled(Scored):
    """Hidden scores get a finite value."""

    fill = 0.0

    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return functional.softmax(scores.masked_fill(~visible, self.fill))


class FilledWithMinus20(Filled):
    fill = -20.0


class FilledWithMinus50(Filled):
    fill = -50.0


class FilledWithMinus1e4(Filled):
    fill = -1e4


class FilledBeyondHalf(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        stand_in = torch.tensor(-1e10).to(scores.dtype)
        return functional.softmax(scores + (~visible).to(scores.dtype) * stand_in)


class HidesAfterSoftmax(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return functional.softmax(scores) * visible


class RoundedToBfloat16(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        weights = functional.softmax(scores, visible=visible)
        return weights.to(torch.bfloat16).to(scores.dtype)


class ExtraInDenominator(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        hidden = scores.masked_fill(~visible, -math.inf)
        powers = (hidden - scores.detach().amax(-1, keepdim=True)).exp()
        return powers / (powers.sum(-1, keepdim=True) + 1e-6)


class GlobalMaximum(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        hidden = scores.masked_fill(~visible, -math.inf)
        powers = (hidden - scores.detach().max()).exp()
        total = powers.sum(-1, keepdim=True)
        return powers / total.masked_fill(~visible.any(-1, keepdim=True), 1.0)


class NoMaximum(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        powers = scores.masked_fill(~visible, -math.inf).exp()
        total = powers.sum(-1, keepdim=True)
        return powers / total.masked_fill(~visible.any(-1, keepdim=True), 1.0)


class NoGuardForEmptyRows(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return scores.masked_fill(~visible, -math.inf).softmax(-1)


class MaskedInForwardOnly(Scored):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        unmasked = functional.softmax(scores)
        return unmasked + (functional.softmax(scores, visible=visible) - unmasked).detach()


class AddsBooleanMask(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if context.mask is None:
            return super().attend(queries, keys, values, context)
        keys, values = expanded(queries, keys, values)
        scores = scores_of(queries, keys) + context.mask
        visible = triangle(queries, keys, replace(context, mask=None))
        return functional.softmax(scores, visible=visible) @ values


class Scaled(Attention):
    """Scores times a factor."""

    def factor(self, queries: Queries, keys: Keys, context: AttentionContext) -> float:
        raise AssertionError("each fault says which")

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        scaled = queries * self.factor(queries, keys, context)
        return super().attend(scaled, keys, values, context)


class ScaledByWidth(Scaled):
    def factor(self, queries: Queries, keys: Keys, context: AttentionContext) -> float:
        return 1.0 / math.sqrt(queries.shape[1])


class ScaledByKeys(Scaled):
    def factor(self, queries: Queries, keys: Keys, context: AttentionContext) -> float:
        return math.sqrt(queries.shape[3] / keys.shape[2])


class NoScaleWhenExplicit(Scaled):
    def factor(self, queries: Queries, keys: Keys, context: AttentionContext) -> float:
        return math.sqrt(queries.shape[3]) if context.backend == "explicit" else 1.0


class DetachedWeights(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return super().attend(queries.detach(), keys.detach(), values, context)


MUTANTS = (
    Mutant(
        "softmax-over-queries",
        "Attention weights are normalized over the queries.",
        ("causality", "prefix", "oracle-logits"),
        in_attention(SoftmaxOverQueries),
        source="labmlai/annotated_deep_learning_paper_implementations#146",
        ids=("O29",),
    ),
    Mutant(
        "scores-transposed",
        "Keys take the place of queries in the score product.",
        ("oracle-logits", "cache"),
        in_attention(ScoresTransposed),
        source="keras-team/keras-hub#1429",
        ids=("O30",),
    ),
    Mutant(
        "mask-of-minus-20",
        "Hidden scores are -20 instead of -inf, so they keep a weight of about 1e-9.",
        ("causality", "sharp-attention", "input-gradients", "padding"),
        in_attention(FilledWithMinus20),
        ids=("cs336:mask_-20",),
    ),
    Mutant(
        "mask-of-minus-50",
        "Hidden scores are -50: below rounding until visible scores are as low.",
        ("sharp-attention",),
        in_attention(FilledWithMinus50),
        ids=("cs336:mask_-50",),
    ),
    Mutant(
        "mask-of-minus-1e4",
        "Hidden scores are -10000, which only scores as low bring to light.",
        ("sharp-attention",),
        in_attention(FilledWithMinus1e4),
        ids=("cs336:mask_-1e4",),
    ),
    Mutant(
        "mask-beyond-half-precision",
        "Hidden scores get -1e10 times a mask of 0 and 1, which is NaN in float16.",
        ("narrow-dtypes",),
        in_attention(FilledBeyondHalf),
        source="huggingface/transformers#382",
        ids=("O14",),
    ),
    Mutant(
        "hidden-after-softmax",
        "Weights are hidden after the softmax, and no longer sum to 1.",
        ("causality", "oracle-logits"),
        in_attention(HidesAfterSoftmax),
        ids=("cs336:mask_after_softmax_norenorm",),
    ),
    Mutant(
        "weights-rounded",
        "Attention weights are rounded to bfloat16.",
        ("oracle-logits",),
        in_attention(RoundedToBfloat16),
        ids=("cs336:attn_bf16_p",),
    ),
    Mutant(
        "softmax-denominator-enlarged",
        "1e-6 is added to the sum that weights are divided by.",
        ("oracle-logits",),
        in_attention(ExtraInDenominator),
        ids=("cs336:softmax_eps",),
    ),
    Mutant(
        "softmax-global-maximum",
        "The largest score of all rows is subtracted, so that rows far below it become 0 / 0.",
        ("sharp-attention",),
        in_attention(GlobalMaximum),
        ids=("cs336:softmax_max_global",),
    ),
    Mutant(
        "softmax-no-maximum",
        "No maximum is subtracted, so that high scores overflow.",
        ("sharp-attention",),
        in_attention(NoMaximum),
        ids=("cs336:softmax_no_max",),
    ),
    Mutant(
        "no-guard-for-empty-rows",
        "A query that sees no key gives NaN.",
        ("padding",),
        in_attention(NoGuardForEmptyRows),
        source="huggingface/transformers#38690",
        ids=("O12", "cs336:fully_masked_guard_none"),
    ),
    Mutant(
        "mask-in-forward-only",
        "The backward pass goes through attention without a mask.",
        ("input-gradients", "gradient-directions", "oracle-gradients"),
        in_attention(MaskedInForwardOnly),
    ),
    Mutant(
        "attention-detached",
        "No gradient runs through the attention weights.",
        ("gradient-directions", "oracle-gradients"),
        in_attention(DetachedWeights),
        ids=("cs336:attn_detach_p",),
    ),
    Mutant(
        "boolean-mask-added",
        "The padding mask is added to the scores as 0 and 1.",
        ("padding",),
        in_attention(AddsBooleanMask),
        source="huggingface/transformers#41443",
        ids=("O11",),
    ),
    Mutant(
        "scaled-by-width",
        "Scores are scaled by 1/sqrt(N H) instead of 1/sqrt(H).",
        ("oracle-logits", "rope"),
        in_attention(ScaledByWidth),
        source="FareedKhan-dev/train-llm-from-scratch#3",
        ids=("O60",),
    ),
    Mutant(
        "scaled-by-keys",
        "Scores are scaled by the root of the number of keys.",
        ("prefix", "cache", "oracle-logits"),
        in_attention(ScaledByKeys),
        ids=("cs336:scale_kT",),
    ),
    Mutant(
        "no-scale-when-explicit",
        "One of two attention paths does not scale its scores.",
        ("oracle-logits", "rope"),
        in_attention(NoScaleWhenExplicit),
        source="mlc-ai/mlc-llm#3426",
        ids=("O61",),
    ),
)
