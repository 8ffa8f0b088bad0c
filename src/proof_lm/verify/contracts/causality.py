"""No token moves an earlier logit, and every token moves every later one."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject
from proof_lm.verify.verdict import EXACT, Measurement


def check_causality(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """An intervention at every position: replace token k in every row and compare all logits.

    At positions before k every bit must be equal. At k and every position after it something must change
    (reach). Run without a mask, and with a mask of ones, which goes another way through most code.
    """
    ids = probe.tokens("causality")
    ones = torch.ones_like(ids, dtype=torch.bool)
    for path in subject.paths:
        yield from _intervene(subject, probe, path, ids, None)
        yield from _intervene(subject, probe, path, ids[:, : probe.n_short], ones[:, : probe.n_short])


def _intervene(
    subject: Subject, probe: Probe, path: AttentionBackend, ids: Tensor, mask: Tensor | None
) -> Iterator[Measurement]:
    case = "no mask" if mask is None else "a mask of ones"
    before = subject.logits(ids, path, padding_mask=mask)
    others = probe.other_tokens(ids, "interventions")
    leak, leak_at = 0.0, ""
    reach, reach_at = float("inf"), ""
    for k in range(ids.shape[1]):
        changed = ids.clone()
        changed[:, k] = others[:, k]
        moved = (subject.logits(changed, path, padding_mask=mask) - before).abs().amax(-1)
        backward = moved[:, :k]
        if k and not float(backward.max()) <= leak:
            row, position = divmod(int(backward.argmax()), k)
            leak, leak_at = float(backward.max()), f"row {row}: token {k} moves position {position}"
        if not float(moved[:, k:].min()) >= reach:
            row, offset = divmod(int(moved[:, k:].argmin()), ids.shape[1] - k)
            reach, reach_at = float(moved[:, k:].min()), f"row {row}: token {k} and position {k + offset}"
    yield Measurement(path, f"max |change before the token|, {case}", leak, EXACT, leak_at)
    yield Measurement(path, f"min |change from the token on|, {case}", reach, None, reach_at)


CAUSALITY = Contract(
    "causality",
    "A token moves no earlier logit, and moves its own and every later one.",
    frozenset({"logits"}),
    check_causality,
)
