"""The affine map."""

import torch

from proof_lm.dims import Float, Tensor


def linear(
    inputs: Float[Tensor, "*rows d_in"],
    weight: Float[Tensor, "d_out d_in"],
    bias: Float[Tensor, " d_out"] | None = None,
) -> Float[Tensor, "*rows d_out"]:
    """y = x W^T + b, with the weight stored (out, in)."""
    if bias is None:
        return inputs @ weight.T
    rows = inputs.reshape(-1, inputs.shape[-1])
    return torch.addmm(bias, rows, weight.T).view(*inputs.shape[:-1], weight.shape[0])
