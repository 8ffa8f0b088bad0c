"""The affine map and the table lookup, with their gradients, against torch.nn.functional."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.functional import embedding, linear
from proof_lm.functional.linear import _is_thin
from tolerances import largest, rounding


@pytest.mark.parametrize("lead", [(), (5,), (5, 3)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_and_its_gradients_are_torchs(lead: tuple[int, ...], has_bias: bool) -> None:
    """Excludes a weight read (in, out), a bias left out, and leading axes run together wrongly."""
    leaves = [torch.randn(*lead, 7, dtype=torch.float64), torch.randn(11, 7, dtype=torch.float64)]
    leaves += [torch.randn(11, dtype=torch.float64)] if has_bias else []
    upstream = torch.randn(*lead, 11, dtype=torch.float64)
    results = []
    for function in (linear, nnf.linear):
        own = [leaf.clone().requires_grad_() for leaf in leaves]
        output = function(*own)
        results.append([output.detach(), *torch.autograd.grad((output * upstream).sum(), own)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() <= rounding(15, 7 * largest(theirs))


def test_embedding_takes_rows_and_its_gradient_adds_up_over_repeats() -> None:
    """Excludes a gradient that overwrites instead of adding where an id comes twice."""
    ids = torch.tensor([[2, 0, 2], [4, 2, 1]])
    table = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    output = embedding(ids, table)
    assert torch.equal(output, table[ids])
    output.sum().backward()
    assert table.grad[:, 0].tolist() == [1.0, 1.0, 3.0, 0.0, 1.0]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """What the split product needs; the suite runs on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("lead", [(1, 1), (3, 1), (2, 4), (1, 9)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_few_rows_against_a_large_weight_are_torchs(
    lead: tuple[int, ...], has_bias: bool, two_threads: None
) -> None:
    """Excludes parts of the weight put together in the wrong order; nine rows go the ordinary way."""
    inputs = torch.randn(*lead, 400, dtype=torch.float64)
    weight = torch.randn(700, 400, dtype=torch.float64)
    bias = torch.randn(700, dtype=torch.float64) if has_bias else None
    with torch.no_grad():
        ours = linear(inputs, weight, bias)
        assert _is_thin(inputs.reshape(-1, 400), weight) == (inputs.numel() < 9 * 400)
    theirs = nnf.linear(inputs, weight, bias)
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= rounding(401, 400 * largest(theirs))


def test_the_split_product_is_for_inference_alone(two_threads: None) -> None:
    """With gradients wanted, and on one thread, the ordinary product is taken."""
    rows, weight = torch.randn(1, 400), torch.randn(700, 400)
    assert not _is_thin(rows, weight)
    with torch.no_grad():
        assert _is_thin(rows, weight)
        torch.set_num_threads(1)
        assert not _is_thin(rows, weight)
