"""What a foreign module returns, and the names that its arguments go by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from proof_lm.dims import Tensor
from proof_lm.errors import TargetError
from proof_lm.verify.maps.foreign import CONFIGS

PADDING = ("attention_mask", "padding_mask", "key_padding_mask", "pad_mask")
MASK = ("mask", "attn_mask")  # may as well be a mask of attention: believed only if it hides padding
POSITIONS = ("position_ids", "positions", "token_positions", "pos_ids")
LABELS = ("labels", "targets", "target", "target_ids")
LOSS_MASK = ("loss_mask",)
CACHE = ("cache", "past_key_values", "kv_cache")
SIZES: dict[str, tuple[str, ...]] = {
    "vocab_size": ("padded_vocab_size", "vocab_size", "n_vocab"),
    "context_length": (
        "max_position_embeddings",
        "n_positions",
        "block_size",
        "context_length",
        "max_seq_len",
        "sequence_len",
        "n_ctx",
        "seq_len",
    ),
    "n_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "window": ("sliding_window",),
}


@dataclass(frozen=True)
class Returned:
    """What one call gave: logits, and a loss and a cache where there are any."""

    logits: Tensor
    loss: Tensor | None
    cache: Any


def read(output: Any) -> Returned:
    """The logits, loss and cache of whatever a decoder returns.

    Raises:
        TargetError: there are no logits in it.
    """
    if isinstance(output, Tensor):
        return Returned(_logits(output), None, None)
    if isinstance(output, Mapping) and "logits" in output:
        return Returned(_logits(output["logits"]), output.get("loss"), _first(output.get, CACHE))
    if hasattr(output, "logits"):
        cache = _first(lambda name: getattr(output, name, None), CACHE)
        return Returned(_logits(output.logits), getattr(output, "loss", None), cache)
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        first, *rest = output
        if first.dim() == 0 and rest and isinstance(rest[0], Tensor):  # (loss, logits)
            return Returned(_logits(rest[0]), first, None)
        losses = [value for value in rest if isinstance(value, Tensor) and value.dim() == 0]
        others = [value for value in rest if value is not None and not any(value is loss for loss in losses)]
        return Returned(_logits(first), losses[0] if losses else None, others[0] if others else None)
    keys = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    raise TargetError(
        f"the model returned a {type(output).__name__}{keys}: logits must come as a tensor, first in a tuple, or "
        "under .logits; otherwise write a proof_lm.verify.Adapter"
    )


def _first(get: Callable[[str], Any], names: tuple[str, ...]) -> Any:
    return next((value for value in map(get, names) if value is not None), None)


def _logits(value: Any) -> Tensor:
    if isinstance(value, Tensor) and value.dim() == 3 and value.is_floating_point():
        return value
    found = (
        f"shape {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    )
    raise TargetError(
        f"the model's logits must be floating-point numbers of shape (batch, time, vocabulary), got {found}; "
        "otherwise write a proof_lm.verify.Adapter"
    )


def takes_ids_by_name(module: nn.Module) -> bool:
    """Whether the first argument of ``forward`` can be given by its name alone."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY


def parameters_of(module: nn.Module) -> tuple[list[str], bool]:
    """Names of the arguments of ``forward``, the tokens first, and whether it takes any keyword."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return [], True
    named = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return named, any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())


def declared(module: nn.Module, what: str) -> tuple[int, str] | None:
    """A size that the module's config, or the module itself, declares, and where; None where neither does."""
    holders: dict[str, Any] = {}
    for name in CONFIGS:
        config = getattr(module, name, None)
        if config is not None:
            holders[name] = config
    holders["module"] = module
    for where, holder in holders.items():
        for name in SIZES[what]:
            try:
                value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
            except Exception:  # noqa: BLE001 - an attribute that raises declares nothing
                continue
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value, f"{where}.{name}"
    return None


def encode_mask(real: Tensor, form: str) -> Tensor:
    """A padding mask (True for real tokens) in a module's convention."""
    if form == ONES:
        return real.long()
    if form == ADDITIVE:
        return torch.zeros(real.shape, dtype=torch.float64).masked_fill(~real, -torch.inf)
    return ~real if form == PADS else real


ONES, BOOLEAN, PADS, ADDITIVE = (
    "integers, 1 = real token",
    "boolean, True = real token",
    "boolean, True = padding",
    "added to scores, 0 = real token, -inf = padding",
)
FORMS = (ONES, BOOLEAN, PADS, ADDITIVE)
