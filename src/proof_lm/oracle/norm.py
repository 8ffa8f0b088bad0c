"""LayerNorm and RMSNorm over the last axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.config import DecoderConfig
from proof_lm.oracle.arrays import FloatArray, float_array, rows


@dataclass(frozen=True, eq=False)
class NormTrace:
    """What the backward pass needs: the normalised input (..., D) and 1 / its former scale (..., 1)."""

    normalized: FloatArray
    inverse_scale: FloatArray


def layer_norm_forward(
    inputs: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, *, eps: float = 1e-5
) -> tuple[FloatArray, NormTrace]:
    """n = (x - mean) / sqrt(var + eps), y = n * weight + bias, with the biased variance (Ba et al. 2016).

    Args:
        inputs: x, (..., D).
        weight: (D,).
        bias: (D,), or None for no bias.
        eps: added to the variance under the root; with 0, a row without spread gives NaN.

    Returns:
        y, (..., D), and the trace for :func:`layer_norm_backward`.

    Raises:
        InputError: the shapes do not fit each other.
    """
    inputs = float_array("inputs", inputs, (..., "D"))
    weight = float_array("weight", weight, inputs.shape[-1:])
    centred = inputs - inputs.mean(axis=-1, keepdims=True)
    trace = _normalize(centred, eps)
    outputs = trace.normalized * weight
    return (outputs if bias is None else outputs + float_array("bias", bias, weight.shape)), trace


def layer_norm_backward(
    grad: ArrayLike, weight: ArrayLike, trace: NormTrace
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of :func:`layer_norm_forward`.

    With g = grad * weight: dx = (g - mean(g) - n mean(g n)) / sqrt(var + eps), the means over the last
    axis; dweight = sum of grad * n and dbias = sum of grad over all leading axes.

    Returns:
        dx (..., D), dweight (D,) and dbias (D,); the last is to be dropped where there is no bias.

    Raises:
        InputError: the shapes do not fit each other.
    """
    grad, scaled = _scaled_gradient(grad, weight, trace)
    scaled = scaled - scaled.mean(axis=-1, keepdims=True)
    return (
        _through_scale(scaled, trace),
        rows(grad * trace.normalized).sum(axis=0),
        rows(grad).sum(axis=0),
    )


def rms_norm_forward(
    inputs: ArrayLike, weight: ArrayLike, *, eps: float = 1e-5
) -> tuple[FloatArray, NormTrace]:
    """n = x / sqrt(mean(x^2) + eps), y = n * weight (Zhang & Sennrich 2019).

    Args:
        inputs: x, (..., D).
        weight: (D,).
        eps: added to the mean square under the root; with 0, a row of zeros gives NaN.

    Returns:
        y, (..., D), and the trace for :func:`rms_norm_backward`.

    Raises:
        InputError: the shapes do not fit each other.
    """
    inputs = float_array("inputs", inputs, (..., "D"))
    weight = float_array("weight", weight, inputs.shape[-1:])
    trace = _normalize(inputs, eps)
    return trace.normalized * weight, trace


def rms_norm_backward(grad: ArrayLike, weight: ArrayLike, trace: NormTrace) -> tuple[FloatArray, FloatArray]:
    """Gradients of :func:`rms_norm_forward`.

    With g = grad * weight: dx = (g - n mean(g n)) / sqrt(mean(x^2) + eps), the means over the last axis;
    dweight = sum of grad * n over all leading axes.

    Returns:
        dx (..., D) and dweight (D,).

    Raises:
        InputError: the shapes do not fit each other.
    """
    grad, scaled = _scaled_gradient(grad, weight, trace)
    return _through_scale(scaled, trace), rows(grad * trace.normalized).sum(axis=0)


def norm_forward(
    config: DecoderConfig, parameters: Mapping[str, FloatArray], inputs: FloatArray
) -> tuple[FloatArray, NormTrace]:
    """The config's norm, with ``parameters`` ``weight`` (D,) and, where there is one, ``bias`` (D,)."""
    if config.norm == "rmsnorm":
        return rms_norm_forward(inputs, parameters["weight"], eps=config.norm_eps)
    return layer_norm_forward(inputs, parameters["weight"], parameters.get("bias"), eps=config.norm_eps)


def norm_backward(
    config: DecoderConfig, parameters: Mapping[str, FloatArray], grad: FloatArray, trace: NormTrace
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Gradients of :func:`norm_forward`: with respect to the input, and to every parameter by name."""
    if config.norm == "rmsnorm":
        grad_inputs, grad_weight = rms_norm_backward(grad, parameters["weight"], trace)
        return grad_inputs, {"weight": grad_weight}
    grad_inputs, grad_weight, grad_bias = layer_norm_backward(grad, parameters["weight"], trace)
    return grad_inputs, {"weight": grad_weight} | ({"bias": grad_bias} if config.norm_bias else {})


def _normalize(values: FloatArray, eps: float) -> NormTrace:
    """``values`` over the root of their mean square + eps; NaN, without a warning, where that is 0 / 0."""
    root = np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + eps)
    inverse = np.divide(1.0, root, out=np.full_like(root, np.nan), where=root != 0)
    return NormTrace(normalized=values * inverse, inverse_scale=inverse)


def _scaled_gradient(grad: ArrayLike, weight: ArrayLike, trace: NormTrace) -> tuple[FloatArray, FloatArray]:
    """``grad``, checked, and the gradient with respect to the normalised input, grad * weight."""
    grad = float_array("grad", grad, trace.normalized.shape)
    return grad, grad * float_array("weight", weight, grad.shape[-1:])


def _through_scale(grad: FloatArray, trace: NormTrace) -> FloatArray:
    """Gradient through the division by the root mean square: (g - n mean(g n)) / root."""
    along = (grad * trace.normalized).mean(axis=-1, keepdims=True)
    through: FloatArray = (grad - trace.normalized * along) * trace.inverse_scale
    return through
