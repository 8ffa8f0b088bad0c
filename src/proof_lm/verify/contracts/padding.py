"""Padding is seen by nobody, on either side, whatever is stored there."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Bool, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject, SubjectError
from proof_lm.verify.verdict import EXACT, Largest, Measurement


def check_padding(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Rows of different length, padded on the left, then on the right.

    Real logits equal those of the row alone without padding; keep every bit when the tokens under the padding
    change (in train mode too), and when the padding's embedding becomes NaN (a huge number, for subjects that do
    not promise to hide NaN); they move when real tokens do (reach). The same with as many rows as heads, and with
    padding inside the rows, for a subject whose positions leave padding out: a window, or a distance that is counted
    in places, need not. A row that is padding throughout, and left padding, whose first queries see nothing, leave
    every real logit and every gradient finite. Decoding after a padded beginning equals the row alone at every step.
    A strict subject takes a mask of integers or floats as it takes booleans, refuses an additive one, and leaves ids
    and mask as they were. Ids in non-contiguous memory give identical bits.
    """
    ids, pad = probe.tokens_and_spare("padding", n_tokens=probe.n_short)
    for path in subject.paths:
        for side in ("left", "right"):
            real = probe.ragged_mask(*ids.shape, left=side == "left")
            yield from _check_side(subject, probe, path, ids, real, side, pad)
        if not probe.is_large and subject.n_heads not in (None, 1, len(ids)):
            rows = probe.tokens("as many rows as heads", subject.n_heads, probe.n_short)
            real = probe.ragged_mask(*rows.shape, left=True)
            yield _compare_alone(subject, probe, path, rows, real, "as many rows as heads")
        if probe.is_large and path != subject.paths[-1]:
            continue
        if subject.skips_padding and probe.n_short > 2:
            yield _compare_alone(subject, probe, path, ids, _holes(ids), "padding inside")
        if subject.can("cache") and probe.n_short > 3:
            yield _check_decoding(subject, probe, path, ids)
        if subject.strict:
            yield from _check_forms(subject, probe, path, ids)
        yield from _check_empty_row(subject, probe, path, ids)
        yield _check_strides(subject, path, ids)


def _check_side(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    real: Bool[Tensor, "B T"],
    side: str,
    pad: int,
) -> Iterator[Measurement]:
    padded = subject.logits(ids, path, padding_mask=real)
    yield _compare_alone(subject, probe, path, ids, real, side)
    others = probe.other_tokens(ids, "under padding")
    changed = torch.where(real, ids, others)
    moved = (subject.logits(changed, path, padding_mask=real) - padded)[real].abs().max()
    yield Measurement(path, f"max |change as padding changes|, {side}", float(moved), EXACT)
    with subject.training(0.0):
        trained, moved = (subject.logits(tokens, path, padding_mask=real) for tokens in (ids, changed))
    moved = (moved - trained)[real].abs().max()
    yield Measurement(path, f"max |change as padding changes|, {side}, train mode", float(moved), EXACT)
    edited = torch.where(real, others, ids)
    reach = (subject.logits(edited, path, padding_mask=real) - padded)[real].abs().amax(-1).min()
    yield Measurement(path, f"min |change as real tokens change|, {side}", float(reach), None)
    embedding = subject.embedding
    if embedding is None:
        return
    poisoned = torch.where(real, ids, pad)
    with subject.edited(embedding, pad, subject.poison):
        moved = subject.logits(poisoned, path, padding_mask=real) - padded
    moved[..., pad] = 0.0  # a tied head makes this logit from the same NaN
    quantity = f"max |change as padding is {subject.poison:g}|, {side}"
    yield Measurement(path, quantity, float(moved[real].abs().max()), EXACT)


def _compare_alone(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], real: Bool[Tensor, "B T"], case: str
) -> Measurement:
    padded = subject.logits(ids, path, padding_mask=real)
    worst = Largest()
    for row, tokens in enumerate(ids):
        alone = subject.logits(tokens[real[row]][None], path)[0]
        error = float((padded[row, real[row]] - alone).abs().max())
        worst.see(error, f"row {row} of {int(real[row].sum())} tokens")
    return Measurement(path, f"max |padded - alone|, {case}", worst.value, probe.logit_bound, worst.where)


