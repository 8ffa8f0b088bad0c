"""What the decoder refuses, and what it says; and which forms of a mask it takes."""

import re
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from model.random_decoder import random_decoder, random_ids
from proof_lm.errors import InputError
from sizes import BATCH, LEARNED, SMALL, TIME

SHAPE = (BATCH, TIME)
IDS = random_ids(SMALL, *SHAPE)


@pytest.fixture(autouse=True)
def _as_users_run_it() -> Iterator[None]:
    """Without the shape checks of conftest.py, which would refuse some of these inputs first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def with_value(value: int, *place: int) -> torch.Tensor:
    changed = IDS.clone()
    changed[place] = value
    return changed


REFUSED = {
    "ids in floating point": (
        (IDS.float(),),
        {},
        "token_ids must hold integers (int64 or int32), got torch.float32",
    ),
    "ids as booleans": ((IDS > 3,), {}, "token_ids must hold integers (int64 or int32), got torch.bool"),
    "ids without batch": (
        (IDS[0],),
        {},
        "token_ids must have shape (batch, time), neither of them 0, got (13,)",
    ),
    "no time": ((IDS[:, :0],), {}, "token_ids must have shape (batch, time), neither of them 0, got (5, 0)"),
    "no rows": ((IDS[:0],), {}, "token_ids must have shape (batch, time), neither of them 0, got (0, 13)"),
    "too long": (
        (torch.zeros(1, 30, dtype=torch.int64),),
        {},
        "30 tokens exceed context_length = 29; shorten the sequence",
    ),
    "id too large": (
        (with_value(31, 2, 7),),
        {},
        "token_ids must lie in [0, 31), as vocab_size = 31, got 31 at [2, 7]",
    ),
    "id negative": (
        (with_value(-1, 0, 3),),
        {},
        "token_ids must lie in [0, 31), as vocab_size = 31, got -1 at [0, 3]",
    ),
    "labels in floating point": (
        (IDS, IDS.float()),
        {},
        "labels must hold integers (int64 or int32), got torch.float32",
    ),
    "labels of another shape": (
        (IDS, IDS[:, 1:]),
        {},
        "labels must have the shape of token_ids, (5, 13), got (5, 12)",
    ),
    "label out of range": (
        (IDS, with_value(-100, 1, 2)),
        {},
        "labels must lie in [0, 31), as vocab_size = 31, got -100 at [1, 2]",
    ),
    "loss mask without labels": ((IDS, None, IDS > 3), {}, "loss_mask was given without labels"),
    "loss mask of another shape": (
        (IDS, IDS, (IDS > 3)[0]),
        {},
        "loss_mask must have the shape of token_ids, (5, 13), got (13,)",
    ),
    "loss mask of other numbers": (
        (IDS, IDS, torch.full(SHAPE, 0.5)),
        {},
        "loss_mask must be boolean (True = real token) or hold only 0 and 1",
    ),
    "padding mask of another shape": (
        (IDS,),
        {"padding_mask": IDS[:, 1:] > 3},
        "padding_mask must have the shape of token_ids, (5, 13), got (5, 12)",
    ),
    "additive padding mask": (
        (IDS,),
        {"padding_mask": torch.zeros(SHAPE).masked_fill(IDS > 3, -torch.inf)},
        "padding_mask must be boolean (True = real token) or hold only 0 and 1; an additive mask of 0 and -inf",
    ),
    "positions in floating point": (
        (IDS,),
        {"position_ids": IDS.float()},
        "position_ids must hold integers (int64 or int32), got torch.float32",
    ),
    "positions of another shape": (
        (IDS,),
        {"position_ids": torch.arange(TIME + 1)},
        "position_ids must have shape (5, 13) or (13,) as token_ids has, got (14,)",
    ),
    "negative position": (
        (IDS,),
        {"position_ids": torch.arange(TIME) - 1},
        "position_ids must not be negative, got -1 at [0]",
    ),
}


@pytest.mark.parametrize(("arguments", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_input_is_refused_with_the_numbers(arguments: tuple, options: dict, message: str) -> None:
    model, _ = random_decoder(SMALL)
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        model(*arguments, **options)


def test_learned_positions_end_with_their_table_and_rotary_ones_do_not() -> None:
    positions = torch.arange(TIME) + LEARNED.context_length - TIME + 1
    message = "position_ids must lie in [0, 29), as context_length = 29, got 29 at [12]"
    with pytest.raises(InputError, match=re.escape(message)):
        random_decoder(LEARNED)[0](IDS, position_ids=positions)
    random_decoder(LEARNED)[0](IDS, position_ids=positions - 1)
    random_decoder(SMALL)[0](IDS, position_ids=positions)


def test_the_longest_sequence_and_the_last_id_are_taken() -> None:
    """Excludes limits off by one."""
    model, _ = random_decoder(SMALL)
    token_ids = torch.full((1, SMALL.context_length), SMALL.vocab_size - 1)
    assert model(token_ids)[0].shape == (1, 29, 31)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
def test_masks_may_be_zeros_and_ones(dtype: torch.dtype) -> None:
    """Excludes 0 / 1 taken for an additive mask, under which both would be seen."""
    model, _ = random_decoder(SMALL)
    padding, counted = torch.ones(SHAPE, dtype=torch.bool), torch.rand(SHAPE) < 0.5
    padding[1, :4] = False
    counted &= padding
    with torch.no_grad():
        expected = model(IDS, IDS, counted, padding_mask=padding)
        logits, loss = model(IDS, IDS, counted.to(dtype), padding_mask=padding.to(dtype))
        unmasked, mean_over_all = model(IDS, IDS)
    assert torch.equal(logits, expected[0])
    assert torch.equal(loss, expected[1])
    assert not torch.equal(loss, mean_over_all)
    assert not torch.equal(logits[1, 4:], unmasked[1, 4:])


def test_labels_that_do_not_count_may_be_minus_100_but_counted_ones_may_not() -> None:
    model, _ = random_decoder(SMALL)
    counted = torch.rand(SHAPE) < 0.5
    with torch.no_grad():
        loss = model(IDS, IDS.masked_fill(~counted, -100), counted)[1]
        assert torch.equal(loss, model(IDS, IDS, counted)[1])
    counted[3, 3] = True
    with pytest.raises(InputError, match=r"labels must lie in \[0, 31\).*got -100 at \[3, 3\]"):
        model(IDS, with_value(-100, 3, 3), counted)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("which", ["token_ids", "labels", "position_ids", "document_ids"])
def test_an_integer_dtype_either_works_or_is_refused_by_name(which: str, dtype: torch.dtype) -> None:
    """Excludes a dtype that passes the check and then fails inside PyTorch, which names no argument."""
    model, _ = random_decoder(LEARNED)
    arguments = {"token_ids": IDS, "labels": IDS, "position_ids": torch.arange(TIME)}
    arguments["document_ids"] = torch.arange(TIME).expand(SHAPE) // 5
    with torch.no_grad():
        expected = model(**arguments)
        arguments[which] = arguments[which].to(dtype)
        refusal = None
        try:
            result = model(**arguments)
        except InputError as error:
            refusal = str(error)
    if refusal is not None:
        assert dtype not in (torch.int64, torch.int32)
        assert f"{which} must hold integers" in refusal
        return
    assert torch.equal(result[0], expected[0])
    assert torch.equal(result[1], expected[1])


def test_no_label_and_no_gradient_where_nothing_counts() -> None:
    model, _ = random_decoder(SMALL)
    loss = model(IDS, IDS, torch.zeros(SHAPE, dtype=torch.bool))[1]
    loss.backward()
    assert loss.item() == 0.0
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in model.parameters())
