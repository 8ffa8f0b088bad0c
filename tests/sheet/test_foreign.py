"""The sheet of a Hugging Face directory has the parameters that transformers counts in the model of that config."""

from pathlib import Path

import pytest
import torch

from proof_lm.sheet import Sheet
from proof_lm.weights import read_config

transformers = pytest.importorskip("transformers", reason="transformers (extra 'hf') is not installed")
SMALL = {
    "vocab_size": 37,
    "hidden_size": 24,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}
LLAMA_3 = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
CASES = {
    "Llama 2 7B": ("LlamaConfig", {}),
    "Llama 3.1 8B": ("LlamaConfig", LLAMA_3),
    "small Llama, tied, biases, grouped": (
        "LlamaConfig",
        {
            **SMALL,
            "num_key_value_heads": 2,
            "head_dim": 10,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "Mistral 7B": ("MistralConfig", {}),
    "small Mistral": ("MistralConfig", {**SMALL, "num_key_value_heads": 3, "sliding_window": 5}),
    "GPT-2 small": ("GPT2Config", {}),
    "GPT-2 XL": ("GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "small GPT-2": (
        "GPT2Config",
        {"vocab_size": 37, "n_positions": 29, "n_embd": 24, "n_inner": 50, "n_layer": 3, "n_head": 6},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_those_that_transformers_counts(name: str, tmp_path: Path) -> None:
    kind, fields = CASES[name]
    config = getattr(transformers, kind)(**fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(tmp_path)
    sheet = Sheet(name, read_config(tmp_path), 1, 16)
    assert sheet.parameter_count == model.num_parameters()
    assert sheet.parameter_count == sum(part.count for part in sheet.subtotals)
