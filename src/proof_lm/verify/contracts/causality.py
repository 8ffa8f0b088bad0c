"""No token moves an earlier logit, and every token moves every later one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from proof_lm import oracle
from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.interventions import intervene
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest

DROPOUT = 0.25
ON_EVERY_PATH = ("no mask", "a mask of ones")  # of a large subject; the other ways go on its first path


@dataclass(frozen=True)
class Way:
    """One way to call a subject: mode, mask, and how much of the row a cache holds first (None: no cache)."""

    name: str
    mode: str = "eval"
    mask: str = "none"
    held: int | None = None
    reaches: bool = True

    def logits(self, subject: Subject, ids: Int[Tensor, "B T"], path: str) -> Float[Tensor, "B T V"]:
        """The logits of all tokens; zeros at padding, where they mean nothing."""
        mask = self.mask_of(ids)
        with self._in_mode(subject):
            if self.held is None:
                logits = subject.logits(ids, path, padding_mask=mask)
                return logits if mask is None else logits.masked_fill(~mask[..., None], 0.0)
            cache = subject.new_cache(*ids.shape)
            chunks = [chunk for chunk in (ids[:, : self.held], ids[:, self.held :]) if chunk.numel()]
            return torch.cat([subject.logits(chunk, path, cache=cache) for chunk in chunks], 1)

    def mask_of(self, ids: Int[Tensor, "B T"]) -> Tensor | None:
        """The padding mask for these rows."""
        if self.mask == "none":
            return None
        pads = torch.arange(len(ids)) % 3 if self.mask == "left padding" else torch.zeros(len(ids))
        return torch.arange(ids.shape[1])[None] >= pads.clamp(max=ids.shape[1] - 1)[:, None]

    def _in_mode(self, subject: Subject) -> AbstractContextManager[None]:
        if self.mode == "eval":
            return nullcontext()
        if self.mode == "eval, dropout declared":
            return subject.with_dropout(DROPOUT)
        return subject.training(DROPOUT if self.mode == "train, dropout" else 0.0)


def check_causality(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """An intervention at every position: replace token k and compare all logits.

    At positions before k every bit must be equal. At k and every position after it something must change
    (reach), unless the oracle's logits do not change there either, as with attention so sharp that a weight
    rounds to zero (for a subject without a map: unless something changes with its matrices at a quarter), or
    the declared window ends before.

    All rows of a batch change at one position in turn; then every row of a batch changes at a position of its
    own, in every way to call the subject: with no mask, a mask of ones, rows padded on the left; in train mode
    without dropout, and with it (the same random numbers twice; no reach, since dropout may cut it off); in
    eval mode with dropout declared; through an empty cache, and through one that holds the beginning.
    """
    ids = probe.tokens("causality")
    others = probe.other_tokens(ids, "interventions")
    for path in subject.paths:
        if not probe.is_large:
            yield from _all_rows(subject, probe, path, ids, others)
        for way in _ways(subject, probe):
            if probe.is_large and path != subject.paths[0] and way.name not in ON_EVERY_PATH:
                continue
            size = probe.n_tokens if way.name == "no mask" or not probe.is_large else probe.n_short
            yield from _row_by_row(subject, probe, path, way, ids[0, :size], others[0, :size])


def _ways(subject: Subject, probe: Probe) -> Iterator[Way]:
    yield Way("no mask")
    if subject.can("padding mask"):
        yield Way("a mask of ones", mask="ones")
        if probe.n_tokens > 1:
            yield Way("left padding", mask="left padding", reaches=False)
    yield Way("train mode", "train")
    if subject.can("dropout"):
        yield Way("train mode with dropout", "train, dropout", reaches=False)
        yield Way("dropout declared", "eval, dropout declared")
    if subject.can("cache"):
        yield Way("an empty cache", held=0)
        yield Way("a cache that holds two tokens", held=2)


def _all_rows(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], others: Int[Tensor, "B T"]
) -> Iterator[Measurement]:
    before = subject.logits(ids, path)
    leak, reach = Largest(), Smallest()
    for k in range(ids.shape[1]):
        changed = ids.clone()
        changed[:, k] = others[:, k]
        moved = (subject.logits(changed, path) - before).abs().amax(-1)
        if k:
            row, position = divmod(int(moved[:, :k].argmax()), k)
            leak.see(float(moved[row, position]), f"row {row}: token {k} moves position {position}")
        onward = moved[:, k : k + _reach(subject, ids.shape[1])]
        if (onward == 0.0).any():
            needed = _must_move(subject, probe, path, ids, changed, None)
            onward = onward.masked_fill((onward == 0.0) & ~needed[:, k : k + onward.shape[1]], torch.inf)
        row, offset = divmod(int(onward.argmin()), onward.shape[1])
        reach.see(float(onward[row, offset]), f"row {row}: token {k} and position {k + offset}")
    case = f"{len(ids)} row{'s' * (len(ids) > 1)}"
    yield Measurement(path, f"max |change before the token|, {case}", leak.value, EXACT, leak.where)
    yield Measurement(path, f"min |change from the token on|, {case}", reach.value, None, reach.where)


def _row_by_row(
    subject: Subject, probe: Probe, path: str, way: Way, row: Int[Tensor, " T"], others: Int[Tensor, " T"]
) -> Iterator[Measurement]:
    n_tokens = len(row)
    places = sorted({0, 1, n_tokens // 2, n_tokens - 1} if probe.is_large else range(n_tokens))
    places = [k for k in places if k < n_tokens]
    found = intervene(lambda ids: way.logits(subject, ids, path), row, others, places)
    leak = found.leak()
    yield Measurement(path, f"max |change before the token|, {way.name}", leak.value, EXACT, leak.where)
    if not way.reaches:
        return
    distance = torch.arange(n_tokens) - torch.tensor(places)[:, None]
    needed = (distance >= 0) & (distance < _reach(subject, n_tokens))
    if (found.moved[needed] == 0.0).any():
        mask = way.mask_of(found.same)
        moves = _must_move(subject, probe, path, found.same, found.changed, mask)
        needed &= (found.moved != 0.0) | moves
    reach = found.least(needed)
    yield Measurement(path, f"min |change from the token on|, {way.name}", reach.value, None, reach.where)


def _reach(subject: Subject, n_tokens: int) -> int:
    """Positions that a token may move, itself included: with windows, W - 1 more a layer."""
    if subject.window is None or subject.declared is None:
        return n_tokens
    return subject.declared.n_layers * (subject.window - 1) + 1


def _must_move(
    subject: Subject, probe: Probe, path: str, ids: Tensor, changed: Tensor, mask: Tensor | None
) -> Tensor:
    """Where logits that did not differ should have: where the oracle's do by more than rounding; without a map,
    where they do not even when attention is softer, and the window reaches."""
    if not subject.can("weights"):
        with subject.scaled(0.25):
            before, after = (subject.logits(tokens, path, padding_mask=mask) for tokens in (ids, changed))
        distance = torch.arange(ids.shape[1]) - (ids != changed).int().argmax(1)[:, None]
        in_reach = distance < (subject.window or ids.shape[1])
        return (after == before).all(-1) & in_reach
    weights = subject.weights()
    old, new = (
        oracle.decoder_forward(subject.config, weights, tokens.numpy()).logits for tokens in (ids, changed)
    )
    return torch.from_numpy(abs(new - old).max(-1) > probe.logit_bound.rounding)


CAUSALITY = Contract(
    "causality",
    "A token moves no earlier logit, and moves its own and every later one.",
    frozenset({"logits"}),
    check_causality,
    level="quick",
)
