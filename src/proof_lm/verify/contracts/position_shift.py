"""Rotary positions, seen from outside: distances decide, as far as positions go."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from proof_lm.dims import Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, SubjectError
from proof_lm.verify.verdict import Bound, Measurement

NEAR, FAR = 5, 3000  # above 256 and 2048, where bfloat16 and float16 stop counting


def check_position_shift(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """All positions of a row moved on by 5; by 3000; across the end of the context; each row by its own amount.

    The logits must stay the same, or the positions be refused by an error: a table that ends, wraps or is
    continued by another formula changes them. Rows with distances of their own are as each alone. Positions
    stretched to twice their distances must change them (reach).

    Where no config says how positions enter, a row of one token tells: if it has the same logits at every position,
    they enter through attention alone, so by distances; then positions within the context are moved on.
    """
    _require_rotary(subject, probe)
    ids = probe.tokens("position shift", n_tokens=probe.n_short)
    places = torch.arange(probe.n_short).expand_as(ids)
    rows = torch.arange(len(ids))[:, None]
    across = max(0, subject.context_length - (probe.n_short + 1) // 2)
    shifts: dict[str, int | Tensor] = {
        f"{NEAR}": NEAR,
        f"{FAR}": FAR,
        "to the end of the context": across,
        "3 a row": 3 * rows,
    }
    if subject.declared is None:
        del shifts[f"{FAR}"]
    for path in subject.paths:
        at_zero = subject.logits(ids, path, position_ids=places)
        for name, shift in shifts.items():
            try:
                shifted = subject.logits(ids, path, position_ids=places + shift)
            except SubjectError:
                if probe.n_short + int(torch.as_tensor(shift).max()) <= subject.context_length:
                    raise
                continue
            error = (shifted - at_zero).abs().amax((0, 2))
            farthest = int(torch.as_tensor(shift).max()) + probe.n_short
            where = f"position {int(error.argmax())}"
            bound = _with_angles(probe.logit_bound, farthest)
            yield Measurement(
                path, f"max |logit after a shift - before|, {name}", float(error.max()), bound, where
            )
        if probe.n_short > 1:
            yield _rows_apart(subject, probe, path, ids, places)
            if subject.window == 1:
                continue
            stretched = subject.logits(ids, path, position_ids=2 * places)
            reach = float((stretched - at_zero).abs().max())
            yield Measurement(path, "max |change as positions are stretched|", reach, None)


def _rows_apart(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], places: Int[Tensor, "B T"]
) -> Measurement:
    """Distances of 1 in the first row, of 2 in the second, and so on; each row as it is alone."""
    own = places * (1 + torch.arange(len(ids)))[:, None]
    together = subject.logits(ids, path, position_ids=own)
    alone = [subject.logits(row[None], path, position_ids=at[None]) for row, at in zip(ids, own, strict=True)]
    error = (torch.cat(alone) - together).abs().amax((1, 2))
    bound = _with_angles(probe.logit_bound, int(own.max()))
    quantity = "max |alone - in the batch|, rows with positions of their own"
    return Measurement(path, quantity, float(error.max()), bound, f"row {int(error.argmax())}")


def _require_rotary(subject: Subject, probe: Probe) -> None:
    """Whether positions are known to enter by their distances.

    Raises:
        Inapplicable: they are not.
    """
    if subject.declared is not None:
        if subject.declared.position != "rope":
            raise Inapplicable(f"position is {subject.declared.position!r}: nothing is rotated")
        return
    if probe.n_short < 3:
        raise Inapplicable("too short to see how positions enter")
    ids, path = probe.tokens("how positions enter", 1, probe.n_short), subject.paths[0]
    places = torch.arange(probe.n_short)[None]
    one = subject.logits(ids[:, :1], path, position_ids=places[:, :1])
    moved = subject.logits(ids[:, :1], path, position_ids=places[:, :1] + probe.n_short - 1)
    if (moved - one).abs().max() > probe.logit_bound.rounding:
        raise Inapplicable("positions change the logits of a single token: they enter beside attention")
    row = subject.logits(ids, path, position_ids=places)
    if torch.equal(subject.logits(ids, path, position_ids=places.flip(1).contiguous()), row):
        raise Inapplicable("position ids change nothing")


def accepted_positions(subject: Subject, ids: Int[Tensor, "B T"], path: str, wanted: Tensor) -> Tensor | None:
    """Logits at these positions; None where they are refused."""
    try:
        return subject.logits(ids, path, position_ids=wanted)
    except SubjectError:
        return None


def _with_angles(bound: Bound, farthest: int) -> Bound:
    """An angle of position p is right to 4 u p in each of two computations, and enters as any early rounding does,
    of which the bound allows 20 (times the root of a chain of at least one)."""
    rounding = bound.rounding * (1.0 + 8.0 * farthest / 20.0)
    derivation = f"{bound.derivation}, and angles of up to {farthest}"
    return Bound(rounding, max(bound.fault, rounding), derivation)


POSITION_SHIFT = Contract(
    "position-shift",
    "The logits of a row depend on the distances of its rotary positions alone, however far these are.",
    frozenset({"position ids"}),
    check_position_shift,
    level="quick",
)
