"""Every bound of these tests, with its derivation. Identity is torch.equal and needs none.

Rounding is modelled as in Higham & Mary 2019 (A new approach to probabilistic rounding error analysis, theorem
2.4): n roundings in a chain, independent and with mean zero, leave a relative error of at most
lambda * sqrt(n) * u, except with a probability below 2n exp(-lambda^2 / 2). With lambda = 10 that is under
1e-15 for any n below a million. Two computations of the same thing err twice that.
"""

import math

import numpy as np
import torch

from proof_lm.config import DecoderConfig

UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
LAMBDA = 10.0

CS336_COMPONENT = {"atol": 1e-6, "rtol": 1e-7}
"""Of the public tests of CS336 for components and the block; rtol is the default of assert_allclose."""
CS336_MODEL = {"atol": 1e-4, "rtol": 1e-7}
"""Of the public tests of CS336 for the whole model."""

CHAPTER_LOSS = 5e-7
"""The chapter prints six decimals."""

STANDARD_ERRORS = 5.0
"""A statistic of normal draws lies further off than 5 standard errors once in 1.7 million."""


def rounding(n: int, magnitude: float, dtype: torch.dtype = torch.float64) -> float:
    """2 * 10 * sqrt(n) * u * magnitude: how far two chains of n roundings may lie apart.

    ``magnitude`` is that of the terms which are summed, not of their sum, where the two differ much.
    """
    return 2.0 * LAMBDA * math.sqrt(n) * UNIT_ROUNDOFF[dtype] * magnitude


def attention_chain(head_dim: int, n_keys: int) -> int:
    """Roundings from queries, keys and values to a gradient.

    Forward: a score (H), scale and softmax (S + 4), mixture (S). Backward: the weight's gradient (H), softmax
    (S + 3), then a sum over keys or queries (S).
    """
    return 2 * head_dim + 4 * n_keys + 7


def attention_layer_chain(config: DecoderConfig, n_tokens: int) -> int:
    """Roundings from the hidden input of the attention layer to the gradient of a projection or of the input.

    Forward: projection (D), rotation (3), attention, out (N H). Backward: out (D), attention, rotation (3), and a
    sum over B T tokens (5 T here) or over the N H rows of a projection.
    """
    heads = config.n_heads * config.head_width
    ends = 2 * config.d_model + 2 * heads + 6 + 5 * n_tokens
    return ends + attention_chain(config.head_width, n_tokens)


def decoder_chain(config: DecoderConfig, n_tokens: int) -> int:
    """Roundings from token ids to a gradient: every layer there and back, norms (2 D + 6), head and loss (D + 2 V).

    Backward each product is made twice, for inputs and for weights: hence the factor 3.
    """
    norm = 2 * config.d_model + 6
    feed_forward = config.d_model + config.d_ff + 8
    layer = attention_layer_chain(config, n_tokens) + 2 * norm + feed_forward + 2
    return 3 * (config.n_layers * layer + norm + config.d_model + 2 * config.vocab_size)


def largest(*values: np.ndarray | torch.Tensor) -> float:
    """The magnitude of a computation: its largest number, at least 1, since sums of ones are on the way."""
    return max(1.0, *(float(abs(value).max()) for value in values))
