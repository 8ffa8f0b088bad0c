"""Llama, and Mistral, which adds a window and has no biases (transformers ``models/llama`` and ``models/mistral``).

Sources: Touvron et al. 2023; Jiang et al. 2023.
"""

from __future__ import annotations

import re
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.weights.documents import make_config
from proof_lm.weights.families.family import ConfigFields, Family, obstacles
from proof_lm.weights.names import Source, rename

_TOP = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
_PARTS = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu", "relu": "relu"}
_DEFAULT_THETA = 10000.0


def _source_of(name: str) -> Source:
    return Source(rename(name, top=_TOP, block="model.layers.{}", parts=_PARTS))


def _read_config(fields: ConfigFields) -> DecoderConfig:
    """RMSNorm, rotary pairs half a head apart, gated feed-forward layer."""
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    vocab_size, d_model, d_ff, n_layers, n_heads = fields.require(*sizes)
    is_mistral = fields.get("model_type", None) == "mistral"
    if is_mistral:
        fields.require("num_key_value_heads", "max_position_embeddings")  # its defaults are not Llama's
    attention_bias = False if is_mistral else fields.get("attention_bias", False)
    _refuse_changes(fields, is_mistral=is_mistral)
    config = {
        "vocab_size": vocab_size,
        "context_length": fields.get("max_position_embeddings", 2048),
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": d_ff,
        "n_kv_heads": fields.get("num_key_value_heads", None),
        "head_dim": fields.get("head_dim", None),
        "norm": "rmsnorm",
        "norm_eps": fields.get("rms_norm_eps", 1e-6),
        "position": "rope",
        "rope_theta": _rope_theta(fields),
        "rope_layout": "half",
        "sliding_window": fields.get("sliding_window", 4096) if is_mistral else None,
        "feed_forward": "gated",
        "activation": fields.activation("hidden_act", "silu"),
        "attention_bias": attention_bias,
        "attention_out_bias": attention_bias,
        "feed_forward_bias": False if is_mistral else fields.get("mlp_bias", False),
        "tie_embeddings": fields.get("tie_word_embeddings", False),
    }
    fields.finish()
    return make_config(fields.where, config)


def _refuse_changes(fields: ConfigFields, *, is_mistral: bool) -> None:
    """Refuse what would make another function of the same tensors."""
    if not is_mistral:
        fields.must_be(
            "sliding_window", None, default=None, why="only 'mistral' has a window in transformers"
        )
    why = "in a 'mistral' config sliding_window alone says whether there is a window"
    fields.must_be("use_sliding_window", False, default=False, why=why)
    fields.must_be("pretraining_tp", 1, None, default=1, why="sliced matrix products are not supported")
    fields.must_be("partial_rotary_factor", 1, None, default=1, why="whole heads are rotated here")
    fields.must_be("rope_interleaved", False, default=False, why="Llama's rotary pairs are half a head apart")
    fields.must_be(
        "attention_dropout",
        0,
        None,
        default=0,
        why="ProofLM has no dropout on attention alone; set it to 0 to load the model for evaluation",
    )


def _rope_theta(fields: ConfigFields) -> float:
    """The rotary base: at top level (transformers 4) or in ``rope_parameters`` (transformers 5)."""
    found = {name: fields.get(name, None) for name in ("rope_scaling", "rope_parameters")}
    thetas = {"rope_theta": fields.get("rope_theta", None)}
    for name, table in found.items():
        if table is not None:
            thetas[f"{name}.rope_theta"] = _unscaled_theta(fields, name, table)
    given = {_number(fields, name, theta) for name, theta in thetas.items() if theta is not None}
    if len(given) > 1:
        raise WeightsError(f"{fields.where} gives rope_theta as both {' and '.join(map(str, sorted(given)))}")
    return given.pop() if given else _DEFAULT_THETA


def _unscaled_theta(fields: ConfigFields, name: str, table: object) -> object:
    """``rope_theta`` of a table of rotary parameters that scales nothing."""
    if not isinstance(table, dict):
        raise WeightsError(f"{fields.where}: {name} must be an object or null, got {table!r}")
    kind = table.get("rope_type", table.get("type", "default"))
    if kind != "default":
        raise WeightsError(
            f"{fields.where}: {name} scales the rotary angles ({kind!r}), which is not supported"
        )
    others = sorted(set(table) - {"rope_type", "type", "rope_theta"})
    others = [key for key in others if table[key] is not None]
    if others:
        raise WeightsError(f"{fields.where}: {name} has fields that are not understood: {', '.join(others)}")
    return table.get("rope_theta")


def _number(fields: ConfigFields, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WeightsError(f"{fields.where}: {name} must be a number, got {value!r}")
    return float(value)


def _write_config(config: DecoderConfig) -> dict[str, Any]:
    """Of a Mistral where there is a window, else of a Llama."""
    is_mistral = config.sliding_window is not None
    own: dict[str, Any] = {"attention_bias": config.attention_bias, "mlp_bias": config.feed_forward_bias}
    if is_mistral:
        own = {"sliding_window": config.sliding_window}
    return {
        "architectures": ["MistralForCausalLM" if is_mistral else "LlamaForCausalLM"],
        "model_type": "mistral" if is_mistral else "llama",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "num_hidden_layers": config.n_layers,
        "hidden_size": config.d_model,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.d_ff,
        "hidden_act": _ACTIVATIONS[config.activation],
        "rms_norm_eps": float(config.norm_eps),
        "rope_theta": config.rope_theta,  # read by transformers 4
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},  # by transformers 5
        **own,
        "attention_dropout": 0.0,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,  # the weights know no tokens, and the defaults would name some
        "eos_token_id": None,
    }


def _obstacles(config: DecoderConfig) -> list[str]:
    found = obstacles(
        config,
        {
            "norm": "rmsnorm",
            "position": "rope",
            "feed_forward": "gated",
            "attention_out_bias": config.attention_bias,
            "dropout": 0.0,
        },
    )
    if config.d_model % config.n_heads:
        found.append(f"d_model = {config.d_model}, no multiple of n_heads = {config.n_heads}")
    if config.sliding_window is not None:
        biases = obstacles(config, {"attention_bias": False, "feed_forward_bias": False})
        found.extend(f"{bias} beside sliding_window = {config.sliding_window}" for bias in biases)
    return found


LLAMA = Family(
    name="Llama",
    model_types=("llama", "mistral"),
    read_config=_read_config,
    write_config=_write_config,
    obstacles=_obstacles,
    source_of=_source_of,
    prefix="model.",
    not_parameters=re.compile(r".*\.rotary_emb\.inv_freq"),  # a constant that old versions stored
)
