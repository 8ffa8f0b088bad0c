"""Central differences: the derivative, measured from the forward pass alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from proof_lm.errors import InputError
from proof_lm.oracle.arrays import FloatArray

BASE_STEP = float(np.cbrt(np.finfo(np.float64).eps))  # about 6.06e-6


def central_difference(
    function: Callable[[FloatArray], float],
    array: NDArray[Any],
    indices: Sequence[tuple[SupportsIndex, ...]],
    step: float | None = None,
) -> FloatArray:
    """(f(x + h e) - f(x - h e)) / 2h for the unit vectors e of some entries.

    The error has two parts: h^2 |f'''| / 6 from the third derivative, and about eps |f| / h from the
    rounding of the two values. Their sum is least near h = cbrt(3 eps |f| / |f'''|); with f and f''' of
    order 1 that is cbrt(eps), and what remains is of order eps^(2/3), about 4e-11. The default step is
    therefore cbrt(eps) max(1, |x|) for an entry x.

    Args:
        function: f, from the array to a number.
        array: x, float64. An entry is changed in place while f is called, and put back in any case: f may
            as well read the array from where it is stored, and a large tensor is not copied.
        indices: full indices of the entries to differentiate by.
        step: h for every entry; None takes the default.

    Returns:
        One derivative for each index.

    Raises:
        InputError: the array is not float64, or the step is not positive.
    """
    if array.dtype != np.float64:
        raise InputError(f"array must be float64, got {array.dtype}")
    if step is not None and not step > 0:
        raise InputError(f"step must be positive, got {step}")
    derivatives = np.empty(len(indices))
    for n, index in enumerate(indices):
        centre = float(array[index])
        h = BASE_STEP * max(1.0, abs(centre)) if step is None else step
        above, below = centre + h, centre - h
        try:
            array[index] = above
            f_above = function(array)
            array[index] = below
            f_below = function(array)
        finally:
            array[index] = centre
        # The distance as stored: centre + h is rounded, and the rounding is not part of the derivative.
        derivatives[n] = (f_above - f_below) / (above - below)
    return derivatives
