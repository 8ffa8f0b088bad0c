"""The decoder's parameters: their names and shapes, the check of a set of weights, and scopes of names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.oracle.arrays import FloatArray

Shape = tuple[int, ...]


def parameter_shapes(config: DecoderConfig) -> dict[str, Shape]:
    """Name and shape of every parameter of the decoder, linear weights as (out, in)."""
    d, v, f = config.d_model, config.vocab_size, config.d_ff
    q, kv = config.n_heads * config.head_width, config.kv_heads * config.head_width
    shapes: dict[str, Shape] = {"embedding.weight": (v, d)}
    if config.position == "learned":
        shapes["position_embedding.weight"] = (config.context_length, d)
    for i in range(config.n_layers):
        block = f"blocks.{i}"
        shapes |= _norm(config, f"{block}.attention_norm")
        for name, out in (("query", q), ("key", kv), ("value", kv)):
            shapes |= _linear(f"{block}.attention.{name}", out, d, config.attention_bias)
        shapes |= _linear(f"{block}.attention.out", d, q, config.attention_out_bias)
        shapes |= _norm(config, f"{block}.feed_forward_norm")
        for name in ("gate", "up") if config.feed_forward == "gated" else ("up",):
            shapes |= _linear(f"{block}.feed_forward.{name}", f, d, config.feed_forward_bias)
        shapes |= _linear(f"{block}.feed_forward.down", d, f, config.feed_forward_bias)
    shapes |= _norm(config, "final_norm")
    if not config.tie_embeddings:
        shapes["head.weight"] = (v, d)
    return shapes


def check_weights(config: DecoderConfig, weights: Mapping[str, FloatArray]) -> None:
    """Check that the weights are exactly those of the config, in float64.

    The dtype is refused and not converted, because a conversion would copy the tensor at every use.

    Raises:
        WeightsError: a tensor is missing, unknown, of another shape or not float64; the message names it.
    """
    shapes = parameter_shapes(config)
    for name, shape in shapes.items():
        if name not in weights:
            raise WeightsError(f"weights lack {name}, expected with shape {shape}")
        tensor = weights[name]
        if tensor.shape != shape:
            raise WeightsError(f"{name} must have shape {shape}, got {tensor.shape}")
        if tensor.dtype != np.float64:
            raise WeightsError(f"{name} must be float64, got {tensor.dtype}")
    for name in weights:
        if name not in shapes:
            raise WeightsError(f"weights hold {name}, which a decoder of this config does not have")


def inside(parameters: Mapping[str, FloatArray], scope: str) -> dict[str, FloatArray]:
    """The parameters whose names begin with ``scope.``, under the rest of their names; nothing is copied."""
    start = len(scope) + 1
    return {name[start:]: value for name, value in parameters.items() if name.startswith(f"{scope}.")}


def prefixed(scope: str, parameters: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The parameters with ``scope.`` put before their names; the inverse of :func:`inside`."""
    return {f"{scope}.{name}": value for name, value in parameters.items()}


def _norm(config: DecoderConfig, name: str) -> dict[str, Shape]:
    bias: dict[str, Shape] = {f"{name}.bias": (config.d_model,)} if config.norm_bias else {}
    return {f"{name}.weight": (config.d_model,), **bias}


def _linear(name: str, out: int, in_: int, has_bias: bool) -> dict[str, Shape]:
    bias: dict[str, Shape] = {f"{name}.bias": (out,)} if has_bias else {}
    return {f"{name}.weight": (out, in_), **bias}
