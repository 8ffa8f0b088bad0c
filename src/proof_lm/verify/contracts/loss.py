"""Which label counts where, and how much."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from proof_lm.dims import Float, Int, Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject
from proof_lm.verify.tolerance import rounding_bound
from proof_lm.verify.verdict import EXACT, Bound, Largest, Measurement, Smallest


def check_loss(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The loss against a NumPy float64 formula of the subject's own logits: the mean over counted positions.

    Without a mask, with a ragged one (one row not counted at all), then with each label in turn replaced: the
    loss must follow the formula, so that label t moves the term of position t and nothing else; where the
    label is not counted the loss keeps every bit, and where it is the loss moves (reach). With no position
    counted the loss is 0.
    """
    ids = probe.tokens("loss", n_tokens=min(5, probe.n_short))
    labels = probe.tokens("labels", n_tokens=ids.shape[1])
    others = probe.other_tokens(labels, "other labels")
    ragged = torch.from_numpy(probe.random("loss mask").random(tuple(ids.shape)) < 0.6)
    ragged[0, 0] = True
    ragged[0, 1:2] = False
    ragged[-1] = False
    for path in subject.paths:
        terms = _log_probabilities(subject.logits(ids, path))
        bound = rounding_bound(
            ids.numel() + subject.config.vocab_size, float(np.abs(terms).max()), condition=2.0
        )
        for case, mask in (("no mask", None), ("ragged mask", ragged)):
            loss = _loss(subject, ids, labels, mask, path)
            error = abs(loss - _formula(terms, labels, mask))
            yield Measurement(path, f"|loss - formula|, {case}", error, bound)
        yield from _move_labels(subject, path, ids, labels, others, ragged, terms, bound)
        empty = _loss(subject, ids, labels, torch.zeros_like(ragged), path)
        yield Measurement(path, "|loss| with nothing counted", abs(empty), EXACT)


def _move_labels(
    subject: Subject,
    path: AttentionBackend,
    ids: Int[Tensor, "B T"],
    labels: Int[Tensor, "B T"],
    others: Int[Tensor, "B T"],
    mask: Tensor,
    terms: NDArray[np.float64],
    bound: Bound,
) -> Iterator[Measurement]:
    base = _loss(subject, ids, labels, mask, path)
    worst, stray, reach = Largest(), Largest(), Smallest()
    for row, position in np.ndindex(*labels.shape):
        changed = labels.clone()
        changed[row, position] = others[row, position]
        loss = _loss(subject, ids, changed, mask, path)
        where = f"label at row {row}, position {position}"
        worst.see(abs(loss - _formula(terms, changed, mask)), where)
        if mask[row, position]:
            reach.see(abs(loss - base), where)
        else:
            stray.see(abs(loss - base), where)
    yield Measurement(path, "max |loss - formula| as each label moves", worst.value, bound, worst.where)
    yield Measurement(path, "max |change| as uncounted labels move", stray.value, EXACT, stray.where)
    yield Measurement(path, "min |change| as counted labels move", reach.value, None, reach.where)


@torch.no_grad()
def _loss(
    subject: Subject,
    ids: Int[Tensor, "B T"],
    labels: Int[Tensor, "B T"],
    mask: Tensor | None,
    path: AttentionBackend,
) -> float:
    return float(subject.loss(ids, labels, mask, path))


def _log_probabilities(logits: Float[Tensor, "B T V"]) -> NDArray[np.float64]:
    values = logits.numpy()
    peak = values.max(-1, keepdims=True)
    normalized: NDArray[np.float64] = values - peak - np.log(np.exp(values - peak).sum(-1, keepdims=True))
    return normalized


def _formula(terms: NDArray[np.float64], labels: Int[Tensor, "B T"], mask: Tensor | None) -> float:
    """minus the mean log probability of the labels at counted positions."""
    picked = np.take_along_axis(terms, labels.numpy()[..., None], -1)[..., 0]
    return float(-picked.mean() if mask is None else -picked[mask.numpy()].mean())


LOSS = Contract(
    "masked-loss",
    "The loss is the mean over counted positions of -log p(label), and a label moves its own term only.",
    frozenset({"loss"}),
    check_loss,
)
