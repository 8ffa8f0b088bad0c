"""The linear layer y = x W^T + b, with weights stored (out, in)."""

from __future__ import annotations

from numpy.typing import ArrayLike

from proof_lm.oracle.arrays import FloatArray, float_array, rows


def linear_forward(inputs: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> FloatArray:
    """y = x W^T + b.

    Args:
        inputs: x, (..., in).
        weight: W, (out, in).
        bias: b, (out,), or None for no bias.

    Returns:
        y, (..., out).

    Raises:
        InputError: the shapes do not fit each other.
    """
    weight = float_array("weight", weight, ("out", "in"))
    inputs = float_array("inputs", inputs, (..., weight.shape[1]))
    outputs: FloatArray = inputs @ weight.T
    return outputs if bias is None else outputs + float_array("bias", bias, weight.shape[:1])


def linear_backward(
    grad: ArrayLike, inputs: ArrayLike, weight: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of :func:`linear_forward`: dx = g W, dW = g^T x, db = sum of g over all leading axes.

    Args:
        grad: g, the gradient with respect to y, (..., out).
        inputs: x, (..., in).
        weight: W, (out, in).

    Returns:
        dx (..., in), dW (out, in) and db (out,); the last is to be dropped where there is no bias.

    Raises:
        InputError: the shapes do not fit each other.
    """
    weight = float_array("weight", weight, ("out", "in"))
    inputs = float_array("inputs", inputs, (..., weight.shape[1]))
    grad = float_array("grad", grad, (*inputs.shape[:-1], weight.shape[0]))
    return grad @ weight, rows(grad).T @ rows(inputs), rows(grad).sum(axis=0)
