"""GPT-2 (transformers ``models/gpt2``, Radford et al. 2019): weights (in, out), q, k and v in one matrix."""

from __future__ import annotations

import re
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.weights.documents import make_config
from proof_lm.weights.families.family import ConfigFields, Family, obstacles
from proof_lm.weights.names import Source, rename

_TOP = {
    "embedding": "transformer.wte",
    "position_embedding": "transformer.wpe",
    "final_norm": "transformer.ln_f",
    "head": "lm_head",
}
_PARTS = {
    "attention_norm": "ln_1",
    "attention.query": "attn.c_attn",
    "attention.key": "attn.c_attn",
    "attention.value": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}
_FUSED = ("query", "key", "value")  # the order of their columns in c_attn
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu", "relu": "relu"}


def _source_of(name: str) -> Source:
    theirs = rename(name, top=_TOP, block="transformer.h.{}", parts=_PARTS)
    part = name.split(".")[-2]
    is_linear = ".attention." in name or ".feed_forward." in name  # Conv1D; the norms and tables are not
    if part in _FUSED:
        return Source(theirs, transposed=is_linear, part=_FUSED.index(part), n_parts=len(_FUSED))
    return Source(theirs, transposed=is_linear)


def _read_config(fields: ConfigFields) -> DecoderConfig:
    """LayerNorm with bias, learned positions, plain feed-forward layer, biases everywhere."""
    vocab_size, d_model, n_layers, n_heads = fields.require("vocab_size", "n_embd", "n_layer", "n_head")
    context_length = fields.get("n_positions", 1024)
    d_ff = fields.get("n_inner", None)
    why = "scores here are scaled by 1/sqrt(head_dim) alone"
    fields.must_be("scale_attn_weights", True, default=True, why=why)
    fields.must_be("scale_attn_by_inverse_layer_idx", False, default=False, why=why)
    fields.must_be("n_ctx", context_length, default=context_length, why="it must equal n_positions")
    fields.get("reorder_and_upcast_attn", False)  # the precision of the scores, not their formula
    config = {
        "vocab_size": vocab_size,
        "context_length": context_length,
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": 4 * d_model if d_ff is None else d_ff,
        "norm_eps": fields.get("layer_norm_epsilon", 1e-5),
        "position": "learned",
        "activation": fields.activation("activation_function", "gelu_new"),
        "tie_embeddings": fields.get("tie_word_embeddings", True),
        "dropout": _dropout(fields),
        "initialization": "gpt2",
    }
    fields.finish()
    return make_config(fields.where, config)


def _dropout(fields: ConfigFields) -> object:
    """The one probability of the three places where GPT-2 drops."""
    found = {name: fields.get(name, 0.1) for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop")}
    first, *others = found.values()
    if any(other != first for other in others):
        given = ", ".join(f"{name} = {value}" for name, value in found.items())
        raise WeightsError(f"{fields.where}: ProofLM has one dropout for all three of {given}")
    return first


def _write_config(config: DecoderConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_layer": config.n_layers,
        "n_embd": config.d_model,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "activation_function": _ACTIVATIONS[config.activation],
        "layer_norm_epsilon": float(config.norm_eps),
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,  # the weights know no tokens, and the defaults would name some
        "eos_token_id": None,
    }


def _obstacles(config: DecoderConfig) -> list[str]:
    needed = {
        "norm": "layernorm",
        "norm_bias": True,
        "position": "learned",
        "sliding_window": None,
        "feed_forward": "mlp",
        "attention_bias": True,
        "attention_out_bias": True,
        "feed_forward_bias": True,
        "n_kv_heads": config.n_heads,
    }
    found = obstacles(config, needed)
    if config.head_width * config.n_heads != config.d_model:
        found.append(f"head_dim = {config.head_width}, not d_model / n_heads")
    return found


GPT2 = Family(
    name="GPT-2",
    model_types=("gpt2",),
    read_config=_read_config,
    write_config=_write_config,
    obstacles=_obstacles,
    source_of=_source_of,
    prefix="transformer.",
    not_parameters=re.compile(r".*\.attn\.(bias|masked_bias)"),  # the causal mask, which old versions stored
)
