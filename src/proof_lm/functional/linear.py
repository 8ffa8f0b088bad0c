"""The affine map."""

import torch

from proof_lm.dims import Float, Tensor

FEW_ROWS = 8
LARGE_WEIGHT = 2**18  # elements: below it a second thread costs more than it brings


def linear(
    inputs: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """y = x W^T + b, with the weight stored (out, in)."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    if _is_thin(rows, weight):
        product = _thin_product(rows, weight)
        outputs = product if bias is None else product + bias
    else:
        outputs = rows @ weight.T if bias is None else torch.addmm(bias, rows, weight.T)
    return outputs.view(*inputs.shape[:-1], weight.shape[0])


def _is_thin(rows: Float[Tensor, "R d_in"], weight: Float[Tensor, "d_out d_in"]) -> bool:
    """Whether this is a step of cached decoding on a CPU with several threads."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or weight.device.type != "cpu":
        return False
    d_out, d_in = weight.shape
    n_threads = torch.get_num_threads()
    return (
        len(rows) <= FEW_ROWS
        and d_out >= d_in
        and d_out * d_in >= LARGE_WEIGHT
        and n_threads > 1
        and d_out % n_threads == 0
        and weight.dtype in (torch.float32, torch.float64)
    )


def _thin_product(
    rows: Float[Tensor, "R d_in"], weight: Float[Tensor, "d_out d_in"]
) -> Float[Tensor, "R d_out"]:
    """x W^T for few rows, one part of the weight a thread.

    A matrix product with one row runs on one thread and reads memory at half its speed; a batch of products
    with the parts of the weight, which are views of it, runs on all.
    """
    n_parts = torch.get_num_threads()
    parts = weight.unflatten(0, (n_parts, -1))
    products = torch.bmm(parts, rows.T.expand(n_parts, -1, -1))
    return products.flatten(0, 1).T.contiguous()
