"""Both norms against torch.nn.functional, values and gradients."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.errors import InputError
from proof_lm.oracle import (
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)

CLOSE = {"rtol": 1e-12, "atol": 1e-13}  # means of 11 values of order 1, divided by a root of order 1


@pytest.fixture
def arrays() -> list[np.ndarray]:
    """Input (2, 3, 11) away from zero mean, weight, bias, upstream gradient."""
    rng = np.random.default_rng(0)
    shapes = ((2, 3, 11), (11,), (11,), (2, 3, 11))
    return [0.5 + rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.3])
def test_layer_norm_agrees_with_autograd(arrays: list[np.ndarray], eps: float) -> None:
    x, weight, bias, grad = arrays
    tensors = [torch.tensor(array, requires_grad=True) for array in (x, weight, bias)]
    expected = nnf.layer_norm(tensors[0], (11,), tensors[1], tensors[2], eps)
    expected.backward(torch.tensor(grad))
    output, trace = layer_norm_forward(x, weight, bias, eps=eps)
    np.testing.assert_allclose(output, expected.detach().numpy(), **CLOSE)
    for ours, theirs in zip(layer_norm_backward(grad, weight, trace), tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), **CLOSE)
    np.testing.assert_allclose(layer_norm_forward(x, weight, eps=eps)[0] + bias, output, **CLOSE)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.3])
def test_rms_norm_agrees_with_autograd(arrays: list[np.ndarray], eps: float) -> None:
    x, weight, _, grad = arrays
    tensors = [torch.tensor(array, requires_grad=True) for array in (x, weight)]
    expected = nnf.rms_norm(tensors[0], (11,), tensors[1], eps)
    expected.backward(torch.tensor(grad))
    output, trace = rms_norm_forward(x, weight, eps=eps)
    np.testing.assert_allclose(output, expected.detach().numpy(), **CLOSE)
    for ours, theirs in zip(rms_norm_backward(grad, weight, trace), tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), **CLOSE)


def test_a_row_of_zeros_is_finite_with_eps_and_nan_without() -> None:
    zeros, ones = np.zeros((1, 3)), np.ones(3)
    for norm in (layer_norm_forward, rms_norm_forward):
        assert np.array_equal(norm(zeros, ones, eps=1e-5)[0], zeros)
        assert np.isnan(norm(zeros, ones, eps=0.0)[0]).all()  # as torch, without a warning


def test_refused_shapes() -> None:
    with pytest.raises(InputError, match=r"weight must have shape \(3,\), got \(4,\)"):
        rms_norm_forward(np.zeros((2, 3)), np.zeros(4))
    with pytest.raises(InputError, match=r"bias must have shape \(3,\), got \(4,\)"):
        layer_norm_forward(np.zeros((2, 3)), np.zeros(3), np.zeros(4))
