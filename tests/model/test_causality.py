"""Who may move whom: earlier positions, later positions, other rows. Each invariance beside its reach."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from model.random_decoder import BACKENDS, random_decoder, random_ids
from sizes import BATCH, HEAD_CONFIGS, LEARNED, MODERN, SMALL, TIME
from tolerances import decoder_chain, largest, rounding

CONFIGS = {**HEAD_CONFIGS, "modern": MODERN, "learned": LEARNED, "no position": SMALL.with_(position="none")}
configs = st.sampled_from(list(CONFIGS.values()))
backends = st.sampled_from(BACKENDS)


@few
@given(configs, backends, seeds, st.integers(0, TIME - 1))
def test_an_edit_moves_its_position_and_all_later_ones_only(
    config, backend: str, seed: int, place: int
) -> None:
    """Excludes a look at the next token, and a model that looks at nothing."""
    model, _ = random_decoder(config, seed % 7, backend)
    token_ids = random_ids(config, BATCH, TIME, seed)
    edited = token_ids.clone()
    edited[:, place] = (edited[:, place] + 1 + seed % (config.vocab_size - 1)) % config.vocab_size
    with torch.no_grad():
        before, after = model(token_ids)[0], model(edited)[0]
    assert torch.equal(before[:, :place], after[:, :place])
    assert (before[:, place:] != after[:, place:]).any(-1).all()


@few
@given(configs, backends, seeds, st.integers(1, TIME - 1))
def test_a_prefix_alone_gives_the_logits_it_has_in_the_whole(
    config, backend: str, seed: int, length: int
) -> None:
    """Excludes positions counted from the end, and anything normalised over time."""
    model, _ = random_decoder(config, seed % 7, backend)
    token_ids = random_ids(config, BATCH, TIME, seed)
    with torch.no_grad():
        whole, prefix = model(token_ids)[0], model(token_ids[:, :length])[0]
    bound = rounding(decoder_chain(config, TIME), largest(whole))
    assert (whole[:, :length] - prefix).abs().max() <= bound


@few
@given(configs, backends, seeds, st.integers(0, BATCH - 1))
def test_rows_are_independent(config, backend: str, seed: int, row: int) -> None:
    """Excludes batch mixed into time or heads: batch, heads and time all differ in size here."""
    model, _ = random_decoder(config, seed % 7, backend)
    token_ids = random_ids(config, BATCH, TIME, seed)
    edited = token_ids.clone()
    edited[row] = (edited[row] + 1) % config.vocab_size
    with torch.no_grad():
        before, after, alone = (model(ids)[0] for ids in (token_ids, edited, token_ids[row : row + 1]))
    others = torch.arange(BATCH) != row
    assert torch.equal(before[others], after[others])
    assert (before[row] != after[row]).any(-1).all()
    assert (alone[0] - before[row]).abs().max() <= rounding(decoder_chain(config, TIME), largest(before))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_a_logit_reaches_no_later_token(backend: str) -> None:
    """Excludes a leak that happens to leave the values alone."""
    model, _ = random_decoder(SMALL, backend=backend)
    token_ids = random_ids(SMALL, 1, TIME)
    states = model.embed(token_ids, torch.arange(TIME)[None], None).detach().requires_grad_()
    hidden = states
    for block in model.blocks:
        hidden = block(hidden, model.context(torch.arange(TIME)[None], None))
    hidden[0, 5].square().sum().backward()
    reached = (states.grad[0] != 0.0).any(-1)
    assert reached.tolist() == [time <= 5 for time in range(TIME)]


@pytest.mark.parametrize("shift", [1, 7])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rotary_models_know_offsets_only(layout: str, shift: int) -> None:
    """Excludes a rotation of queries or keys alone; positions stretched, not shifted, do move the logits."""
    config = SMALL.with_(rope_layout=layout)
    model, _ = random_decoder(config)
    token_ids, steps = random_ids(config, BATCH, TIME), torch.arange(TIME)
    with torch.no_grad():
        at_zero, shifted, stretched = (
            model(token_ids, position_ids=positions)[0] for positions in (steps, steps + shift, 2 * steps)
        )
    bound = rounding(decoder_chain(config, TIME), 30 * largest(at_zero))  # angles up to 30 radians
    assert (shifted - at_zero).abs().max() <= bound
    assert (stretched - at_zero).abs().max() > 1e6 * bound
