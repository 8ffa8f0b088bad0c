"""The first weights of a decoder."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from proof_lm.dims import Tensor
from proof_lm.model.linear import Linear
from proof_lm.model.norm import LayerNorm, RMSNorm

if TYPE_CHECKING:
    from proof_lm.model.decoder import ProofLM

STD = 0.02  # Radford et al. 2018
RESIDUAL_WRITERS = ("attention.out", "feed_forward.down")


@torch.no_grad()
def initialize(model: ProofLM, generator: torch.Generator | None = None) -> None:
    """Draws every weight of the model by its config's ``initialization``; biases 0, norm gains 1.

    The order is embedding, position embedding, then per block query, key, value, out, [gate], up, down, and
    the head last; a tied matrix is drawn twice and keeps what it got as the head.
    """
    for module in model.modules():
        if isinstance(module, LayerNorm | RMSNorm):
            module.weight.fill_(1.0)
        if isinstance(module, LayerNorm | Linear) and module.bias is not None:
            module.bias.zero_()
    scheme = model.config.initialization
    residual_std = STD / math.sqrt(2 * model.config.n_layers) if scheme == "gpt2" else STD
    for weight, role in _matrices(model):
        if scheme == "truncated_normal":
            _truncated_normal(weight, role, generator)
        else:
            std = residual_std if role == "residual" else STD
            nn.init.normal_(weight, std=std, generator=generator)


def _matrices(model: ProofLM) -> Iterator[tuple[Tensor, str]]:
    """Each matrix in the order of drawing, with its role: embedding, linear, or residual (writes to the stream)."""
    yield model.embedding.weight, "embedding"
    if model.position_embedding is not None:
        yield model.position_embedding.weight, "embedding"
    for block in model.blocks:
        for name, module in block.named_modules():
            if isinstance(module, Linear):
                yield module.weight, "residual" if name in RESIDUAL_WRITERS else "linear"
    yield model.head_weight, "linear"


def _truncated_normal(weight: Tensor, role: str, generator: torch.Generator | None) -> None:
    """N(0, 2/(d_in + d_out)) for a linear layer, N(0, 1) for an embedding; cut at 3 std (CS336)."""
    std = 1.0 if role == "embedding" else math.sqrt(2.0 / sum(weight.shape))
    nn.init.trunc_normal_(weight, std=std, a=-3.0 * std, b=3.0 * std, generator=generator)