def _holes(ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Row b has one pad after its first b + 1 tokens."""
    after = 1 + torch.arange(len(ids)) % (ids.shape[1] - 2)
    return torch.arange(ids.shape[1])[None] != after[:, None]


def _check_decoding(subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"]) -> Measurement:
    """A padded beginning, then a token at a time; a strict subject knows by itself that these are real."""
    begun = min(4, ids.shape[1] - 2)
    pads = torch.arange(len(ids)).clamp(max=begun - 1)[:, None]
    real = torch.arange(ids.shape[1])[None] >= pads
    alone = [subject.logits(row[kept][None], path)[0] for row, kept in zip(ids, real, strict=True)]
    cache = subject.new_cache(*ids.shape)
    subject.logits(ids[:, :begun], path, padding_mask=real[:, :begun], cache=cache)
    worst = Largest()
    for step in range(begun, ids.shape[1]):
        known = None if subject.strict else torch.ones(len(ids), 1, dtype=torch.bool)
        logits = subject.logits(ids[:, step : step + 1], path, padding_mask=known, cache=cache)[:, 0]
        for row, expected in enumerate(alone):
            error = float((logits[row] - expected[step - ids.shape[1]]).abs().max())
            worst.see(error, f"row {row}, step {step - begun}")
    return Measurement(
        path, "max |decoded after padding - alone|", worst.value, probe.logit_bound, worst.where
    )


def _check_forms(subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"]) -> Iterator[Measurement]:
    real = probe.ragged_mask(*ids.shape, left=True)
    real[-1, 0] = False  # a mask of zeros alone would mean either all or nothing
    expected = subject.logits(ids, path, padding_mask=real)
    additive = torch.zeros(real.shape, dtype=torch.float64).masked_fill(~real, -torch.inf)
    for name, form in {"integers": real.long(), "floats": real.double(), "additive": additive}.items():
        given, mask = ids.clone(), form.clone()
        try:
            moved = float((subject.logits(given, path, padding_mask=mask) - expected)[real].abs().max())
        except SubjectError:
            moved = 0.0
        yield Measurement(path, "max |change with another form of mask|", moved, EXACT, name)
        kept = torch.equal(given, ids) and torch.equal(mask, form)
        yield Measurement(path, "given tensors changed", float(not kept), EXACT, name)


def _check_empty_row(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"]
) -> Iterator[Measurement]:
    rows = ids[:1] if probe.is_large else ids
    rows = torch.cat([rows, rows[:1]])
    real = probe.ragged_mask(*rows.shape, left=True)
    real[-1] = False
    logits = subject.logits(rows, path, padding_mask=real)
    infinite = int((~logits[real].isfinite()).sum())
    yield Measurement(path, "real logits not finite, one row all padding", float(infinite), EXACT)
    loss = subject.cross_entropy(rows, rows, real, path, padding_mask=real)
    gradients = subject.gradients_of(loss)
    infinite = sum(int((~g.isfinite()).sum()) for g in gradients.values() if g is not None)
    yield Measurement(path, "gradient entries not finite, one row all padding", float(infinite), EXACT)


def _check_strides(subject: Subject, path: str, ids: Int[Tensor, "B T"]) -> Measurement:
    strided = ids.T.contiguous().T
    spread = torch.stack([strided, strided + 1], -1)[..., 0]
    moved = max(
        float((subject.logits(view, path) - subject.logits(ids, path)).abs().max())
        for view in (strided, spread)
    )
    return Measurement(path, "max |change with non-contiguous ids|", moved, EXACT)


PADDING = Contract(
    "padding",
    "Padding on either side moves no real logit, whatever is stored there; rows of padding stay finite.",
    frozenset({"padding mask"}),
    check_padding,
    level="quick",
)
