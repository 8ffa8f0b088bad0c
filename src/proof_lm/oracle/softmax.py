"""Softmax over the last axis, with a boolean mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.errors import InputError
from proof_lm.oracle.arrays import BoolArray, FloatArray, bool_array, float_array


def softmax_forward(scores: ArrayLike, visible: ArrayLike | None = None) -> FloatArray:
    """p_s = exp(z_s) / sum_r exp(z_r) over the visible entries of the last axis, 0 at the others.

    The row's greatest visible score is subtracted first, which cancels and keeps exp from overflowing.
    What a hidden entry stores, NaN and Inf included, has no influence. A row without a visible entry
    gives zeros.

    Args:
        scores: z, (..., S).
        visible: boolean, broadcast to the scores, True = visible; None shows everything.

    Returns:
        p, (..., S).

    Raises:
        InputError: the mask is not boolean or does not broadcast to the scores.
    """
    scores = float_array("scores", scores, (..., "S"))
    if visible is not None:
        scores = np.where(broadcast_mask(visible, scores.shape), scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.where(peak == -np.inf, 0.0, peak))
    total = exponentials.sum(axis=-1, keepdims=True)
    # "!= 0" and not "> 0": a NaN among the visible scores must stay visible in the result.
    weights = np.zeros_like(exponentials)
    np.divide(exponentials, total, out=weights, where=total != 0)
    return weights


def softmax_backward(grad: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Gradient of :func:`softmax_forward` with respect to the scores: dz = p (g - sum_r p_r g_r).

    Where the weight is 0 the gradient is 0: hidden entries, and rows without a visible one, need no mask.

    Args:
        grad: g, the gradient with respect to p, (..., S).
        weights: p, the forward's result, (..., S).

    Raises:
        InputError: the shapes differ.
    """
    weights = float_array("weights", weights, (..., "S"))
    grad = float_array("grad", grad, weights.shape)
    along: FloatArray = (weights * grad).sum(axis=-1, keepdims=True)
    return weights * (grad - along)


def broadcast_mask(visible: ArrayLike, shape: tuple[int, ...]) -> BoolArray:
    """The boolean mask, broadcast (read-only) to ``shape``.

    Raises:
        InputError: it is not boolean, or does not broadcast to the shape.
    """
    mask = bool_array("visible", visible, (...,))
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        raise InputError(f"visible must broadcast to {shape}, got shape {mask.shape}") from error
