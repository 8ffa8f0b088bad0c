"""Bounds: how far two right computations may lie apart in float64.

The model of rounding is that of Higham & Mary 2019 (A new approach to probabilistic rounding error
analysis, theorem 2.4): a chain of n roundings with independent, mean-zero errors of at most u each errs by
at most ``CONFIDENCE * sqrt(n) * u`` relative to the terms summed, except with a probability below
2n exp(-CONFIDENCE^2 / 2), here under 1e-15 for any n below a million. Two computations err twice that. How
much of an early error reaches the result is the condition, which is measured, not guessed.
"""

from __future__ import annotations

import math

from proof_lm.config import DecoderConfig
from proof_lm.verify.verdict import Bound

UNIT_ROUNDOFF = 2.0**-53  # of float64, round to nearest
CONFIDENCE = 10.0
FAULT = math.sqrt(UNIT_ROUNDOFF)  # half the digits gone: no rounding that a condition of 1e6 does not explain


def rounding_bound(chain: int, magnitude: float, condition: float = 1.0, extra: float = 0.0) -> Bound:
    """2 * 10 * sqrt(chain) * u * condition * magnitude + extra, in float64.

    Args:
        chain: roundings in the longest chain of dependent operations.
        magnitude: of the result, as its largest absolute value.
        condition: relative change of the result by relative change of an early value.
        extra: an absolute error that enters otherwise, such as that of a large angle.
    """
    rounding = 2.0 * CONFIDENCE * math.sqrt(chain) * UNIT_ROUNDOFF * condition * magnitude + extra
    derivation = (
        f"2 * {CONFIDENCE:g} * sqrt({chain}) * u * condition {condition:.3g} * magnitude {magnitude:.3g}"
        + (f" + {extra:.3g}" if extra else "")
        + f", u = 2^-53; a fault from sqrt(u) * magnitude = {FAULT * magnitude:.2g}"
    )
    return Bound(rounding, max(FAULT * magnitude, rounding), derivation)


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
