"""The number of parameters as a closed formula of the config's fields."""

from __future__ import annotations

from proof_lm.config import DecoderConfig


def parameter_count(config: DecoderConfig) -> int:
    """Parameters of the decoder, those of a tied head counted once.

    With the letters of :mod:`proof_lm.dims`, C = context_length, and a flag standing for 1 where it is
    set::

        P = V D (1 + untied)                        embedding and head
          + C D learned                             position embedding
          + (2 L + 1) D (1 + norm_bias)             norms: two a block, one at the end
          + L 2 D H (N + K)                         query and out, key and value
          + L (H (N + 2 K) attention_bias + D attention_out_bias)
          + L M D F                                 M = 3 when gated, else 2
          + L ((M - 1) F + D) feed_forward_bias
    """
    v, d, f, layers = config.vocab_size, config.d_model, config.d_ff, config.n_layers
    n, k, h = config.n_heads, config.kv_heads, config.head_width
    m = 3 if config.feed_forward == "gated" else 2
    return (
        v * d * (1 if config.tie_embeddings else 2)
        + (config.context_length * d if config.position == "learned" else 0)
        + (2 * layers + 1) * d * (2 if config.norm_bias else 1)
        + layers * 2 * d * h * (n + k)
        + layers * (h * (n + 2 * k) * config.attention_bias + d * config.attention_out_bias)
        + layers * m * d * f
        + layers * ((m - 1) * f + d) * config.feed_forward_bias
    )
