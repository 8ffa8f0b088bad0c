"""Tiny decoders with every parameter random, and comparisons, for the tests of weights."""

from __future__ import annotations

import torch

from proof_lm.config import DecoderConfig
from proof_lm.model import ProofLM

# Pairwise different sizes, head_dim other than d_model / n_heads: no two axes can be confused by accident.
LLAMA = DecoderConfig(
    vocab_size=37,
    context_length=29,
    n_layers=2,
    d_model=24,
    n_heads=6,
    n_kv_heads=2,
    head_dim=10,
    d_ff=44,
    norm="rmsnorm",
    norm_eps=3e-5,
    rope_theta=500.0,
    rope_layout="half",
    feed_forward="gated",
    activation="silu",
    attention_bias=False,
    attention_out_bias=False,
    feed_forward_bias=False,
    tie_embeddings=False,
)
GPT2 = DecoderConfig(
    vocab_size=37,
    context_length=29,
    n_layers=2,
    d_model=24,
    n_heads=3,
    d_ff=44,
    norm_eps=3e-5,
    position="learned",
    activation="gelu_tanh",
    dropout=0.1,
    initialization="gpt2",
)
CHAPTER = DecoderConfig(vocab_size=37, context_length=29, n_layers=2, d_model=24, n_heads=3, d_ff=44)


def randomise(model: torch.nn.Module, seed: int = 7) -> torch.nn.Module:
    """Random values in every parameter: gains of 1 and biases of 0 would hide a missing one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return model.eval()


def random_model(config: DecoderConfig, dtype: torch.dtype = torch.float64) -> ProofLM:
    model = ProofLM(config).to(dtype)
    randomise(model)
    return model


def token_ids(vocab_size: int = 37) -> torch.Tensor:
    return torch.randint(vocab_size, (3, 19), generator=torch.Generator().manual_seed(11))


def logits_of(model: ProofLM, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits, _ = model(ids)
    return logits


def assert_same_bits(left: ProofLM, right: ProofLM) -> None:
    mine, theirs = left.state_dict(), right.state_dict()
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name
