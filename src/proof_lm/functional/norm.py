"""Layer normalization and its root-mean-square form, over the last axis."""

from typing import Any

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
    normalized = _normalize(widen(inputs), eps, center=True)
    if bias is None:
        return (normalized * widen(weight)).to(inputs.dtype)
    return torch.addcmul(widen(bias), normalized, widen(weight)).to(inputs.dtype)


def rms_norm(
    inputs: Float[Tensor, "*rows D"], weight: Float[Tensor, " D"], eps: float
) -> Float[Tensor, "*rows D"]:
    """y = x / sqrt(mean(x^2) + eps) * weight.

    Computed in float32 at least; the result is rounded once, at the end. Source: Zhang & Sennrich 2019,
    equation 4, with eps under the root as in Llama.
    """
    return (_normalize(widen(inputs), eps, center=False) * widen(weight)).to(inputs.dtype)


def _normalize(inputs: Float[Tensor, "*rows D"], eps: float, *, center: bool) -> Float[Tensor, "*rows D"]:
    """n = c / sqrt(mean(c^2) + eps), where c = x - mean(x) if ``center``, else x."""
    # Without gradients the plain function does: going through autograd costs each decoding step some milliseconds.
    compute = _Normalize.apply if torch.is_grad_enabled() else _Normalize.forward
    normalized: Tensor = compute(inputs, eps, center)[0]
    return normalized


class _Normalize(torch.autograd.Function):
    """The formula with its derivative, dx = (g - mean(g) - n mean(g n)) / sqrt(mean(c^2) + eps).

    (Without ``center``, no mean(g).) Left to autograd, it takes about three times the passes over memory. What is
    changed in place was made here.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(inputs: Tensor, eps: float, center: bool) -> tuple[Tensor, Tensor]:
        values = inputs - inputs.mean(-1, keepdim=True) if center else inputs
        mean_square = torch.linalg.vector_norm(values, dim=-1, keepdim=True).square_() / values.shape[-1]
        scale = mean_square.add_(eps).rsqrt_()
        return values.mul_(scale) if center else values * scale, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, bool], output: tuple[Tensor, Tensor]) -> None:
        normalized, scale = output
        ctx.mark_non_differentiable(scale)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(normalized, scale)
        ctx.center = inputs[2]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None, None]:
        normalized, scale = ctx.saved_tensors
        along = (grad * normalized).mean(-1, keepdim=True)
        inner = torch.addcmul(grad, normalized, along, value=-1.0)
        if ctx.center:
            inner.sub_(grad.mean(-1, keepdim=True))
        return inner.mul_(scale), None, None
