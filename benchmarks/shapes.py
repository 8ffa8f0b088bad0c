"""The decoders that are timed, each as ProofLM and as transformers builds it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from proof_lm.model import DecoderConfig, ProofLM
from proof_lm.presets import SMOLLM2_135M

CHAR_LLAMA = DecoderConfig(
    vocab_size=96,
    context_length=256,
    n_layers=6,
    d_model=384,
    n_heads=6,
    d_ff=1024,
    norm="rmsnorm",
    rope_layout="half",
    feed_forward="gated",
    activation="silu",
    attention_bias=False,
    attention_out_bias=False,
    feed_forward_bias=False,
    tie_embeddings=False,
)  # a character model as small as nanoGPT's, in Llama's form

CHAR_GPT2 = DecoderConfig(
    vocab_size=96,
    context_length=256,
    n_layers=6,
    d_model=384,
    n_heads=6,
    d_ff=1536,
    position="learned",
    activation="gelu_tanh",
)  # nanoGPT's character model, with biases

SMOLLM2 = SMOLLM2_135M


def shrunk(config: DecoderConfig) -> DecoderConfig:
    """The same architecture in a size that runs in milliseconds: for trying the benchmarks, not for figures."""
    narrow = {"n_layers": 2, "d_model": 48, "n_heads": 6, "d_ff": 64, "vocab_size": 96}
    kv_heads = 6 if config.kv_heads == config.n_heads else 2
    return config.with_(**narrow, n_kv_heads=kv_heads, head_dim=8)


def proof_lm_model(config: DecoderConfig) -> ProofLM:
    """ProofLM with the same random weights every time."""
    torch.manual_seed(0)
    return ProofLM(config)


def transformers_model(config: DecoderConfig, *, fused_gelu: bool = True) -> Any:
    """The transformers model of that config, random, float32, with PyTorch's attention kernel.

    Args:
        config: a shape of the Llama or the GPT-2 family.
        fused_gelu: GPT-2's tanh GELU as one kernel (``gelu_pytorch_tanh``) instead of written out
            (``gelu_new``, what GPT-2's own config asks for); the same function.
    """
    foreign = _gpt2(config, fused_gelu) if config.position == "learned" else _llama(config)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(foreign, attn_implementation="sdpa", dtype=torch.float32)


def _llama(config: DecoderConfig) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=config.vocab_size,
        max_position_embeddings=config.context_length,
        num_hidden_layers=config.n_layers,
        hidden_size=config.d_model,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_width,
        intermediate_size=config.d_ff,
        rms_norm_eps=config.norm_eps,
        hidden_act=config.activation,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=config.tie_embeddings,
    )


def _gpt2(config: DecoderConfig, fused_gelu: bool) -> GPT2Config:
    return GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.context_length,
        n_layer=config.n_layers,
        n_embd=config.d_model,
        n_head=config.n_heads,
        n_inner=config.d_ff,
        layer_norm_epsilon=config.norm_eps,
        activation_function="gelu_pytorch_tanh" if fused_gelu else "gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
