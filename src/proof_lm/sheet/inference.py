"""Prefill and decoding: operations, bytes moved, and their ratio."""

from __future__ import annotations

from dataclasses import dataclass

from proof_lm.config import DecoderConfig
from proof_lm.sheet.activations import DTYPE_BYTES
from proof_lm.sheet.dimensions import dimensions
from proof_lm.sheet.flops import forward_flops
from proof_lm.sheet.memory import cache_bytes_per_token
from proof_lm.sheet.parameters import parameter_count


@dataclass(frozen=True)
class Inference:
    """One call of a decoder with a cache.

    Attributes:
        name: of the call.
        flops: of its matrix products, every score of the rectangle counted; logits for each row's last token alone.
        weight_bytes: of weights, each read once; of an embedding table that is no head, the rows looked up.
        cache_bytes: read and written.
    """

    name: str
    flops: int
    weight_bytes: int
    cache_bytes: int

    @property
    def moved_bytes(self) -> int:
        """What must cross between memory and processor at the least: activations stay where they are."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self) -> float:
        """FLOPs a byte: below a machine's peak FLOP/s over its bandwidth, memory decides."""
        return self.flops / self.moved_bytes


def prefill(config: DecoderConfig, batch: int, n_tokens: int, dtype: str) -> Inference:
    """Takes B prompts of T tokens into an empty cache."""
    return _call("prefill", config, batch, n_tokens, n_tokens, dtype)


def decode(config: DecoderConfig, batch: int, n_keys: int, dtype: str) -> Inference:
    """Takes one more token a row, the S-th."""
    return _call("decode", config, batch, 1, n_keys, dtype)


def _call(name: str, config: DecoderConfig, batch: int, n_tokens: int, n_keys: int, dtype: str) -> Inference:
    values = dimensions(config, batch, n_tokens, n_keys)
    every_row = forward_flops(config, values, with_loss=False).products
    spared = 2 * batch * (n_tokens - 1) * config.d_model * config.vocab_size
    size, rows = DTYPE_BYTES[dtype], batch * n_tokens
    unread = 0  # rows of tables
    if not config.tie_embeddings:
        unread += config.vocab_size - min(rows, config.vocab_size)
    if config.position == "learned":
        unread += config.context_length - n_tokens
    weights = (parameter_count(config) - unread * config.d_model) * size
    # Written for each new token, and read for each key of the rows.
    cache = cache_bytes_per_token(config, dtype) * batch * (n_tokens + n_keys)
    return Inference(name, every_row - spared, weights, cache)
