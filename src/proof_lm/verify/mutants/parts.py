"""Sound pieces that faulty attention layers are made of."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from proof_lm import functional
from proof_lm.dims import Bool, Float, Keys, Queries, Tensor, Values
from proof_lm.functional import Rotation, rope_rotation
from proof_lm.model import ProofLM
from proof_lm.model.attention import AttentionContext

WINDOWED: Mapping[str, Any] = {"sliding_window": 3}
LEARNED: Mapping[str, Any] = {"position": "learned"}


def attend(queries: Queries, keys: Keys, values: Values, visible: Tensor) -> Queries:
    """Sound attention under a mask of the fault's own making."""
    return functional.attention(queries, keys, values, mask=visible, causal=False)


def triangle(
    queries: Queries, keys: Keys, context: AttentionContext, diagonal: int = 0
) -> Bool[Tensor, "#B 1 T S"]:
    """The causal mask, shifted by ``diagonal``, under the padding mask."""
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries + diagonal)[None, None]
    return visible if context.mask is None else visible & context.mask


def band(queries: Queries, keys: Keys, context: AttentionContext, window: int) -> Bool[Tensor, "#B 1 T S"]:
    """The causal mask of a window, under the padding mask."""
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    return triangle(queries, keys, context).triu(n_keys - n_queries - window + 1)


def expanded(
    queries: Queries, keys: Keys, values: Values
) -> tuple[Float[Tensor, "B N S H"], Float[Tensor, "B N S H"]]:
    """Keys and values once for every query head."""
    group = queries.shape[1] // keys.shape[1]
    return keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)


def scores_of(queries: Queries, keys: Keys) -> Float[Tensor, "B N T S"]:
    """Scaled scores, nothing hidden, of queries with as many keys."""
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


def rotation_at(
    model: ProofLM, positions: Tensor, *, theta: float | None = None, dtype: torch.dtype | None = None
) -> Rotation:
    """The rotation of a model at these positions, or with another base."""
    config = model.config
    return rope_rotation(
        positions,
        config.head_width,
        config.rope_theta if theta is None else theta,
        config.rope_layout,
        model.embedding.weight.dtype if dtype is None else dtype,
    )
