"""Rotary position embedding (Su et al. 2021) in both pairings of dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.errors import InputError
from proof_lm.oracle.arrays import FloatArray, float_array, int_array


def rope_angles(position_ids: ArrayLike, head_width: int, theta: float) -> FloatArray:
    """angle(p, i) = p theta^(-2i/H) for the pairs i = 0 .. H/2 - 1 (Su et al. 2021, eq. 15).

    Args:
        position_ids: p, integers, (...).
        head_width: H, even.
        theta: base of the frequencies.

    Returns:
        Angles in radians, (..., H/2).

    Raises:
        InputError: the width is odd, or the positions are not integers.
    """
    if head_width < 2 or head_width % 2:
        raise InputError(f"head_width must be even to rotate pairs, got {head_width}")
    positions = int_array("position_ids", position_ids, (...,)).astype(np.float64)
    frequencies = theta ** (-2.0 * np.arange(head_width // 2) / head_width)
    angles: FloatArray = positions[..., None] * frequencies
    return angles


def rotate_forward(vectors: ArrayLike, angles: ArrayLike, layout: str) -> FloatArray:
    """Turn every pair (a, b) by its angle: (a cos - b sin, a sin + b cos).

    Args:
        vectors: queries or keys of one head, (..., T, H).
        angles: (..., T, H/2), as from :func:`rope_angles`.
        layout: ``"interleaved"`` pairs the dimensions (2i, 2i+1), ``"half"`` the dimensions (i, i + H/2).

    Returns:
        The rotated vectors, (..., T, H).

    Raises:
        InputError: the shapes do not fit each other, or the layout is unknown.
    """
    vectors = float_array("vectors", vectors, (..., "T", "H"))
    angles = float_array("angles", angles, (..., vectors.shape[-2], vectors.shape[-1] // 2))
    first, second = _pairs(vectors.shape[-1], layout)
    a, b = vectors[..., first], vectors[..., second]
    rotated = np.empty_like(vectors)
    rotated[..., first] = a * np.cos(angles) - b * np.sin(angles)
    rotated[..., second] = a * np.sin(angles) + b * np.cos(angles)
    return rotated


def rotate_backward(grad: ArrayLike, angles: ArrayLike, layout: str) -> FloatArray:
    """Gradient of :func:`rotate_forward` with respect to the vectors.

    A rotation is orthogonal, so its transpose is the rotation by the opposite angle.
    """
    return rotate_forward(grad, -np.asarray(angles, dtype=np.float64), layout)


def _pairs(head_width: int, layout: str) -> tuple[slice, slice]:
    """The dimensions of the first and of the second members of all pairs."""
    if head_width % 2:
        raise InputError(f"head width must be even to rotate pairs, got {head_width}")
    if layout == "interleaved":
        return slice(0, None, 2), slice(1, None, 2)
    if layout == "half":
        return slice(0, head_width // 2), slice(head_width // 2, None)
    raise InputError(f"layout must be 'interleaved' or 'half', got {layout!r}")
