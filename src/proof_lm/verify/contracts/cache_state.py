"""The cache is a value: it holds its own tokens, all of them, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, SubjectError
from proof_lm.verify.verdict import EXACT, Largest, Measurement


def check_cache_state(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """What happens to a cache between two of its steps must not show in the logits that follow.

    Two caches filled in turn, token by token, so that nothing of one is kept by the model for the other; a call
    that raises, for an id beyond the vocabulary, in the middle; rows put in another order, which must change
    them (reach); a cache used again after it was emptied, whose first tokens had been padding; and one token
    more than its capacity, which must be refused, or be computed rightly.
    """
    n_tokens = probe.n_short
    if n_tokens < 3:
        raise Inapplicable("context_length leaves no room for three tokens")
    ids = probe.tokens("cache state", n_tokens=n_tokens)
    others = probe.other_tokens(ids, "another cache")
    for path in subject.paths:
        whole = subject.logits(ids, path)
        yield _interleaved(subject, probe, path, ids, others, whole)
        yield _after_failure(subject, probe, path, ids, whole)
        yield from _reordered(subject, probe, path, ids, whole)
        yield from _used_again(subject, probe, path, ids, whole)
        yield _overflow(subject, probe, path, ids, whole)


def _interleaved(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    others: Int[Tensor, "B T"],
    whole: Float[Tensor, "B T V"],
) -> Measurement:
    caches = [subject.new_cache(*ids.shape) for _ in range(2)]
    worst = Largest()
    steps = [1] * ids.shape[1] if not probe.is_large else [ids.shape[1] - 2, 1, 1]
    at = 0
    for size in steps:
        logits, _ = (
            subject.logits(tokens[:, at : at + size], path, cache=cache)
            for tokens, cache in zip((ids, others), caches, strict=True)
        )
        worst.see(float((logits - whole[:, at : at + size]).abs().max()), f"step from position {at}")
        at += size
    return _residual(path, "max |cached - whole|, two caches in turn", worst, probe)


def _after_failure(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], whole: Float[Tensor, "B T V"]
) -> Measurement:
    cache = subject.new_cache(*ids.shape)
    subject.logits(ids[:, :-1], path, cache=cache)
    try:
        subject.logits(torch.full_like(ids[:, -1:], subject.vocab_size), path, cache=cache)
        refused = "after an id beyond the vocabulary, which was taken"
        cache = _filled(subject, ids[:, :-1], path, ids.shape[1])
    except SubjectError:
        refused = "after a refused id"
    worst = Largest()
    last = subject.logits(ids[:, -1:], path, cache=cache)
    worst.see(float((last - whole[:, -1:]).abs().max()), refused)
    return _residual(path, "max |cached - whole|, after a call that raises", worst, probe)


def _reordered(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], whole: Float[Tensor, "B T V"]
) -> Iterator[Measurement]:
    cache = _filled(subject, ids[:, :-1], path, ids.shape[1])
    if not hasattr(cache, "reorder") or len(ids) < 2:
        return
    order = torch.arange(len(ids)).roll(1)
    cache.reorder(order)
    last = subject.logits(ids[order, -1:], path, cache=cache)
    worst = Largest()
    worst.see(float((last - whole[order, -1:]).abs().max()), f"rows {order.tolist()}")
    yield _residual(path, "max |cached - whole|, rows reordered", worst, probe)
    if subject.window == 1:
        return
    unordered = _filled(subject, ids[:, :-1], path, ids.shape[1])
    moved = (subject.logits(ids[order, -1:], path, cache=unordered) - last).abs().amax((1, 2)).min()
    yield Measurement(path, "min |change as rows are reordered|", float(moved), None)


def _used_again(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], whole: Float[Tensor, "B T V"]
) -> Iterator[Measurement]:
    cache = subject.new_cache(*ids.shape)
    if not hasattr(cache, "truncate"):
        return
    real = probe.ragged_mask(*ids.shape, left=True) if subject.can("padding mask") else None
    subject.logits(ids, path, padding_mask=real, cache=cache)
    worst = Largest()
    for kept in (0, 1):
        cache.truncate(0)
        if kept:
            subject.logits(ids[:, :kept], path, cache=cache)
        rest = subject.logits(ids[:, kept:], path, cache=cache)
        worst.see(float((rest - whole[:, kept:]).abs().max()), f"emptied, and begun with {kept} tokens")
    yield _residual(path, "max |cached - whole|, used again", worst, probe)


def _overflow(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], whole: Float[Tensor, "B T V"]
) -> Measurement:
    quantity = "max |cached - whole|, one token above the capacity"
    cache = _filled(subject, ids[:, :-1], path, ids.shape[1] - 1)
    try:
        last = subject.logits(ids[:, -1:], path, cache=cache)
    except SubjectError:
        return Measurement(path, quantity, 0.0, EXACT, "refused")
    worst = Largest()
    worst.see(float((last - whole[:, -1:]).abs().max()), "taken")
    return _residual(path, quantity, worst, probe)


def _filled(subject: Subject, ids: Int[Tensor, "B T"], path: str, capacity: int) -> Any:
    cache = subject.new_cache(len(ids), capacity)
    subject.logits(ids, path, cache=cache)
    return cache


def _residual(path: str, quantity: str, worst: Largest, probe: Probe) -> Measurement:
    return Measurement(path, quantity, worst.value, probe.logit_bound, worst.where)


CACHE_STATE = Contract(
    "cache-state",
    "A cache holds its own tokens, whatever happens between two steps: other caches, errors, reordering, reuse.",
    frozenset({"cache"}),
    check_cache_state,
)
