"""A digest of a module's weights, by which two loads of the same target are told apart."""

import hashlib

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from proof_lm.dims import Tensor


def fingerprint(module: nn.Module) -> str:
    """SHA-256 over parameters, then buffers, in order: name, dtype, shape and bytes of each.

    A tensor under several names counts once, under the first. Of tensors without values (on the meta device, or
    of a lazy layer that never ran) the name alone counts.
    """
    digest = hashlib.sha256()
    for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in tensors:
            digest.update(f"{kind} {name}\n".encode())
            if not (is_lazy(tensor) or tensor.is_meta):
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
                digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
