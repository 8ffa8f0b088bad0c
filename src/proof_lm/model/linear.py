"""The affine layer."""

import math

import torch
from torch import nn

from proof_lm import functional
from proof_lm.dims import Float, Tensor


class Linear(nn.Module):
    """y = x W^T + b, with W stored (out, in).

    A layer alone starts as ``torch.nn.Linear`` does: uniform within 1/sqrt(in), weight before bias.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        limit = 1.0 / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -limit, limit)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -limit, limit)

    def forward(self, inputs: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        return functional.linear(inputs, self.weight, self.bias)

    def affine(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias, as the functions of ``proof_lm.functional`` take them."""
        return self.weight, self.bias
