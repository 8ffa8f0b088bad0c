"""Rows of a batch do not know of one another."""

from collections.abc import Iterator

import torch

from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest


def check_batch(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Four comparisons, with fewer rows than heads, as many, and more (as many only for a large subject).

    Other rows' tokens replaced: a row's logits keep every bit. Each row alone, and rows in another order:
    the same logits to rounding, since other shapes may round differently. So do equal rows. The replaced rows
    themselves must move (reach).
    """
    n_heads = subject.n_heads or 4
    sizes = {probe.n_rows, n_heads} if probe.is_large else {probe.n_rows, n_heads, n_heads + 3}
    for n_rows in sorted(size for size in sizes if size > 1):
        ids = probe.tokens("batch", n_rows, probe.n_short)
        others = probe.other_tokens(ids, "other rows")
        order = torch.arange(n_rows).roll(1)
        for path in subject.paths:
            case = f"{n_rows} row{'s' * (n_rows > 1)}"
            together = subject.logits(ids, path)
            coupled, reach = Largest(), Smallest()
            for row in {0, n_rows // 2, n_rows - 1}:
                changed = others.clone()
                changed[row] = ids[row]
                moved = (subject.logits(changed, path) - together).abs().amax((1, 2))
                coupled.see(float(moved[row]), f"row {row} follows the others")
                reach.see(float(moved[torch.arange(n_rows) != row].min()))
            yield Measurement(
                path, f"max |change as other rows change|, {case}", coupled.value, EXACT, coupled.where
            )
            yield Measurement(path, f"min |change of the rows changed|, {case}", reach.value, None)
            alone = torch.cat([subject.logits(row[None], path) for row in ids])
            yield _worst_row(path, f"max |alone - in the batch|, {case}", alone - together, probe)
            reordered = subject.logits(ids[order], path)
            yield _worst_row(path, f"max |rows reordered|, {case}", reordered - together[order], probe)
            equal = subject.logits(ids[:1].expand_as(ids).contiguous(), path)
            yield _worst_row(path, f"max |equal rows apart|, {case}", equal - together[:1], probe)


def _worst_row(path: str, quantity: str, difference: torch.Tensor, probe: Probe) -> Measurement:
    by_row = difference.abs().amax((1, 2))
    return Measurement(path, quantity, float(by_row.max()), probe.logit_bound, f"row {int(by_row.argmax())}")


BATCH = Contract(
    "batch-independence",
    "A row's logits do not depend on the other rows, nor on its place among them.",
    frozenset({"logits"}),
    check_batch,
    level="quick",
)
