"""Activations, and the two forms of the feed-forward layer."""

import math
from collections.abc import Callable
from typing import Any

import torch

from proof_lm.config import Activation
from proof_lm.dims import Float, Tensor
from proof_lm.functional.linear import linear
from proof_lm.functional.precision import widen

Affine = tuple[Tensor, Tensor | None]


def gelu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * (1 + erf(x / sqrt(2))) / 2: x times the normal distribution function (Hendrycks & Gimpel 2016)."""
    wide = widen(inputs)
    return (0.5 * wide * (1.0 + torch.erf(wide * math.sqrt(0.5)))).to(inputs.dtype)


def gelu_tanh(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * (1 + tanh(u)) / 2 with u = sqrt(2/pi) * (x + 0.044715 x^3) (Hendrycks & Gimpel 2016; GPT-2).

    The same as x * sigmoid(2u).
    """
    slope = 2.0 * math.sqrt(2.0 / math.pi)
    return _sigmoid_gate(inputs, slope, 0.044715 * slope)


def silu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * sigmoid(x) (Elfwing et al. 2018)."""
    return _sigmoid_gate(inputs, 1.0, 0.0)


def _sigmoid_gate(inputs: Float[Tensor, "*rows"], linear: float, cubic: float) -> Float[Tensor, "*rows"]:
    compute = _SigmoidGate.apply if torch.is_grad_enabled() else _SigmoidGate.forward
    outputs: Tensor = compute(widen(inputs), linear, cubic)[0]
    return outputs.to(inputs.dtype)


class _SigmoidGate(torch.autograd.Function):
    """y = x g with g = sigmoid(a x + b x^3), and its derivative g + g (1 - g) (a x + 3 b x^3).

    Left to autograd, it takes about twice the passes over memory, and these are the widest activations. What is
    changed in place was made here.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(inputs: Tensor, linear: float, cubic: float) -> tuple[Tensor, Tensor]:
        gate = _odd_cubic(inputs, linear, cubic).sigmoid_()
        return inputs * gate, gate

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: tuple[Tensor, Tensor]) -> None:
        values, ctx.linear, ctx.cubic = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(values, output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None, None]:
        values, gate = ctx.saved_tensors
        slope = _odd_cubic(values, ctx.linear, 3.0 * ctx.cubic).mul_(gate)
        return slope.addcmul_(slope, gate, value=-1.0).add_(gate).mul_(grad), None, None


def _odd_cubic(values: Tensor, linear: float, cubic: float) -> Tensor:
    """a x + b x^3, in memory of its own."""
    return (values * values).mul_(cubic).add_(linear).mul_(values) if cubic else values * linear


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
