"""Attention in a window: against scaled_dot_product_attention under a band written pair by pair."""

import math
import sys

import pytest
import torch

from functional.test_attention import (
    BATCH,
    MASKS,
    SOURCE,
    TIME,
    WIDTH,
    draw,
    every_backend,
    every_head_count,
    peer,
    random_mask,
    with_gradients,
)
from proof_lm.functional import attention, causal_mask
from tolerances import attention_chain, largest, rounding

WINDOWS = [1, 3, SOURCE - 1, SOURCE, 99]
every_mask = pytest.mark.parametrize("mask_size", MASKS.values(), ids=MASKS)


def band(time: int, source: int, window: int) -> torch.Tensor:
    """Pair by pair, from the statement: query t is position p = t + (S - T) and sees p - W < s <= p."""
    places = [t + source - time for t in range(time)]
    return torch.tensor([[place - window < s <= place for s in range(source)] for place in places])


def mask_of(mask_size: tuple[int, ...] | None, time: int) -> torch.Tensor | None:
    return random_mask(mask_size and tuple(time if size == TIME else size for size in mask_size))


def bound_of(*values: torch.Tensor) -> float:
    return rounding(attention_chain(WIDTH, SOURCE), largest(*values))


@every_backend
@every_head_count
@every_mask
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("time", [TIME, SOURCE, 1])
def test_values_and_gradients_are_torchs(
    heads: tuple[int, int], backend: str, mask_size: tuple[int, ...] | None, window: int, time: int
) -> None:
    """Excludes a band off by one or anchored at the top left, one that replaces the mask, and one that is added."""
    *tensors, upstream = draw(heads, time)
    mask = mask_of(mask_size, time)
    visible = band(time, SOURCE, window)
    visible = visible if mask is None else visible & mask
    ours = with_gradients(
        lambda q, k, v: attention(q, k, v, mask=mask, window=window, backend=backend), tensors, upstream
    )
    theirs = with_gradients(lambda q, k, v: peer(q, k, v, visible=visible), tensors, upstream)
    for name, mine, other in zip(("output", "queries", "keys", "values"), ours, theirs, strict=True):
        assert (mine - other).abs().max() <= bound_of(*theirs), name
    blind = ~visible.any(-1, keepdim=True).expand(*ours[0].shape[:-1], 1)
    assert not ours[0][blind.expand_as(ours[0])].any()


@pytest.mark.parametrize("fault", ["one wider", "one narrower", "at the top left", "no window"])
def test_the_bound_tells_faults_apart(fault: str) -> None:
    """The check above would fail for each of these, by six orders of magnitude."""
    queries, keys, values, _ = draw((6, 3))
    wrong = {
        "one wider": band(TIME, SOURCE, 4),
        "one narrower": band(TIME, SOURCE, 2),
        "at the top left": band(SOURCE, SOURCE, 3)[:TIME],
        "no window": band(TIME, SOURCE, SOURCE),
    }[fault]
    right = attention(queries, keys, values, window=3)
    assert (peer(queries, keys, values, visible=wrong) - right).abs().max() > 1e6 * bound_of(right)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("time", "source"), [(1, 1), (1, 9), (4, 4), (3, 7), (7, 3)])
def test_causal_mask_in_a_window(time: int, source: int, window: int) -> None:
    mask = causal_mask(time, source, window=window)
    assert torch.equal(mask, band(time, source, window))
    if window < min(time, source):
        assert not torch.equal(mask, causal_mask(time, source))


@every_backend
@every_mask
@pytest.mark.parametrize("time", [TIME, SOURCE, 1])
def test_a_window_that_hides_nothing_leaves_every_bit(
    backend: str, mask_size: tuple[int, ...] | None, time: int
) -> None:
    """Excludes a slower path, with other rounding, where there is nothing to hide."""
    queries, keys, values, _ = draw((6, 3), time)
    mask = mask_of(mask_size, time)
    without = attention(queries, keys, values, mask=mask, backend=backend)
    for window in (SOURCE, SOURCE + 1, 10**9):
        assert torch.equal(
            attention(queries, keys, values, mask=mask, window=window, backend=backend), without
        )
    narrower = attention(queries, keys, values, mask=mask, window=SOURCE - 1, backend=backend)
    assert not torch.equal(narrower, without)


def test_the_kernels_causal_flag_is_used_without_a_window_and_not_with_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Excludes a mask of T x T entries on the path that needs none."""
    calls = []

    def recorded(*tensors: torch.Tensor, **options: object) -> torch.Tensor:
        calls.append((options.get("is_causal", False), options.get("attn_mask") is not None))
        return torch.nn.functional.scaled_dot_product_attention(*tensors, **options)

    module = sys.modules["proof_lm.functional.attention"]  # the function hides it from an import
    monkeypatch.setattr(module, "scaled_dot_product_attention", recorded)
    queries, keys, values, _ = draw((6, 3), SOURCE)
    for window in (None, SOURCE, SOURCE - 1):
        attention(queries, keys, values, window=window, backend="fused")
    attention(queries[:, :, -1:], keys, values, window=3, backend="fused")
    assert calls == [(True, False), (True, False), (False, True), (False, False)]


@every_backend
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e300])
@pytest.mark.parametrize("masked", [False, True])
def test_keys_before_every_window_may_hold_anything(backend: str, poison: float, masked: bool) -> None:
    """A chunk of 2 queries with a window of 3 reaches the last 4 keys; excludes weights of 0 for the others."""
    *tensors, upstream = draw((6, 3), 2)
    mask = torch.ones(BATCH, 1, 1, SOURCE, dtype=torch.bool) if masked else None
    results = []
    for stored, n_stored in ((0.0, SOURCE - 4), (poison, SOURCE - 4), (poison, SOURCE - 3)):
        sources = [tensor.clone() for tensor in tensors]
        for side in sources[1:]:
            side[:, :, :n_stored] = stored
        results.append(
            with_gradients(
                lambda q, k, v: attention(q, k, v, mask=mask, window=3, backend=backend), sources, upstream
            )
        )
    clean, behind, within = results
    for undisturbed, disturbed in zip(clean, behind, strict=True):
        assert torch.equal(undisturbed, disturbed)
    assert not torch.equal(clean[0], within[0])


@every_backend
@every_head_count
def test_a_query_whose_whole_window_is_masked_gives_zeros_and_finite_gradients(
    heads: tuple[int, int], backend: str
) -> None:
    """Excludes 0 / 0 where mask and window each leave a key, and no key is left by both."""
    *tensors, upstream = draw(heads, SOURCE)
    mask = torch.ones(BATCH, 1, 1, SOURCE, dtype=torch.bool)
    mask[2, :, :, 4:7] = False
    output, *gradients = with_gradients(
        lambda q, k, v: attention(q, k, v, mask=mask, window=3, backend=backend), tensors, upstream
    )
    empty = torch.zeros(BATCH, heads[0], SOURCE, dtype=torch.bool)
    empty[2, :, 6] = True
    assert torch.equal((output == 0.0).all(-1), empty)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][empty].any()
