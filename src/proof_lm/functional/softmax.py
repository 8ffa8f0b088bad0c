"""A softmax that is stable, and defined where nothing is visible."""

import math

from proof_lm.dims import Bool, Float, Tensor
from proof_lm.functional.precision import widen


def softmax(
    scores: Float[Tensor, "*rows"], dim: int = -1, visible: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*rows"]:
    """w_i = exp(s_i - m) / sum_j exp(s_j - m), with m the largest visible score along ``dim``.

    Scores that are not ``visible`` (a mask that broadcasts to the scores) count as -inf and get the weight 0
    exactly, whatever is stored there, NaN included. A row without a visible entry is all zeros, with zero
    gradients. Computed in float32 at least; m is a constant of the shift, so no gradient runs through it.
    """
    wide = widen(scores)
    if visible is not None:
        wide = wide.masked_fill(~visible, -math.inf)
    peak = wide.detach().amax(dim, keepdim=True)
    weights = (wide - peak.masked_fill(peak == -math.inf, 0.0)).exp()
    total = weights.sum(dim, keepdim=True)
    return (weights / total.masked_fill(total == 0.0, 1.0)).to(scores.dtype)
