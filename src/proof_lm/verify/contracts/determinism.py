"""Dropout acts in train mode, and there alone."""

from collections.abc import Iterator

from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Measurement


def check_determinism(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Calls from two random states, in eval mode and in train mode.

    In eval mode both give the same bits, and so do they with every dropout set to 0.5. In train mode without
    dropout the logits are those of eval mode; with dropout at 0.5 the random state changes those of every row
    (reach), and the same state gives the same bits.
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
        with subject.training(0.0):
            moved = float((subject.logits(ids, path, noise=1) - base).abs().max())
        yield Measurement(path, "max |train without dropout - eval|", moved, probe.logit_bound)
        with subject.training(0.5):
            first, second, again = (subject.logits(ids, path, noise=noise) for noise in (1, 2, 1))
        reach = float((second - first).abs().amax((1, 2)).min())
        yield Measurement(path, "min |change with the random state|, train", reach, None)
        moved = float((again - first).abs().max())
        yield Measurement(path, "max |change from the same random state|, train", moved, EXACT)


DETERMINISM = Contract(
    "determinism",
    "Without training nothing is random, whatever the dropout; in training dropout acts.",
    frozenset({"logits"}),
    check_determinism,
    level="quick",
)
