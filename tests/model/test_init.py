"""The first weights: the statistics of every role, under each scheme, and models built without memory."""

import math

import pytest
import torch

from proof_lm.config import DecoderConfig
from proof_lm.model import ProofLM, initialize
from proof_lm.model.norm import LayerNorm, RMSNorm
from sizes import LEARNED, MODERN, SMALL
from tolerances import STANDARD_ERRORS

DEEP = DecoderConfig(
    vocab_size=211,
    context_length=67,
    n_layers=9,
    d_model=60,
    n_heads=6,
    n_kv_heads=3,
    d_ff=97,
    position="learned",
    feed_forward="gated",
    tie_embeddings=False,
)
WRITERS = ("attention.out.weight", "feed_forward.down.weight")


def matrices(config: DecoderConfig) -> dict[str, torch.Tensor]:
    model = ProofLM(config)
    return {name: p.detach().double() for name, p in model.named_parameters() if p.dim() == 2}


def assert_spread(name: str, weight: torch.Tensor, std: float) -> None:
    """Mean 0 and the given standard deviation; the errors of the two are std / sqrt(n) and std / sqrt(2n)."""
    n = weight.numel()
    assert abs(weight.mean()) <= STANDARD_ERRORS * std / math.sqrt(n), name
    assert abs(weight.std() - std) <= STANDARD_ERRORS * std / math.sqrt(2 * n), name


def test_normal_has_one_spread_for_all() -> None:
    for name, weight in matrices(DEEP).items():
        assert_spread(name, weight, 0.02)


def test_gpt2_divides_what_writes_to_the_stream_by_the_root_of_its_writers() -> None:
    """Excludes sqrt(n_layers), a scale by the layer's own index, and the scale on other matrices."""
    for name, weight in matrices(DEEP.with_(initialization="gpt2")).items():
        assert_spread(name, weight, 0.02 / math.sqrt(2 * 9) if name.endswith(WRITERS) else 0.02)
    assert 0.02 / math.sqrt(9) - 0.02 / math.sqrt(18) > STANDARD_ERRORS * 0.02 / math.sqrt(60 * 60)


def test_truncated_normal_has_glorot_variance_and_is_cut_at_three() -> None:
    """A normal cut at 3 keeps the variance 1 - 6 phi(3) / (2 Phi(3) - 1) = 0.9733 of what it was."""
    density, inside = math.exp(-4.5) / math.sqrt(2 * math.pi), math.erf(3 / math.sqrt(2))
    shrink = math.sqrt(1.0 - 6.0 * density / inside)
    for name, weight in matrices(DEEP.with_(initialization="truncated_normal")).items():
        std = 1.0 if "embedding" in name else math.sqrt(2.0 / sum(weight.shape))
        assert weight.abs().max() <= 3 * std * (1 + 1e-6), name
        assert weight.abs().max() > 2.5 * std, name
        assert_spread(name, weight, std * shrink)


def test_a_tied_matrix_starts_as_a_head() -> None:
    """It is drawn twice and keeps the second draw: excludes logits of spread sqrt(d_model) from the first step."""
    tied = matrices(DEEP.with_(initialization="truncated_normal", tie_embeddings=True))["embedding.weight"]
    assert tied.abs().max() <= 3 * math.sqrt(2.0 / (211 + 60)) * (1 + 1e-6)


@pytest.mark.parametrize("scheme", ["normal", "gpt2", "truncated_normal"])
@pytest.mark.parametrize("config", [SMALL, MODERN, LEARNED], ids=["small", "modern", "learned"])
def test_biases_are_zero_and_gains_one(config: DecoderConfig, scheme: str) -> None:
    model = ProofLM(config.with_(initialization=scheme))
    gains = {id(m.weight) for m in model.modules() if isinstance(m, LayerNorm | RMSNorm)}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert torch.equal(parameter, torch.full_like(parameter, float(id(parameter) in gains))), name
        else:
            assert parameter.unique().numel() > parameter.numel() // 2, name


def test_a_generator_makes_the_draws_repeatable_and_leaves_the_global_state() -> None:
    first, second = ProofLM(SMALL), ProofLM(SMALL)
    assert not torch.equal(first.embedding.weight, second.embedding.weight)
    state = torch.get_rng_state()
    for model in (first, second):
        initialize(model, torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), state)
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("config", [SMALL, MODERN, LEARNED], ids=["small", "modern", "learned"])
def test_a_model_can_be_built_on_the_meta_device_and_filled_afterwards(config: DecoderConfig) -> None:
    """Excludes weights, tables or buffers that only the constructor can make."""
    with torch.device("meta"):
        model = ProofLM(config)
    assert all(parameter.is_meta for parameter in model.parameters())
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.fill_(math.nan)
    initialize(model)
    with torch.no_grad():
        assert model(torch.tensor([[1, 2, 3]]))[0].isfinite().all()


@pytest.mark.parametrize("config", [SMALL, MODERN, LEARNED], ids=["small", "modern", "learned"])
def test_weights_can_be_assigned_to_a_meta_model(config: DecoderConfig) -> None:
    """Excludes a tied head that keeps the old tensor when the embedding's is exchanged."""
    source, token_ids = ProofLM(config), torch.tensor([[1, 2, 3]])
    with torch.device("meta"):
        model = ProofLM(config)
    model.load_state_dict(source.state_dict(), assign=True)
    with torch.no_grad():
        assert torch.equal(model(token_ids)[0], source(token_ids)[0])
    assert model.embeddings_are_tied == config.tie_embeddings
