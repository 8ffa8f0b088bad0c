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

_GELU_SLOPE = 2.0 * math.sqrt(2.0 / math.pi)
_SIGMOID_GATES: dict[Activation, tuple[float, float]] = {
    "silu": (1.0, 0.0),
    "gelu_tanh": (_GELU_SLOPE, 0.044715 * _GELU_SLOPE),
}
"""a and b of the activations that are x * sigmoid(a x + b x^3)."""


def gelu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * (1 + erf(x / sqrt(2))) / 2: x times the normal distribution function (Hendrycks & Gimpel 2016)."""
    wide = widen(inputs)
    return (0.5 * wide * (1.0 + torch.erf(wide * math.sqrt(0.5)))).to(inputs.dtype)


def gelu_tanh(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * (1 + tanh(u)) / 2 with u = sqrt(2/pi) * (x + 0.044715 x^3) (Hendrycks & Gimpel 2016; GPT-2).

    The same as x * sigmoid(2u).
    """
    return _sigmoid_gate(inputs, None, *_SIGMOID_GATES["gelu_tanh"])


def silu(inputs: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """x * sigmoid(x) (Elfwing et al. 2018)."""
    return _sigmoid_gate(inputs, None, *_SIGMOID_GATES["silu"])


def _sigmoid_gate(
    inputs: Float[Tensor, "*rows"], factor: Float[Tensor, "*rows"] | None, linear: float, cubic: float
) -> Float[Tensor, "*rows"]:
    compute = _SigmoidGate.apply if torch.is_grad_enabled() else _SigmoidGate.forward
    outputs: Tensor = compute(widen(inputs), None if factor is None else widen(factor), linear, cubic)
    return outputs.to(inputs.dtype)


class _SigmoidGate(torch.autograd.Function):
    """y = x g f with g = sigmoid(a x + b x^3); dy/dx = f (g + g (1 - g) (a x + 3 b x^3)); f is 1 where there is none.

    Left to autograd, it takes about twice the passes over memory and keeps twice the tensors, and these are the
    widest activations: here x and f are kept, and g is computed again. What is changed in place was made here.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(inputs: Tensor, factor: Tensor | None, linear: float, cubic: float) -> Tensor:
        outputs = _gate(inputs, linear, cubic).mul_(inputs)
        return outputs if factor is None else outputs.mul_(factor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None, float, float], output: Tensor) -> None:
        values, factor, ctx.linear, ctx.cubic = inputs
        ctx.save_for_backward(values, factor)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        values, factor = ctx.saved_tensors
        gate = _gate(values, ctx.linear, ctx.cubic)
        slope = _odd_cubic(values, ctx.linear, 3.0 * ctx.cubic).mul_(gate)
        slope = slope.addcmul_(slope, gate, value=-1.0).add_(gate).mul_(grad)
        if factor is None:
            return slope, None, None, None
        return slope.mul_(factor), gate.mul_(values).mul_(grad), None, None


def _gate(values: Tensor, linear: float, cubic: float) -> Tensor:
    """sigmoid(a x + b x^3), in memory of its own."""
    if (linear, cubic) == (1.0, 0.0):
        return torch.sigmoid(values)
    return _odd_cubic(values, linear, cubic).sigmoid_()


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
    gated, factor = linear(inputs, *gate), linear(inputs, *up)
    if activation in _SIGMOID_GATES:
        return linear(_sigmoid_gate(gated, factor, *_SIGMOID_GATES[activation]), *down)
    return linear(ACTIVATIONS[activation](gated) * factor, *down)
