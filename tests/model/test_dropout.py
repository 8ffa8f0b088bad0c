"""Where dropout acts, that evaluation has none, and how the rest is scaled."""

import pytest
import torch

from model.random_decoder import BACKENDS, random_decoder, random_ids
from proof_lm.model import ProofLM
from sizes import BATCH, SMALL, TIME

P = 0.25
DROPPING = SMALL.with_(dropout=P)
IDS = random_ids(SMALL, BATCH, TIME)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def dropping_model(backend: str = "explicit") -> ProofLM:
    return random_decoder(DROPPING, backend=backend)[0]


@every_backend
def test_evaluation_is_the_model_without_dropout(backend: str) -> None:
    """Excludes dropout left on in eval, on the embedding, in attention or in a branch."""
    without, _ = random_decoder(SMALL, backend=backend)
    with torch.no_grad():
        assert torch.equal(dropping_model(backend)(IDS)[0], without(IDS)[0])


@every_backend
def test_training_draws_anew_and_repeats_with_the_seed(backend: str) -> None:
    model = dropping_model(backend).train()
    results = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        results.append(model(IDS)[0])
    assert not torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def survivors(values: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Which entries are reference / (1 - p); all others must be 0."""
    kept = values != 0.0
    assert torch.allclose(values[kept], (reference / (1.0 - P))[kept], rtol=1e-14, atol=0.0)
    return kept


def assert_share_kept(kept: torch.Tensor) -> None:
    standard_error = (P * (1 - P) / kept.numel()) ** 0.5
    assert abs(kept.double().mean() - (1.0 - P)) <= 5 * standard_error


def test_the_embedding_is_dropped_and_scaled() -> None:
    model, positions = dropping_model(), torch.arange(TIME).expand(BATCH, TIME)
    whole = model.embed(IDS, positions, None)
    assert_share_kept(survivors(model.train().embed(IDS, positions, None), whole))


@pytest.mark.parametrize("branch", ["attention", "feed_forward"])
def test_each_branch_is_dropped_and_the_residual_stream_is_not(branch: str) -> None:
    """With all weights of both branches' last layers 0, one branch puts out its bias and the other nothing."""
    model = dropping_model().train()
    block = model.blocks[0]
    last = {"attention": block.attention.out, "feed_forward": block.feed_forward.down}
    with torch.no_grad():
        for layer in last.values():
            layer.weight.zero_()
            layer.bias.zero_()
        last[branch].bias.fill_(1.0)
        stream = torch.zeros(BATCH, TIME, SMALL.d_model, dtype=torch.float64)
        output = block(stream, model.context(torch.arange(TIME).expand(BATCH, TIME), None))
        assert_share_kept(survivors(output, torch.ones_like(output)))
        last[branch].bias.zero_()
        stream += 3.0
        assert torch.equal(block(stream, model.context(torch.arange(TIME).expand(BATCH, TIME), None)), stream)


@every_backend
def test_attention_weights_are_dropped(backend: str) -> None:
    """Time 1: the only weight is 1, so a head puts out its value over 1 - p, or zeros, as a whole."""
    model = dropping_model(backend).train()
    layer, seen = model.blocks[0].attention, []
    layer.out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    states = torch.randn(400, 1, SMALL.d_model, dtype=torch.float64)
    context = model.context(torch.zeros(400, 1, dtype=torch.int64), None)
    with torch.no_grad():
        layer.eval()(states, context)
        layer.train()(states, context)
    whole, dropped = (heads.unflatten(-1, (SMALL.n_heads, -1)) for heads in seen)
    kept = survivors(dropped, whole)
    assert torch.equal(kept, kept.any(-1, keepdim=True).expand_as(kept))
    assert_share_kept(kept[..., 0])
