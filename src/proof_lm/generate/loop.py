"""The decoding loop, over any decoder with a cache."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from proof_lm.dims import Float, Int, Tensor, TokenIds
from proof_lm.errors import InputError
from proof_lm.generate.sampling import check_sampling, choose


@runtime_checkable
class CachedDecoder(Protocol):
    """What the loop needs of a model."""

    def new_cache(self, batch_size: int, capacity: int | None = None) -> Any:
        """An empty cache."""

    def next_logits(
        self, token_ids: Tensor, *, cache: Any, padding_mask: Tensor | None = None
    ) -> Float[Tensor, "B V"]:
        """Logits after the last of these tokens, which continue the cache and are in it afterwards."""


def stream(
    model: CachedDecoder,
    token_ids: TokenIds,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Sequence[int] = (),
    padding_mask: Tensor | None = None,
) -> Iterator[Int[Tensor, " B"]]:
    """Yields each step's token of every row, as it is decided; ends early when all rows have stopped.

    A row that has drawn one of ``stop_ids`` repeats it until the others are done, without any effect on them.

    Args:
        model: a decoder with a cache; its mode (train or eval) is left as it is, so call ``eval()`` first.
        token_ids: prompts, (B, T); rows of different length are padded on the left.
        max_new_tokens: how many tokens to add at most.
        temperature: 0 takes the most probable token; higher values flatten the distribution.
        top_k: draw among this many tokens only.
        top_p: draw among the smallest set with this share of the mass, after ``top_k``.
        seed: makes the draws repeatable; None draws from PyTorch's global generator.
        stop_ids: token ids that end a row.
        padding_mask: (B, T), True (or 1) for real tokens.

    Raises:
        InputError: a setting out of range, or padding on the right.
    """
    check_sampling(temperature, top_k, top_p)
    if max_new_tokens < 0:
        raise InputError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    if padding_mask is not None and not padding_mask[:, -1].all():
        raise InputError("prompts must be padded on the left: their continuation follows the last column")
    if max_new_tokens == 0:
        return
    device = token_ids.device
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    stops = torch.tensor(list(stop_ids), dtype=torch.int64, device=device)
    cache = model.new_cache(token_ids.shape[0], token_ids.shape[1] + max_new_tokens - 1)
    finished = torch.zeros(token_ids.shape[0], dtype=torch.bool, device=device)
    with torch.no_grad():  # not around the loop: the caller's code runs between two steps
        logits = model.next_logits(token_ids, cache=cache, padding_mask=padding_mask)
    tokens = token_ids[:, -1]
    for step in range(max_new_tokens):
        drawn = choose(logits, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        tokens = torch.where(finished, tokens, drawn)
        yield tokens
        finished = finished | torch.isin(tokens, stops)
        if step + 1 == max_new_tokens or (len(stops) and finished.all()):
            return
        with torch.no_grad():
            logits = model.next_logits(tokens[:, None], cache=cache)


def generate(
    model: CachedDecoder,
    token_ids: TokenIds,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Sequence[int] = (),
    padding_mask: Tensor | None = None,
) -> Int[Tensor, "B _"]:
    """The prompts followed by what :func:`stream` yields, (B, T + number of steps)."""
    steps = stream(
        model,
        token_ids,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop_ids=stop_ids,
        padding_mask=padding_mask,
    )
    return torch.cat([token_ids, *(tokens[:, None] for tokens in steps)], dim=1)
