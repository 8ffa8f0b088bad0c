"""A one-layer decoder with a cache, written with torch.nn, to be varied by subclasses: right ones and wrong ones."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

VOCABULARY, CONTEXT, WIDTH, HEADS = 40, 40, 12, 3
Cache = tuple[Tensor, Tensor, Tensor]  # keys, values, and which of them are real


class Decoder(nn.Module):
    """Learned positions, attention, a feed-forward layer, a head of its own."""

    def __init__(self, padding_id: int | None = None) -> None:
        super().__init__()
        self.config = SimpleNamespace(n_head=HEADS, block_size=CONTEXT, attn_pdrop=0.1)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, padding_idx=padding_id)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
    ) -> Any:
        n_held = 0 if past_key_values is None else past_key_values[0].shape[2]
        real = self.real(input_ids, attention_mask, n_held)
        if position_ids is None:
            counted = (real.long().cumsum(1) - 1).clamp(min=0)
            position_ids = self.late(counted[:, n_held:], n_held)
        x = self.tokens(input_ids) + self.places(position_ids)
        x = x + self.merge(self.noisy(self.attend(self.norm(x), real, past_key_values)))
        x = x + self.feed(x)
        logits = self.head(x)
        return self.answer(logits, None if labels is None else self.loss(logits, labels))

    def attend(self, x: Tensor, real: Tensor, past: Cache | None) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        self.held = (k, v, real)
        n, m = q.shape[2], k.shape[2]
        visible = torch.ones(n, m, dtype=torch.bool).tril(m - n) & real[:, None, None]
        visible = visible | ~visible.any(-1, keepdim=True)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf)
        return (scores.softmax(-1) @ self.kept(v)).transpose(1, 2).flatten(2)

    def real(self, ids: Tensor, mask: Tensor | None, n_held: int) -> Tensor:
        return torch.ones(len(ids), n_held + ids.shape[1], dtype=torch.bool) if mask is None else mask.bool()

    def late(self, positions: Tensor, n_held: int) -> Tensor:
        return positions

    def kept(self, values: Tensor) -> Tensor:
        return values

    def noisy(self, x: Tensor) -> Tensor:
        return x

    def feed(self, x: Tensor) -> Tensor:
        return self.down(nnf.gelu(self.up(x)))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return nnf.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    def answer(self, logits: Tensor, loss: Tensor | None) -> Any:
        return SimpleNamespace(logits=logits, loss=loss, past_key_values=self.held)


def drawn(decoder: Decoder) -> Decoder:
    """With weights that are large enough to tell everything apart."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_(0.0, 0.4)
    return decoder
