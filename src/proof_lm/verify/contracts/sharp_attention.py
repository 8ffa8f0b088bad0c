"""Hidden is hidden, however large the scores are."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.interventions import intervene
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Measurement

POWERS = (2, 4, 6, 8, 10, 12)  # of two, times every matrix: scores grow by the square, up to 1e7 times
POWERS_OF_LARGE = (3, 10)


def check_sharp_attention(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Every matrix times 4, 16, ... 4096, so that scores reach 1e5 and far more.

    A finite number in place of -inf is then above some visible scores, and what it should hide decides; a
    softmax without a maximum overflows, and one with another row's maximum divides 0 by 0. So: all logits
    finite; those before a replaced token, and those of real tokens as padding changes, bit-equal.
    """
    n_tokens = probe.n_short
    row = probe.tokens("sharp", 1, n_tokens)[0]
    others = probe.other_tokens(row, "sharp interventions")
    places = sorted({1, n_tokens - 1} if probe.is_large else range(1, n_tokens))
    places = [k for k in places if 0 < k < n_tokens]
    for power in POWERS_OF_LARGE if probe.is_large else POWERS:
        case = f"matrices times 2^{power}"
        with subject.scaled(2.0**power):
            for path in subject.paths:
                yield from _causal(subject, path, row, others, places, case)
                if subject.can("padding mask") and n_tokens > 1:
                    yield _padded(subject, probe, path, case)


def _causal(
    subject: Subject,
    path: str,
    row: Int[Tensor, " T"],
    others: Int[Tensor, " T"],
    places: list[int],
    case: str,
) -> Iterator[Measurement]:
    infinite = 0

    def call(ids: Int[Tensor, "P T"]) -> Tensor:
        nonlocal infinite
        logits = subject.logits(ids, path)
        infinite += int((~logits.isfinite()).sum())
        return logits

    leak = intervene(call, row, others, places).leak() if places else None
    if leak is None:
        call(row[None])
    yield Measurement(path, f"logits not finite, {case}", float(infinite), EXACT)
    if leak is not None:
        yield Measurement(path, f"max |change before the token|, {case}", leak.value, EXACT, leak.where)


def _padded(subject: Subject, probe: Probe, path: str, case: str) -> Measurement:
    ids = probe.tokens("sharp padding", n_tokens=probe.n_short)
    real = probe.ragged_mask(*ids.shape, left=True)
    changed = torch.where(real, ids, probe.other_tokens(ids, "sharp padding changed"))
    before, after = (subject.logits(tokens, path, padding_mask=real) for tokens in (ids, changed))
    moved = float((after - before)[real].abs().max())
    return Measurement(path, f"max |change as padding changes|, {case}", moved, EXACT)


SHARP_ATTENTION = Contract(
    "sharp-attention",
    "However large scores become, logits stay finite, and what is hidden has no weight at all.",
    frozenset({"logits"}),
    check_sharp_attention,
)
