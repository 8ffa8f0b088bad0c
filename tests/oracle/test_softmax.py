"""Softmax and cross-entropy against torch, and at their edges."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

from proof_lm.errors import InputError
from proof_lm.oracle import (
    cross_entropy_backward,
    cross_entropy_forward,
    softmax_backward,
    softmax_forward,
)

CLOSE = {"rtol": 1e-12, "atol": 1e-14}  # sums of at most 13 exponentials of order 1


def test_softmax_agrees_with_autograd() -> None:
    rng = np.random.default_rng(0)
    scores, grad = 3 * rng.standard_normal((2, 3, 7)), rng.standard_normal((2, 3, 7))
    t = torch.tensor(scores, requires_grad=True)
    expected = nnf.softmax(t, dim=-1)
    expected.backward(torch.tensor(grad))
    weights = softmax_forward(scores)
    np.testing.assert_allclose(weights, expected.detach(), **CLOSE)
    np.testing.assert_allclose(softmax_backward(grad, weights), t.grad, **CLOSE)


def test_softmax_written_out_and_far_from_zero() -> None:
    expected = [0.25, 0.75]
    np.testing.assert_allclose(softmax_forward([0.0, math.log(3)]), expected, rtol=1e-15)
    np.testing.assert_allclose(softmax_forward([1e4, 1e4 + math.log(3)]), expected, rtol=1e-11)
    np.testing.assert_allclose(softmax_forward([-1e4, -1e4 + math.log(3)]), expected, rtol=1e-11)
    assert np.array_equal(softmax_forward([0.0, -np.inf]), [1.0, 0.0])


def test_hidden_scores_have_no_influence_and_an_empty_row_is_zero() -> None:
    scores = np.array([[0.0, np.nan, math.log(3)], [np.nan, np.inf, 1.0], [2.0, 1e300, 2.0]])
    visible = np.array([[True, False, True], [False, False, False], [True, False, True]])
    weights = softmax_forward(scores, visible)
    np.testing.assert_allclose(weights, [[0.25, 0, 0.75], [0, 0, 0], [0.5, 0, 0.5]], rtol=1e-15)
    assert not softmax_backward(np.ones((3, 3)), weights)[1].any()


def test_a_visible_nan_stays_visible() -> None:
    assert np.isnan(softmax_forward([0.0, np.nan])).all()


def test_softmax_refuses_a_mask_of_numbers_or_of_another_shape() -> None:
    with pytest.raises(InputError, match="visible must be boolean, got dtype int64"):
        softmax_forward(np.zeros((2, 3)), np.ones((2, 3), dtype=int))
    with pytest.raises(InputError, match=r"visible must broadcast to \(2, 3\), got shape \(2, 2\)"):
        softmax_forward(np.zeros((2, 3)), np.ones((2, 2), dtype=bool))


def test_cross_entropy_agrees_with_autograd() -> None:
    rng = np.random.default_rng(0)
    logits, labels = 5 * rng.standard_normal((2, 5, 13)), rng.integers(0, 13, (2, 5))
    mask = np.array([[True, True, False, True, False], [False, True, True, True, True]])
    t = torch.tensor(logits, requires_grad=True)
    picked = torch.tensor(np.where(mask, labels, -100)).flatten()
    expected = nnf.cross_entropy(t.flatten(0, 1), picked, ignore_index=-100)
    expected.backward()
    loss, trace = cross_entropy_forward(logits, np.where(mask, labels, 10**9), mask)
    assert loss == pytest.approx(expected.item(), rel=1e-13)
    np.testing.assert_allclose(cross_entropy_backward(trace), t.grad, **CLOSE)


def test_cross_entropy_written_out() -> None:
    assert cross_entropy_forward(np.zeros((4, 7)), [0, 1, 2, 3])[0] == pytest.approx(math.log(7), rel=1e-15)
    assert cross_entropy_forward([[1e4, 0.0]], [1])[0] == pytest.approx(1e4, rel=1e-15)
    assert cross_entropy_forward([[1e4, 0.0]], [0])[0] == 0.0


def test_cross_entropy_of_nothing_is_zero() -> None:
    loss, trace = cross_entropy_forward(np.full((2, 3), np.nan), [-1, 99], [False, False])
    assert loss == 0.0
    assert np.array_equal(cross_entropy_backward(trace), np.zeros((2, 3)))


def test_cross_entropy_refusals() -> None:
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2, got -100"):
        cross_entropy_forward(np.zeros((2, 3)), [0, -100])
    with pytest.raises(InputError, match=r"loss_mask must have shape \(2,\), got \(3,\)"):
        cross_entropy_forward(np.zeros((2, 3)), [0, 1], [True, True, True])
