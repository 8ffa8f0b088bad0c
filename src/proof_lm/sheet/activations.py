"""What a training step keeps between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from proof_lm.config import DecoderConfig
from proof_lm.sheet.operations import EVERY_LAYER
from proof_lm.sheet.polynomial import Polynomial

Backend = Literal["explicit", "fused"]
Width = Literal["model", "wide", "bool", "int64"]
"""A tensor's dtype: the model's, that of its sums (float32 at least), a mask's, or an index's."""

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def width_bytes(dtype: str) -> dict[Width, int]:
    """Bytes an element of each width, in a model of this dtype."""
    return {"model": DTYPE_BYTES[dtype], "wide": max(4, DTYPE_BYTES[dtype]), "bool": 1, "int64": 8}


@dataclass(frozen=True)
class SavedTensor:
    """A tensor that the backward pass needs.

    Attributes:
        name: what it is.
        module: where it is computed; ``blocks.*`` stands for each layer.
        size: its elements.
        width: its dtype.
    """

    name: str
    module: str
    size: Polynomial
    width: Width = "model"

    @property
    def is_in_layer(self) -> bool:
        """Whether every layer keeps one."""
        return self.module.startswith(EVERY_LAYER)


def saved_bytes(saved: SavedTensor, values: Mapping[str, int], dtype: str) -> int:
    """Bytes of one such tensor, in a model of this dtype, where the dimension letters have these values."""
    return saved.size.at(values) * width_bytes(dtype)[saved.width]


def saved_tensors(
    config: DecoderConfig, backend: Backend = "fused", dtype: str = "float32", n_tokens: int | None = None
) -> list[SavedTensor]:
    """Every tensor that is kept for the backward pass of a training step; those of a layer stand once.

    Parameters are not among them, and a tensor that two operations keep is one. Masks are kept where the explicit
    attention hides scores; the fused kernel keeps queries, keys, values, its output and one number a row, and no
    scores, but a mask where a window is shorter than the row of ``n_tokens``. In a half-precision model what is
    summed in float32 is kept in float32.
    """
    window = config.sliding_window
    is_cut = window is not None and (n_tokens is None or window < n_tokens)
    return [
        *_entry(config),
        *_attention(config, backend, dtype, is_cut=is_cut),
        *_feed_forward(config, dtype),
        *_exit(dtype),
    ]


def _entry(config: DecoderConfig) -> Iterator[SavedTensor]:
    yield _saved("token ids", "embedding", "BT", width="int64")
    if config.position == "learned":
        yield _saved("positions", "position_embedding", "BT", width="int64")
    if config.position == "rope":
        for name in ("cosines", "sines"):
            yield SavedTensor(name, "", Polynomial.of("BTH", Fraction(1, 2)), "wide")
    yield from _dropout(config, "embedding", "", "BTD")


def _attention(config: DecoderConfig, backend: Backend, dtype: str, *, is_cut: bool) -> Iterator[SavedTensor]:
    where = f"{EVERY_LAYER}.attention"
    yield from _norm(f"{EVERY_LAYER}.attention_norm", dtype)
    yield _saved("query", where, "BNTH")
    yield _saved("key", where, "BKTH")
    yield _saved("value", where, "BKTH")
    if backend == "fused":
        yield _saved("logarithms of the sums", where, "BNT", width="wide")
        # The kernel's output lies as the query does; where that was rotated, merging several heads is a copy.
        if config.position == "rope" and config.n_heads > 1:
            yield _saved("attended", where, "BNTH")
        if is_cut:
            yield _saved("mask", where, "TT")
    else:
        yield _saved("mask", where, "TT", width="bool")
        yield _saved("exponentials", where, "BNTT", width="wide")
        yield _saved("sums", where, "BNT", width="wide")
        yield _saved("rows without a key", where, "BNT", width="bool")
        yield _saved("weights", where, "BNTT")
        yield from _dropout(config, "weights", where, "BNTT")
    yield _saved("merged heads", where, "BTNH")
    yield from _dropout(config, "attention", EVERY_LAYER, "BTD")


def _feed_forward(config: DecoderConfig, dtype: str) -> Iterator[SavedTensor]:
    where = f"{EVERY_LAYER}.feed_forward"
    yield from _norm(f"{EVERY_LAYER}.feed_forward_norm", dtype)
    is_gated = config.feed_forward == "gated"
    match config.activation:
        case "silu" | "gelu_tanh":  # their slope is computed again from their input
            yield _saved("gate" if is_gated else "up", where, "BTF", width="wide")
            if is_gated:
                yield _saved("up", where, "BTF", width="wide")
        case "gelu":
            for name in ("half of x", "x / sqrt(2)", "1 + erf"):
                yield _saved(name, where, "BTF", width="wide")
            if is_gated:
                yield _saved("gelu(gate)", where, "BTF")
                yield _saved("up", where, "BTF")
        case "relu" if is_gated:
            yield _saved("relu(gate)", where, "BTF")
            yield _saved("up", where, "BTF")
    yield _saved("activated", where, "BTF")
    yield from _dropout(config, "feed-forward", EVERY_LAYER, "BTD")


def _exit(dtype: str) -> Iterator[SavedTensor]:
    yield from _norm("final_norm", dtype)
    yield _saved("logits", "", "BTV", width="wide")
    yield _saved("logarithms of the sums", "", "BT", width="wide")
    yield _saved("labels", "", "BT", width="int64")


def _norm(module: str, dtype: str) -> Iterator[SavedTensor]:
    yield _saved("normalized", module, "BTD", width="wide")
    yield _saved("scale", module, "BT", width="wide")
    if width_bytes(dtype)["model"] != width_bytes(dtype)["wide"]:
        yield _saved("gain in float32", module, "D", width="wide")
    yield _saved("output", module, "BTD")


def _dropout(config: DecoderConfig, name: str, module: str, letters: str) -> Iterator[SavedTensor]:
    if config.dropout:
        yield _saved(f"dropout of {name}", module, letters, width="bool")


def _saved(name: str, module: str, letters: str, *, width: Width = "model") -> SavedTensor:
    return SavedTensor(name, module, Polynomial.of(letters), width)
