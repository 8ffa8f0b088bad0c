"""Unmodified models of transformers, tiny and random, on both of their attention paths: no false alarm."""

from typing import Any

import pytest
import torch
from torch import nn

from proof_lm.verify import ForeignSubject, Level, Verdict, verify

transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # transformers' own
    pytest.mark.no_cover,  # long runs of what other tests cover
]


def llama(**changes: Any) -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=31,
        hidden_size=24,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=4,
        max_position_embeddings=29,
        bos_token_id=None,
        eos_token_id=None,
        **changes,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=29, n_embd=24, n_layer=2, n_head=6, bos_token_id=None, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config)


def with_telling_weights(model: nn.Module, seed: int) -> nn.Module:
    """Weights on which faults show: initial values have gains of 1, biases of 0 and near-uniform attention."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_(0.3 * noise + float("weight" in name))
            else:
                is_embedding = "embed" in name or "wte" in name
                parameter.copy_(noise if is_embedding else noise / parameter.shape[-1] ** 0.5)
    return model.eval()


@pytest.mark.parametrize("level", [pytest.param("quick", marks=pytest.mark.shapes_checked), "standard"])
@pytest.mark.parametrize("build", [llama, gpt2])
def test_an_unmodified_model_is_accepted(build: Any, level: Level) -> None:
    seed = len(level)
    subject = ForeignSubject(build.__name__, with_telling_weights(build(), seed))
    assert subject.paths == ("eager", "sdpa")
    verification = verify(subject, seed=seed, level=level)
    against = [r for r in verification.results if r.verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE)]
    assert [(r.name, r.reason, r.worst) for r in against] == []
    assert verification.count(Verdict.HOLDS) >= 8
