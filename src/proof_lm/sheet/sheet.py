"""Everything that follows from a config, for rows of a given number and length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError
from proof_lm.sheet.activations import DTYPE_BYTES, Backend, SavedTensor, saved_bytes, saved_tensors
from proof_lm.sheet.dimensions import dimensions, visible_pairs
from proof_lm.sheet.flops import (
    CONVENTIONS,
    Flops,
    Term,
    forward_flops,
    kinds,
    recomputation_flops,
    step_flops,
    terms,
)
from proof_lm.sheet.inference import Inference, decode, prefill
from proof_lm.sheet.memory import Recipe, activation_bytes, cache_bytes_per_token, recipes
from proof_lm.sheet.operations import EVERY_LAYER, Operation, operations
from proof_lm.sheet.parameters import parameter_count
from proof_lm.sheet.polynomial import Polynomial
from proof_lm.sheet.scaling import Growth, growth
from proof_lm.sheet.tensors import TensorSpec, tensors

ROLE_NAMES = {
    "embedding": "embedding",
    "position": "position embedding",
    "norm": "norms",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "head": "head",
}


@dataclass(frozen=True)
class Subtotal:
    """Parameters of a part.

    Attributes:
        name: of the part.
        formula: of all its tensors, in all layers.
        count: the formula's value.
    """

    name: str
    formula: Polynomial
    count: int


@dataclass(frozen=True)
class Sheet:
    """Shapes, parameters, operations and memory of a decoder, derived from its config.

    Attributes:
        name: of what it describes.
        config: from which all follows.
        batch: rows, B.
        n_tokens: tokens of a row, T.
        dtype: of parameters and activations: float64, float32, bfloat16 or float16.
    """

    name: str
    config: DecoderConfig
    batch: int
    n_tokens: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, got {self.dtype!r}")
        for name, value in (("batch", self.batch), ("sequence length", self.n_tokens)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if self.n_tokens > self.config.context_length:
            raise ConfigError(
                f"a sequence of {self.n_tokens} tokens exceeds context_length = {self.config.context_length}"
            )

    @cached_property
    def values(self) -> dict[str, int]:
        """Of the dimension letters; every score is counted."""
        return dimensions(self.config, self.batch, self.n_tokens)

    @cached_property
    def _causal_values(self) -> dict[str, int]:
        return dimensions(self.config, self.batch, self.n_tokens, attention="causal")

    @cached_property
    def tensors(self) -> list[TensorSpec]:
        """Every parameter."""
        return tensors(self.config)

    @cached_property
    def distinct_tensors(self) -> list[TensorSpec]:
        """The same, with those of the first layer standing for every layer's."""
        return [spec for spec in self.tensors if not spec.name.startswith("blocks.") or _is_first(spec)]

    @cached_property
    def parameter_count(self) -> int:
        """Of unique parameters: a tied head is the embedding."""
        return parameter_count(self.config)

    @cached_property
    def subtotals(self) -> list[Subtotal]:
        """Parameters by part, over all layers."""
        found = []
        for role, name in ROLE_NAMES.items():
            specs = [spec for spec in self.distinct_tensors if spec.role == role]
            if specs:
                found.append(self._subtotal(name, specs, in_all=True))
        return found

    @cached_property
    def layer(self) -> Subtotal:
        """Parameters of one layer."""
        return self._subtotal(
            "layer", [spec for spec in self.distinct_tensors if _is_first(spec)], in_all=False
        )

    @cached_property
    def operations(self) -> list[Operation]:
        """The forward pass with its loss."""
        return operations(self.config)

    @cached_property
    def visible_pairs(self) -> int:
        """Pairs (query, key) of one row and head whose key the query may see."""
        return visible_pairs(self.n_tokens, window=self.config.sliding_window)

    def saved(self, backend: Backend) -> list[SavedTensor]:
        """What a training step keeps, with this kind of attention."""
        return saved_tensors(self.config, backend, self.dtype, self.n_tokens)

    def bytes_of(self, saved: SavedTensor) -> int:
        """Bytes of one of them, of one layer."""
        return saved_bytes(saved, self.values, self.dtype)

    @cached_property
    def forward(self) -> Flops:
        """Of the forward pass with its loss."""
        return forward_flops(self.config, self.values)

    @cached_property
    def causal_forward(self) -> Flops:
        """The same with the visible scores alone."""
        return forward_flops(self.config, self._causal_values)

    @cached_property
    def recomputation(self) -> Flops:
        """Of each layer's forward pass once more."""
        return recomputation_flops(self.config, self.values)

    @cached_property
    def causal_recomputation(self) -> Flops:
        """The same with the visible scores alone."""
        return recomputation_flops(self.config, self._causal_values)

    @cached_property
    def terms(self) -> list[Term]:
        """Products of the forward pass by how they grow."""
        return terms(self.config, self.values)

    @cached_property
    def kinds(self) -> list[Term]:
        """All operations of the forward pass by their kind, the most first."""
        return kinds(self.config, self.values)

    @cached_property
    def conventions(self) -> dict[str, int]:
        """A training step by each way of counting."""
        return {
            known.name: step_flops(self.config, self.batch, self.n_tokens, known.name)
            for known in CONVENTIONS
        }

    @cached_property
    def recipes(self) -> list[Recipe]:
        """Ways of training in this dtype."""
        return recipes(self.dtype)

    @cached_property
    def all_recipes(self) -> list[Recipe]:
        """Those of float32 and bfloat16, and of this dtype if it is another."""
        dtypes = dict.fromkeys([self.dtype, "float32", "bfloat16"])
        return [recipe for dtype in dtypes for recipe in recipes(dtype)]

    @cached_property
    def activations(self) -> dict[str, int]:
        """Bytes kept for the backward pass, by kind of attention and with recomputation."""
        return {
            "fused": activation_bytes(self.config, self.values, self.dtype),
            "explicit": activation_bytes(self.config, self.values, self.dtype, "explicit"),
            "recomputed": activation_bytes(self.config, self.values, self.dtype, recomputed=True),
        }

    @cached_property
    def cache_per_token(self) -> int:
        """Bytes of one row's token in the cache."""
        return cache_bytes_per_token(self.config, self.dtype)

    @cached_property
    def cache_by_heads(self) -> dict[str, int]:
        """Bytes of a token with as many KV heads as query heads, as the config says, and with one."""
        config = self.config
        choices = {"MHA": config.n_heads, "GQA": config.kv_heads, "MQA": 1}
        if config.kv_heads in (1, config.n_heads):
            del choices["GQA"]
        return {
            f"{name}, K = {heads}": cache_bytes_per_token(config, self.dtype, heads)
            for name, heads in choices.items()
        }

    @cached_property
    def inference(self) -> list[Inference]:
        """Prefill of T tokens, and the T-th token decoded."""
        config = self.config
        return [
            prefill(config, self.batch, self.n_tokens, self.dtype),
            decode(config, self.batch, self.n_tokens, self.dtype),
        ]

    @cached_property
    def growth(self) -> list[Growth]:
        """What doubling does."""
        return growth(self.config, self.batch, self.n_tokens, self.dtype)

    def with_(self, **changes: Any) -> Sheet:
        """The sheet of the same decoder with some fields of its config changed."""
        return replace(self, config=self.config.with_(**changes))

    def shape_of(self, operation: Operation) -> tuple[int, ...]:
        """The shape of its output in numbers."""
        return tuple(_axis(axis, self.values) for axis in operation.shape)

    def _subtotal(self, name: str, specs: list[TensorSpec], *, in_all: bool) -> Subtotal:
        formula = Polynomial.sum(
            spec.formula * Polynomial.of("L" if in_all and _is_first(spec) else "") for spec in specs
        )
        return Subtotal(name, formula, formula.at(self.values))


def every_layer(name: str) -> str:
    """A name in the first layer as that of every layer: ``blocks.*`` for ``blocks.0``."""
    return name.replace("blocks.0", EVERY_LAYER, 1)


def _is_first(spec: TensorSpec) -> bool:
    return spec.name.startswith("blocks.0.")


def _axis(axis: str, values: Mapping[str, int]) -> int:
    """An axis in numbers: 1, a product of letters, or half of one."""
    letters, _, divisor = axis.partition("/")
    size = 1 if letters == "1" else math.prod(values[letter] for letter in letters)
    return size // int(divisor or 1)
