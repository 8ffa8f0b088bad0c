"""Where half precision is not enough: the dtype that sums and angles are computed in."""

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for everything narrower."""
    return torch.promote_types(dtype, torch.float32)


def widen(tensor: Tensor) -> Tensor:
    """The tensor in the dtype that its sums are accumulated in; itself when it is wide enough."""
    return tensor.to(accumulation_dtype(tensor.dtype))
