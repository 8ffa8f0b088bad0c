"""The affine map and the table lookup, with their gradients, against torch.nn.functional."""

import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.functional import embedding, linear
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
