"""Layer normalization and its root-mean-square form, over the last axis."""

import torch

from proof_lm.dims import Float, Tensor
from proof_lm.functional.precision import widen


def layer_norm(
    inputs: Float[Tensor, "*rows D"],
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"] | None,
    eps: float,
) -> Float[Tensor, "*rows D"]:
    """y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, with the biased variance.

    Statistics, gain and bias are applied in float32 at least; the result is rounded once, at the end.
    Source: Ba, Kiros & Hinton 2016, equation 4.
    """
    wide = widen(inputs)
    centered = wide - wide.mean(-1, keepdim=True)
    scale = (centered.square().mean(-1, keepdim=True) + eps).rsqrt()
    normalized = centered * scale
    gained = (
        normalized * widen(weight) if bias is None else torch.addcmul(widen(bias), normalized, widen(weight))
    )
    return gained.to(inputs.dtype)


def rms_norm(
    inputs: Float[Tensor, "*rows D"], weight: Float[Tensor, " D"], eps: float
) -> Float[Tensor, "*rows D"]:
    """y = x / sqrt(mean(x^2) + eps) * weight.

    Computed in float32 at least; the result is rounded once, at the end. Source: Zhang & Sennrich 2019,
    equation 4, with eps under the root as in Llama.
    """
    wide = widen(inputs)
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide * scale * widen(weight)).to(inputs.dtype)
