"""The key/value cache: every way of chunking, and the cache as a value that the caller owns."""

import itertools
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from model.random_decoder import BACKENDS, random_decoder, random_ids
from proof_lm.config import DecoderConfig
from proof_lm.errors import CacheError, InputError
from proof_lm.model import KVCache, ProofLM
from sizes import BATCH, HEAD_CONFIGS, LEARNED, MODERN, SMALL, TIME
from tolerances import decoder_chain, largest, rounding

CONFIGS = {**HEAD_CONFIGS, "modern": MODERN, "learned": LEARNED}
IDS = random_ids(SMALL, BATCH, TIME)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def assert_close(config: DecoderConfig, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours - theirs).abs().max() <= rounding(decoder_chain(config, TIME), largest(theirs))


def in_chunks(model: ProofLM, token_ids: torch.Tensor, sizes: list[int], cache: KVCache) -> torch.Tensor:
    return torch.cat([model(chunk, cache=cache)[0] for chunk in token_ids.split(sizes, dim=1)], dim=1)


@torch.no_grad()
@few
@given(
    st.sampled_from(list(CONFIGS.values())),
    st.sampled_from(BACKENDS),
    seeds,
    st.lists(st.integers(1, TIME), min_size=1, max_size=TIME),
)
def test_every_chunking_equals_the_whole(config, backend: str, seed: int, lengths: list[int]) -> None:
    """Excludes positions that restart, keys rotated twice, a triangle at the top left, slots overwritten."""
    model, _ = random_decoder(config, seed % 5, backend)
    token_ids = random_ids(config, BATCH, TIME, seed)
    ends = [end for end in itertools.accumulate(lengths) if end < TIME] + [TIME]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    cache = model.new_cache(BATCH)
    assert_close(config, in_chunks(model, token_ids, sizes, cache), model(token_ids)[0])
    assert cache.length == TIME


@torch.no_grad()
@every_backend
def test_a_cache_that_is_not_read_would_show(backend: str) -> None:
    """The same chunks without the cache lie far outside the bound."""
    model, _ = random_decoder(SMALL, backend=backend)
    whole, alone = model(IDS)[0], model(IDS[:, 4:])[0]
    assert (alone - whole[:, 4:]).abs().max() > 1e6 * rounding(decoder_chain(SMALL, TIME), largest(whole))


