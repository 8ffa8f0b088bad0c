"""In which precision a module really computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from proof_lm.dims import Tensor


def effective_roundoff(native: nn.Module, run_once: Callable[[], object]) -> tuple[float, str]:
    """The unit roundoff of the narrowest arithmetic in one run, and why.

    Parameters in float64 do not make a float64 module: many cast to float32 inside a norm or a rotation. Every
    floating-point tensor that an operation makes is looked at. A buffer that was computed in a narrower dtype
    keeps that rounding, unless its values are whole numbers or infinite, as those of masks are.
    """
    narrowest, why = torch.float64, "every operation is in float64"
    watch = _Watch()
    with watch:
        run_once()
    if torch.finfo(watch.narrowest).eps > torch.finfo(narrowest).eps:
        narrowest, why = watch.narrowest, f"{watch.operation} makes {str(watch.narrowest).split('.')[-1]}"
    for name, buffer in native.named_buffers():
        if not buffer.is_floating_point() or torch.finfo(buffer.dtype).eps <= torch.finfo(narrowest).eps:
            continue
        if (buffer.isfinite() & (buffer != buffer.round())).any():
            narrowest, why = buffer.dtype, f"buffer {name} is {str(buffer.dtype).split('.')[-1]}"
    return torch.finfo(narrowest).eps / 2, why


class _Watch(TorchDispatchMode):
    """Notes the narrowest floating-point dtype that an operation makes, and which did."""

    supports_higher_order_operators = True  # such as flex_attention, whose result is seen like any other

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.narrowest = torch.float64
        self.operation = ""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            is_float = isinstance(tensor, Tensor) and tensor.is_floating_point()
            if is_float and torch.finfo(tensor.dtype).eps > torch.finfo(self.narrowest).eps:
                self.narrowest, self.operation = tensor.dtype, func.__name__.split(".")[0]
        return made
