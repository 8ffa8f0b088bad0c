"""The forward pass as a list: each operation with its output, its formula, and where in the decoder it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from proof_lm.config import Activation, DecoderConfig
from proof_lm.sheet.polynomial import Polynomial

Kind = Literal["product", "elementwise", "norm", "softmax", "rope", "lookup", "loss"]
EVERY_LAYER = "blocks.*"

# Operations an element: x erf(x / sqrt 2) and so on, each function (exp, erf, sigmoid, tanh) counted as one.
_ACTIVATION_COST: dict[Activation, int] = {
    "gelu": 5,  # 0.5 x (1 + erf(c x))
    "gelu_tanh": 6,  # x sigmoid((a + b x^2) x)
    "silu": 2,  # x sigmoid(x)
    "relu": 1,
}
_SOFTMAX_COST = 5  # maximum, subtract, exp, sum, divide
_LOSS_COST = 4  # the same without the division
_ROPE_COST = 3  # four products and two sums a pair
_ANGLE_COST = Fraction(3, 2)  # a product, a cosine and a sine a pair
_MEAN_SQUARE_COST = 2  # square, sum


@dataclass(frozen=True)
class Product:
    """A batch of matrix products, (rows, inner) times (inner, columns); each is letters that are multiplied."""

    batch: str
    rows: str
    inner: str
    columns: str

    @property
    def flops(self) -> Polynomial:
        """2 for each multiplication with its addition."""
        return Polynomial.of(self.batch + self.rows + self.inner + self.columns, 2)


@dataclass(frozen=True)
class Operation:
    """One step of the forward pass.

    Attributes:
        name: what it computes.
        module: the module in which it runs, ``blocks.*`` standing for each layer; empty for the decoder itself.
        kind: what kind of arithmetic it is.
        shape: the letters of its output's axes, as ``("B", "T", "D")``; an axis may be a product, as ``"NH"``.
        flops: of the forward pass, for one layer. What is done once a row (a mean, a root) and not once an element
            is left out.
        product: the matrix product that it is, if it is one.
    """

    name: str
    module: str
    kind: Kind
    shape: tuple[str, ...]
    flops: Polynomial
    product: Product | None = None

    @property
    def is_in_layer(self) -> bool:
        """Whether every layer does it."""
        return self.module.startswith(EVERY_LAYER)


def operations(config: DecoderConfig) -> list[Operation]:
    """Every operation of a forward pass with its loss, in the order of computing; those of a layer stand once.

    Attention is the explicit computation, whose products every kernel must do; a fused kernel does them without
    writing scores and weights to memory. Dropout is left out, and so are lookups, copies, masks and integers.
    """
    return [*_entry(config), *_attention(config), *_feed_forward(config), *_exit(config)]


def _entry(config: DecoderConfig) -> Iterator[Operation]:
    hidden = ("B", "T", "D")
    yield Operation("embedding", "embedding", "lookup", hidden, Polynomial({}))
    if config.position == "learned":
        yield Operation("position embedding", "position_embedding", "lookup", hidden, Polynomial({}))
        yield Operation("embedding + position", "", "elementwise", hidden, Polynomial.of("BTD"))
    if config.position == "rope":
        yield Operation("angles", "", "rope", ("B", "1", "T", "H/2"), Polynomial.of("BTH", _ANGLE_COST))


def _attention(config: DecoderConfig) -> Iterator[Operation]:
    block, where = EVERY_LAYER, f"{EVERY_LAYER}.attention"
    queries, scores, has_bias = ("B", "N", "T", "H"), ("B", "N", "T", "S"), config.attention_bias
    yield _norm(config, "attention norm", f"{block}.attention_norm")
    for name, heads in (("query", "N"), ("key", "K"), ("value", "K")):
        yield from _linear(name, f"{where}.{name}", ("B", "T", heads + "H"), "D", has_bias)
    if config.position == "rope":
        yield Operation("rotated query", where, "rope", queries, Polynomial.of("BNTH", _ROPE_COST))
        yield Operation("rotated key", where, "rope", ("B", "K", "T", "H"), Polynomial.of("BKTH", _ROPE_COST))
    yield Operation("scaled query", where, "elementwise", queries, Polynomial.of("BNTH"))
    # The T S scores of a head are written P: they are T S, or fewer where only the visible ones are counted.
    yield Operation(
        "scores", where, "product", scores, Polynomial.of("BNPH", 2), Product("BN", "T", "H", "S")
    )
    yield Operation("weights", where, "softmax", scores, Polynomial.of("BNP", _SOFTMAX_COST))
    yield Operation(
        "attended", where, "product", queries, Polynomial.of("BNPH", 2), Product("BN", "T", "S", "H")
    )
    yield Operation("merged heads", where, "lookup", ("B", "T", "NH"), Polynomial({}))
    yield from _linear("out", f"{where}.out", ("B", "T", "D"), "NH", config.attention_out_bias)
    yield Operation("+ attention", block, "elementwise", ("B", "T", "D"), Polynomial.of("BTD"))


def _feed_forward(config: DecoderConfig) -> Iterator[Operation]:
    block, where = EVERY_LAYER, f"{EVERY_LAYER}.feed_forward"
    wide, has_bias = ("B", "T", "F"), config.feed_forward_bias
    is_gated = config.feed_forward == "gated"
    yield _norm(config, "feed-forward norm", f"{block}.feed_forward_norm")
    for name in ("gate", "up") if is_gated else ("up",):
        yield from _linear(name, where, wide, "D", has_bias)
    cost = _ACTIVATION_COST[config.activation] + is_gated  # the gate is one product more
    name = f"{config.activation}(gate) up" if is_gated else f"{config.activation}(up)"
    yield Operation(name, where, "elementwise", wide, Polynomial.of("BTF", cost))
    yield from _linear("down", where, ("B", "T", "D"), "F", has_bias)
    yield Operation("+ feed-forward", block, "elementwise", ("B", "T", "D"), Polynomial.of("BTD"))


def _exit(config: DecoderConfig) -> Iterator[Operation]:
    yield _norm(config, "final norm", "final_norm")
    yield from _linear("logits", "", ("B", "T", "V"), "D", has_bias=False)
    yield Operation("loss", "", "loss", (), Polynomial.of("BTV", _LOSS_COST))


def _norm(config: DecoderConfig, name: str, module: str) -> Operation:
    """The mean square, the scale and the gain; LayerNorm also a mean, its subtraction, and a bias."""
    centre = 2 if config.norm == "layernorm" else 0
    cost = centre + _MEAN_SQUARE_COST + 2 + bool(config.norm_bias)
    return Operation(name, module, "norm", ("B", "T", "D"), Polynomial.of("BTD", cost))


def _linear(
    name: str, module: str, shape: tuple[str, ...], inner: str, has_bias: bool
) -> Iterator[Operation]:
    product = Product("", "BT", inner, shape[-1])
    yield Operation(name, module, "product", shape, product.flops, product)
    if has_bias:
        yield Operation(f"{name} bias", module, "elementwise", shape, Polynomial.of("BT" + shape[-1]))
