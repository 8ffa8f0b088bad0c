"""Bounds: how far two right computations may lie apart.

The model of rounding is that of Higham & Mary 2019 (A new approach to probabilistic rounding error
analysis, theorem 2.4): a chain of n roundings with independent, mean-zero errors of at most u each errs by
at most ``CONFIDENCE * sqrt(n) * u`` relative to the terms summed, except with a probability below
2n exp(-CONFIDENCE^2 / 2), here under 1e-15 for any n below a million. Two computations err twice that. How
much of an early error reaches the result is the condition, which is measured, not guessed. From sqrt(u) times the
result on, half the digits are gone, which no rounding explains that the condition does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from proof_lm.config import DecoderConfig
from proof_lm.verify.verdict import Bound

UNIT_ROUNDOFF = 2.0**-53  # of float64, round to nearest
CONFIDENCE = 10.0


def rounding_bound(
    chain: int,
    magnitude: float,
    condition: float = 1.0,
    extra: float = 0.0,
    unit_roundoff: float = UNIT_ROUNDOFF,
) -> Bound:
    """2 * 10 * sqrt(chain) * u * condition * magnitude + extra.

    Args:
        chain: roundings in the longest chain of dependent operations.
        magnitude: of the result, as its largest absolute value.
        condition: relative change of the result by relative change of an early value.
        extra: an absolute error that enters otherwise, such as that of a large angle.
        unit_roundoff: u, half the distance from 1 to the next number: 2^-53 in float64, 2^-24 in float32.
    """
    rounding = 2.0 * CONFIDENCE * math.sqrt(chain) * unit_roundoff * condition * magnitude + extra
    fault = math.sqrt(unit_roundoff) * magnitude
    derivation = (
        f"2 * {CONFIDENCE:g} * sqrt({chain}) * u * condition {condition:.3g} * magnitude {magnitude:.3g}"
        + (f" + {extra:.3g}" if extra else "")
        + f", u = 2^{math.log2(unit_roundoff):.0f}; a fault from sqrt(u) * magnitude = {fault:.2g}"
    )
    return Bound(rounding, max(fault, rounding), derivation)


def forward_chain(config: DecoderConfig, n_keys: int) -> int:
    """Roundings in the longest chain from token ids to a logit.

    Per block: two norms (D for the mean, D for the variance, 6 elementwise), query or key (D) with its rotation
    (3), a score (H), softmax and mixture (2 S), out (N H), up (D), activation (8), down (F), two additions.
    """
    d_model, heads = config.d_model, config.n_heads * config.head_width
    norm = 2 * d_model + 6
    attention = d_model + 3 + config.head_width + 2 * n_keys + heads
    feed_forward = d_model + 8 + config.d_ff
    return config.n_layers * (2 * norm + attention + feed_forward + 2) + norm + d_model


def backward_chain(config: DecoderConfig, n_keys: int, n_tokens: int) -> int:
    """Roundings in the longest chain from token ids to a gradient.

    Forward, then each of its products twice (for inputs and for weights), the softmax over V, and a sum over
    all tokens.
    """
    return 3 * forward_chain(config, n_keys) + config.vocab_size + n_tokens


def unknown_chain(shapes: Iterable[tuple[int, ...]], n_keys: int) -> int:
    """Roundings in the longest chain through a decoder of which only the parameters' shapes are known.

    Each matrix is taken to follow on the others (its input width), each vector to be a norm's (2 D + 6), and as
    many softmaxes over S keys as there are matrices: more than any decoder has, and only the root of it counts.
    """
    chain = 0
    for shape in shapes:
        chain += max(shape, default=1) + 2 * n_keys if len(shape) > 1 else 2 * sum(shape) + 6
    return max(chain, 1)
