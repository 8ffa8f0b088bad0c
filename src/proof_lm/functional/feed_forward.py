"""Activations, and the two forms of the feed-forward layer."""

import math
from collections.abc import Callable

import torch

from proof_lm.config import Activation
from proof_lm.dims import Float, Tensor
from proof_lm.functional.linear import linear

Affine = tuple[Tensor, Tensor | None]


def gelu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * (1 + erf(x / sqrt(2))) / 2: x times the normal distribution function (Hendrycks & Gimpel 2016)."""
    return 0.5 * inputs * (1.0 + torch.erf(inputs * math.sqrt(0.5)))


def gelu_tanh(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * (1 + tanh(u)) / 2 with u = sqrt(2/pi) * (x + 0.044715 x^3) (Hendrycks & Gimpel 2016; GPT-2).

    Written as x * sigmoid(2u), which is the same and takes fewer passes over memory.
    """
    slope = 2.0 * math.sqrt(2.0 / math.pi)
    return inputs * torch.sigmoid(inputs * (slope + 0.044715 * slope * inputs.square()))


def silu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * sigmoid(x) (Elfwing et al. 2018)."""
    return inputs * torch.sigmoid(inputs)


def relu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """max(x, 0), with derivative 0 at 0."""
    return torch.relu(inputs)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "relu": relu,
}


def mlp(
    inputs: Float[Tensor, "*rows D"], up: Affine, down: Affine, activation: Activation
) -> Float[Tensor, "*rows D"]:
    """down(act(up(x))), where each projection is (weight, bias or None)."""
    return linear(ACTIVATIONS[activation](linear(inputs, *up)), *down)


def gated_mlp(
    inputs: Float[Tensor, "*rows D"], gate: Affine, up: Affine, down: Affine, activation: Activation
) -> Float[Tensor, "*rows D"]:
    """down(act(gate(x)) * up(x)): with SiLU this is SwiGLU, with GELU GeGLU (Shazeer 2020, equation 5)."""
    return linear(ACTIVATIONS[activation](linear(inputs, *gate)) * linear(inputs, *up), *down)
