"""Stanford CS336, assignment 1 (the editions with RoPE and SwiGLU), by the names of its handout and tests."""

from __future__ import annotations

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts.layout import Layout, fields_from_shapes, make_config
from proof_lm.weights.names import Source, rename

_TOP = {"embedding": "token_embeddings", "final_norm": "ln_final", "head": "lm_head"}
_PARTS = {
    "attention_norm": "ln1",
    "attention.query": "attn.q_proj",
    "attention.key": "attn.k_proj",
    "attention.value": "attn.v_proj",
    "attention.out": "attn.output_proj",
    "feed_forward_norm": "ln2",
    "feed_forward.gate": "ffn.w1",
    "feed_forward.up": "ffn.w3",
    "feed_forward.down": "ffn.w2",
}
_HEADS = ("num_heads", "n_heads")
_CONTEXT = ("context_length", "max_seq_len")
_THETA = ("rope_theta", "theta")


def _source_of(name: str) -> Source:
    return Source(rename(name, top=_TOP, block="layers.{}", parts=_PARTS))


def _read_config(foreign: Foreign) -> DecoderConfig:
    """RMSNorm, rotary pairs side by side, SwiGLU; what no shape shows is looked for among the attributes."""
    n_heads, context_length = foreign.declared_count(*_HEADS), foreign.declared_count(*_CONTEXT)
    theta = foreign.declared(*_THETA)
    if n_heads is None or context_length is None or theta is None:
        looked_for = (
            ("n_heads", n_heads, _HEADS),
            ("context_length", context_length, _CONTEXT),
            ("rope_theta", theta, _THETA),
        )
        unknown = [
            f"{field} (looked for {' and '.join(names)})"
            for field, value, names in looked_for
            if value is None
        ]
        raise MapError(f"neither a shape nor an attribute of its modules tells {', '.join(unknown)}")
    config = {
        **fields_from_shapes(foreign, _source_of, n_heads=n_heads, default_eps=1e-5),
        "context_length": context_length,
        "norm": "rmsnorm",
        "rope_theta": theta,
        "rope_layout": "interleaved",
        "feed_forward": "gated",
        "activation": "silu",
    }
    return make_config(config)


CS336 = Layout("CS336", _source_of, _read_config)
