"""Padding is seen by nobody, on either side, whatever is stored there."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Bool, Int, Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement


def check_padding(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Rows of different length, padded on the left, then on the right.

    Real logits equal those of the row alone without padding; keep every bit when the tokens under the padding
    change, and when the padding's embedding becomes NaN; they move when real tokens do (reach). A row that is
    padding throughout, and left padding, whose first queries see nothing, leave every real logit and every
    gradient finite. Ids in non-contiguous memory give identical bits.
    """
    ids, pad = probe.tokens_and_spare("padding", n_tokens=probe.n_short)
    for path in subject.paths:
        for side in ("left", "right"):
            real = probe.ragged_mask(*ids.shape, left=side == "left")
            yield from _check_side(subject, probe, path, ids, real, side, pad)
        yield from _check_empty_row(subject, probe, path, ids)
        yield _check_strides(subject, path, ids)


def _check_side(
    subject: Subject,
    probe: Probe,
    path: AttentionBackend,
    ids: Int[Tensor, "B T"],
    real: Bool[Tensor, "B T"],
    side: str,
    pad: int,
) -> Iterator[Measurement]:
    padded = subject.logits(ids, path, padding_mask=real)
    worst = Largest()
    for row, tokens in enumerate(ids):
        alone = subject.logits(tokens[real[row]][None], path)[0]
        error = float((padded[row, real[row]] - alone).abs().max())
        worst.see(error, f"row {row} of {int(real[row].sum())} tokens")
    yield Measurement(path, f"max |padded - alone|, {side}", worst.value, probe.logit_bound, worst.where)
    others = probe.other_tokens(ids, "under padding")
    changed = torch.where(real, ids, others)
    moved = (subject.logits(changed, path, padding_mask=real) - padded)[real].abs().max()
    yield Measurement(path, f"max |change as padding changes|, {side}", float(moved), EXACT)
    edited = torch.where(real, others, ids)
    reach = (subject.logits(edited, path, padding_mask=real) - padded)[real].abs().amax(-1).min()
    yield Measurement(path, f"min |change as real tokens change|, {side}", float(reach), None)
    poisoned = torch.where(real, ids, pad)
    with subject.edited("embedding.weight", pad, torch.nan):
        moved = subject.logits(poisoned, path, padding_mask=real) - padded
    moved[..., pad] = 0.0  # a tied head makes this logit from the same NaN
    yield Measurement(path, f"max |change as padding is NaN|, {side}", float(moved[real].abs().max()), EXACT)


def _check_empty_row(
    subject: Subject, probe: Probe, path: AttentionBackend, ids: Int[Tensor, "B T"]
) -> Iterator[Measurement]:
    rows = ids[:1] if probe.is_large else ids
    rows = torch.cat([rows, rows[:1]])
    real = probe.ragged_mask(*rows.shape, left=True)
    real[-1] = False
    logits = subject.logits(rows, path, padding_mask=real)
    infinite = int((~logits[real].isfinite()).sum())
    yield Measurement(path, "real logits not finite, one row all padding", float(infinite), EXACT)
    gradients = subject.gradients(rows, rows, real, path, padding_mask=real)
    infinite = sum(int((~g.isfinite()).sum()) for g in gradients.values() if g is not None)
    yield Measurement(path, "gradient entries not finite, one row all padding", float(infinite), EXACT)


def _check_strides(subject: Subject, path: AttentionBackend, ids: Int[Tensor, "B T"]) -> Measurement:
    strided = ids.T.contiguous().T
    spread = torch.stack([strided, strided + 1], -1)[..., 0]
    moved = max(
        float((subject.logits(view, path) - subject.logits(ids, path)).abs().max())
        for view in (strided, spread)
    )
    return Measurement(path, "max |change with non-contiguous ids|", moved, EXACT)


PADDING = Contract(
    "padding",
    "Padding on either side, NaN included, moves no real logit; rows of padding alone stay finite.",
    frozenset({"padding mask", "loss"}),
    check_padding,
)
