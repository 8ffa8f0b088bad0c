"""One token replaced at a time, and what it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.verdict import Largest, Smallest

Call = Callable[[Int[Tensor, "P T"]], Float[Tensor, "P T V"]]


@dataclass(frozen=True)
class Interventions:
    """Row i has another token at ``places[i]``, and nothing else: two calls of equal shape, compared row by row.

    ``moved`` (P, T) is the largest change of each position's logits.
    """

    places: Sequence[int]
    same: Int[Tensor, "P T"]
    changed: Int[Tensor, "P T"]
    moved: Float[Tensor, "P T"]

    def leak(self) -> Largest:
        """The largest change before the token."""
        worst = Largest()
        for k, moved in zip(self.places, self.moved, strict=True):
            if k:
                position = int(moved[:k].argmax())
                worst.see(float(moved[position]), f"token {k} moves position {position}")
        return worst

    def beyond(self, reach: int) -> Largest:
        """The largest change more than ``reach`` positions after the token."""
        worst = Largest()
        for k, moved in zip(self.places, self.moved, strict=True):
            if k + reach + 1 < len(moved):
                position = k + reach + 1 + int(moved[k + reach + 1 :].argmax())
                worst.see(float(moved[position]), f"token {k} moves position {position}")
        return worst

    def least(self, needed: Tensor) -> Smallest:
        """The smallest change where there must be one: at ``needed`` (P, T) positions from the token on."""
        least = Smallest()
        for i, (k, moved) in enumerate(zip(self.places, self.moved, strict=True)):
            for position in (k + offset for offset, asked in enumerate(needed[i, k:].tolist()) if asked):
                least.see(float(moved[position]), f"token {k} and position {position}")
        return least


def intervene(
    call: Call, row: Int[Tensor, " T"], others: Int[Tensor, " T"], places: Sequence[int]
) -> Interventions:
    """Replaces the row's token at each place by the other one there."""
    same = row.expand(len(places), -1).contiguous()
    changed = same.clone()
    rows, columns = torch.arange(len(places)), torch.tensor(places)
    changed[rows, columns] = others[columns]
    moved = (call(changed) - call(same)).abs().amax(-1)
    return Interventions(places, same, changed, moved)
