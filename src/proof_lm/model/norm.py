"""The two normalizations, with their gains."""

import torch
from torch import nn

from proof_lm import functional
from proof_lm.config import DecoderConfig
from proof_lm.dims import Float, Tensor


class LayerNorm(nn.Module):
    """Per position: mean 0 and variance 1, then gain and (optionally) bias."""

    def __init__(self, width: int, *, eps: float, bias: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return functional.layer_norm(inputs, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Per position: root mean square 1, then gain."""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return functional.rms_norm(inputs, self.weight, self.eps)


def build_norm(config: DecoderConfig) -> LayerNorm | RMSNorm:
    """The normalization that the config names, of width ``d_model``."""
    if config.norm == "layernorm":
        return LayerNorm(config.d_model, eps=config.norm_eps, bias=bool(config.norm_bias))
    return RMSNorm(config.d_model, eps=config.norm_eps)
