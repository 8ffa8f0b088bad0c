"""No token moves an earlier logit, and every token moves every later one."""

from collections.abc import Iterator

import torch

from proof_lm import oracle
from proof_lm.dims import Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest


def check_causality(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """An intervention at every position: replace token k in every row and compare all logits.

    At positions before k every bit must be equal. At k and every position after it something must change
    (reach), unless the oracle's logits do not change there either, as with attention so sharp that a weight
    rounds to zero. Run without a mask, and with a mask of ones, which goes another way through most code.
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
    leak, reach = Largest(), Smallest()
    for k in range(ids.shape[1]):
        changed = ids.clone()
        changed[:, k] = others[:, k]
        moved = (subject.logits(changed, path, padding_mask=mask) - before).abs().amax(-1)
        if k:
            row, position = divmod(int(moved[:, :k].argmax()), k)
            leak.see(float(moved[row, position]), f"row {row}: token {k} moves position {position}")
        onward = moved[:, k:]
        if (onward == 0.0).any():
            onward = onward.masked_fill(~_oracle_moves(subject, probe, ids, changed)[:, k:], torch.inf)
        row, offset = divmod(int(onward.argmin()), ids.shape[1] - k)
        reach.see(float(onward[row, offset]), f"row {row}: token {k} and position {k + offset}")
    yield Measurement(path, f"max |change before the token|, {case}", leak.value, EXACT, leak.where)
    yield Measurement(path, f"min |change from the token on|, {case}", reach.value, None, reach.where)


def _oracle_moves(subject: Subject, probe: Probe, ids: Tensor, changed: Tensor) -> Tensor:
    """Where the oracle's logits differ between two inputs by more than rounding."""
    weights = subject.weights()
    before, after = (
        oracle.decoder_forward(subject.config, weights, tokens.numpy()).logits for tokens in (ids, changed)
    )
    return torch.from_numpy(abs(after - before).max(-1) > probe.logit_bound.rounding)


CAUSALITY = Contract(
    "causality",
    "A token moves no earlier logit, and moves its own and every later one.",
    frozenset({"logits"}),
    check_causality,
)
