"""From logits to a distribution, and from a distribution to a token."""

import math

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.errors import InputError


def keep_top_k(logits: Float[Tensor, "B V"], k: int) -> Float[Tensor, "B V"]:
    """-inf for all but the k largest logits of each row; among equal ones the lower ids stay.

    ``k`` larger than V keeps everything. Source: Fan et al. 2018.
    """
    k = min(k, logits.shape[-1])
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[:, k:], -math.inf)


def keep_top_p(logits: Float[Tensor, "B V"], p: float) -> Float[Tensor, "B V"]:
    """-inf outside the nucleus: the smallest set of most probable tokens whose mass is at least p.

    The token that crosses p is in the set, so the set is never empty. Source: Holtzman et al. 2020.
    """
    order = logits.argsort(dim=-1, descending=True, stable=True)
    mass = logits.gather(-1, order).softmax(-1)
    before = mass.cumsum(-1) - mass
    dropped = torch.empty_like(before, dtype=torch.bool).scatter_(-1, order, before >= p)
    return logits.masked_fill(dropped, -math.inf)


def next_token_distribution(
    logits: Float[Tensor, "B V"], *, temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "B V"]:
    """softmax(logits / temperature) over what top-k, then top-p of the renormalized rest, leave; in float32 at least.

    Args:
        logits: (B, V).
        temperature: greater than 0.
        top_k: keep this many tokens.
        top_p: of those, keep the smallest set with at least this share of the mass.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    wide = (
        wide - wide.amax(-1, keepdim=True)
    ) / temperature  # the largest first: a tiny temperature overflows
    if top_k is not None:
        wide = keep_top_k(wide, top_k)
    if top_p is not None:
        wide = keep_top_p(wide, top_p)
    return wide.softmax(-1)


def choose(
    logits: Float[Tensor, "B V"],
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> Int[Tensor, " B"]:
    """The most probable token when the temperature is 0 (the lowest id among equals), else one drawn."""
    if temperature == 0.0:
        return logits.argmax(-1)
    distribution = next_token_distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    return torch.multinomial(distribution, 1, generator=generator)[:, 0]


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raises InputError, naming the value, for a setting that defines no distribution."""
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature must be a finite number, 0 (greedy) or more, got {temperature}")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p must be greater than 0 and at most 1, got {top_p}")
