"""Packed rows: every document as if it were alone; against the oracle, against themselves, and what is refused."""

import re

import numpy as np
import pytest
import torch

from model.random_decoder import BACKENDS, random_decoder, random_ids
from proof_lm.errors import InputError
from proof_lm.model.documents import document_positions
from proof_lm.oracle import decoder_backward, decoder_forward
from sizes import BATCH, HEAD_CONFIGS, LEARNED, MODERN, SMALL, TIME
from tolerances import decoder_chain, largest, rounding

CONFIGS = {
    **HEAD_CONFIGS,
    "modern": MODERN,
    "learned": LEARNED,
    "no position": SMALL.with_(position="none"),
    "window": SMALL.with_(sliding_window=3),
}
IDS = random_ids(SMALL, BATCH, TIME)
# One document; two; one of a single token between others; ids that fall and are negative; a document a token.
DOCUMENTS = torch.tensor(
    [
        [7] * 13,
        [0] * 5 + [1] * 8,
        [3] * 6 + [9] + [4] * 6,
        [2] * 4 + [-1] * 2 + [-8] * 7,
        list(range(13)),
    ]
)
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def padding() -> torch.Tensor:
    """Padding before, after, inside and between documents."""
    mask = torch.ones(BATCH, TIME, dtype=torch.bool)
    mask[0, :2], mask[1, 11:], mask[2, 2:4], mask[3, 3:5] = False, False, False, False
    return mask


def pieces(row: int) -> list[slice]:
    """Where the documents of a row lie, found token by token."""
    ids = DOCUMENTS[row].tolist()
    starts = [t for t in range(TIME) if t == 0 or ids[t] != ids[t - 1]]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], TIME], strict=True)]


def bound_of(config, *values) -> float:
    return rounding(decoder_chain(config, TIME), largest(*values))


@torch.no_grad()
@every_config
@every_backend
def test_every_document_gets_the_logits_that_it_has_alone(config, backend: str) -> None:
    """Excludes a look across the border, positions that run on, and a mask that forgets the causal one."""
    model, _ = random_decoder(config, backend=backend)
    packed = model(IDS, document_ids=DOCUMENTS)[0]
    for row in range(BATCH):
        for piece in pieces(row):
            alone = model(IDS[row : row + 1, piece])[0][0]
            assert (packed[row, piece] - alone).abs().max() <= bound_of(config, alone)
    whole = model(IDS)[0]  # reach: without the ids, what follows a document comes out otherwise
    for row in range(1, BATCH):
        for piece in pieces(row)[1:]:
            assert (packed - whole)[row, piece.start].abs().max() > 1e6 * bound_of(config, whole)


@every_config
@every_backend
@pytest.mark.parametrize("padded", [False, True])
def test_logits_loss_and_every_gradient_are_the_oracles(config, backend: str, padded: bool) -> None:
    model, weights = random_decoder(config, backend=backend)
    real = padding() if padded else torch.ones(BATCH, TIME, dtype=torch.bool)
    labels, counted = random_ids(config, BATCH, TIME, seed=5), real & (torch.rand(BATCH, TIME) < 0.8)
    options = {"padding_mask": real, "document_ids": DOCUMENTS}
    trace = decoder_forward(
        config,
        weights,
        *(x.numpy() for x in (IDS, labels, counted)),
        **{k: x.numpy() for k, x in options.items()},
    )
    gradients = decoder_backward(config, weights, trace)
    gradients.pop("hidden")
    options["padding_mask"] = real if padded else None
    logits, loss = model(IDS, labels, counted, **options)
    loss.backward()
    assert np.abs(logits.detach().numpy() - trace.logits)[real.numpy()].max() <= bound_of(
        config, trace.logits
    )
    assert abs(loss.item() - trace.loss) <= bound_of(config, trace.logits)
    bound = bound_of(config, trace.logits, *gradients.values())
    for name, parameter in model.named_parameters():
        assert np.abs(parameter.grad.numpy() - gradients[name]).max() <= bound, name


@torch.no_grad()
@every_config
@every_backend
def test_an_edit_stays_in_its_document(config, backend: str) -> None:
    """Bit by bit outside, and with reach inside, where the window is wide enough."""
    model, _ = random_decoder(config, backend=backend)
    before = model(IDS, document_ids=DOCUMENTS)[0]
    for place in (0, 4, 6, 9):
        edited = IDS.clone()
        edited[:, place] = (edited[:, place] + 1) % config.vocab_size
        moved = (model(edited, document_ids=DOCUMENTS)[0] != before).any(-1)
        later = torch.arange(TIME) >= place
        inside = (DOCUMENTS[:, place, None] == DOCUMENTS) & later
        if config.sliding_window is None:
            assert torch.equal(moved, inside)
        else:
            assert not (moved & ~inside).any()
            assert moved[:, place].all()


