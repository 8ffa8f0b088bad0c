"""Decoders and inputs that the oracle's tests share, with sizes pairwise different."""

import dataclasses

import numpy as np

from proof_lm.config import DecoderConfig
from proof_lm.oracle import parameter_shapes

# B 3, T 7, V 31, C 13, D 22, N 6, H 4, F 10; N H = 24 differs from D.
BASE = DecoderConfig(vocab_size=31, context_length=13, n_layers=2, d_model=22, n_heads=6, head_dim=4, d_ff=10)
NO_BIAS = {"attention_bias": False, "attention_out_bias": False, "feed_forward_bias": False}
CONFIGS = {
    "defaults": BASE,
    "width-is-heads": BASE.with_(d_model=24, n_kv_heads=3),
    "gqa": BASE.with_(n_kv_heads=3),
    "gqa-two-groups": BASE.with_(n_kv_heads=2, rope_theta=50.0),
    "mqa": BASE.with_(n_kv_heads=1),
    "rmsnorm": BASE.with_(norm="rmsnorm"),
    "layernorm-without-bias": BASE.with_(norm_bias=False, norm_eps=0.1),
    "rope-half": BASE.with_(rope_layout="half", rope_theta=50.0),
    "learned": BASE.with_(position="learned", n_kv_heads=3),
    "nope": BASE.with_(position="none"),
    "window": BASE.with_(sliding_window=3, n_kv_heads=3),
    "gelu-tanh": BASE.with_(activation="gelu_tanh"),
    "silu": BASE.with_(activation="silu"),
    "relu": BASE.with_(activation="relu"),
    "gated-gelu": BASE.with_(feed_forward="gated"),
    "gated-silu": BASE.with_(feed_forward="gated", activation="silu", feed_forward_bias=False),
    "gated-relu": BASE.with_(feed_forward="gated", activation="relu"),
    "no-attention-bias": BASE.with_(attention_bias=False, n_kv_heads=3),
    "no-out-bias": BASE.with_(attention_out_bias=False),
    "no-feed-forward-bias": BASE.with_(feed_forward_bias=False),
    "untied": BASE.with_(tie_embeddings=False),
    "gpt2": BASE.with_(position="learned", activation="gelu_tanh"),
    "llama": BASE.with_(
        n_kv_heads=3,
        norm="rmsnorm",
        rope_layout="half",
        feed_forward="gated",
        activation="silu",
        tie_embeddings=False,
        **NO_BIAS,
    ),
}


def random_weights(config: DecoderConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights with nothing at 0 or 1: a gain or bias left out must show."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in parameter_shapes(config).items():
        scale = 0.4 if name.endswith(".bias") else 0.3
        centre = 1.0 if name.endswith("norm.weight") else 0.0
        weights[name] = centre + scale * rng.standard_normal(shape)
    return weights


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Token ids and labels (B, T), and the masks: row 0 is full, row 1 padded left, row 2 right."""

    token_ids: np.ndarray
    labels: np.ndarray
    loss_mask: np.ndarray
    padding_mask: np.ndarray


def random_inputs(config: DecoderConfig, seed: int = 1) -> Inputs:
    rng = np.random.default_rng(seed)
    padding_mask = np.ones((3, 7), dtype=bool)
    padding_mask[1, :2] = False
    padding_mask[2, 4:] = False
    loss_mask = padding_mask.copy()
    loss_mask[0, 3] = False
    labels = rng.integers(0, config.vocab_size, (3, 7))
    labels[~loss_mask] = -100
    return Inputs(rng.integers(0, config.vocab_size, (3, 7)), labels, loss_mask, padding_mask)
