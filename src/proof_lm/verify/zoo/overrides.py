"""Config values that no rule gives, by class."""

from __future__ import annotations

from typing import Any

# these count positions from the id of padding, and tokens of that id not at all: no token has this one
_UNPADDED = {"pad_token_id": -1}

OVERRIDES: dict[str, dict[str, Any]] = {
    "BailingHybridForCausalLM": {"head_dim": 8},
    "BambaForCausalLM": {"attn_layer_indices": [1]},
    # its config has no number of layers of its own, which the cache asks for
    "BltForCausalLM": {"encoder_hash_byte_group_vocab": 53, "num_hidden_layers": 2},
    "CamembertForCausalLM": _UNPADDED,
    "CohereCompassForCausalLM": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 50000.0},
        },
    },
    "Data2VecTextForCausalLM": _UNPADDED,
    "DbrxForCausalLM": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "DeepseekV4ForCausalLM": {
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}
    },
    "DiffLlamaForCausalLM": {"num_key_value_heads": 2},
    "DoryForCausalLM": {
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "n_input_layers": 1,
        "n_output_layers": 1,
    },
    "FalconH1ForCausalLM": {"mamba_d_ssm": 96},
    "Gemma3nForCausalLM": {"num_kv_shared_layers": 0},
    "Gemma4ForCausalLM": {"global_head_dim": 16},
    "Gemma4ForConditionalGeneration": {"text_config": {"global_head_dim": 16} | _UNPADDED},
    "Gemma4UnifiedForCausalLM": {"global_head_dim": 16},
    "Gemma4UnifiedForConditionalGeneration": {"text_config": {"global_head_dim": 16} | _UNPADDED},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]]},
    "GraniteMoeHybridForCausalLM": {"layer_types": ["linear_attention", "full_attention"]},
    "Inkling2LoopForCausalLM": {
        "num_hidden_layers": 4,
        "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid", "hybrid_sliding"],
        "n_layers_per_attn_res_block": 1,
        "loop_layer_index_start": 1,
        "loop_layer_index_end": 3,
    },
    "JambaForCausalLM": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "LongcatFlashForCausalLM": {"head_dim": 4, "zero_expert_num": 3},
    "Mamba2ForCausalLM": {"num_heads": 12},
    "MoshiForCausalLM": {"ffn_dim": 38, "depth_decoder_config": {"ffn_dim": 38}},
    "MusicgenForCausalLM": {"num_codebooks": 1},
    "MusicgenMelodyForCausalLM": {"num_codebooks": 1},
    "ProphetNetForCausalLM": {"pad_token_id": 0},
    "Qwen4ExpForCausalLM": {
        "eos_token_id": 30,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 4,
        "indexer_compress_ratio": 2,
        "ngram_vocab_size_base": 50,
        "split_ngram_parts": 1,
        "ple_layer_ids": [1],
    },
    "RecurrentGemmaForCausalLM": {"block_types": ["recurrent", "attention"]},
    # rows are shorter than a chunk: chunked attention takes only multiples of its length in train mode
    "ReformerModelWithLMHead": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_embds": False,
        "hash_seed": 0,
        "local_attn_chunk_length": 32,
        "lsh_attn_chunk_length": 32,
    },
    "RobertaForCausalLM": _UNPADDED,
    "RobertaPreLayerNormForCausalLM": _UNPADDED,
    "RoCBertForCausalLM": {"pronunciation_vocab_size": 31, "shape_vocab_size": 31},
    "XLMRobertaForCausalLM": _UNPADDED,
    "XLMRobertaXLForCausalLM": _UNPADDED,
    "XLMWithLMHeadModel": {"causal": True} | _UNPADDED,
    "xLSTMForCausalLM": {"hidden_size": 128, "num_heads": 4, "chunk_size": 64},
    "XmodForCausalLM": _UNPADDED | {"default_language": "en_XX"},
    "Zamba2ForCausalLM": {"layers_block_type": ["linear_attention", "hybrid"]},
    "ZambaForCausalLM": {
        "num_hidden_layers": 3,
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "attention_hidden_size": 96,
        "attention_head_dim": 16,
        "num_key_value_heads": 6,
    },
    "ZayaForCausalLM": {"num_experts_per_tok": 1},
}
