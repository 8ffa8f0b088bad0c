"""Rotary position embedding, with explicit positions and in both layouts."""

from typing import NamedTuple

import torch

from proof_lm.config import RopeLayout
from proof_lm.dims import Float, Int, Tensor
from proof_lm.functional.precision import accumulation_dtype


class Rotation(NamedTuple):
    """The cosine and sine of every position's angles, and which dimensions make a pair."""

    cos: Float[Tensor, "B 1 T half_H"]
    sin: Float[Tensor, "B 1 T half_H"]
    layout: RopeLayout


def rope_rotation(
    position_ids: Int[Tensor, "B T"], head_dim: int, theta: float, layout: RopeLayout, dtype: torch.dtype
) -> Rotation:
    """angle(p, i) = p * theta^(-2i / head_dim), for each position p and pair i < head_dim / 2.

    The angles are computed in float32 at least, and in float64 for float64 models, since a position above
    256 has no exact bfloat16. Nothing is tabulated: there is no table to outgrow, to cast or to forget.
    Source: Su et al. 2021, section 3.2.2.
    """
    wide = accumulation_dtype(dtype)
    pair = torch.arange(0, head_dim, 2, dtype=wide, device=position_ids.device)
    angles = position_ids.to(wide)[:, None, :, None] * theta ** (-pair / head_dim)
    return Rotation(angles.cos(), angles.sin(), layout)


def rotate(vectors: Float[Tensor, "B N T H"], rotation: Rotation) -> Float[Tensor, "B N T H"]:
    """Turns each pair (a, b) into (a cos - b sin, a sin + b cos).

    A pair is (2i, 2i+1) in the ``"interleaved"`` layout and (i, i + H/2) in the ``"half"`` layout; the two
    differ by a fixed permutation of the head's dimensions.
    """
    cos, sin, layout = rotation
    if layout == "interleaved":
        first, second = vectors.unflatten(-1, (-1, 2)).unbind(-1)
    else:
        first, second = vectors.chunk(2, dim=-1)
    turned = (
        torch.addcmul(first * cos, second, sin, value=-1.0),
        torch.addcmul(first * sin, second, cos),
    )
    whole = torch.stack(turned, -1).flatten(-2) if layout == "interleaved" else torch.cat(turned, -1)
    return whole.to(vectors.dtype)
