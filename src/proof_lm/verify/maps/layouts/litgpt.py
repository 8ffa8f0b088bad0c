"""LitGPT (github.com/Lightning-AI/litgpt 0.5, ``litgpt/model.py``): many families under one config."""

from __future__ import annotations

from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError
from proof_lm.sheet import TensorSpec
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts.layout import Layout, make_config
from proof_lm.verify.maps.weight_map import Place
from proof_lm.weights.names import Source, rename

_TOP = {"embedding": "transformer.wte", "final_norm": "transformer.ln_f", "head": "lm_head"}
_FUSED = "attn.qkv"  # all rows of the queries, then of the keys, then of the values; head by head in each
_ATTENTION = {
    "attention_norm": "norm_1",
    "attention.query": _FUSED,
    "attention.key": _FUSED,
    "attention.value": _FUSED,
    "attention.out": "attn.proj",
    "feed_forward_norm": "norm_2",
}
_GATED = "LLaMAMLP"
_FEED_FORWARD = {
    _GATED: {"feed_forward.gate": "mlp.fc_1", "feed_forward.up": "mlp.fc_2", "feed_forward.down": "mlp.proj"},
    "GptNeoxMLP": {"feed_forward.up": "mlp.fc", "feed_forward.down": "mlp.proj"},
}
_REQUIRED = (
    "n_layer n_head n_query_groups n_embd head_size intermediate_size norm_eps rope_base block_size "
    "padded_vocab_size bias parallel_residual mlp_class_name norm_class_name rotary_percentage"
)
# Fields of a LitGPT config that change the function unless they hold this value; older ones lack some of them.
_NEUTRAL: dict[str, object] = {
    "parallel_residual": False,
    "shared_attention_norm": False,
    "rotary_percentage": 1,
    "rope_condense_ratio": 1,
    "rope_adjustments": None,
    "rope_local_base_freq": None,
    "rope_indices": None,
    "attention_scores_scalar": None,
    "attention_logit_softcapping": None,
    "final_logit_softcapping": None,
    "scale_embeddings": False,
    "norm_qk": False,
    "post_attention_norm": False,
    "post_mlp_norm": False,
    "norm_1": True,
    "norm_2": True,
    "latent_attention": None,
    "lm_head_bias": False,
}
_NORMS = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}
_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}


def _place_of(source: Source, config: DecoderConfig, spec: TensorSpec) -> Place:
    """Queries, keys and values are not equally wide in ``attn.qkv``."""
    queries, keys = config.n_heads * config.head_width, config.kv_heads * config.head_width
    starts = {"query": 0, "key": queries, "value": queries + keys}
    part = spec.name.split(".")[-2]
    if part not in starts:
        return Place.of(source, spec.shape)
    start, n_rows = starts[part], queries + 2 * keys
    return Place(source.name, (n_rows, *spec.shape[1:]), start, start + spec.shape[0])


def _read_config(foreign: Foreign, mlp_class_name: str) -> DecoderConfig:
    """The fields of its ``config``, and the tie from the module: LitGPT's own models are never tied."""
    fields = {"gelu_approximate": "none", **foreign.config(*_REQUIRED.split())}
    _refuse_changes(fields, _NEUTRAL | {"mlp_class_name": mlp_class_name})
    is_gated = mlp_class_name == _GATED
    embedding, head = foreign.own_name("transformer.wte.weight"), foreign.own_name("lm_head.weight")
    bias = fields["bias"]
    config = {
        "vocab_size": fields["padded_vocab_size"],
        "context_length": fields["block_size"],
        "n_layers": fields["n_layer"],
        "d_model": fields["n_embd"],
        "n_heads": fields["n_head"],
        "n_kv_heads": fields["n_query_groups"],
        "head_dim": fields["head_size"],
        "d_ff": fields["intermediate_size"],
        "norm": _choice(fields, "norm_class_name", _NORMS),
        "norm_eps": fields["norm_eps"],
        "rope_theta": fields["rope_base"],
        "rope_layout": "interleaved" if fields.get("rope_interleave") else "half",
        "sliding_window": _window(fields),
        "feed_forward": "gated" if is_gated else "mlp",
        "activation": "silu" if is_gated else _choice(fields, "gelu_approximate", _GELUS),
        "attention_bias": bias or fields.get("attn_bias", False),
        "attention_out_bias": bias,
        "feed_forward_bias": bias,
        "tie_embeddings": head == embedding or head not in foreign,
    }
    return make_config(config)


def _window(fields: dict[str, Any]) -> int | None:
    """``sliding_window_size``, where every layer uses it (a 1 in ``sliding_window_indices``)."""
    window, used = fields.get("sliding_window_size"), fields.get("sliding_window_indices")
    if window is None or used is None or all(used):
        return window
    if any(used):
        raise MapError(
            f"its config has sliding_window_indices = {used}; only the same for all layers is read"
        )
    return None


def _choice(fields: dict[str, Any], name: str, choices: dict[str, str]) -> str:
    if fields[name] not in choices:
        raise MapError(f"its config has {name} = {fields[name]!r}; those read are {', '.join(choices)}")
    return choices[fields[name]]


def _refuse_changes(fields: dict[str, Any], needed: dict[str, object]) -> None:
    for name, neutral in needed.items():
        value = fields.get(name, neutral)
        if value != neutral:
            raise MapError(f"its config has {name} = {value!r}, of which only {neutral!r} is read")
    if fields["norm_class_name"] == "RMSNorm" and "Gemma" in str(fields.get("name")):
        raise MapError(f"it is named {fields['name']!r}, and LitGPT adds 1 to the gains of Gemma's norms")


def _layout(mlp_class_name: str) -> Layout:
    parts = _ATTENTION | _FEED_FORWARD[mlp_class_name]

    def source_of(name: str) -> Source:
        return Source(rename(name, top=_TOP, block="transformer.h.{}", parts=parts))

    def read_config(foreign: Foreign) -> DecoderConfig:
        return _read_config(foreign, mlp_class_name)

    return Layout(f"LitGPT with {mlp_class_name}", source_of, read_config, _place_of)


LITGPT: tuple[Layout, ...] = tuple(_layout(name) for name in _FEED_FORWARD)
