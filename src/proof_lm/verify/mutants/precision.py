"""Faults that only half precision shows."""

from collections.abc import Callable

import torch

from proof_lm import functional
from proof_lm.dims import Float, Keys, Queries, Tensor, Values
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.model.norm import RMSNorm
from proof_lm.verify.mutants.mutant import Mutant, become, in_attention, norms

RMS = {"norm": "rmsnorm"}
Rows = Float[Tensor, "*rows D"]


class RoundedBeforeGain(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        return functional.rms_norm(inputs, torch.ones_like(self.weight), self.eps) * self.weight


class EpsOfTheDtype(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        return functional.rms_norm(inputs, self.weight, max(self.eps, torch.finfo(inputs.dtype).eps))


class VarianceInHalf(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        mean_square = inputs.square().mean(-1, keepdim=True)
        wide = torch.promote_types(inputs.dtype, torch.float32)
        normalized = inputs.to(wide) * (mean_square.to(wide) + self.eps).rsqrt() * self.weight.to(wide)
        return normalized.to(inputs.dtype)


class ScaledAfterProduct(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        n_queries, n_keys = queries.shape[2], keys.shape[2]
        if queries.dtype != torch.float16 or n_queries != n_keys or context.mask is not None:
            return super().attend(queries, keys, values, context)
        group = queries.shape[1] // keys.shape[1]
        scores = queries @ keys.repeat_interleave(group, 1).mT / queries.shape[-1] ** 0.5
        visible = functional.causal_mask(n_queries, n_keys, queries.device, window=context.window)
        weights = functional.softmax(scores, visible=visible[None, None])
        return weights @ values.repeat_interleave(group, 1)


class WeightsInEightBits(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if queries.dtype not in (torch.float16, torch.bfloat16):
            return super().attend(queries, keys, values, context)
        queries, keys, values = (
            tensor.to(torch.float8_e5m2).to(tensor.dtype) for tensor in (queries, keys, values)
        )
        return super().attend(queries, keys, values, context)


def _norms(kind: type[RMSNorm]) -> Callable[[ProofLM], None]:
    return lambda model: become(norms(model), kind)


MUTANTS = (
    Mutant(
        "rounded-before-gain",
        "The normalized value is rounded, then multiplied by the gain and rounded again.",
        ("half-precision",),
        _norms(RoundedBeforeGain),
        RMS,
        "huggingface/transformers#29402",
        ids=("O54",),
    ),
    Mutant(
        "eps-of-the-dtype",
        "In half precision eps is the dtype's machine epsilon.",
        ("half-precision",),
        _norms(EpsOfTheDtype),
        RMS,
        "pytorch/pytorch#189581",
        ids=("O56",),
    ),
    Mutant(
        "variance-in-half",
        "The mean square is reduced in the activations' dtype.",
        ("half-precision",),
        _norms(VarianceInHalf),
        RMS,
        "sgl-project/sglang#27540",
        ids=("O98",),
    ),
    Mutant(
        "scaled-after-product",
        "In float16 scores are scaled after the product, which overflows.",
        ("half-precision",),
        in_attention(ScaledAfterProduct),
        source="huggingface/transformers#17437",
        ids=("O97",),
    ),
    Mutant(
        "attention-in-eight-bits",
        "In half precision attention reads its inputs in eight bits.",
        ("half-precision",),
        in_attention(WeightsInEightBits),
    ),
)
