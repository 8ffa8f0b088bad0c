"""Every tensor of a decoder, derived from its config: name, shape, and the part it belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from proof_lm.config import DecoderConfig
from proof_lm.sheet.polynomial import Polynomial

Role = Literal["embedding", "position", "norm", "attention", "feed_forward", "head"]
Axis = tuple[int, str]
"""A size, and its letters."""


@dataclass(frozen=True)
class TensorSpec:
    """One parameter.

    Attributes:
        name: in the state dict.
        shape: linear weights are (out, in).
        role: the part it belongs to.
        letters: the shape in dimension letters, as ``("NH", "D")``: an axis may be a product.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    letters: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of entries, the product of the shape."""
        return math.prod(self.shape)

    @property
    def formula(self) -> Polynomial:
        """The same, in letters."""
        return Polynomial.of("".join(self.letters))


def tensors(config: DecoderConfig) -> list[TensorSpec]:
    """Every parameter of the decoder, in the order of its state dict.

    Embedding, learned positions, the blocks one after the other, final norm, and the head where it is not
    tied; inside a module the weight before the bias. A tied head is the embedding and not listed twice.
    """
    d = config.d_model
    specs = [TensorSpec("embedding.weight", (config.vocab_size, d), "embedding", ("V", "D"))]
    if config.position == "learned":
        specs.append(
            TensorSpec("position_embedding.weight", (config.context_length, d), "position", ("C", "D"))
        )
    for i in range(config.n_layers):
        specs.extend(_block(config, f"blocks.{i}"))
    specs.extend(_norm(config, "final_norm"))
    if not config.tie_embeddings:
        specs.append(TensorSpec("head.weight", (config.vocab_size, d), "head", ("V", "D")))
    return specs


def _block(config: DecoderConfig, block: str) -> Iterator[TensorSpec]:
    d, f = (config.d_model, "D"), (config.d_ff, "F")
    queries, keys = (config.n_heads * config.head_width, "NH"), (config.kv_heads * config.head_width, "KH")
    yield from _norm(config, f"{block}.attention_norm")
    for name, out in (("query", queries), ("key", keys), ("value", keys)):
        yield from _linear(f"{block}.attention.{name}", out, d, config.attention_bias, "attention")
    yield from _linear(f"{block}.attention.out", d, queries, config.attention_out_bias, "attention")
    yield from _norm(config, f"{block}.feed_forward_norm")
    for name in ("gate", "up") if config.feed_forward == "gated" else ("up",):
        yield from _linear(f"{block}.feed_forward.{name}", f, d, config.feed_forward_bias, "feed_forward")
    yield from _linear(f"{block}.feed_forward.down", d, f, config.feed_forward_bias, "feed_forward")


def _norm(config: DecoderConfig, name: str) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (config.d_model,), "norm", ("D",))
    if config.norm_bias:
        yield TensorSpec(f"{name}.bias", (config.d_model,), "norm", ("D",))


def _linear(name: str, out: Axis, in_: Axis, has_bias: bool, role: Role) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (out[0], in_[0]), role, (out[1], in_[1]))
    if has_bias:
        yield TensorSpec(f"{name}.bias", (out[0],), role, (out[1],))
