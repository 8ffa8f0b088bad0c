"""Activations against torch, tables, and their tails."""

import numpy as np
import pytest
import torch

from oracle.torch_peer import ACTIVATIONS
from proof_lm.errors import InputError
from proof_lm.oracle import activation_backward, activation_forward


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_slopes_agree_with_autograd(name: str) -> None:
    x = np.concatenate([np.linspace(-40, 40, 1001), [0.0, -0.0, 1e-12, -800.0, 800.0]])
    grad = np.random.default_rng(0).standard_normal(x.shape)
    t = torch.tensor(x, requires_grad=True)
    expected = ACTIVATIONS[name](t)
    expected.backward(torch.tensor(grad))
    # torch forms 1 + erf and 1 + tanh, whose rounding x multiplies: absolute error eps |x|.
    np.testing.assert_allclose(activation_forward(name, x), expected.detach(), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(activation_backward(name, grad, x), t.grad, rtol=1e-13, atol=1e-13)


def test_gelu_keeps_the_digits_of_its_tail() -> None:
    # Tables of the normal distribution: Phi(-1), Phi(-5), Phi(-10).
    phi = np.array([0.15865525393145705, 2.866515718791939e-07, 7.619853024160527e-24])
    x = np.array([-1.0, -5.0, -10.0])
    np.testing.assert_allclose(activation_forward("gelu", x), x * phi, rtol=1e-14)


def test_shape_is_kept_and_names_are_checked() -> None:
    assert activation_forward("gelu", np.zeros((2, 3, 0))).shape == (2, 3, 0)
    with pytest.raises(
        InputError, match="activation must be one of gelu, gelu_tanh, silu, relu, got 'swish'"
    ):
        activation_forward("swish", [1.0])
    with pytest.raises(InputError, match=r"grad must have shape \(2,\), got \(3,\)"):
        activation_backward("relu", np.zeros(3), np.zeros(2))
