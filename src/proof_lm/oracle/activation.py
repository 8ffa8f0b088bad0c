"""The activations of the feed-forward layer and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.errors import InputError
from proof_lm.oracle.arrays import FloatArray, float_array

_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715  # Hendrycks & Gimpel 2016


def activation_forward(name: str, inputs: ArrayLike) -> FloatArray:
    """The named activation, entry by entry.

    ``gelu`` x Phi(x), with the normal distribution function Phi; ``gelu_tanh`` x (1 + tanh(sqrt(2/pi)
    (x + 0.044715 x^3))) / 2 (both Hendrycks & Gimpel 2016); ``silu`` x / (1 + exp(-x)) (Elfwing et al.
    2017); ``relu`` max(x, 0).

    Args:
        name: one of the config's activations.
        inputs: x, any shape.

    Raises:
        InputError: there is no activation of that name.
    """
    return _functions(name)[0](float_array("inputs", inputs, (...,)))


def activation_backward(name: str, grad: ArrayLike, inputs: ArrayLike) -> FloatArray:
    """Gradient of :func:`activation_forward`: grad times the derivative at x; relu's derivative at 0 is 0.

    Raises:
        InputError: there is no activation of that name, or the shapes differ.
    """
    inputs = float_array("inputs", inputs, (...,))
    return float_array("grad", grad, inputs.shape) * _functions(name)[1](inputs)


def _functions(name: str) -> tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]]:
    if name not in _ACTIVATIONS:
        raise InputError(f"activation must be one of {', '.join(_ACTIVATIONS)}, got {name!r}")
    return _ACTIVATIONS[name]


def _normal_distribution(x: FloatArray) -> FloatArray:
    """Phi(x) = erfc(-x / sqrt(2)) / 2; erfc, not 1 + erf, keeps the digits of the lower tail."""
    arguments = (x / -math.sqrt(2.0)).ravel().tolist()
    return np.fromiter(map(math.erfc, arguments), np.float64, x.size).reshape(x.shape) / 2


def _gelu(x: FloatArray) -> FloatArray:
    return x * _normal_distribution(x)


def _gelu_slope(x: FloatArray) -> FloatArray:
    """Phi(x) + x phi(x), with the normal density phi."""
    return _normal_distribution(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _tanh_of_cubic(x: FloatArray) -> FloatArray:
    values: FloatArray = np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))
    return values


def _gelu_tanh(x: FloatArray) -> FloatArray:
    return x * (1 + _tanh_of_cubic(x)) / 2


def _gelu_tanh_slope(x: FloatArray) -> FloatArray:
    """(1 + t) / 2 + x (1 - t^2) u' / 2, with t = tanh(u) and u = sqrt(2/pi) (x + 0.044715 x^3)."""
    t = _tanh_of_cubic(x)
    return (1 + t) / 2 + x * (1 - t * t) * _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x) / 2


def _sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)); the exponential of -|x| cannot overflow."""
    decay: FloatArray = np.exp(-np.abs(x))
    above: FloatArray = np.where(x >= 0, 1.0, decay)
    return above / (1 + decay)


def _silu(x: FloatArray) -> FloatArray:
    return x * _sigmoid(x)


def _silu_slope(x: FloatArray) -> FloatArray:
    """s (1 + x (1 - s)), with s = sigmoid(x) and 1 - s = sigmoid(-x)."""
    return _sigmoid(x) * (1 + x * _sigmoid(-x))


def _relu(x: FloatArray) -> FloatArray:
    return np.maximum(x, 0.0)


def _relu_slope(x: FloatArray) -> FloatArray:
    return (x > 0).astype(np.float64)


_ACTIVATIONS = {
    "gelu": (_gelu, _gelu_slope),
    "gelu_tanh": (_gelu_tanh, _gelu_tanh_slope),
    "silu": (_silu, _silu_slope),
    "relu": (_relu, _relu_slope),
}
