"""The decoding loop: against a loop without a cache, row by row, with stops, seeds, and refusals."""

import re
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from generate.stand_in import FixedLogits
from model.random_decoder import BACKENDS, random_decoder, random_ids
from proof_lm.config import DecoderConfig
from proof_lm.errors import CacheError, InputError
from proof_lm.functional import AttentionBackend
from proof_lm.generate import generate, stream
from proof_lm.model import ProofLM
from sizes import BATCH, LEARNED, MODERN, SMALL

UNTIED = SMALL.with_(tie_embeddings=False)
"""A random tied decoder repeats its last token for ever, which would hide most faults."""
CONFIGS = {"small": UNTIED, "modern": MODERN, "learned": LEARNED.with_(tie_embeddings=False)}
PROMPTS = random_ids(SMALL, BATCH, 6)
STEPS = 9


def lively_decoder(config: DecoderConfig = UNTIED, backend: AttentionBackend = "explicit") -> ProofLM:
    return random_decoder(config, backend=backend)[0]


@torch.no_grad()
def naive_greedy(model: ProofLM, token_ids: torch.Tensor, steps: int) -> torch.Tensor:
    """The whole sequence through the model again for each token, and the largest logit taken."""
    for _ in range(steps):
        token_ids = torch.cat([token_ids, model(token_ids)[0][:, -1:].argmax(-1)], dim=1)
    return token_ids


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_greedy_decoding_is_the_loop_without_a_cache(config: DecoderConfig, backend: str) -> None:
    """Excludes a cache that loses, repeats or misplaces a token, and logits of the wrong position."""
    model = lively_decoder(config, backend)
    expected = naive_greedy(model, PROMPTS, STEPS)
    assert torch.equal(model.generate(PROMPTS, STEPS), expected)
    assert expected[:, 6:].unique().numel() > 5, "too few different tokens to tell"
    from_last_token = naive_greedy(model, PROMPTS[:, -1:], 1)[:, 1]
    assert not torch.equal(from_last_token, expected[:, 6]), "the last token alone would do"


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_left_padded_prompts_continue_as_each_alone(config: DecoderConfig) -> None:
    """Excludes padding that is seen, or that shifts positions, while decoding."""
    model, lengths = lively_decoder(config), [6, 2, 4, 1, 5]
    padding = torch.arange(6)[None] >= 6 - torch.tensor(lengths)[:, None]
    batch = model.generate(PROMPTS.masked_fill(~padding, 3), STEPS, padding_mask=padding)
    for row, length in enumerate(lengths):
        assert torch.equal(
            batch[row, 6 - length :], naive_greedy(model, PROMPTS[row : row + 1, -length:], STEPS)[0]
        )
    unmasked = model.generate(PROMPTS.masked_fill(~padding, 3), STEPS)
    assert not torch.equal(unmasked[:, 6:], batch[:, 6:])
    numbers = model.generate(PROMPTS.masked_fill(~padding, 3), STEPS, padding_mask=padding.long())
    assert torch.equal(numbers, batch)


def test_a_stopped_row_repeats_its_stop_and_the_others_go_on_as_before() -> None:
    """Excludes a stop that ends all rows, a frozen row that goes on, and one that disturbs its neighbours."""
    model = lively_decoder()
    free = model.generate(PROMPTS, STEPS)[:, 6:]
    stop = int(free[1, 2])
    stopped = model.generate(PROMPTS, STEPS, stop_ids=[stop])[:, 6:]
    went_on = 0
    for row in range(BATCH):
        places = (free[row] == stop).nonzero()[:, 0].tolist()
        end = places[0] if places else STEPS
        went_on += not places
        assert torch.equal(stopped[row, :end], free[row, :end])
        assert torch.equal(stopped[row, end:], torch.full_like(stopped[row, end:], stop))
    assert went_on, "every row stopped, so nothing was seen of the others"


def test_any_of_several_stops_ends_a_row_and_the_last_row_ends_the_loop() -> None:
    model = lively_decoder()
    free = model.generate(PROMPTS, STEPS)[:, 6:]
    stops = sorted({int(row[3]) for row in free})
    ends = [next(i for i, token in enumerate(row.tolist()) if token in stops) for row in free]
    stopped = model.generate(PROMPTS, STEPS, stop_ids=stops)
    assert stopped.shape == (BATCH, 6 + max(ends) + 1)
    for row, end in enumerate(ends):
        assert torch.equal(stopped[row, 6 : 6 + end + 1], free[row, : end + 1])
        assert (stopped[row, 6 + end :] == free[row, end]).all()


