"""What grows how: each quantity when the length, the batch or the width doubles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proof_lm.config import DecoderConfig
from proof_lm.sheet.dimensions import dimensions
from proof_lm.sheet.flops import terms
from proof_lm.sheet.memory import activation_bytes, cache_bytes_per_token
from proof_lm.sheet.parameters import parameter_count

Quantity = Callable[[DecoderConfig, int, int], int]


@dataclass(frozen=True)
class Growth:
    """By what a quantity is multiplied.

    Attributes:
        name: of the quantity.
        value: for the sheet's sizes.
        tokens: when T doubles.
        batch: when B doubles.
        width: when D, F, N and K double, the width of a head staying as it is.
    """

    name: str
    value: int
    tokens: float
    batch: float
    width: float


def growth(config: DecoderConfig, batch: int, n_tokens: int, dtype: str) -> list[Growth]:
    """Of the terms of a forward pass, and of memory."""
    wider = config.with_(
        d_model=2 * config.d_model,
        d_ff=2 * config.d_ff,
        n_heads=2 * config.n_heads,
        n_kv_heads=2 * config.kv_heads,
        head_dim=config.head_width,
    )
    found = []
    for name, quantity in _quantities(config, dtype).items():
        value = quantity(config, batch, n_tokens)
        doubled = (
            quantity(config, batch, 2 * n_tokens),
            quantity(config, 2 * batch, n_tokens),
            quantity(wider, batch, n_tokens),
        )
        found.append(Growth(name, value, *(new / value for new in doubled)))
    return found


def _quantities(config: DecoderConfig, dtype: str) -> dict[str, Quantity]:
    def term(index: int) -> Quantity:
        return lambda c, batch, n_tokens: terms(c, dimensions(c, batch, n_tokens))[index].value

    def activations(c: DecoderConfig, batch: int, n_tokens: int) -> int:
        return activation_bytes(c, dimensions(c, batch, n_tokens), dtype)

    def explicit(c: DecoderConfig, batch: int, n_tokens: int) -> int:
        return activation_bytes(c, dimensions(c, batch, n_tokens), dtype, "explicit")

    names = [found.name for found in terms(config, dimensions(config, 1, 1))]
    return {
        **{f"FLOPs, {name}": term(index) for index, name in enumerate(names)},
        "parameters": lambda c, batch, n_tokens: parameter_count(c),
        "activation bytes, fused attention": activations,
        "activation bytes, explicit attention": explicit,
        "cache bytes": lambda c, batch, n_tokens: cache_bytes_per_token(c, dtype) * batch * n_tokens,
    }
