"""The decoding loop, over any decoder with a cache."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
    """An iterator over each step's token of every row, as it is decided; ends early when all rows have stopped.

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
    _check_prompt(token_ids, padding_mask, max_new_tokens)
    device = token_ids.device
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    stops = torch.tensor(list(stop_ids), dtype=torch.int64, device=device)
    choose_next = partial(choose, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
    if max_new_tokens == 0:
        return iter(())
    cache = model.new_cache(token_ids.shape[0], token_ids.shape[1] + max_new_tokens - 1)
    return _steps(model, token_ids, max_new_tokens, cache, choose_next, stops, padding_mask)


def _steps(
    model: CachedDecoder,
    token_ids: TokenIds,
    max_new_tokens: int,
    cache: Any,
    choose_next: Callable[[Tensor], Tensor],
    stops: Int[Tensor, " n"],
    padding_mask: Tensor | None,
) -> Iterator[Int[Tensor, " B"]]:
    with torch.no_grad():  # not around the loop: the caller's code runs between two steps
        logits = model.next_logits(token_ids, cache=cache, padding_mask=padding_mask)
    tokens = token_ids[:, -1]
    finished = torch.zeros_like(tokens, dtype=torch.bool)
    for step in range(max_new_tokens):
        tokens = torch.where(finished, tokens, choose_next(logits))
        yield tokens
        finished = finished | torch.isin(tokens, stops)
        if step + 1 == max_new_tokens or (len(stops) and finished.all()):
            return
        with torch.no_grad():
            logits = model.next_logits(tokens[:, None], cache=cache)


def _check_prompt(token_ids: Tensor, padding_mask: Tensor | None, max_new_tokens: int) -> None:
    if max_new_tokens < 0:
        raise InputError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    if token_ids.dim() != 2 or 0 in token_ids.shape:
        raise InputError(
            f"token_ids must have shape (batch, time), neither of them 0, got {tuple(token_ids.shape)}"
        )
    if padding_mask is None:
        return
    if padding_mask.shape != token_ids.shape:
        raise InputError(
            f"padding_mask must have the shape of token_ids, {tuple(token_ids.shape)}, got "
            f"{tuple(padding_mask.shape)}"
        )
    if not padding_mask[:, -1].all():
        raise InputError("prompts must be padded on the left: their continuation follows the last column")


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
