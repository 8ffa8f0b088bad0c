"""Dropout acts in train mode, and there alone."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Measurement


def check_determinism(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Calls from two random states, in eval mode and in train mode.

    In eval mode both give the same bits, and so do they with every dropout set to 0.5. In train mode without
    dropout the logits are those of eval mode (unless something else is random there, in a subject that need not
    tell us all of its noise); with dropout at 0.5 the random state changes those of every row (reach), and the same
    state gives the same bits.
    """
    ids = probe.tokens("determinism", n_tokens=probe.n_short)
    for path in subject.paths:
        base = subject.logits(ids, path, noise=1)
        moved = float((subject.logits(ids, path, noise=2) - base).abs().max())
        yield Measurement(path, "max |change with the random state|, eval", moved, EXACT)
        if not subject.can("dropout"):
            continue
        with subject.with_dropout(0.5):
            moved = float((subject.logits(ids, path, noise=1) - base).abs().max())
        yield Measurement(path, "max |change with dropout 0.5|, eval", moved, EXACT)
        still, other = (_trained(subject, ids, path, 0.0, noise) for noise in (1, 2))
        if subject.strict or torch.equal(still, other):
            moved = float((still - base).abs().max())
            yield Measurement(path, "max |train without dropout - eval|", moved, probe.logit_bound)
        first, second, again = (_trained(subject, ids, path, 0.5, noise) for noise in (1, 2, 1))
        reach = float((second - first).abs().amax((1, 2)).min())
        yield Measurement(path, "min |change with the random state|, train", reach, None)
        moved = float((again - first).abs().max())
        yield Measurement(path, "max |change from the same random state|, train", moved, EXACT)


def _trained(
    subject: Subject, ids: Int[Tensor, "B T"], path: str, dropout: float, noise: int
) -> Float[Tensor, "B T V"]:
    with subject.training(dropout):
        return subject.logits(ids, path, noise=noise)


DETERMINISM = Contract(
    "determinism",
    "Without training nothing is random, whatever the dropout; in training dropout acts.",
    frozenset({"logits"}),
    check_determinism,
    level="quick",
)
