"""Sizes for tests: pairwise different and no powers of two, so that swapped axes cannot hide."""

from proof_lm.config import DecoderConfig

BATCH, TIME = 5, 13
SMALL = DecoderConfig(
    vocab_size=31,
    context_length=29,
    n_layers=2,
    d_model=24,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    d_ff=37,
)
"""n_layers 2, d_model 24, 6 query heads, 3 KV heads, head_dim 4, d_ff 37, vocab 31; otherwise the defaults."""

MODERN = SMALL.with_(
    norm="rmsnorm",
    rope_layout="half",
    feed_forward="gated",
    activation="silu",
    attention_bias=False,
    attention_out_bias=False,
    feed_forward_bias=False,
    tie_embeddings=False,
)
LEARNED = SMALL.with_(position="learned", activation="gelu_tanh")
HEAD_CONFIGS = {
    "mha": SMALL.with_(n_kv_heads=6),
    "gqa": SMALL,
    "mqa": SMALL.with_(n_kv_heads=1),
}
