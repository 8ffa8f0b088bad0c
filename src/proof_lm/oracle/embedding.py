"""Table look-up, for tokens and for learned positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.oracle.arrays import FloatArray, float_array, int_array, require_range


def embedding_forward(ids: ArrayLike, table: ArrayLike) -> FloatArray:
    """Row ``table[id]`` for every id.

    Args:
        ids: integers in 0 .. V-1, of any shape.
        table: (V, D).

    Returns:
        (..., D).

    Raises:
        InputError: an id lies outside the table, or is not an integer.
    """
    table = float_array("table", table, ("V", "D"))
    ids = int_array("ids", ids, (...,))
    require_range("ids", ids, table.shape[0])
    return table[ids]


def embedding_backward(grad: ArrayLike, ids: ArrayLike, into: FloatArray) -> None:
    """Add the gradient of the look-up to ``into``: every row receives the sum over its occurrences.

    It adds in place, so that a tied table keeps one array of its size for both of its uses.

    Args:
        grad: gradient with respect to the looked-up rows, (..., D).
        ids: as in the forward pass, (...).
        into: gradient of the table so far, (V, D); changed in place.

    Raises:
        InputError: the shapes do not fit each other, or an id lies outside the table.
    """
    ids = int_array("ids", ids, (...,))
    grad = float_array("grad", grad, (*ids.shape, into.shape[-1]))
    require_range("ids", ids, into.shape[0])
    np.add.at(into, ids, grad)
