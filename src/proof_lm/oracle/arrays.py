"""Array types and the checks of shape and kind that every part of the oracle shares.

The letters in shapes: B batch, T time (queries), S source (keys), D d_model, N query heads, K key/value
heads, H head width, F d_ff, V vocabulary. ``...`` stands for any leading axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proof_lm.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Axis = int | str | EllipsisType


def float_array(name: str, value: ArrayLike, shape: Sequence[Axis]) -> FloatArray:
    """``value`` as float64 (no copy where it is float64 already), with a shape that fits ``shape``.

    Raises:
        InputError: the value does not hold real numbers, or its shape does not fit.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}")
    require_shape(name, array.shape, shape)
    return array.astype(np.float64, copy=False)


def int_array(name: str, value: ArrayLike, shape: Sequence[Axis]) -> IntArray:
    """``value`` as int64, with a shape that fits ``shape``.

    Raises:
        InputError: the value does not hold integers, or its shape does not fit.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must hold integers, got dtype {array.dtype}")
    require_shape(name, array.shape, shape)
    return array.astype(np.int64, copy=False)


def bool_array(name: str, value: ArrayLike, shape: Sequence[Axis]) -> BoolArray:
    """``value`` as a boolean array, with a shape that fits ``shape``. Nothing else is taken for a boolean.

    Raises:
        InputError: the dtype is not bool, or the shape does not fit.
    """
    array = np.asarray(value)
    if array.dtype != np.bool_:
        raise InputError(f"{name} must be boolean, got dtype {array.dtype}")
    require_shape(name, array.shape, shape)
    return array


def require_shape(name: str, actual: Sequence[int], expected: Sequence[Axis]) -> None:
    """Check a shape: a number must be met, a letter accepts any length, a first ``...`` any leading axes.

    Raises:
        InputError: the shape does not fit; the message has both shapes.
    """
    wanted, got = list(expected), list(actual)
    if wanted and wanted[0] is ...:
        wanted = wanted[1:]
        got = got[max(0, len(got) - len(wanted)) :]
    if len(wanted) != len(got) or any(
        isinstance(w, int) and w != g for w, g in zip(wanted, got, strict=True)
    ):
        written = ", ".join("..." if axis is ... else str(axis) for axis in expected)
        written += "," if len(expected) == 1 else ""
        raise InputError(f"{name} must have shape ({written}), got {tuple(actual)}")


def require_range(name: str, values: IntArray, limit: int) -> None:
    """Check that all values lie in 0 .. limit - 1.

    Raises:
        InputError: one does not; the message has the offender.
    """
    outside = values[(values < 0) | (values >= limit)]
    if outside.size:
        raise InputError(f"{name} must lie in 0..{limit - 1}, got {int(outside[0])}")


def rows(array: FloatArray) -> FloatArray:
    """All leading axes folded into one: (..., D) -> (rows, D)."""
    return array.reshape(-1, array.shape[-1])
