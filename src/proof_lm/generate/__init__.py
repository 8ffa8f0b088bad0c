"""Decoding: from logits to tokens, one after another."""

from proof_lm.generate.loop import CachedDecoder, generate, stream
from proof_lm.generate.sampling import check_sampling, keep_top_k, keep_top_p, next_token_distribution

__all__ = [
    "CachedDecoder",
    "check_sampling",
    "generate",
    "keep_top_k",
    "keep_top_p",
    "next_token_distribution",
    "stream",
]