@torch.no_grad()
@every_backend
@pytest.mark.parametrize("config", [SMALL, LEARNED, MODERN], ids=["small", "learned", "modern"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_row_that_is_one_document_is_the_row_without_ids(config, backend: str, padded: bool) -> None:
    model, _ = random_decoder(config, backend=backend)
    mask = padding() if padded else torch.ones(BATCH, TIME, dtype=torch.bool)
    one = model(IDS, padding_mask=mask, document_ids=torch.full_like(IDS, 4))[0]
    assert torch.equal(one, model(IDS, padding_mask=mask)[0])


def test_positions_restart_and_count_real_tokens_only() -> None:
    """Written out by hand."""
    document_ids = torch.tensor([[5, 5, 5, 2, 2, 8], [1, 1, 1, 1, 3, 3], [6, 6, 6, 6, 6, 6]])
    real = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1]]).bool()
    assert document_positions(document_ids, None).tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 1, 2, 3, 0, 1],
        [0, 1, 2, 3, 4, 5],
    ]
    assert document_positions(document_ids, real).tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 2],
    ]


@torch.no_grad()
@pytest.mark.parametrize("config", [SMALL, LEARNED], ids=["rope", "learned"])
def test_positions_that_are_given_win(config) -> None:
    model, weights = random_decoder(config)
    positions = torch.arange(TIME).flip(0)
    expected = decoder_forward(
        config,
        weights,
        IDS.numpy(),
        position_ids=positions.expand(BATCH, TIME).numpy(),
        document_ids=DOCUMENTS.numpy(),
    ).logits
    given, default = (
        model(IDS, document_ids=DOCUMENTS, position_ids=ids)[0].numpy() for ids in (positions, None)
    )
    assert np.abs(given - expected).max() <= bound_of(config, expected)
    assert np.abs(default - expected).max() > 1e6 * bound_of(config, expected)


@torch.no_grad()
def test_hidden_states_take_them_too() -> None:
    model, _ = random_decoder(SMALL)
    hidden = model.hidden_states(IDS, document_ids=DOCUMENTS.int())
    assert torch.equal(model.logits(hidden), model(IDS, document_ids=DOCUMENTS)[0])


@torch.no_grad()
@every_backend
def test_what_stands_at_padding_means_nothing(backend: str) -> None:
    """Excludes a pad's id that ends a document, or that counts as its return."""
    model, _ = random_decoder(SMALL, backend=backend)
    mask = padding()
    expected = model(IDS, padding_mask=mask, document_ids=DOCUMENTS)[0]
    for stored in (DOCUMENTS.flip(1), torch.full_like(IDS, 3), torch.full_like(IDS, -(2**40))):
        ids = torch.where(mask, DOCUMENTS, stored)
        assert torch.equal(model(IDS, padding_mask=mask, document_ids=ids)[0][mask], expected[mask])


REFUSED = {
    "a document that comes back": (
        [[1] * 13, [1] * 6 + [2] * 5 + [1, 2]],
        "document_ids must hold each document in one piece, got 1 again at [1, 11], after another document",
    ),
    "a document that comes back at once": (
        [[0] * 4 + [5] + [0] * 8, [1] * 13],
        "document_ids must hold each document in one piece, got 0 again at [0, 5], after another document",
    ),
    "floating point": (
        torch.zeros(2, 13).tolist(),
        "document_ids must hold integers (int64 or int32), got torch.float32",
    ),
    "another shape": (
        [[1] * 12] * 2,
        "document_ids must have the shape of token_ids, (2, 13), got (2, 12)",
    ),
}


@pytest.mark.parametrize(("document_ids", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_place(document_ids: list, message: str) -> None:
    model, _ = random_decoder(SMALL)
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        model(IDS[:2], document_ids=torch.tensor(document_ids))


def test_a_return_is_found_across_padding_and_not_in_it() -> None:
    model, _ = random_decoder(SMALL)
    document_ids = torch.tensor([[4, 4, 2, 4, 4, 9, 9, 9, 9, 9, 9, 4, 9]])
    mask = torch.ones(1, TIME, dtype=torch.bool)
    mask[0, [2, 11]] = False
    model(IDS[:1], padding_mask=mask, document_ids=document_ids)
    mask[0, 11] = True
    with pytest.raises(InputError, match=r"got 4 again at \[0, 11\]"):
        model(IDS[:1], padding_mask=mask, document_ids=document_ids)
    mask[0, [2, 11]] = torch.tensor([True, False])
    with pytest.raises(InputError, match=r"got 4 again at \[0, 3\]"):
        model(IDS[:1], padding_mask=mask, document_ids=document_ids)


@torch.no_grad()
def test_a_cache_is_refused_and_left_as_it_was() -> None:
    model, _ = random_decoder(SMALL)
    cache = model.new_cache(BATCH)
    message = "document_ids do not go with a cache: a packed sequence is one call, without a cache"
    for start in (0, 4):
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            model(IDS[:, start:], document_ids=DOCUMENTS[:, start:], cache=cache)
        assert cache.length == start
        assert not cache.has_padding
        model(IDS[:, start : start + 4], cache=cache)
