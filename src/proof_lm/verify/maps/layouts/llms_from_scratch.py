"""LLMs-from-scratch (github.com/rasbt/LLMs-from-scratch, chapter 4): GPT-2 with separate projections."""

from __future__ import annotations

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts.layout import Layout, fields_from_shapes, make_config
from proof_lm.weights.names import Source, rename

_TOP = {
    "embedding": "tok_emb",
    "position_embedding": "pos_emb",
    "final_norm": "final_norm",
    "head": "out_head",
}
_PARTS = {
    "attention_norm": "norm1",
    "attention.query": "att.W_query",
    "attention.key": "att.W_key",
    "attention.value": "att.W_value",
    "attention.out": "att.out_proj",
    "feed_forward_norm": "norm2",
    "feed_forward.up": "ff.layers.0",
    "feed_forward.down": "ff.layers.2",
}
_OF_NORMS = {"weight": "scale", "bias": "shift"}


def _source_of(name: str) -> Source:
    theirs = rename(name, top=_TOP, block="trf_blocks.{}", parts=_PARTS)
    ours, kind = name.rsplit(".", 1)
    return Source(f"{theirs.removesuffix(kind)}{_OF_NORMS[kind]}" if ours.endswith("norm") else theirs)


def _read_config(foreign: Foreign) -> DecoderConfig:
    """LayerNorm, learned positions, plain feed-forward layer with the tanh form of GELU."""
    n_heads = foreign.declared_count("num_heads", "n_heads")
    if n_heads is None:
        raise MapError("no attribute num_heads, of att or another module, says how many heads there are")
    config = {
        **fields_from_shapes(foreign, _source_of, n_heads=n_heads, default_eps=1e-5),
        "context_length": foreign.shape("pos_emb.weight")[0],
        "position": "learned",
        "activation": "gelu_tanh",
    }
    return make_config(config)


LLMS_FROM_SCRATCH = Layout("LLMs-from-scratch", _source_of, _read_config)
