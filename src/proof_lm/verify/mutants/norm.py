"""Faults of the normalization layers."""

from collections.abc import Callable

import torch

from proof_lm.dims import Float, Tensor
from proof_lm.model import ProofLM
from proof_lm.model.norm import LayerNorm, RMSNorm
from proof_lm.verify.mutants.mutant import Mutant, become, mix_in, norms

RMS = {"norm": "rmsnorm"}
Rows = Float[Tensor, "*rows D"]


class DividesByRsqrt(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        return inputs / (inputs.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class EpsOutside(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        return inputs / (inputs.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.weight


class Centered(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        return super().forward(inputs - inputs.mean(-1, keepdim=True))


class UnitOffset(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        return super().forward(inputs) * (1.0 + self.weight) / self.weight


class DetachedScale(RMSNorm):
    def forward(self, inputs: Rows) -> Rows:
        scale = (inputs.square().mean(-1, keepdim=True) + self.eps).rsqrt().detach()
        return inputs * scale * self.weight


class UnbiasedVariance(LayerNorm):
    def forward(self, inputs: Rows) -> Rows:
        variance, mean = torch.var_mean(inputs, -1, correction=1, keepdim=True)
        bias = 0.0 if self.bias is None else self.bias
        return (inputs - mean) * (variance + self.eps).rsqrt() * self.weight + bias


class OverTime(LayerNorm):
    def forward(self, inputs: Rows) -> Rows:
        variance, mean = torch.var_mean(inputs, (-2, -1), correction=0, keepdim=True)
        bias = 0.0 if self.bias is None else self.bias
        return (inputs - mean) * (variance + self.eps).rsqrt() * self.weight + bias


class BiasUnused(LayerNorm):
    def forward(self, inputs: Rows) -> Rows:
        normalized = super().forward(inputs)
        return normalized if self.bias is None else normalized - self.bias + 0.0 * self.bias.sum()


class PassesThrough:
    def forward(self, inputs: Rows) -> Rows:
        return inputs


def _norms(kind: type[LayerNorm | RMSNorm]) -> Callable[[ProofLM], None]:
    return lambda model: become(norms(model), kind)


def _no_final_norm(model: ProofLM) -> None:
    mix_in([model.final_norm], PassesThrough)


def _eps(value: float) -> Callable[[ProofLM], None]:
    def plant(model: ProofLM) -> None:
        for norm in norms(model):
            vars(norm)["eps"] = value

    return plant


MUTANTS = (
    Mutant(
        "divides-by-rsqrt",
        "x / rsqrt(mean square + eps), so the norm amplifies.",
        ("norm-formula", "oracle-logits"),
        _norms(DividesByRsqrt),
        RMS,
        "mosaicml/llm-foundry#372",
        ids=("O52",),
    ),
    Mutant(
        "eps-outside-root",
        "x / (rms + eps).",
        ("norm-formula",),
        _norms(EpsOutside),
        RMS,
        "allenai/OLMo#281",
        ids=("O53", "cs336:rms_eps_outside"),
    ),
    Mutant(
        "eps-too-small",
        "eps is 1e-6 where the config says 1e-5.",
        ("norm-formula",),
        _eps(1e-6),
        ids=("cs336:rms_eps1e-6",),
    ),
    Mutant("eps-zero", "eps is 0.", ("norm-formula",), _eps(0.0), RMS, ids=("cs336:rms_eps0",)),
    Mutant(
        "rms-centered",
        "RMSNorm subtracts the mean.",
        ("norm-formula", "oracle-logits"),
        _norms(Centered),
        RMS,
        ids=("cs336:rms_center",),
    ),
    Mutant(
        "gain-plus-one",
        "The gain w acts as 1 + w.",
        ("norm-formula", "oracle-logits"),
        _norms(UnitOffset),
        RMS,
        ids=("cs336:rms_unit_offset",),
    ),
    Mutant(
        "unbiased-variance", "The variance is divided by D - 1.", ("norm-formula",), _norms(UnbiasedVariance)
    ),
    Mutant(
        "statistics-over-time",
        "Mean and variance are taken over all positions.",
        ("norm-formula", "causality"),
        _norms(OverTime),
    ),
    Mutant(
        "norm-bias-unused",
        "LayerNorm does not add its bias.",
        ("norm-formula", "live-parameters"),
        _norms(BiasUnused),
    ),
    Mutant(
        "rms-detached",
        "No gradient runs through the root mean square.",
        ("oracle-gradients", "upstream-gradients"),
        _norms(DetachedScale),
        RMS,
        ids=("cs336:rms_detach",),
    ),
    Mutant(
        "no-final-norm",
        "The head reads the last block's output as it is.",
        ("oracle-logits", "final-norm", "live-parameters"),
        _no_final_norm,
        ids=("cs336:no_final_norm",),
    ),
)