@torch.no_grad()
@every_backend
@pytest.mark.parametrize("config", [SMALL, LEARNED, MODERN], ids=["small", "learned", "modern"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_decode_as_their_tokens_alone(config: DecoderConfig, side: str, backend: str) -> None:
    """Excludes positions that count padding, and padding that stays visible once it lies in the cache."""
    model, _ = random_decoder(config, backend=backend)
    lengths = [6, 3, 1, 5, 6]
    prompts = [random_ids(config, 1, length, seed) for seed, length in enumerate(lengths)]
    token_ids, mask = torch.full((BATCH, 6), 7), torch.zeros(BATCH, 6, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        place = slice(6 - lengths[row], 6) if side == "left" else slice(0, lengths[row])
        token_ids[row, place], mask[row, place] = prompt[0], True
    following = random_ids(config, BATCH, 4, seed=9)
    cache = model.new_cache(BATCH)
    model(token_ids, padding_mask=mask, cache=cache)
    logits = in_chunks(model, following, [1, 2, 1], cache)
    for row, prompt in enumerate(prompts):
        alone = model(torch.cat([prompt, following[row : row + 1]], dim=1))[0][0, lengths[row] :]
        assert_close(config, logits[row], alone)
    unpadded = model(torch.cat([token_ids, following], dim=1))[0][1, 6:]
    assert (logits[1] - unpadded).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("mask_first", [True, False])
def test_padding_may_come_in_any_chunk(mask_first: bool) -> None:
    """Excludes a mask that is forgotten after, or taken for granted before, the chunk that brought it."""
    model, _ = random_decoder(SMALL)
    mask = torch.ones(BATCH, TIME, dtype=torch.bool)
    mask[1, slice(0, 3) if mask_first else slice(6, 9)] = False
    cache = model.new_cache(BATCH)
    parts = [
        model(ids, padding_mask=None if part.all() else part, cache=cache)[0]
        for ids, part in zip(IDS.split([5, 5, 3], 1), mask.split([5, 5, 3], 1), strict=True)
    ]
    whole = model(IDS, padding_mask=mask)[0]
    assert_close(SMALL, torch.cat(parts, 1)[mask], whole[mask])


@torch.no_grad()
def test_padding_of_another_chunk_with_numbers_for_a_mask() -> None:
    model, _ = random_decoder(SMALL)
    mask = torch.ones(BATCH, TIME, dtype=torch.int64)
    mask[1, :3] = 0
    with_numbers, with_booleans = model.new_cache(BATCH), model.new_cache(BATCH)
    expected = model(IDS, padding_mask=mask.bool(), cache=with_booleans)[0]
    assert torch.equal(model(IDS, padding_mask=mask, cache=with_numbers)[0], expected)
    assert torch.equal(with_numbers.visible, with_booleans.visible)


class InterruptedForwardError(Exception):
    """Raised in the middle of a forward pass."""


def interrupt(*_: object) -> None:
    raise InterruptedForwardError


@torch.no_grad()
@every_backend
@pytest.mark.parametrize("padded", [False, True])
def test_a_forward_that_fails_half_way_leaves_the_cache_as_it_was(padded: bool, backend: str) -> None:
    """Excludes a length, a position or a mask that has already moved when the last block raises."""
    model, _ = random_decoder(SMALL, backend=backend)
    mask = torch.ones(BATCH, 4, dtype=torch.bool)
    mask[1, :2] = not padded
    clean, failed = model.new_cache(BATCH), model.new_cache(BATCH)
    for cache in (clean, failed):
        model(IDS[:, :4], padding_mask=mask if padded else None, cache=cache)
    handle = model.blocks[-1].register_forward_pre_hook(interrupt)
    with pytest.raises(InterruptedForwardError):
        model(IDS[:, 5:11], padding_mask=torch.zeros(BATCH, 6, dtype=torch.bool), cache=failed)
    handle.remove()
    assert failed.length == 4
    assert torch.equal(failed.next_positions(), clean.next_positions())
    assert_close(SMALL, model(IDS[:, 4:7], cache=failed)[0], model(IDS[:, 4:7], cache=clean)[0])


@torch.no_grad()
def test_refused_input_leaves_the_cache_as_it_was() -> None:
    model, _ = random_decoder(SMALL)
    cache = model.new_cache(BATCH)
    model(IDS[:, :4], cache=cache)
    with pytest.raises(InputError):
        model(IDS + 99, cache=cache)
    with pytest.raises(InputError):
        model(IDS, padding_mask=torch.full(IDS.shape, -1.0), cache=cache)
    assert_close(SMALL, model(IDS[:, 4:], cache=cache)[0], model(IDS)[0][:, 4:])


@torch.no_grad()
@pytest.mark.parametrize("kept", [0, 1, 5, 9])
def test_truncating_takes_tokens_back(kept: int) -> None:
    """Excludes a length that goes back while positions or padding do not."""
    model, _ = random_decoder(SMALL)
    mask = torch.ones(BATCH, 9, dtype=torch.bool)
    mask[2, 5:] = False
    cache = model.new_cache(BATCH)
    model(IDS[:, :9].flip(1), padding_mask=mask, cache=cache)
    cache.truncate(kept)
    result = model(IDS[:, 9:], cache=cache)[0]
    fresh = model.new_cache(BATCH)
    if kept:
        model(IDS[:, :9].flip(1)[:, :kept], padding_mask=mask[:, :kept], cache=fresh)
    assert_close(SMALL, result, model(IDS[:, 9:], cache=fresh)[0])


@torch.no_grad()
def test_reordering_moves_everything_a_row_has() -> None:
    """Excludes keys that move while values, positions or padding stay: beam search equals each row alone."""
    model, _ = random_decoder(SMALL)
    mask = torch.ones(BATCH, 6, dtype=torch.bool)
    mask[1, :4], mask[3, :1] = False, False
    cache = model.new_cache(BATCH)
    model(IDS[:, :6], padding_mask=mask, cache=cache)
    rows = torch.tensor([1, 1, 4, 0, 3])
    cache.reorder(rows)
    result = in_chunks(model, IDS[:, 6:9], [1, 1, 1], cache)
    for beam, row in enumerate(rows):
        sequence = torch.cat([IDS[row, :6][mask[row]], IDS[beam, 6:9]])[None]
        assert_close(SMALL, result[beam], model(sequence)[0][0, -3:])


@torch.no_grad()
def test_free_slots_are_never_read() -> None:
    """Excludes attention over the whole allocation: what lies behind the length may be NaN."""
    model, _ = random_decoder(SMALL)
    cache = model.new_cache(BATCH)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    assert_close(SMALL, in_chunks(model, IDS, [5, 1, 7], cache), model(IDS)[0])


@torch.no_grad()
def test_a_cache_can_be_filled_to_its_last_slot_and_no_further() -> None:
    model, _ = random_decoder(SMALL)
    cache = model.new_cache(BATCH, 10)
    model(IDS[:, :9], cache=cache)
    model(IDS[:, 9:10], cache=cache)
    message = "the cache has room for 10 tokens and holds 10: 1 more do not fit; make a larger one"
    with pytest.raises(CacheError, match=re.escape(message)):
        model(IDS[:, 10:11], cache=cache)


@torch.no_grad()
def test_the_context_ends_where_cache_and_tokens_reach_it_together() -> None:
    model, _ = random_decoder(SMALL)
    cache = KVCache(SMALL, 1, 50, dtype=torch.float64)
    long = torch.zeros(1, 28, dtype=torch.int64)
    model(long, cache=cache)
    message = "2 tokens after 28 in the cache exceed context_length = 29; shorten the sequence"
    with pytest.raises(InputError, match=re.escape(message)):
        model(long[:, :2], cache=cache)
    model(long[:, :1], cache=cache)


def test_size_is_counted_in_bytes_from_the_closed_formula() -> None:
    """2 L B K C H bytes an element; excludes a cache that expands KV heads to query heads."""
    cache = KVCache(SMALL, BATCH, 11, dtype=torch.bfloat16)
    assert (cache.batch_size, cache.capacity, cache.length) == (5, 11, 0)
    assert cache.n_bytes == 2 * 2 * 5 * 3 * 11 * 4 * 2
    assert ProofLM(SMALL).to(torch.bfloat16).new_cache(2).keys.dtype == torch.bfloat16
    assert ProofLM(SMALL).new_cache(2).capacity == SMALL.context_length


def refuse(message: str):
    return pytest.raises(CacheError, match=f"^{re.escape(message)}$")


def test_every_refusal_names_what_does_not_fit() -> None:
    model, _ = random_decoder(SMALL)
    for batch, capacity in ((0, 4), (3, 0)):
        with refuse(f"a cache needs batch_size and capacity of at least 1, got {batch} and {capacity}"):
            KVCache(SMALL, batch, capacity)
    with refuse("30 tokens exceed context_length = 29: shorten the prompt, or ask for fewer new tokens"):
        model.new_cache(2, 30)
    cache = model.new_cache(2)
    for length in (-1, 1):
        with refuse(f"length must be between 0 and the 0 tokens held, got {length}"):
            cache.truncate(length)
    with refuse("rows must have shape (2,), got (3,)"):
        cache.reorder(torch.tensor([0, 1, 1]))
    with torch.no_grad(), refuse("the cache holds 2 rows, token_ids has 5"):
        model(IDS, cache=cache)
    with (
        torch.no_grad(),
        refuse(
            "the cache was made for (n_layers, n_kv_heads, head_dim) = (2, 6, 4), the model has (2, 3, 4)"
        ),
    ):
        model(IDS, cache=KVCache(HEAD_CONFIGS["mha"], BATCH))
    with refuse("a cache is for inference: call the model under torch.no_grad()"):
        model(IDS[:2], cache=cache)
    assert cache.length == 0
