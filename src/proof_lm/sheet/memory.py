"""Bytes of parameters, gradients, optimizer, activations and cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proof_lm.config import DecoderConfig
from proof_lm.sheet.activations import DTYPE_BYTES, Backend, saved_bytes, saved_tensors


@dataclass(frozen=True)
class Recipe:
    """What an optimizer step with AdamW holds for each parameter.

    Attributes:
        name: of the recipe.
        parameter: bytes of the parameter that computes.
        gradient: bytes of its gradient.
        master: bytes of the float32 copy that is stepped; 0 where the parameter itself is.
        moments: bytes of AdamW's two averages.
    """

    name: str
    parameter: int
    gradient: int
    master: int
    moments: int

    @property
    def total(self) -> int:
        """Bytes a parameter."""
        return self.parameter + self.gradient + self.master + self.moments


def recipes(dtype: str) -> list[Recipe]:
    """How a model of this dtype is trained: as it is, and in half precision also with float32 master weights."""
    size = DTYPE_BYTES[dtype]
    plain = Recipe(f"{dtype}, AdamW in {dtype}", size, size, 0, 2 * size)
    if size > 2:
        return [plain]
    return [Recipe(f"{dtype}, AdamW and master weights in float32", size, size, 4, 8), plain]


def activation_bytes(
    config: DecoderConfig,
    values: Mapping[str, int],
    dtype: str = "float32",
    backend: Backend = "fused",
    *,
    recomputed: bool = False,
) -> int:
    """What is kept from the forward pass of a training step for its backward pass.

    With recomputation, a layer's input is kept and the layer's tensors exist for one layer at a time. Gradients of
    activations and workspaces of kernels come on top and are not counted.
    """
    once = layer = 0
    for saved in saved_tensors(config, backend, dtype, values["T"]):
        n_bytes = saved_bytes(saved, values, dtype)
        if saved.is_in_layer:
            layer += n_bytes
        else:
            once += n_bytes
    if not recomputed:
        return once + layer * config.n_layers
    inputs = values["B"] * values["T"] * values["D"] * DTYPE_BYTES[dtype]
    return once + layer + inputs * config.n_layers


def cache_bytes_per_token(
    config: DecoderConfig, dtype: str = "float32", n_kv_heads: int | None = None
) -> int:
    """Keys and values of one token of one row in every layer: 2 L K H elements.

    A sliding window does not make it less: the cache of ``ProofLM`` keeps what has left the window.
    """
    heads = config.kv_heads if n_kv_heads is None else n_kv_heads
    return 2 * config.n_layers * heads * config.head_width * DTYPE_BYTES[dtype]
