"""The linear layer and the look-up against torch.nn.functional."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.errors import InputError
from proof_lm.oracle import embedding_backward, embedding_forward, linear_backward, linear_forward

EXACT = {"rtol": 1e-13, "atol": 1e-13}  # sums of at most some 20 products of order 1


def test_linear_agrees_with_autograd() -> None:
    rng = np.random.default_rng(0)
    x, w, b, g = (rng.standard_normal(shape) for shape in ((2, 3, 5), (7, 5), (7,), (2, 3, 7)))
    tx, tw, tb = (torch.tensor(array, requires_grad=True) for array in (x, w, b))
    y = nnf.linear(tx, tw, tb)
    y.backward(torch.tensor(g))
    np.testing.assert_allclose(linear_forward(x, w, b), y.detach().numpy(), **EXACT)
    np.testing.assert_allclose(linear_forward(x, w), nnf.linear(tx, tw).detach().numpy(), **EXACT)
    for ours, theirs in zip(linear_backward(g, x, w), (tx, tw, tb), strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), **EXACT)


def test_float32_is_computed_in_float64() -> None:
    x = np.full((1, 3), 0.1, dtype=np.float32)
    assert linear_forward(x, x).dtype == np.float64
    assert linear_forward(x, x)[0, 0] == pytest.approx(3 * float(x[0, 0]) ** 2, rel=1e-15)


def test_linear_refuses_shapes_that_do_not_fit() -> None:
    with pytest.raises(InputError, match=r"inputs must have shape \(\.\.\., 5\), got \(2, 7\)"):
        linear_forward(np.zeros((2, 7)), np.zeros((7, 5)))
    with pytest.raises(InputError, match=r"bias must have shape \(7,\), got \(5,\)"):
        linear_forward(np.zeros((2, 5)), np.zeros((7, 5)), np.zeros(5))
    with pytest.raises(InputError, match=r"grad must have shape \(2, 7\), got \(3, 7\)"):
        linear_backward(np.zeros((3, 7)), np.zeros((2, 5)), np.zeros((7, 5)))
    with pytest.raises(InputError, match="weight must hold real numbers, got dtype complex128"):
        linear_forward(np.zeros((2, 5)), np.zeros((7, 5), dtype=complex))


def test_embedding_agrees_with_autograd_where_ids_repeat() -> None:
    rng = np.random.default_rng(0)
    table, grad = rng.standard_normal((5, 3)), rng.standard_normal((2, 4, 3))
    ids = np.array([[1, 4, 1, 0], [1, 2, 4, 4]])
    t = torch.tensor(table, requires_grad=True)
    y = nnf.embedding(torch.tensor(ids), t)
    y.backward(torch.tensor(grad))
    into = np.ones((5, 3))
    embedding_backward(grad, ids, into)
    assert np.array_equal(embedding_forward(ids, table), y.detach().numpy())
    np.testing.assert_allclose(into, 1 + t.grad.numpy(), **EXACT)


@pytest.mark.parametrize("offender", [-1, 5])
def test_embedding_refuses_ids_outside_the_table(offender: int) -> None:
    with pytest.raises(InputError, match=rf"ids must lie in 0\.\.4, got {offender}"):
        embedding_forward([0, offender], np.zeros((5, 3)))
    with pytest.raises(InputError, match=rf"ids must lie in 0\.\.4, got {offender}"):
        embedding_backward(np.zeros((2, 3)), [0, offender], np.zeros((5, 3)))
