"""One matrix for embedding and head, through casts, copies and loads."""

import copy

import pytest
import torch

from model.random_decoder import random_decoder, random_ids
from proof_lm.oracle import parameter_shapes
from sizes import BATCH, LEARNED, MODERN, SMALL, TIME

CONFIGS = {"small": SMALL, "modern": MODERN, "learned": LEARNED}
WAYS = {
    "cast": lambda model: model.to(torch.float32),
    "copy": copy.deepcopy,
    "assigning load": lambda model: (model.load_state_dict(model.state_dict(), assign=True), model)[1],
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_state_dict_is_the_oracles_list_of_parameters(config) -> None:
    """Excludes buffers, a stored copy of the tied head, and shapes stored (in, out)."""
    model, _ = random_decoder(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes == parameter_shapes(config)
    assert model.parameter_count == sum(p.numel() for p in model.state_dict().values())


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_nothing_parts_a_tied_head_from_its_embedding(way) -> None:
    model = way(random_decoder(SMALL)[0])
    assert model.embeddings_are_tied
    token_ids = random_ids(SMALL, BATCH, TIME)
    with torch.no_grad():
        before = model(token_ids)[0]
        model.embedding.weight[7] = 0.0
        after = model(token_ids)[0]
    assert torch.equal(after[..., 7], torch.zeros_like(after[..., 7]))
    assert not torch.equal(before[..., 7], after[..., 7])


def test_an_untied_head_is_its_own() -> None:
    model, _ = random_decoder(MODERN)
    assert not model.embeddings_are_tied
    token_ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = model(token_ids)[0]
        model.embedding.weight[7] = 0.0
        assert torch.equal(model(token_ids)[0], before)


def test_a_missing_or_unknown_tensor_is_refused() -> None:
    model, _ = random_decoder(SMALL)
    state = model.state_dict()
    state["head.weight"] = state.pop("embedding.weight")
    with pytest.raises(RuntimeError, match=r"(?s)Missing key.*embedding.weight.*Unexpected key.*head.weight"):
        model.load_state_dict(state)
