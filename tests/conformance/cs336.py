"""Stanford CS336's decoder in our terms: where its files are, its config, its names."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from proof_lm.config import DecoderConfig

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"

TO_OURS = {
    "token_embeddings": "embedding",
    "position_embeddings": "position_embedding",
    "layers": "blocks",
    "attn": "attention",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "output_proj": "out",
    "ln1": "attention_norm",
    "ln2": "feed_forward_norm",
    "ffn": "feed_forward",
    "ln_final": "final_norm",
    "lm_head": "head",
}
EDITION_2024 = {"w1": "up", "w2": "down"}
EDITION_2025 = {"w1": "gate", "w3": "up", "w2": "down"}


def config_2024(**sizes: int) -> DecoderConfig:
    """RMSNorm, exact GELU without biases, learned positions, an untied head."""
    return DecoderConfig(
        **sizes,
        norm="rmsnorm",
        norm_eps=1e-5,
        position="learned",
        activation="gelu",
        attention_bias=False,
        attention_out_bias=False,
        feed_forward_bias=False,
        tie_embeddings=False,
    )


def config_2025(**sizes: int) -> DecoderConfig:
    """RMSNorm, SwiGLU without biases, RoPE on adjacent pairs, an untied head."""
    return config_2024(**sizes).with_(
        position="rope",
        rope_theta=10000.0,
        rope_layout="interleaved",
        feed_forward="gated",
        activation="silu",
    )


def our_names(weights: dict[str, Tensor], edition: dict[str, str]) -> dict[str, Tensor]:
    """The weights under our names; a name that we do not know raises in ``load_state_dict``."""
    names = {**TO_OURS, **edition}
    return {".".join(names.get(part, part) for part in name.split(".")): weights[name] for name in weights}


def folder(name: str) -> Path:
    """The folder of outside evidence; skips the test where this checkout has none."""
    path = SHARED / name
    if not path.is_dir():
        pytest.skip(f"the outside evidence is not here: {path}")
    return path


def assert_within(ours: Tensor, expected: Tensor | np.ndarray, tolerance: dict[str, float]) -> None:
    """As the public tests compare."""
    expected = expected.detach().numpy() if isinstance(expected, Tensor) else expected
    np.testing.assert_allclose(ours.detach().numpy(), expected, **tolerance)