def test_a_seed_repeats_the_draws_and_leaves_the_global_state_alone() -> None:
    model, state = lively_decoder(), torch.get_rng_state()
    first, again, other = (model.generate(PROMPTS, STEPS, temperature=1.0, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_seed_the_global_generator_draws() -> None:
    model, results = lively_decoder(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(model.generate(PROMPTS, STEPS, temperature=1.0))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_top_k_of_one_is_greedy_at_any_temperature() -> None:
    model = lively_decoder()
    greedy = model.generate(PROMPTS, STEPS)
    assert torch.equal(model.generate(PROMPTS, STEPS, temperature=5.0, top_k=1), greedy)
    assert not torch.equal(model.generate(PROMPTS, STEPS, temperature=5.0), greedy)


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    model = FixedLogits(torch.tensor([[-5.0, -1.0, -1.0]]))
    assert generate(model, torch.tensor([[0]]), 2).tolist() == [[0, 1, 1]]


def test_each_step_passes_one_token_and_the_cache_is_made_to_measure() -> None:
    """Excludes a loop that sends the whole sequence again, and a last forward pass whose logits nobody reads."""
    model = FixedLogits(torch.tensor([[0.0, 1.0]]))
    tokens = list(stream(model, torch.tensor([[0, 0, 0]]), 4))
    assert [token.tolist() for token in tokens] == [[1]] * 4
    assert [tuple(ids.shape) for ids in model.asked] == [(1, 3), (1, 1), (1, 1), (1, 1)]
    assert model.capacities == [6]


def test_stream_yields_a_token_before_the_next_is_computed() -> None:
    model = FixedLogits(torch.tensor([[0.0, 1.0]]))
    steps = stream(model, torch.tensor([[0]]), 3)
    assert model.asked == []
    next(steps)
    assert len(model.asked) == 1


def test_the_context_can_be_filled_to_the_last_token() -> None:
    """The token drawn last is never passed to the model, so the sequence may be one longer than the context."""
    model = lively_decoder()
    room = SMALL.context_length - 6 + 1
    assert model.generate(PROMPTS, room).shape == (BATCH, SMALL.context_length + 1)
    message = "30 tokens exceed context_length = 29: shorten the prompt, or ask for fewer new tokens"
    with pytest.raises(CacheError, match=re.escape(message)):
        stream(model, PROMPTS, room + 1)  # at the call, before anything is computed


def test_nothing_to_add_gives_the_prompt_back() -> None:
    assert torch.equal(lively_decoder().generate(PROMPTS, 0), PROMPTS)


def test_generation_leaves_the_mode_and_the_gradient_switch_as_they_were() -> None:
    model = lively_decoder()
    model.generate(PROMPTS, 1)
    assert not model.training
    assert torch.is_grad_enabled()
    steps = stream(model, PROMPTS, 3)
    next(steps)
    assert torch.is_grad_enabled(), "no_grad leaks out of the generator between two tokens"


RIGHT_PADDED = torch.ones(BATCH, 6, dtype=torch.bool).index_fill(1, torch.tensor([5]), False)
REFUSED = {
    "negative count": ({"max_new_tokens": -1}, "max_new_tokens must not be negative, got -1"),
    "negative temperature": (
        {"temperature": -0.5},
        "temperature must be a finite number, 0 (greedy) or more, got -0.5",
    ),
    "infinite temperature": (
        {"temperature": float("inf")},
        "temperature must be a finite number, 0 (greedy) or more, got inf",
    ),
    "temperature not a number": (
        {"temperature": float("nan")},
        "temperature must be a finite number, 0 (greedy) or more, got nan",
    ),
    "top_k 0": ({"top_k": 0}, "top_k must be at least 1, got 0"),
    "top_p 0": ({"top_p": 0.0}, "top_p must be greater than 0 and at most 1, got 0.0"),
    "top_p above 1": ({"top_p": 1.5}, "top_p must be greater than 0 and at most 1, got 1.5"),
    "top_p not a number": ({"top_p": float("nan")}, "top_p must be greater than 0 and at most 1, got nan"),
    "padding on the right": (
        {"padding_mask": RIGHT_PADDED},
        "prompts must be padded on the left: their continuation follows the last column",
    ),
    "padding mask of another shape": (
        {"padding_mask": torch.ones(BATCH, 5, dtype=torch.bool)},
        "padding_mask must have the shape of token_ids, (5, 6), got (5, 5)",
    ),
    "padding mask without batch": (
        {"padding_mask": torch.ones(6, dtype=torch.bool)},
        "padding_mask must have the shape of token_ids, (5, 6), got (6,)",
    ),
    "prompt without batch": (
        {"token_ids": PROMPTS[0]},
        "token_ids must have shape (batch, time), neither of them 0, got (6,)",
    ),
    "empty prompt": (
        {"token_ids": PROMPTS[:, :0]},
        "token_ids must have shape (batch, time), neither of them 0, got (5, 0)",
    ),
    "prompt in floating point": (
        {"token_ids": PROMPTS.float()},
        "token_ids must hold integers (int64 or int32), got torch.float32",
    ),
}


@pytest.fixture
def _as_users_run_it() -> Iterator[None]:
    """Without the shape checks of conftest.py, which would refuse some of these inputs first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("_as_users_run_it")
@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_settings_that_define_nothing_are_refused_with_the_value(options: dict, message: str) -> None:
    model = lively_decoder()
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        model.generate(**{"token_ids": PROMPTS, "max_new_tokens": 1, **options})
