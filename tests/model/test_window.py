"""The decoder with a sliding window: against the oracle, in every chunking, and how far it reaches."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from model.random_decoder import BACKENDS, random_decoder, random_ids
from proof_lm.oracle import decoder_forward
from sizes import BATCH, LEARNED, MODERN, SMALL, TIME
from tolerances import decoder_chain, largest, rounding

WINDOW = 4
CONFIGS = {
    name: config.with_(sliding_window=WINDOW)
    for name, config in {"small": SMALL, "modern": MODERN, "learned": LEARNED}.items()
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
IDS = random_ids(SMALL, BATCH, TIME)


def padding() -> torch.Tensor:
    """Row 1 padded left by more than a window, row 2 right, row 3 in the middle."""
    mask = torch.ones(BATCH, TIME, dtype=torch.bool)
    mask[1, : WINDOW + 2], mask[2, 9:], mask[3, 5:7] = False, False, False
    return mask


def bound_of(config, values) -> float:
    return rounding(decoder_chain(config, TIME), largest(values))


@torch.no_grad()
@every_config
@every_backend
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [[TIME], [1] * TIME, [5, 1, 7], [2, 11]], ids=str)
def test_every_chunk_gives_the_oracles_logits(config, backend: str, padded: bool, sizes: list[int]) -> None:
    """Excludes a window anchored at the chunk, one that counts positions, and one that drops the padding."""
    model, weights = random_decoder(config, backend=backend)
    real = padding() if padded else torch.ones(BATCH, TIME, dtype=torch.bool)
    expected = decoder_forward(config, weights, IDS.numpy(), padding_mask=real.numpy()).logits
    cache = model.new_cache(BATCH)
    parts = [
        model(ids, padding_mask=mask if padded else None, cache=cache)[0]
        for ids, mask in zip(IDS.split(sizes, 1), real.split(sizes, 1), strict=True)
    ]
    whole = model(IDS, padding_mask=real if padded else None)[0]
    for logits in (torch.cat(parts, 1), whole):
        assert np.abs(logits.numpy() - expected)[real.numpy()].max() <= bound_of(config, expected)


@torch.no_grad()
@few
@given(
    st.sampled_from([*CONFIGS.values(), SMALL.with_(sliding_window=1), SMALL.with_(sliding_window=9)]),
    st.sampled_from(BACKENDS),
    seeds,
    st.lists(st.integers(1, TIME), min_size=1, max_size=TIME),
)
def test_every_chunking_equals_the_whole(config, backend: str, seed: int, lengths: list[int]) -> None:
    model, _ = random_decoder(config, seed % 5, backend)
    token_ids = random_ids(config, BATCH, TIME, seed)
    ends = [end for end in itertools.accumulate(lengths) if end < TIME] + [TIME]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    cache = model.new_cache(BATCH)
    chunks = torch.cat([model(chunk, cache=cache)[0] for chunk in token_ids.split(sizes, dim=1)], dim=1)
    whole = model(token_ids)[0]
    assert (chunks - whole).abs().max() <= bound_of(config, whole)


@torch.no_grad()
@every_config
@every_backend
@pytest.mark.parametrize("padded", [False, True])
def test_a_window_of_the_whole_sequence_leaves_every_bit(config, backend: str, padded: bool) -> None:
    """With a cache too; one token less is another function, in the last position only."""
    mask = padding() if padded else None
    results = {}
    for window in (None, TIME, 10**6, TIME - 1):
        model, _ = random_decoder(config.with_(sliding_window=window), backend=backend)
        cache = model.new_cache(BATCH)
        model(IDS[:, :5], padding_mask=None if mask is None else mask[:, :5], cache=cache)
        cached = model(IDS[:, 5:], padding_mask=None if mask is None else mask[:, 5:], cache=cache)[0]
        results[window] = torch.cat([model(IDS, padding_mask=mask)[0], cached], dim=1)
    assert torch.equal(results[TIME], results[None])
    assert torch.equal(results[10**6], results[None])
    moved = (results[TIME - 1] - results[None]).abs().amax((0, 2)) > bound_of(config, results[None])
    assert moved.nonzero().flatten().tolist() == [TIME - 1, moved.numel() - 1]


@torch.no_grad()
@few
@given(st.sampled_from(list(CONFIGS.values())), st.sampled_from(BACKENDS), seeds, st.integers(0, TIME - 1))
def test_an_edit_moves_what_its_window_reaches_in_every_layer_and_nothing_else(
    config, backend: str, seed: int, place: int
) -> None:
    """L layers reach L (W - 1) tokens ahead; excludes a window off by one and one that a layer goes without."""
    model, _ = random_decoder(config, seed % 7, backend)
    token_ids = random_ids(config, BATCH, TIME, seed)
    edited = token_ids.clone()
    edited[:, place] = (edited[:, place] + 1) % config.vocab_size
    before, after = model(token_ids)[0], model(edited)[0]
    moved = (before != after).any(-1)
    reached = range(place, min(TIME, place + config.n_layers * (WINDOW - 1) + 1))
    assert moved.tolist() == [[time in reached for time in range(TIME)]] * BATCH


@torch.no_grad()
@every_backend
def test_the_window_counts_tokens_and_not_positions(backend: str) -> None:
    """Excludes a window over position ids: positions far apart, or all the same, leave the visible keys alone."""
    config = CONFIGS["small"]
    model, weights = random_decoder(config, backend=backend)
    for positions in (2 * torch.arange(TIME), torch.zeros(TIME, dtype=torch.int64)):
        spread = positions.expand(BATCH, TIME).numpy()
        expected = decoder_forward(config, weights, IDS.numpy(), position_ids=spread).logits
        logits = model(IDS, position_ids=positions)[0].numpy()
        assert np.abs(logits - expected).max() <= bound_of(config, expected)


@torch.no_grad()
@every_backend
def test_generation_with_a_cache_is_that_without(backend: str) -> None:
    model, _ = random_decoder(CONFIGS["modern"], backend=backend)
    ids = IDS[:, :6]
    for _ in range(9):
        ids = torch.cat([ids, model(ids)[0][:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(model.generate(IDS[:, :6], 9), ids)
