"""The key/value cache: a value that the caller owns; the model keeps no state between calls."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Float, Int, Tensor
from proof_lm.errors import CacheError


@dataclass(frozen=True)
class CacheLayer:
    """One layer's preallocated slots, open at ``start`` for the tokens of this call."""

    keys: Float[Tensor, "B K C H"]
    values: Float[Tensor, "B K C H"]
    start: int

    def extend(
        self, keys: Float[Tensor, "B K T H"], values: Float[Tensor, "B K T H"]
    ) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        """Writes this call's keys and values; returns all up to them. Free slots are never read."""
        end = self.start + keys.shape[2]
        self.keys[:, :, self.start : end] = keys
        self.values[:, :, self.start : end] = values
        return self.keys[:, :, :end], self.values[:, :, :end]


class KVCache:
    """Keys and values of the tokens seen so far, in memory allocated once for ``capacity`` tokens a row.

    Pass it to ``ProofLM.forward``: the call's tokens continue those in the cache, and are in it afterwards.
    ``length`` moves only when the whole forward has succeeded, so a call that raises leaves the cache as it
    was. Keys are stored rotated. Beside them stand each slot's position and whether it is a real token.
    """

    def __init__(
        self,
        config: DecoderConfig,
        batch_size: int,
        capacity: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        capacity = config.context_length if capacity is None else capacity
        if batch_size < 1 or capacity < 1:
            raise CacheError(
                f"a cache needs batch_size and capacity of at least 1, got {batch_size} and {capacity}"
            )
        shape = (config.n_layers, batch_size, config.kv_heads, capacity, config.head_width)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.positions = torch.zeros(batch_size, capacity, dtype=torch.int64, device=device)
        self.visible = torch.ones(batch_size, capacity, dtype=torch.bool, device=device)
        self.has_padding = False
        self.length = 0

    @property
    def batch_size(self) -> int:
        """Rows."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """The most tokens a row can hold."""
        return self.keys.shape[3]

    @property
    def n_bytes(self) -> int:
        """Bytes allocated for keys and values: 2 * L * B * K * capacity * H * bytes an element."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def layer(self, index: int) -> CacheLayer:
        """The slots of one layer, open at the current length."""
        return CacheLayer(self.keys[index], self.values[index], self.length)

    def next_positions(self) -> Int[Tensor, " B"]:
        """The position id after each row's last real token; 0 for a row that has none."""
        after = (self.positions + 1).masked_fill(~self.visible, 0)[:, : self.length]
        return after.amax(1) if self.length else after.sum(1)

    def stage(
        self, positions: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B S"] | None:
        """Notes the new tokens' positions and padding; returns which keys are real, None when all are."""
        end = self.length + positions.shape[1]
        self.positions[:, self.length : end] = positions
        self.visible[:, self.length : end] = True if mask is None else mask
        self.has_padding = self.has_padding or mask is not None
        return self.visible[:, :end] if self.has_padding else None

    def advance(self, n_tokens: int) -> None:
        """Makes the tokens of a finished forward part of the cache."""
        self.length += n_tokens

    def truncate(self, length: int) -> None:
        """Forgets every token after the first ``length``.

        Raises:
            CacheError: the cache does not hold that many.
        """
        if not 0 <= length <= self.length:
            raise CacheError(f"length must be between 0 and the {self.length} tokens held, got {length}")
        self.length = length
        if length == 0:
            self.has_padding = False

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Row b becomes what row ``rows[b]`` was, as beam search needs."""
        if rows.shape != (self.batch_size,):
            raise CacheError(f"rows must have shape ({self.batch_size},), got {tuple(rows.shape)}")
        if rows.min() < 0 or rows.max() >= self.batch_size:
            raise CacheError(f"rows must lie in [0, {self.batch_size}), got {rows.tolist()}")
        self.keys = self.keys.index_select(1, rows)
        self.values = self.values.index_select(1, rows)
        self.positions = self.positions.index_select(0, rows)
        self.visible = self.visible.index_select(0, rows)

    def check(self, config: DecoderConfig, dtype: torch.dtype, batch_size: int, n_tokens: int) -> None:
        """Whether ``n_tokens`` more of ``batch_size`` rows fit, of a model with this config and dtype.

        Raises:
            CacheError: another model's cache, another dtype or batch size, too few free slots, or gradients
                wanted.
        """
        n_layers, rows, n_kv_heads, capacity, head_dim = self.keys.shape
        found, wanted = (
            (n_layers, n_kv_heads, head_dim),
            (config.n_layers, config.kv_heads, config.head_width),
        )
        if found != wanted:
            raise CacheError(
                f"the cache was made for (n_layers, n_kv_heads, head_dim) = {found}, the model has {wanted}"
            )
        if self.keys.dtype != dtype:
            raise CacheError(f"the cache holds {self.keys.dtype}, the model computes in {dtype}")
        if rows != batch_size:
            raise CacheError(f"the cache holds {rows} rows, token_ids has {batch_size}")
        if self.length + n_tokens > capacity:
            raise CacheError(
                f"the cache has room for {capacity} tokens and holds {self.length}: {n_tokens} more do not fit; "
                "make a larger one"
            )
        if torch.is_grad_enabled():
            raise CacheError("a cache is for inference: call the model under torch.no_grad()")
