"""A decoder that always answers with the same logits: sampling without a model."""

from torch import Tensor


class FixedLogits:
    """Puts out the given rows of logits at every step, and notes what it was asked."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.capacities: list[int | None] = []
        self.asked: list[Tensor] = []

    def new_cache(self, batch_size: int, capacity: int | None = None) -> None:
        self.capacities.append(capacity)

    def next_logits(self, token_ids: Tensor, *, cache: None, padding_mask: Tensor | None = None) -> Tensor:
        self.asked.append(token_ids)
        return self.logits
