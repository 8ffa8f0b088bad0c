"""Faults of the feed-forward layer, of linear layers and of the embedding."""

from collections.abc import Callable
from typing import Any

import torch

from proof_lm.config import DecoderConfig
from proof_lm.dims import Float, Hidden, PositionIds, Tensor, TokenIds, TokenMask
from proof_lm.functional import ACTIVATIONS
from proof_lm.model import ProofLM
from proof_lm.model.feed_forward import MLP, GatedMLP
from proof_lm.model.linear import Linear
from proof_lm.verify.mutants.mutant import Mutant, become, in_decoder

GATED = {"feed_forward": "gated", "activation": "silu"}


class Swapped(GatedMLP):
    def forward(self, hidden: Hidden) -> Hidden:
        return self.down(ACTIVATIONS[self.activation](self.up(hidden)) * self.gate(hidden))


class GateIgnored(GatedMLP):
    def forward(self, hidden: Hidden) -> Hidden:
        return self.down(ACTIVATIONS[self.activation](self.up(hidden)))


class FirstTokensSlope(MLP):
    def forward(self, hidden: Hidden) -> Hidden:
        activated: Tensor = _FirstSlope.apply(self.up(hidden))  # type: ignore[no-untyped-call]
        return self.down(activated)


class _FirstSlope(torch.autograd.Function):
    """GELU whose backward takes the upstream gradient of each row's first token for all of them."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        ctx.save_for_backward(inputs)
        return torch.nn.functional.gelu(inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inputs,) = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(grad[..., :1, :].expand_as(grad).contiguous(), inputs)


class ConstantAdded(Linear):
    def forward(self, inputs: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        return super().forward(inputs) + 1e-3


class HalfPrecision(Linear):
    def forward(self, inputs: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        bias = None if self.bias is None else self.bias.bfloat16()
        output = torch.nn.functional.linear(inputs.bfloat16(), self.weight.bfloat16(), bias)
        return output.to(inputs.dtype)


class DetachedEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        return super().embed(token_ids, positions, real).detach()


class ScaledEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        return super().embed(token_ids, positions, real) * self.config.d_model**0.5


class HalfEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        hidden = super().embed(token_ids, positions, real)
        return hidden.bfloat16().to(hidden.dtype)


class AliasedGate(ProofLM):
    """Looks the feed-forward layer up under a name that means another."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        _plain_layers(self)


def _plain_layers(model: ProofLM) -> None:
    for block in model.blocks:
        block.feed_forward = MLP(model.config)


def _layers(kind: type[MLP | GatedMLP]) -> Callable[[ProofLM], None]:
    return lambda model: become([block.get_submodule("feed_forward") for block in model.blocks], kind)


def _linears(kind: type[Linear]) -> Callable[[ProofLM], None]:
    return lambda model: become([m for m in model.modules() if isinstance(m, Linear)], kind)


def _activation(name: str) -> Callable[[ProofLM], None]:
    def plant(model: ProofLM) -> None:
        for block in model.blocks:
            vars(block.get_submodule("feed_forward"))["activation"] = name

    return plant


def _alias(model: ProofLM) -> None:
    become([model], AliasedGate)
    _plain_layers(model)


MUTANTS = (
    Mutant(
        "gate-and-up-swapped",
        "act(up(x)) * gate(x).",
        ("oracle-logits",),
        _layers(Swapped),
        GATED,
        "ml-explore/mlx-lm#767",
        ids=("O59", "cs336:swiglu_swap"),
    ),
    Mutant(
        "gate-ignored",
        "A gated layer computes down(act(up(x))).",
        ("oracle-logits", "live-parameters"),
        _layers(GateIgnored),
        GATED,
    ),
    Mutant(
        "gated-is-plain",
        "The name of the gated layer is looked up as the plain one.",
        ("parameter-count",),
        _alias,
        GATED,
        "google-research/timesfm#493",
        ids=("O64",),
    ),
    Mutant(
        "other-activation",
        "The tanh form of GELU where the exact one is declared.",
        ("oracle-logits",),
        _activation("gelu_tanh"),
    ),
    Mutant(
        "gelu-for-silu",
        "The gate goes through GELU where SiLU is declared.",
        ("oracle-logits",),
        _activation("gelu"),
        GATED,
        ids=("cs336:swiglu_gelu",),
    ),
    Mutant(
        "first-tokens-slope",
        "The activation's backward takes the upstream gradient of the first token for all.",
        ("oracle-gradients", "upstream-gradients"),
        _layers(FirstTokensSlope),
    ),
    Mutant(
        "linear-plus-constant",
        "Every linear layer adds 1e-3.",
        ("oracle-logits",),
        _linears(ConstantAdded),
        ids=("cs336:linear_bias1e-3",),
    ),
    Mutant(
        "linear-in-half",
        "Linear layers compute in bfloat16.",
        ("oracle-logits",),
        _linears(HalfPrecision),
        ids=("cs336:linear_half",),
    ),
    Mutant(
        "embedding-in-half",
        "The embedding is looked up in bfloat16.",
        ("oracle-logits",),
        in_decoder(HalfEmbedding),
        ids=("cs336:embed_half",),
    ),
    Mutant(
        "embedding-detached",
        "No gradient reaches the embedding as input.",
        ("oracle-gradients", "upstream-gradients"),
        in_decoder(DetachedEmbedding),
        ids=("cs336:embed_detach",),
    ),
    Mutant(
        "embedding-scaled",
        "The embedding is multiplied by sqrt(D).",
        ("oracle-logits",),
        in_decoder(ScaledEmbedding),
        ids=("cs336:embed_scaled",),
    ),
)
