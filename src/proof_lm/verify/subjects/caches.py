"""The cache of a foreign module, as the contracts use one."""

from __future__ import annotations

from typing import Any

import torch

from proof_lm.dims import Bool, Int, Tensor


class ForeignCache:
    """What the module returned last, and which of its tokens are real.

    ``truncate`` and ``reorder`` are there only where the module's own object can do that.
    """

    def __init__(self, name: str, state: Any, *, has_switch: bool, can_crop: bool) -> None:
        self.name = name
        self.state = state
        self.has_switch = has_switch
        self.real: Tensor | None = None
        self.has_padding = False
        if can_crop:
            self.truncate = self._truncate

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return 0 if self.real is None else self.real.shape[1]

    def extend(
        self, token_ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B S"] | None:
        """Which of all tokens are real, these included; None where all are."""
        new = torch.ones_like(token_ids, dtype=torch.bool) if padding_mask is None else padding_mask
        self.has_padding = self.has_padding or padding_mask is not None
        self.real = new if self.real is None else torch.cat([self.real, new], 1)
        return self.real if self.has_padding else None

    def arguments(self) -> dict[str, Any]:
        """What to call the module with."""
        given = {} if self.state is None else {self.name: self.state}
        return given | ({"use_cache": True} if self.has_switch else {})

    def keep(self, returned: Any) -> None:
        """Takes what the call gave back; a cache that is changed in place need not come back."""
        self.state = self.state if returned is None else returned

    def crop(self, length: int) -> None:
        """Forgets every token of the module's cache after the first ``length``."""
        for name in ("truncate", "crop"):
            if hasattr(self.state, name):
                getattr(self.state, name)(length)
                return
        raise AttributeError(f"a {type(self.state).__name__} cannot be cut back")

    def _truncate(self, length: int) -> None:
        if length == 0 and self.has_switch:
            self.state = None
        else:
            self.crop(length)
        self.real = None if self.real is None or length == 0 else self.real[:, :length]
