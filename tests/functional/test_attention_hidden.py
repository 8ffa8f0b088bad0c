"""What hidden keys may hold, and queries that see no key at all."""

import math

import pytest
import torch

from functional.test_attention import BATCH, SOURCE, TIME, WIDTH, draw, every_backend, every_head_count
from proof_lm.functional import attention
from tolerances import attention_chain, largest, rounding

every_poison = pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e300])
WITHOUT_KEYS = {
    "a whole row, mask without queries": (
        slice(0, 1),
        slice(None),
        slice(None),
        slice(None),
        (BATCH, 1, 1, SOURCE),
    ),
    "a whole row": (slice(0, 1), slice(None), slice(None), slice(None), (BATCH, 1, TIME, SOURCE)),
    "one query": (slice(None), slice(None), slice(2, 3), slice(None), (BATCH, 1, TIME, SOURCE)),
    "one query of one head": (slice(None), slice(4, 5), slice(2, 3), slice(None), (BATCH, 6, TIME, SOURCE)),
}


@every_backend
@every_head_count
@every_poison
@pytest.mark.parametrize("time", [TIME, 1])
@pytest.mark.parametrize("side", ["keys", "values"])
def test_what_a_hidden_key_holds_reaches_neither_output_nor_gradient(
    heads: tuple[int, int], backend: str, poison: float, time: int, side: str
) -> None:
    """Excludes hiding by a weight of 0: 0 times NaN is NaN, and so is its gradient."""
    *tensors, upstream = draw(heads, time)
    mask = torch.ones(BATCH, 1, 1, SOURCE, dtype=torch.bool)
    mask[:, :, :, [3, 5]] = False
    mask[0, :, :, :3] = False
    hidden = ~mask[:, 0, 0, None, :, None]
    results = []
    for stored in (0.0, poison):
        named = dict(zip(("queries", "keys", "values"), tensors, strict=True))
        named[side] = named[side].masked_fill(hidden, stored)
        leaves = [tensor.clone().requires_grad_() for tensor in named.values()]
        output = attention(*leaves, mask=mask, backend=backend)
        results.append([output.detach(), *torch.autograd.grad((output * upstream).sum(), leaves)])
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)
    visible_poison = tensors[2].clone()
    visible_poison[:, :, 4] = math.nan
    assert attention(*tensors[:2], visible_poison, mask=mask, backend=backend).isnan().any()


@every_backend
@every_head_count
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("which", WITHOUT_KEYS.values(), ids=WITHOUT_KEYS)
def test_a_query_that_sees_no_key_gives_zeros_and_finite_gradients(
    heads: tuple[int, int], backend: str, causal: bool, which: tuple
) -> None:
    """Excludes 0 / 0, the mean of all values (a finite stand-in for -inf), and harm to the other queries."""
    *blind, size = which
    *tensors, upstream = draw(heads)
    mask = torch.ones(size, dtype=torch.bool)
    mask[tuple(blind)] = False
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = attention(*leaves, mask=mask, causal=causal, backend=backend)
    empty = torch.zeros(BATCH, heads[0], TIME, dtype=torch.bool)
    empty[tuple(blind[:3])] = True
    assert torch.equal((output == 0.0).all(-1), empty)
    gradients = torch.autograd.grad((output * upstream).sum(), leaves)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert torch.equal((gradients[0] == 0.0).all(-1), empty)

    unmasked = attention(*tensors, causal=causal, backend=backend)
    bound = rounding(attention_chain(WIDTH, SOURCE), largest(unmasked))
    assert (output - unmasked)[~empty].abs().max() <= bound


@every_backend
def test_more_queries_than_keys_leave_the_first_without_any(backend: str) -> None:
    """Excludes NaN from the causal triangle itself, where T > S."""
    queries, keys, values, _ = draw((6, 3), time=SOURCE, source=TIME)
    output = attention(queries, keys, values, backend=backend)
    blind = SOURCE - TIME
    assert torch.equal(output[:, :, :blind], torch.zeros(BATCH, 6, blind, WIDTH, dtype=torch.float64))
    assert output[:, :, blind:].abs().amax(-1).min() > 0.0
