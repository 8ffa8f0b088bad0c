"""Faults of norms, residual path, feed-forward layer and embedding."""

from collections.abc import Callable

import torch

from proof_lm.dims import Float, Hidden, PositionIds, Tensor, TokenIds, TokenMask
from proof_lm.functional import ACTIVATIONS
from proof_lm.model import ProofLM
from proof_lm.model.attention import AttentionContext
from proof_lm.model.block import Block
from proof_lm.model.cache import CacheLayer
from proof_lm.model.feed_forward import GatedMLP
from proof_lm.model.norm import LayerNorm, RMSNorm
from proof_lm.verify.mutants.mutant import Mutant, become, norms

GATED = {"feed_forward": "gated", "activation": "silu"}
RMS = {"norm": "rmsnorm"}


class EpsOutside(RMSNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return inputs / (inputs.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.weight


class Centered(RMSNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return super().forward(inputs - inputs.mean(-1, keepdim=True))


class UnitOffset(RMSNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return super().forward(inputs) * (1.0 + self.weight) / self.weight


class DetachedScale(RMSNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        scale = (inputs.square().mean(-1, keepdim=True) + self.eps).rsqrt().detach()
        return inputs * scale * self.weight


class UnbiasedVariance(LayerNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        variance, mean = torch.var_mean(inputs, -1, correction=1, keepdim=True)
        bias = 0.0 if self.bias is None else self.bias
        return (inputs - mean) * (variance + self.eps).rsqrt() * self.weight + bias


class OverTime(LayerNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        variance, mean = torch.var_mean(inputs, (-2, -1), correction=0, keepdim=True)
        bias = 0.0 if self.bias is None else self.bias
        return (inputs - mean) * (variance + self.eps).rsqrt() * self.weight + bias


class BiasUnused(LayerNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        normalized = super().forward(inputs)
        return normalized if self.bias is None else normalized - self.bias + 0.0 * self.bias.sum()


class PassesThrough(LayerNorm):
    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return inputs


class AfterNorm(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        hidden = self.attention_norm(hidden)
        hidden = hidden + self.attention(hidden, context, cache)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class SecondSkipFromInput(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        middle = hidden + self.attention(self.attention_norm(hidden), context, cache)
        return hidden + self.feed_forward(self.feed_forward_norm(middle))


class NoFirstSkip(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        middle = self.attention(self.attention_norm(hidden), context, cache)
        return middle + self.feed_forward(self.feed_forward_norm(middle))


class Parallel(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        attended = self.attention(self.attention_norm(hidden), context, cache)
        return hidden + attended + self.feed_forward(self.feed_forward_norm(hidden))


class PostNorm(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        hidden = self.attention_norm(hidden + self.attention(hidden, context, cache))
        return self.feed_forward_norm(hidden + self.feed_forward(hidden))


class DetachedResidual(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        attended = self.attention(self.attention_norm(hidden), context, cache)
        hidden = hidden.detach() + attended
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


class Swapped(GatedMLP):
    def forward(self, hidden: Hidden) -> Hidden:
        return self.down(ACTIVATIONS[self.activation](self.up(hidden)) * self.gate(hidden))


class DetachedEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        return super().embed(token_ids, positions, real).detach()


class ScaledEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        return super().embed(token_ids, positions, real) * self.config.d_model**0.5


class LearnedSkippedForOneToken(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        hidden = super().embed(token_ids, positions, real)
        assert self.position_embedding is not None
        return hidden if token_ids.shape[1] > 1 else hidden - self.position_embedding(positions)


def _norms(kind: type[LayerNorm | RMSNorm]) -> Callable[[ProofLM], None]:
    return lambda model: become(norms(model), kind)


def _blocks(kind: type[Block]) -> Callable[[ProofLM], None]:
    return lambda model: become(model.blocks, kind)


def _decoder(kind: type[ProofLM]) -> Callable[[ProofLM], None]:
    return lambda model: become([model], kind)


def _no_final_norm(model: ProofLM) -> None:
    become([model.final_norm], PassesThrough)


def _smaller_eps(model: ProofLM) -> None:
    for norm in norms(model):
        vars(norm)["eps"] = 1e-6


def _other_activation(model: ProofLM) -> None:
    for block in model.blocks:
        vars(block.get_submodule("feed_forward"))["activation"] = "gelu_tanh"


def _swap(model: ProofLM) -> None:
    become([block.get_submodule("feed_forward") for block in model.blocks], Swapped)


MUTANTS = (
    Mutant(
        "eps-outside-root", "x / (rms + eps).", ("norm-formula",), _norms(EpsOutside), RMS, "allenai/OLMo#281"
    ),
    Mutant("eps-too-small", "eps is 1e-6 where the config says 1e-5.", ("norm-formula",), _smaller_eps),
    Mutant(
        "rms-centered",
        "RMSNorm subtracts the mean.",
        ("norm-formula", "oracle-logits"),
        _norms(Centered),
        RMS,
    ),
    Mutant(
        "gain-plus-one",
        "The gain w acts as 1 + w.",
        ("norm-formula", "oracle-logits"),
        _norms(UnitOffset),
        RMS,
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
    Mutant("norm-bias-unused", "LayerNorm does not add its bias.", ("norm-formula",), _norms(BiasUnused)),
    Mutant(
        "rms-detached",
        "No gradient runs through the root mean square.",
        ("oracle-gradients",),
        _norms(DetachedScale),
        RMS,
    ),
    Mutant(
        "no-final-norm",
        "The head reads the last block's output as it is.",
        ("oracle-logits",),
        _no_final_norm,
    ),
    Mutant(
        "residual-after-norm",
        "The skip path carries the normalized values.",
        ("residual-path", "oracle-logits"),
        _blocks(AfterNorm),
        source="pytorch/pytorch#61165",
    ),
    Mutant(
        "second-skip-from-input",
        "The feed-forward branch is added to the block's input, so attention is lost.",
        ("residual-path", "oracle-logits"),
        _blocks(SecondSkipFromInput),
        source="strutive07/transformer-tensorflow2.0#14",
    ),
    Mutant("no-first-skip", "Attention replaces its input.", ("residual-path",), _blocks(NoFirstSkip)),
    Mutant(
        "parallel-branches", "Both branches read the block's input.", ("residual-path",), _blocks(Parallel)
    ),
    Mutant("post-norm", "Norms follow the additions.", ("residual-path", "oracle-logits"), _blocks(PostNorm)),
    Mutant(
        "residual-detached",
        "No gradient runs through the skip path of attention.",
        ("residual-path", "oracle-gradients"),
        _blocks(DetachedResidual),
    ),
    Mutant(
        "gate-and-up-swapped",
        "act(up(x)) * gate(x).",
        ("oracle-logits",),
        _swap,
        GATED,
        "ml-explore/mlx-lm#767",
    ),
    Mutant(
        "other-activation",
        "The tanh form of GELU where the exact one is declared.",
        ("oracle-logits",),
        _other_activation,
    ),
    Mutant(
        "embedding-detached",
        "No gradient reaches the embedding as input.",
        ("oracle-gradients",),
        _decoder(DetachedEmbedding),
    ),
    Mutant(
        "embedding-scaled",
        "The embedding is multiplied by sqrt(D).",
        ("oracle-logits",),
        _decoder(ScaledEmbedding),
    ),
    Mutant(
        "position-skipped-for-one-token",
        "Learned positions are added only to calls of two tokens or more.",
        ("cache",),
        _decoder(LearnedSkippedForOneToken),
        {"position": "learned"},
        "ml-explore/mlx-lm#93",
    ),
)
