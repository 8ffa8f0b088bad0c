"""Foreign decoders of every known layout, each with the config that it must be recognised as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proof_lm.config import DecoderConfig
from proof_lm.model import ProofLM
from proof_lm.verify import randomized
from sizes import LEARNED, MODERN, SMALL
from verify.foreign import cs336_style, litgpt_style, llms_from_scratch_style, nanogpt_style
from verify.maps.agreement import FLOAT32_ANGLES, LogitsOf
from weights.tiny import GPT2, LLAMA, randomise

_WITHOUT_BIASES = {"attention_bias": False, "attention_out_bias": False, "feed_forward_bias": False}
_CS336 = DecoderConfig(
    vocab_size=31,
    context_length=23,
    n_layers=3,
    d_model=20,
    n_heads=5,
    d_ff=34,
    norm="rmsnorm",
    feed_forward="gated",
    activation="silu",
    tie_embeddings=False,
    **_WITHOUT_BIASES,
)
_LITGPT = _CS336.with_(
    vocab_size=37,
    n_layers=2,
    d_model=22,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    norm_eps=1e-6,
    rope_theta=5000.0,
    rope_layout="half",
)
_NANOGPT = DecoderConfig(
    vocab_size=29, context_length=19, n_layers=2, d_model=18, n_heads=3, d_ff=72, position="learned"
)
_BOOK = DecoderConfig(
    vocab_size=37,
    context_length=17,
    n_layers=2,
    d_model=21,
    n_heads=3,
    d_ff=84,
    position="learned",
    activation="gelu_tanh",
    attention_bias=False,
    tie_embeddings=False,
)


@dataclass(frozen=True)
class Case:
    """One decoder.

    Attributes:
        family: what it must be recognised as.
        build: makes it; random weights, no gain 1, no bias 0.
        config: what it must be recognised with.
        logits_of: calls it.
        bound: relative, of what its own arithmetic loses; None where that is float64 throughout.
    """

    family: str
    build: Callable[[], nn.Module]
    config: DecoderConfig
    logits_of: LogitsOf = lambda module, ids: module(ids)
    bound: float | None = None


class Stranger(nn.Module):
    """A class that has our parameters' names and computes with them as we do."""

    def __init__(self, model: ProofLM) -> None:
        super().__init__()
        self.config = model.config
        for name, child in model.named_children():
            self.add_module(name, child)
        self._run = [model]  # in a list: not one of the modules

    def forward(self, ids: Tensor) -> Tensor:
        return self._run[0](ids)[0]


def stranger(config: DecoderConfig) -> Stranger:
    return Stranger(randomized(config, seed=3).double()).eval()


def _nanogpt(module: nn.Module, ids: Tensor) -> Tensor:
    return module(ids, ids)[0]  # without targets it gives the last logits only


CASES: dict[str, Case] = {
    "ours": Case("ProofLM", lambda: stranger(SMALL), SMALL),
    "ours, modern": Case("ProofLM", lambda: stranger(MODERN), MODERN),
    "ours, learned": Case("ProofLM", lambda: stranger(LEARNED), LEARNED),
    "nanogpt": Case("nanoGPT", nanogpt_style.build, _NANOGPT, _nanogpt),
    "nanogpt without biases": Case(
        "nanoGPT",
        nanogpt_style.build_without_bias,
        _NANOGPT.with_(norm_bias=False, **_WITHOUT_BIASES),
        _nanogpt,
    ),
    "cs336": Case("CS336", cs336_style.build, _CS336),
    "litgpt": Case("LitGPT with LLaMAMLP", litgpt_style.build, _LITGPT),
    "litgpt with biases": Case(
        "LitGPT with LLaMAMLP",
        litgpt_style.build_with_bias,
        _LITGPT.with_(attention_bias=True, attention_out_bias=True, feed_forward_bias=True),
    ),
    "llms-from-scratch": Case("LLMs-from-scratch", llms_from_scratch_style.build, _BOOK),
    "llms-from-scratch with biases": Case(
        "LLMs-from-scratch", llms_from_scratch_style.build_with_qkv_bias, _BOOK.with_(attention_bias=True)
    ),
}

HF_LLAMA: dict[str, tuple[dict[str, object], DecoderConfig]] = {
    "llama": ({}, LLAMA),
    "llama tied": ({"tie_word_embeddings": True}, LLAMA.with_(tie_embeddings=True)),
    "llama mqa": ({"num_key_value_heads": 1}, LLAMA.with_(n_kv_heads=1)),
    "llama with biases": (
        {"attention_bias": True, "mlp_bias": True, "attention_dropout": 0.1},
        LLAMA.with_(attention_bias=True, attention_out_bias=True, feed_forward_bias=True),
    ),
    "mistral": ({"sliding_window": None}, LLAMA),
    "mistral with a window": ({"sliding_window": 5}, LLAMA.with_(sliding_window=5)),
}
HF_GPT2: dict[str, tuple[dict[str, object], DecoderConfig]] = {
    "gpt2": ({}, GPT2.with_(dropout=0.0)),
    "gpt2 untied": (
        {"tie_word_embeddings": False, "embd_pdrop": 0.3},
        GPT2.with_(dropout=0.0, tie_embeddings=False),
    ),
}


def hugging_face(name: str) -> Case:
    """A model of transformers, which must be installed."""
    import transformers

    if name in HF_GPT2:
        changes, expected = HF_GPT2[name]
        fields = {"vocab_size": 37, "n_positions": 29, "n_layer": 2, "n_embd": 24, "n_head": 3, "n_inner": 44}
        ends = {"bos_token_id": None, "eos_token_id": None}
        config = transformers.GPT2Config(**{**fields, **ends, "layer_norm_epsilon": 3e-5, **changes})
        family, kind, bound = "Hugging Face GPT-2", transformers.GPT2LMHeadModel, None
    else:
        changes, expected = HF_LLAMA[name]
        fields = {
            "vocab_size": 37,
            "max_position_embeddings": 29,
            "num_hidden_layers": 2,
            "hidden_size": 24,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 10,
            "intermediate_size": 44,
            "rms_norm_eps": 3e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        }
        brand = "Mistral" if "mistral" in name else "Llama"
        config = getattr(transformers, f"{brand}Config")(**{**fields, **changes})
        family, kind = "Hugging Face Llama", getattr(transformers, f"{brand}ForCausalLM")
        bound = FLOAT32_ANGLES
    return Case(
        family,
        lambda: randomise(kind(config).to(torch.float64)),
        expected,
        lambda module, ids: module(ids).logits,
        bound,
    )
