"""LayerNorm and RMSNorm against torch.nn.functional, their gradients, and what half precision may cost."""

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given
from hypothesis import strategies as st

from functional.properties import few, seeds
from proof_lm.functional import layer_norm, rms_norm
from tolerances import UNIT_ROUNDOFF, largest, rounding

WIDTH = 17
eps_values = st.sampled_from([1e-6, 1e-5, 1e-1])
scales = st.sampled_from([1e-3, 1.0, 50.0])


def draw(seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Inputs with a mean that is not 0, gain, bias, and a gradient from above."""
    random = torch.Generator().manual_seed(seed)
    sizes = ((5, 3, WIDTH), (WIDTH,), (WIDTH,), (5, 3, WIDTH))
    inputs, weight, bias, upstream = (
        torch.randn(size, generator=random, dtype=torch.float64) for size in sizes
    )
    return [((inputs + 0.7) * scale).to(dtype), (1.0 + 0.3 * weight).to(dtype), bias.to(dtype), upstream]


def with_gradients(function, tensors: list[torch.Tensor], upstream: torch.Tensor) -> list[torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = function(*leaves)
    return [output.detach(), *torch.autograd.grad((output * upstream).sum(), leaves)]


def assert_close(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        # Mean, variance, the division, and back: 4 D; the gain's gradient sums 15 rows more.
        assert (mine - other).abs().max() <= rounding(4 * WIDTH + 15, largest(other))


@few
@given(seeds, eps_values, scales)
def test_layer_norm_and_its_gradients_are_torchs(seed: int, eps: float, scale: float) -> None:
    """Excludes the unbiased variance, eps outside the root, a missing gain or bias, a detached statistic."""
    *tensors, upstream = draw(seed, scale)
    ours = with_gradients(lambda x, w, b: layer_norm(x, w, b, eps), tensors, upstream)
    assert_close(
        ours, with_gradients(lambda x, w, b: nnf.layer_norm(x, (WIDTH,), w, b, eps), tensors, upstream)
    )


@few
@given(seeds, eps_values, scales)
def test_layer_norm_without_bias_is_torchs(seed: int, eps: float, scale: float) -> None:
    inputs, weight, _, upstream = draw(seed, scale)
    ours = with_gradients(lambda x, w: layer_norm(x, w, None, eps), [inputs, weight], upstream)
    theirs = with_gradients(
        lambda x, w: nnf.layer_norm(x, (WIDTH,), w, None, eps), [inputs, weight], upstream
    )
    assert_close(ours, theirs)


@few
@given(seeds, eps_values, scales)
def test_rms_norm_and_its_gradients_are_torchs(seed: int, eps: float, scale: float) -> None:
    """Excludes a mean that is taken off, eps outside the root, a missing gain."""
    inputs, weight, _, upstream = draw(seed, scale)
    ours = with_gradients(lambda x, w: rms_norm(x, w, eps), [inputs, weight], upstream)
    assert_close(
        ours, with_gradients(lambda x, w: nnf.rms_norm(x, (WIDTH,), w, eps), [inputs, weight], upstream)
    )


def test_wrong_norms_are_told_apart() -> None:
    """The bound above would not pass eps outside the root, the unbiased variance, nor one norm for the other."""
    inputs, weight, bias, _ = draw(3, scale=1e-3)
    right = layer_norm(inputs, weight, bias, 1e-5)
    centred = inputs - inputs.mean(-1, keepdim=True)
    outside = centred / (centred.square().mean(-1, keepdim=True).sqrt() + 1e-5) * weight + bias
    unbiased = centred / (inputs.var(-1, keepdim=True) + 1e-5).sqrt() * weight + bias
    for wrong in (outside, unbiased, rms_norm(inputs, weight, 1e-5) + bias):
        assert (right - wrong).abs().max() > 1e-3


@few
@given(seeds)
def test_layer_norm_ignores_shift_and_scale_and_rms_norm_scale_only(seed: int) -> None:
    inputs, weight, bias, _ = draw(seed)
    bound = rounding(4 * WIDTH, 40.0)  # the shift of 30 is what is rounded
    assert (
        layer_norm(3 * inputs + 30, weight, bias, 0.0) - layer_norm(inputs, weight, bias, 0.0)
    ).abs().max() <= bound
    assert (rms_norm(3 * inputs, weight, 0.0) - rms_norm(inputs, weight, 0.0)).abs().max() <= bound
    assert (rms_norm(inputs + 30, weight, 0.0) - rms_norm(inputs, weight, 0.0)).abs().max() > 0.1


def test_a_constant_row_stays_finite() -> None:
    """Excludes a division by a variance of 0."""
    constant = torch.full((2, WIDTH), 4.0, dtype=torch.float64, requires_grad=True)
    _, weight, bias, _ = draw(0)
    output = layer_norm(constant, weight, bias, 1e-5)
    assert torch.equal(output, bias.expand(2, WIDTH))
    output.square().sum().backward()
    assert constant.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_half_precision_costs_one_final_rounding(norm: str, dtype: torch.dtype) -> None:
    """Excludes statistics, gain or bias in half precision."""
    inputs, weight, bias, _ = draw(5, scale=3.0, dtype=dtype)

    def apply(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, w, b, 1e-5) if norm == "layer" else rms_norm(x, w, 1e-5)

    result = apply(inputs, weight, bias)
    exact = apply(inputs.double(), weight.double(), bias.double())
    assert result.dtype == dtype
    final = UNIT_ROUNDOFF[dtype] * exact.abs()
    float32 = rounding(4 * WIDTH, largest(exact), torch.float32)
    assert ((result.double() - exact).abs() <= final + float32).all()

    centred = inputs - inputs.mean(-1, keepdim=True) if norm == "layer" else inputs
    narrow = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
    narrow = narrow + bias if norm == "layer" else narrow
    assert ((narrow.double() - exact).abs() > final + float32).any(), "a narrow norm would pass"


def test_float16_squares_do_not_overflow() -> None:
    """Excludes a mean square in float16, whose largest number is 65504 = 256^2."""
    inputs = torch.full((1, WIDTH), 1000.0, dtype=torch.float16)
    ones = torch.ones(WIDTH, dtype=torch.float16)
    assert torch.equal(rms_norm(inputs, ones, 1e-5), torch.ones(1, WIDTH, dtype=torch.float16))
