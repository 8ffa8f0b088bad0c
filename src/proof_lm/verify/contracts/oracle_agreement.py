"""Logits and gradients, held against the float64 oracle."""

from collections.abc import Iterator

import numpy as np
import torch

from proof_lm import oracle
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import Measurement


def check_logits(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The logits of random tokens, all positions of all rows, against the oracle's from the same weights.

    Three times: with default positions; with each row's own increasing positions, which skip some; and with
    rows padded on the left, compared at real tokens.
    """
    ids = probe.tokens("oracle-logits")
    reachable = probe.n_tokens + 5
    if subject.config.position == "learned":
        reachable = min(reachable, subject.config.context_length)
    shuffled = probe.random("skipping").permuted(np.tile(np.arange(reachable), (len(ids), 1)), axis=1)
    positions = torch.from_numpy(np.sort(shuffled[:, : probe.n_tokens], axis=1))
    cases: dict[str, tuple[torch.Tensor | None, torch.Tensor | None]] = {"default positions": (None, None)}
    if subject.can("position ids"):
        cases["given positions"] = (None, positions)
    if probe.n_tokens > 1 and subject.can("padding mask"):
        cases["left padding"] = (probe.ragged_mask(*ids.shape, left=True), None)
    weights = subject.weights()
    for case, (mask, places) in cases.items():
        expected = oracle.decoder_forward(
            subject.config,
            weights,
            ids.numpy(),
            padding_mask=None if mask is None else mask.numpy(),
            position_ids=None if places is None else places.numpy(),
        ).logits
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        for path in subject.paths:
            found = subject.logits(ids, path, padding_mask=mask, position_ids=places)
            difference = (found - torch.from_numpy(expected)).abs().amax(-1)
            difference = difference.masked_fill(~real, 0.0)
            row, position = divmod(int(difference.argmax()), ids.shape[1])
            yield Measurement(
                path,
                f"max |logit - oracle|, {case}",
                float(difference.max()),
                probe.logit_bound,
                f"row {row}, position {position}",
            )


def check_gradients(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The gradient of the masked loss for every entry of every parameter, against the oracle's hand-derived one.

    One measurement a parameter and path. A parameter that the loss does not reach counts as zero, which is a
    violation wherever the oracle's gradient is not.
    """
    rows = 1 if probe.is_large else probe.n_rows
    ids = probe.tokens("gradients", rows, probe.n_short)
    labels = probe.tokens("gradient-labels", rows, probe.n_short)
    counted = torch.ones_like(ids, dtype=torch.bool)
    counted[-1, probe.n_short // 2] = False
    expected, bound = probe.oracle_gradients(ids, labels, counted)
    for path in subject.paths:
        loss = subject.cross_entropy(ids, labels, counted, path)
        found = subject.to_oracle(subject.gradients_of(loss))
        for name in list(found):
            gradient = found.pop(name)
            difference = torch.from_numpy(expected[name]).clone()
            if gradient is not None:
                difference -= gradient
            difference.abs_()
            place = np.unravel_index(int(difference.argmax()), tuple(difference.shape))
            where = f"{name}{[int(index) for index in place]}"
            yield Measurement(path, "max |gradient - oracle|", float(difference.max()), bound, where)


LOGITS = Contract(
    "oracle-logits",
    "Logits equal those of the NumPy float64 oracle.",
    frozenset({"logits", "weights"}),
    check_logits,
    level="quick",
)
GRADIENTS = Contract(
    "oracle-gradients",
    "The gradient of every parameter equals the oracle's hand-derived one.",
    frozenset({"weights"}),
    check_gradients,
    level="quick",
)
