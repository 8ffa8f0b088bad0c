"""Inverted dropout."""

import torch

from proof_lm.dims import Float, Tensor


def dropout(inputs: Float[Tensor, "*rows"], probability: float) -> Float[Tensor, "*rows"]:
    """Zeroes each entry with the given probability and divides the others by 1 - probability.

    The caller passes 0 outside training; then the input comes back untouched and no random number is drawn.
    Source: Srivastava et al. 2014, in the inverted form.
    """
    if probability == 0.0:
        return inputs
    kept = torch.rand_like(inputs) >= probability
    return inputs * kept / (1.0 - probability)
