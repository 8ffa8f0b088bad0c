"""What a ``config.json`` may say, and what it may not: no field that changes the function goes unread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.weights import load_hf, save_hf
from weights.tiny import CHAPTER, GPT2, LLAMA, assert_same_bits, random_model


def saved(config: DecoderConfig, directory: Path, **changes: object) -> Path:
    """A Hugging Face directory whose config has these fields besides, or not the ones given as ``...``."""
    save_hf(random_model(config, torch.float32), directory)
    path = directory / "config.json"
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not ...}))
    return directory


REFUSED_LLAMA = {
    "model_type": ("qwen3", "model_type is 'qwen3'"),
    "rope_scaling": ({"type": "linear", "factor": 2.0}, "rope_scaling scales the rotary angles .'linear'"),
    "rope_parameters": ({"rope_type": "llama3", "rope_theta": 500.0}, "rope_parameters scales .*'llama3'"),
    "rope_theta": (501.0, "rope_theta as both 500.0 and 501.0"),
    "sliding_window": (16, "sliding_window is 16; only 'mistral' has a window"),
    "use_sliding_window": (True, "use_sliding_window is True"),
    "pretraining_tp": (2, "pretraining_tp is 2"),
    "partial_rotary_factor": (0.5, "partial_rotary_factor is 0.5"),
    "attention_dropout": (0.1, "attention_dropout is 0.1"),
    "hidden_act": ("mish", "hidden_act is 'mish'; those read are gelu"),
    "quantization_config": ({"bits": 4}, "quantization_config is"),
    "auto_map": ({"AutoModelForCausalLM": "modeling.Other"}, "auto_map is"),
    "logit_scale": (0.5, "not understood and may change the function: logit_scale"),
    "vocab_size": (..., "lacks vocab_size"),
    "hidden_size": ("24", "d_model must be a positive integer, got '24'"),
    "num_key_value_heads": (4, "n_kv_heads must divide n_heads = 6"),
    "tie_word_embeddings": ("no", "tie_embeddings must be True or False"),
}
REFUSED_GPT2 = {
    "scale_attn_weights": (False, "scale_attn_weights is False"),
    "scale_attn_by_inverse_layer_idx": (True, "scale_attn_by_inverse_layer_idx is True"),
    "add_cross_attention": (True, "add_cross_attention is True"),
    "attn_pdrop": (0.3, "one dropout for all three"),
    "resid_pdrop": ("a", "one dropout for all three"),
    "n_ctx": (30, "n_ctx is 30"),
    "n_embd": (..., "lacks n_embd"),
    "activation_function": (["gelu"], "activation_function is"),
}


@pytest.mark.parametrize("field", REFUSED_LLAMA)
def test_llama_field_that_changes_the_function_is_refused(field: str, tmp_path: Path) -> None:
    value, message = REFUSED_LLAMA[field]
    with pytest.raises(WeightsError, match=message):
        load_hf(saved(LLAMA, tmp_path / "hf", **{field: value}))


@pytest.mark.parametrize("field", REFUSED_GPT2)
def test_gpt2_field_that_changes_the_function_is_refused(field: str, tmp_path: Path) -> None:
    value, message = REFUSED_GPT2[field]
    with pytest.raises(WeightsError, match=message):
        load_hf(saved(GPT2, tmp_path / "hf", **{field: value}))


@pytest.mark.parametrize(("window", "read"), [(..., 4096), (None, None), (5, 5)])
def test_mistral_has_a_window_unless_its_config_says_otherwise(
    window: object, read: int | None, tmp_path: Path
) -> None:
    fields = {"model_type": "mistral", "attention_bias": ..., "mlp_bias": ..., "sliding_window": window}
    assert load_hf(saved(LLAMA, tmp_path / "hf", **fields)).config == LLAMA.with_(sliding_window=read)


@pytest.mark.parametrize("window", [0, "5", 2.5])
def test_a_window_that_is_none_is_refused(window: object, tmp_path: Path) -> None:
    directory = saved(LLAMA.with_(sliding_window=5), tmp_path / "hf", sliding_window=window)
    with pytest.raises(WeightsError, match=f"sliding_window must be a positive integer, or None.*{window!r}"):
        load_hf(directory)


def test_mistral_has_no_biases_to_read(tmp_path: Path) -> None:
    directory = saved(LLAMA.with_(sliding_window=5), tmp_path / "hf", mlp_bias=False)
    with pytest.raises(WeightsError, match="not understood and may change the function: mlp_bias"):
        load_hf(directory)


def test_every_lack_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="lacks hidden_size, num_attention_heads"):
        load_hf(saved(LLAMA, tmp_path / "hf", hidden_size=..., num_attention_heads=None))


def test_harmless_fields_are_harmless(tmp_path: Path) -> None:
    fields = {"torch_dtype": "float16", "temperature": 0.3, "use_cache": False, "sliding_window": None}
    directory = saved(LLAMA, tmp_path / "hf", **fields, quantization_config=None, attention_dropout=None)
    assert load_hf(directory).config == LLAMA


def test_a_tied_checkpoint_may_store_its_head_but_no_other(tmp_path: Path) -> None:
    config = LLAMA.with_(tie_embeddings=True)
    directory = saved(config, tmp_path / "hf")
    path = directory / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path)
    assert_same_bits(load_hf(directory), random_model(config, torch.float32))
    tensors["lm_head.weight"][3, 5] += 1
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=r"tie_word_embeddings is true, but lm_head\.weight is not"):
        load_hf(directory)


def test_constants_that_old_versions_stored_are_passed_over(tmp_path: Path) -> None:
    extra = {
        LLAMA: ("model.layers.1.self_attn.rotary_emb.inv_freq", torch.ones(5)),
        GPT2: ("transformer.h.1.attn.bias", torch.ones(1, 1, 29, 29, dtype=torch.uint8)),
    }
    for config, (name, tensor) in extra.items():
        directory = saved(config, tmp_path / config.position)
        tensors = load_file(directory / "model.safetensors") | {name: tensor}
        save_file(tensors, directory / "model.safetensors")
        assert_same_bits(load_hf(directory), random_model(config, torch.float32))


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
def test_every_dtype_becomes_float32_unless_told_otherwise(stored: torch.dtype, tmp_path: Path) -> None:
    model = random_model(LLAMA, stored)
    save_hf(model, tmp_path / "hf")
    assert_same_bits(load_hf(tmp_path / "hf"), model.to(torch.float32))
    assert {p.dtype for p in load_hf(tmp_path / "hf", dtype=None).parameters()} == {stored}
    with pytest.raises(WeightsError, match=r"floating-point dtype, got torch\.int8"):
        load_hf(tmp_path / "hf", dtype=torch.int8)


UNEXPRESSIBLE = {
    "chapter": (CHAPTER, "Llama not norm = 'layernorm', feed_forward = 'mlp'; GPT-2 not position = 'rope'"),
    "out bias": (LLAMA.with_(attention_out_bias=True), "attention_out_bias = True"),
    "no positions": (LLAMA.with_(position="none"), "position = 'none'"),
    "dropout": (LLAMA.with_(dropout=0.1), "dropout = 0.1"),
    "gpt2 norm bias": (GPT2.with_(norm_bias=False), "norm_bias = False"),
    "gpt2 groups": (GPT2.with_(n_kv_heads=1), "n_kv_heads = 1"),
    "gpt2 head_dim": (GPT2.with_(head_dim=6), "head_dim = 6"),
    "llama d_model": (LLAMA.with_(d_model=25), "d_model = 25"),
    "gpt2 window": (GPT2.with_(sliding_window=5), "GPT-2 not sliding_window = 5"),
    "mistral bias": (
        LLAMA.with_(sliding_window=5, feed_forward_bias=True),
        "Llama not feed_forward_bias = True beside sliding_window = 5",
    ),
    "mistral attention bias": (
        LLAMA.with_(sliding_window=5, attention_bias=True, attention_out_bias=True),
        "Llama not attention_bias = True beside sliding_window = 5",
    ),
}


@pytest.mark.parametrize("case", UNEXPRESSIBLE)
def test_what_no_family_expresses_is_refused_by_field(case: str, tmp_path: Path) -> None:
    config, message = UNEXPRESSIBLE[case]
    with pytest.raises(WeightsError, match=message):
        save_hf(random_model(config), tmp_path / "hf")
    assert list(tmp_path.iterdir()) == []
