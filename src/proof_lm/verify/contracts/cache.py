"""Tokens in any chunks through a cache give the logits of all tokens at once."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement

LONGER = 35  # tokens that are decoded one by one
WIDEST = 64  # window that is decoded beyond
MOST_NAMED = 7  # chunks that are listed


def check_cache(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Every way to cut 7 tokens into chunks (every split in two, and chunks of 1, 2 and 3, where the probe is
    not exhaustive, and on further paths).

    Free slots of the cache hold NaN. One by one over a longer row: of 35 tokens (19 for a large subject), and of
    more than two windows, where the context has room. Then chunks of 1, 2 and 3 for rows padded on the left, at
    real tokens; for a cache that is cut back and refilled, which another prefix must change (reach). Last, the
    logits without a cache are taken again, and must have kept every bit.
    """
    ids = probe.tokens("cache", n_tokens=probe.n_short)
    left = probe.ragged_mask(*ids.shape, left=True) if probe.n_short > 1 else torch.ones_like(ids).bool()
    for path in subject.paths:
        # before the whole, for a model that changes with the longest row that it has seen
        first = _in_chunks(subject, path, ids, None, [1] * probe.n_short)
        whole = subject.logits(ids, path)
        worst = float((first - whole).abs().max())
        yield Measurement(path, "max |cached - whole|, one by one at first", worst, probe.logit_bound)
        if not probe.is_large or path == subject.paths[0]:
            row = probe.tokens("a longer row", n_tokens=_longest(subject, probe))
            yield _compare(
                subject,
                probe,
                path,
                row,
                None,
                subject.logits(row, path),
                [[1] * row.shape[1]],
                "a longer row",
            )
        every = probe.exhaustive and path == subject.paths[0]
        chunkings = _all_chunkings(probe.n_short) if every else _some_chunkings(probe.n_short)
        if probe.is_large and path != subject.paths[0]:
            chunkings = _equal_chunks(probe.n_short)
        yield _compare(subject, probe, path, ids, None, whole, chunkings, "in chunks")
        if subject.can("padding mask"):
            padded = subject.logits(ids, path, padding_mask=left)
            chunkings = _equal_chunks(probe.n_short)
            yield _compare(subject, probe, path, ids, left, padded, chunkings, "left padding")
        yield from _cut_back(subject, probe, path, ids, whole)
        again = float((subject.logits(ids, path) - whole).abs().max())
        yield Measurement(path, "max |logit after cached calls - before|", again, EXACT)


def _compare(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    mask: Tensor | None,
    whole: Float[Tensor, "B T V"],
    chunkings: Iterable[Sequence[int]],
    case: str,
) -> Measurement:
    worst = Largest()
    for sizes in chunkings:
        difference = (_in_chunks(subject, path, ids, mask, sizes) - whole).abs().amax(-1)
        if mask is not None:
            difference = difference.masked_fill(~mask, 0.0)
        row, position = divmod(int(difference.argmax()), ids.shape[1])
        chunks = f"chunks {tuple(sizes)}" if len(sizes) <= MOST_NAMED else "one by one"
        worst.see(float(difference[row, position]), f"{chunks}: row {row}, position {position}")
    return Measurement(path, f"max |cached - whole|, {case}", worst.value, probe.logit_bound, worst.where)


def _in_chunks(
    subject: Subject,
    path: str,
    ids: Int[Tensor, "B T"],
    mask: Tensor | None,
    sizes: Sequence[int],
) -> Float[Tensor, "B T V"]:
    cache = subject.new_cache(len(ids), ids.shape[1])
    outputs = []
    for chunk, real in zip(
        ids.split(list(sizes), 1),
        [None] * len(sizes) if mask is None else mask.split(list(sizes), 1),
        strict=True,
    ):
        outputs.append(subject.logits(chunk, path, padding_mask=real, cache=cache))
    return torch.cat(outputs, 1)


def _cut_back(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    whole: Float[Tensor, "B T V"],
) -> Iterator[Measurement]:
    """Fill with other tokens, cut back to a common prefix, refill; and refill after another prefix (reach)."""
    kept = ids.shape[1] // 2
    if kept == 0:
        return
    others = probe.other_tokens(ids, "cut back")
    cache = subject.new_cache(len(ids), ids.shape[1])
    if not hasattr(cache, "truncate"):
        return
    subject.logits(torch.cat([ids[:, :kept], others[:, kept:]], 1), path, cache=cache)
    cache.truncate(kept)
    refilled = subject.logits(ids[:, kept:], path, cache=cache)
    error = float((refilled - whole[:, kept:]).abs().max())
    where = f"cut to {kept} tokens"
    yield Measurement(path, "max |refilled after a cut - whole|", error, probe.logit_bound, where)
    if subject.window == 1:
        return
    cache.truncate(0)
    subject.logits(others[:, :kept], path, cache=cache)
    moved = (subject.logits(ids[:, kept:], path, cache=cache) - refilled).abs().amax((1, 2))
    yield Measurement(path, "min |change as the cached prefix changes|", float(moved.min()), None)


def _longest(subject: Subject, probe: Probe) -> int:
    """What fits of: beyond 32 positions (19 for a large subject), and beyond two windows."""
    wanted = probe.n_tokens if probe.is_large else LONGER
    if subject.window is not None and subject.window <= WIDEST:
        wanted = max(wanted, 2 * subject.window + 2)
    return min(wanted, subject.context_length)


def _all_chunkings(n_tokens: int) -> Iterator[tuple[int, ...]]:
    """Every composition of n_tokens: 2^(n_tokens - 1) of them."""
    for n_cuts in range(n_tokens):
        for cuts in combinations(range(1, n_tokens), n_cuts):
            edges = (0, *cuts, n_tokens)
            yield tuple(end - start for start, end in pairwise(edges))


def _some_chunkings(n_tokens: int) -> Iterator[tuple[int, ...]]:
    """Every split in two, and chunks of 1, 2 and 3."""
    for first in range(1, n_tokens):
        yield first, n_tokens - first
    yield from _equal_chunks(n_tokens)


def _equal_chunks(n_tokens: int) -> Iterator[tuple[int, ...]]:
    """Chunks of 1, of 2 and of 3 tokens; the last may be smaller."""
    for size in range(1, min(3, n_tokens) + 1):
        full, rest = divmod(n_tokens, size)
        yield (size,) * full + ((rest,) if rest else ())


CACHE = Contract(
    "cache",
    "Logits with a cache equal those without, for every split and chunking, and the cache leaves no trace.",
    frozenset({"cache"}),
    check_cache,
    level="quick",
)
