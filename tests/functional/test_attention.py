"""Attention's values and gradients against scaled_dot_product_attention on KV heads written out one by one."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, head_counts, seeds
from proof_lm.functional import attention, attention_weights, causal_mask
from tolerances import attention_chain, largest, rounding

BATCH, TIME, SOURCE, WIDTH = 5, 7, 11, 4
HEADS = {"mha": (6, 6), "gqa": (6, 3), "mqa": (6, 1)}
BACKENDS = ["explicit", "fused"]
MASKS = {
    "no mask": None,
    "same for all heads and queries": (BATCH, 1, 1, SOURCE),
    "same for all heads": (BATCH, 1, TIME, SOURCE),
    "per head": (BATCH, 6, TIME, SOURCE),
    "same for all rows": (1, 1, TIME, SOURCE),
}
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_head_count = pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)


def draw(heads: tuple[int, int], time: int = TIME, source: int = SOURCE) -> list[torch.Tensor]:
    """Queries, keys, values, and a gradient from above."""
    n_heads, n_kv_heads = heads
    counts = ((n_heads, time), (n_kv_heads, source), (n_kv_heads, source), (n_heads, time))
    return [torch.randn(BATCH, n, length, WIDTH, dtype=torch.float64) for n, length in counts]


def random_mask(size: tuple[int, ...] | None) -> torch.Tensor | None:
    """Some keys hidden, but never the first, so that every query sees a key."""
    if size is None:
        return None
    mask = torch.rand(size) < 0.6
    mask[..., 0] = True
    return mask


def bottom_right(time: int, source: int) -> torch.Tensor:
    """Written as a loop over pairs, from the statement: query t is position t + (S - T)."""
    sees = [[s <= t + source - time for s in range(source)] for t in range(time)]
    return torch.tensor(sees)


def peer(queries, keys, values, *, visible) -> torch.Tensor:
    group = queries.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)


def with_gradients(function, tensors: list[torch.Tensor], upstream: torch.Tensor) -> list[torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = function(*leaves)
    return [output.detach(), *torch.autograd.grad((output * upstream).sum(), leaves)]


@every_backend
@every_head_count
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask_size", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("time", [TIME, SOURCE, 1])
def test_values_and_gradients_are_torchs(
    heads: tuple[int, int], backend: str, causal: bool, mask_size: tuple[int, ...] | None, time: int
) -> None:
    """Excludes another KV map, scale or mask direction, a mask after the softmax, a triangle off by one."""
    *tensors, upstream = draw(heads, time)
    mask = random_mask(mask_size and tuple(time if size == TIME else size for size in mask_size))
    visible = torch.ones(time, SOURCE, dtype=torch.bool)
    if causal:
        visible = visible & bottom_right(time, SOURCE)
    if mask is not None:
        visible = visible & mask
    ours = with_gradients(
        lambda q, k, v: attention(q, k, v, mask=mask, causal=causal, backend=backend), tensors, upstream
    )
    theirs = with_gradients(lambda q, k, v: peer(q, k, v, visible=visible), tensors, upstream)
    bound = rounding(attention_chain(WIDTH, SOURCE), largest(*theirs))
    for name, mine, other in zip(("output", "queries", "keys", "values"), ours, theirs, strict=True):
        assert (mine - other).abs().max() <= bound, name


@pytest.mark.parametrize("fault", ["tiled KV heads", "no scale", "triangle off by one", "mask inverted"])
def test_the_bound_tells_faults_apart(fault: str) -> None:
    """The check above would fail for each of these, by six orders of magnitude."""
    queries, keys, values, _ = draw((6, 3), TIME, TIME)
    triangle = bottom_right(TIME, TIME)
    right = attention(queries, keys, values)
    if fault == "tiled KV heads":
        wrong = peer(queries, keys.repeat(1, 2, 1, 1), values.repeat(1, 2, 1, 1), visible=triangle)
    elif fault == "no scale":
        wrong = peer(queries * math.sqrt(WIDTH), keys, values, visible=triangle)
    elif fault == "triangle off by one":
        wrong = peer(queries, keys, values, visible=torch.ones(TIME, TIME, dtype=torch.bool).tril(1))
    else:
        wrong = peer(queries, keys, values, visible=~triangle)
    assert not (wrong - right).abs().max() <= 1e6 * rounding(attention_chain(WIDTH, TIME), largest(right))


@few
@given(seeds, head_counts, st.sampled_from(BACKENDS))
def test_a_kv_head_is_read_by_its_group_of_neighbours_and_nobody_else(
    seed: int, heads: tuple[int, int], backend: str
) -> None:
    """Excludes query head h reading h mod K, found by changing one KV head at a time."""
    torch.manual_seed(seed)
    queries, keys, values, _ = draw(heads)
    before = attention(queries, keys, values, backend=backend)
    group = heads[0] // heads[1]
    for kv_head, side in itertools.product(range(heads[1]), ("keys", "values")):
        changed = {"keys": keys.clone(), "values": values.clone()}
        changed[side][:, kv_head] += torch.randn(BATCH, SOURCE, WIDTH, dtype=torch.float64)
        after = attention(queries, changed["keys"], changed["values"], backend=backend)
        moved = {head for head in range(heads[0]) if not torch.equal(after[:, head], before[:, head])}
        assert moved == set(range(kv_head * group, (kv_head + 1) * group))


@few
@given(seeds, head_counts)
def test_weights_are_rows_of_a_distribution_over_the_visible_keys(seed: int, heads: tuple[int, int]) -> None:
    """Excludes a mask applied after normalization: then the rows would not sum to 1."""
    torch.manual_seed(seed)
    queries, keys, _, _ = draw(heads)
    visible = causal_mask(TIME, SOURCE)[None, None]
    weights = attention_weights(queries, keys, visible)
    assert weights.shape == (BATCH, heads[0], TIME, SOURCE)
    assert (weights.sum(-1) - 1.0).abs().max() <= rounding(SOURCE, 1.0)
    assert torch.equal(weights != 0.0, visible.expand_as(weights))


@pytest.mark.parametrize(("time", "source"), [(1, 1), (1, 9), (4, 4), (3, 7), (7, 3)])
def test_causal_mask_is_anchored_at_the_bottom_right(time: int, source: int) -> None:
    """Excludes the top-left triangle, which hides the cache from the last query when T < S."""
    mask = causal_mask(time, source)
    assert torch.equal(mask, bottom_right(time, source))
    if time < source:
        assert not torch.equal(mask, torch.ones(time, source, dtype=torch.bool).tril())
        assert mask[-1].all()


@every_backend
@every_head_count
def test_the_last_queries_alone_get_what_they_get_among_all(heads: tuple[int, int], backend: str) -> None:
    """Excludes the kernel's own causal flag where T < S: chunks must equal the whole."""
    queries, keys, values, _ = draw(heads, SOURCE)
    whole = attention(queries, keys, values, backend=backend)
    bound = rounding(attention_chain(WIDTH, SOURCE), largest(whole))
    for time in (1, 2, TIME):
        part = attention(queries[:, :, -time:], keys, values, backend=backend)
        assert (part - whole[:, :, -time:]).abs().max() <= bound
    first = attention(queries[:, :, :TIME], keys[:, :, :TIME], values[:, :, :TIME], backend=backend)
    assert (first - whole[:, :, :TIME]).abs().max() <= bound


def test_both_backends_drop_weights_and_scale_the_rest() -> None:
    """Excludes dropout on the output, or without 1 / (1 - p): with values of 1 a query gets its weights' sum."""
    queries, keys, _, _ = draw((6, 3))
    ones = torch.ones_like(keys)
    for backend in BACKENDS:
        torch.manual_seed(1)
        sums = torch.stack(
            [attention(queries, keys, ones, dropout_probability=0.5, backend=backend) for _ in range(200)]
        )
        assert sums.std() > 0.1
        # Each sum has mean 1 and variance sum(w^2) <= 1; 42,000 are averaged, the width holds copies.
        assert abs(sums[..., 0].mean() - 1.0) < 5.0 / math.sqrt(sums[..., 0].numel())
        assert torch.equal(sums[..., 0], sums[..., 1])
