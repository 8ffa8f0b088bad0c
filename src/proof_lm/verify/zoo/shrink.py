"""Configs of transformers' decoders made small, by the names that their fields go by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

VOCAB, CONTEXT, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, WINDOW = 31, 29, 48, 6, 3, 8, 37, 5
LAYERS = 2  # or one of each kind, where a decoder mixes more kinds of layers
_NAMES: tuple[tuple[int, str], ...] = (
    (VOCAB, "vocab_size vocab_size_per_layer_input decoder_vocab_size unpadded_vocab_size"),
    (CONTEXT, "max_position_embeddings n_positions context_length n_ctx max_target_positions max_seq_len"),
    (CONTEXT, "original_max_position_embeddings max_source_positions"),
    (HIDDEN, "hidden_size n_embd d_model emb_dim attention_hidden_size lru_width hidden_size_global"),
    (LAYERS, "num_hidden_layers n_layer n_layers num_layers num_blocks"),
    (LAYERS, "decoder_layers encoder_layers num_decoder_layers num_encoder_layers"),
    (HEADS, "num_attention_heads n_head n_heads num_heads attention_heads swa_num_attention_heads"),
    (HEADS, "decoder_attention_heads encoder_attention_heads"),
    (HEADS, "num_decoder_attention_heads num_encoder_attention_heads"),
    (KV_HEADS, "num_key_value_heads num_kv_heads kv_n_heads swa_num_key_value_heads"),
    (HEAD_DIM, "head_dim d_head dim_head kv_channels attention_head_size swa_head_dim global_head_dim"),
    (HEAD_DIM, "index_head_dim mamba_d_head mamba_head_dim linear_head_dim"),
    (FEED_FORWARD, "intermediate_size ffn_dim d_inner n_inner ffn_hidden_size dff dim_ff feed_forward_size"),
    (FEED_FORWARD, "decoder_ffn_dim encoder_ffn_dim"),
    (FEED_FORWARD, "intermediate_size_mlp dense_intermediate_size prefix_dense_intermediate_size"),
    (WINDOW, "sliding_window sliding_window_size attention_window_size attention_chunk_size"),
    (WINDOW, "window_size keep_window_size"),
    # few experts, of widths of their own
    (7, "num_experts num_local_experts n_routed_experts moe_num_experts"),
    (2, "num_experts_per_tok moe_k moe_topk moe_top_k top_k_experts"),
    (1, "num_shared_experts n_shared_experts moe_num_shared_experts first_k_dense_replace"),
    (1, "n_group topk_group n_groups mamba_n_groups mamba_ngroups"),
    (11, "moe_intermediate_size expert_ffn_hidden_size moe_shared_expert_intermediate_size"),
    (13, "shared_expert_intermediate_size shared_intermediate_size shared_experts_intermediate_size"),
    # low-rank attention, and attention to the tokens that an index selects
    (14, "kv_lora_rank"),
    (18, "q_lora_rank"),
    (20, "embedding_size"),
    (4, "qk_rope_head_dim rotary_dim index_topk"),
    (6, "qk_nope_head_dim index_n_heads linear_num_value_heads"),
    (10, "v_head_dim linear_value_head_dim"),
    # state spaces and linear attention
    (5, "state_size mamba_d_state ssm_state_size"),
    (3, "chunk_size mamba_chunk_size linear_num_key_heads linear_num_heads"),
    (12, "mamba_n_heads mamba_num_heads linear_key_head_dim"),
)
SIZES = {name: size for size, names in _NAMES for name in names.split()}
OFF_WITHOUT = {name for name, size in SIZES.items() if size == WINDOW} | {"q_lora_rank"}
SWITCHES = {"is_decoder": True}  # of models that are encoders unless told
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "eod_token_id")


def shrunk(config_class: type[Any], overrides: Mapping[str, Any] | None = None) -> Any:
    """The class's default config with the sizes above, its nested configs with them.

    A field that is not known stays as it is by default; so does a size of 0, and a window that is None, since they
    are switches; but ``is_decoder`` is on. A decoder whose layers
    are of several kinds gets one layer of each. Special tokens are none, or, where there must be one, in the
    vocabulary. ``overrides`` go over all of it; those of a nested config are a dictionary under its name.
    """
    given = dict(overrides or {})
    default = config_class()
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    values: dict[str, Any] = {}
    for name, field in fields.items():
        value = vars(default).get(name)  # getattr refuses what differs from layer to layer
        if hasattr(type(value), "model_type"):
            values[name] = shrunk(type(value), given.pop(name, None))
        elif name in SIZES and not (value == 0 or (value is None and name in OFF_WITHOUT)):
            values[name] = SIZES[name]
        elif name in SWITCHES:
            values[name] = SWITCHES[name]
        elif name in SPECIAL:
            beyond = isinstance(value, int) and not 0 <= value < VOCAB
            values[name] = None if "None" in str(field.type) else VOCAB - 1 if beyond else value
    if "qk_rope_head_dim" in values:  # low-rank attention has keys for every head
        values["num_key_value_heads"] = HEADS
        values.pop("head_dim", None)  # follows from its two parts
    values |= _one_layer_of_each_kind(default, fields)
    return config_class(**(values | given))


def _one_layer_of_each_kind(default: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Kinds of layers in the order in which they first appear, and how many layers that makes."""
    kinds = {}
    for name in ("layer_types", "mlp_layer_types"):
        found = vars(default).get(name)
        if name in fields and found:
            kinds[name] = list(dict.fromkeys(found))
    if not kinds:
        return {}
    n_layers = max(LAYERS, *(len(found) for found in kinds.values()))
    layers = {name: [found[min(i, len(found) - 1)] for i in range(n_layers)] for name, found in kinds.items()}
    return {"num_hidden_layers": n_layers, **layers}
