"""Floating-point operations of a forward pass and of a training step, by term and by convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proof_lm.config import DecoderConfig
from proof_lm.sheet.dimensions import dimensions
from proof_lm.sheet.operations import Operation, operations
from proof_lm.sheet.parameters import parameter_count
from proof_lm.sheet.polynomial import Polynomial

BACKWARD = 2
"""A product y = x w has two in its backward pass: for the gradient of x, and for that of w. For operations that are no
products it is a convention."""


@dataclass(frozen=True)
class Term:
    """Products that grow alike.

    Attributes:
        name: what they do.
        formula: of all layers, in the forward pass.
        value: the formula's, for the sheet's sizes.
    """

    name: str
    formula: Polynomial
    value: int


@dataclass(frozen=True)
class Flops:
    """Of one pass over B rows of T tokens.

    Attributes:
        products: of matrix products, 2 for each multiplication with its addition.
        others: of everything else, one for each element and function; what is done once a row is left out.
    """

    products: int
    others: int

    @property
    def total(self) -> int:
        """Both."""
        return self.products + self.others

    def __add__(self, other: Flops) -> Flops:
        return Flops(self.products + other.products, self.others + other.others)

    def __mul__(self, times: int) -> Flops:
        return Flops(self.products * times, self.others * times)


def forward_flops(config: DecoderConfig, values: Mapping[str, int], *, with_loss: bool = True) -> Flops:
    """Of a forward pass whose dimensions have these values."""
    chosen = [step for step in operations(config) if with_loss or step.kind != "loss"]
    return _total(chosen, values)


def recomputation_flops(config: DecoderConfig, values: Mapping[str, int]) -> Flops:
    """Of computing every layer's forward pass once more, where only the layers' inputs were kept."""
    return _total([step for step in operations(config) if step.is_in_layer], values)


def terms(config: DecoderConfig, values: Mapping[str, int]) -> list[Term]:
    """The products of a forward pass: projections and feed-forward layers, which grow with the width squared;
    scores, which grow with the length squared; and the head."""
    products = [step for step in operations(config) if step.product is not None]
    return _grouped(products, values, lambda step: _TERMS[step.name])


def kinds(config: DecoderConfig, values: Mapping[str, int]) -> list[Term]:
    """The operations of a forward pass by their kind: products, norms, softmax, RoPE, elementwise, loss."""
    counted = [step for step in operations(config) if step.flops]
    return sorted(
        _grouped(counted, values, lambda step: _KINDS.get(step.kind, step.kind)), key=lambda term: -term.value
    )


def _grouped(
    steps: list[Operation], values: Mapping[str, int], name_of: Callable[[Operation], str]
) -> list[Term]:
    formulas: dict[str, Polynomial] = {}
    for step in steps:
        layers = Polynomial.of("L" if step.is_in_layer else "")
        formulas[name_of(step)] = formulas.get(name_of(step), Polynomial({})) + step.flops * layers
    return [Term(name, formula, formula.at(values)) for name, formula in formulas.items()]


_KINDS = {"product": "matrix products", "norm": "norms", "rope": "RoPE"}
SCORES = "scores and values"
_TERMS = {
    **dict.fromkeys(("query", "key", "value", "out"), "projections"),
    **dict.fromkeys(("scores", "attended"), SCORES),
    **dict.fromkeys(("gate", "up", "down"), "feed-forward"),
    "logits": "head",
}


@dataclass(frozen=True)
class Convention:
    """A way of counting a training step, as somebody else does it.

    Attributes:
        name: what ``--count`` calls it.
        meaning: in words.
    """

    name: str
    meaning: str


CONVENTIONS = (
    Convention("dense", "2 a multiply-add, matrix products alone, every score of the T x S square"),
    Convention("causal", "2 a multiply-add, the visible scores alone: T (T + 1) / 2, or fewer in a window"),
    Convention("halved", "2 a multiply-add, half of the square of scores, T S / 2"),
    Convention("macs", "multiply-accumulates: half of dense"),
    Convention(
        "6n", "6 a parameter and token, none for scores (after Kaplan et al. 2020, who leave tables out)"
    ),
    Convention("palm", "6 a parameter and token, 12 L N H T a token for the scores (Chowdhery et al. 2022)"),
    Convention("all", "dense, with norms, softmax, RoPE, activations and sums, one an element and function"),
)


def counted(config: DecoderConfig, batch: int, n_tokens: int, convention: str) -> dict[str, int]:
    """The dimensions of a pass, of which P is as many scores as the convention counts."""
    match convention:
        case "causal" | "halved":
            return dimensions(config, batch, n_tokens, attention=convention)
    return dimensions(config, batch, n_tokens)


def step_flops(config: DecoderConfig, batch: int, n_tokens: int, convention: str = "dense") -> int:
    """A training step's forward and backward pass by one of :data:`CONVENTIONS`.

    Raises:
        KeyError: there is no such convention.
    """
    n_parameters, rows = parameter_count(config), batch * n_tokens
    heads = config.n_layers * config.n_heads * config.head_width
    match convention:
        case "dense" | "causal" | "halved":
            return forward_flops(config, counted(config, batch, n_tokens, convention)).products * (
                1 + BACKWARD
            )
        case "macs":
            return step_flops(config, batch, n_tokens) // 2
        case "6n":
            return 6 * n_parameters * rows
        case "palm":
            return (6 * n_parameters + 12 * heads * n_tokens) * rows
        case "all":
            return forward_flops(config, dimensions(config, batch, n_tokens)).total * (1 + BACKWARD)
    raise KeyError(convention)


def _total(steps: list[Operation], values: Mapping[str, int]) -> Flops:
    products = others = 0
    for step in steps:
        count = step.flops.at(values) * (values["L"] if step.is_in_layer else 1)
        if step.product is not None:
            products += count
        else:
            others += count
    return Flops(products, others)
