"""Which label counts where, and how much."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.tolerance import rounding_bound
from proof_lm.verify.verdict import EXACT, Bound, Largest, Measurement, Smallest


def check_loss(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The loss against a NumPy float64 formula of the subject's own logits: the mean over counted positions.

    Without a mask, with a ragged one (one row not counted at all), then with each label (every third, for a large
    subject) in turn replaced: the loss must follow the formula, so that label t moves the term of position t and
    nothing else; where the label is not counted the loss keeps every bit, and where it is the loss moves (reach).
    Labels of a position that has no next token, where the subject shifts labels itself, are left out. Labels of one
    id throughout, for ids that often end or pad a text, count like others. With no position counted the loss of a
    strict subject is 0.
    """
    ids = probe.tokens("loss", n_tokens=min(5, probe.n_short))
    labels = probe.tokens("labels", n_tokens=ids.shape[1])
    others = probe.other_tokens(labels, "other labels")
    countable = subject.countable(ids)
    if not countable.any():
        raise Inapplicable("one token: no position has a label that the subject counts")
    ragged = torch.from_numpy(probe.random("loss mask").random(tuple(ids.shape)) < 0.6) & countable
    ragged[0, 0] = True
    ragged[0, 1:2] = False
    if len(ids) > 1:
        ragged[-1] = False
    for path in subject.paths:
        terms = _log_probabilities(subject.logits(ids, path))
        chain, magnitude = ids.numel() + subject.vocab_size, float(np.abs(terms).max())
        bound = rounding_bound(chain, magnitude, condition=2.0, unit_roundoff=subject.loss_roundoff)
        cases = {"no mask": None} | ({"ragged mask": ragged} if subject.can("loss mask") else {})
        for case, mask in cases.items():
            loss = _loss(subject, ids, labels, mask, path)
            error = abs(loss - _formula(terms, labels, countable if mask is None else mask))
            yield Measurement(path, f"|loss - formula|, {case}", error, bound)
        mask = ragged if subject.can("loss mask") else None
        counted = countable if mask is None else mask
        places = list(np.ndindex(*labels.shape))[:: 3 if probe.is_large else 1]
        yield from _move_labels(subject, path, ids, labels, others, mask, counted, places, terms, bound)
        if not probe.is_large or path == subject.paths[0]:
            yield _special_labels(subject, path, ids, bound, large=probe.is_large)
        if not subject.strict:
            continue
        empty = _loss(subject, ids, labels, torch.zeros_like(ragged), path)
        yield Measurement(path, "|loss| with nothing counted", abs(empty), EXACT)


def _move_labels(
    subject: Subject,
    path: str,
    ids: Int[Tensor, "B T"],
    labels: Int[Tensor, "B T"],
    others: Int[Tensor, "B T"],
    mask: Tensor | None,
    counted: Tensor,
    places: Sequence[tuple[int, ...]],
    terms: NDArray[np.float64],
    bound: Bound,
) -> Iterator[Measurement]:
    base = _loss(subject, ids, labels, mask, path)
    worst, stray, reach = Largest(), Largest(), Smallest()
    for row, position in places:
        changed = labels.clone()
        changed[row, position] = others[row, position]
        loss = _loss(subject, ids, changed, mask, path)
        where = f"label at row {row}, position {position}"
        worst.see(abs(loss - _formula(terms, changed, counted)), where)
        if counted[row, position]:
            reach.see(abs(loss - base), where)
        else:
            stray.see(abs(loss - base), where)
    yield Measurement(path, "max |loss - formula| as each label moves", worst.value, bound, worst.where)
    yield Measurement(path, "max |change| as uncounted labels move", stray.value, EXACT, stray.where)
    yield Measurement(path, "min |change| as counted labels move", reach.value, None, reach.where)


def _special_labels(
    subject: Subject, path: str, ids: Int[Tensor, "B T"], bound: Bound, *, large: bool
) -> Measurement:
    """Each id that often ends or pads a text as input and as label, all counted: only a position may be left out."""
    last, worst = subject.vocab_size - 1, Largest()
    ids_in_use = {0, last} if large else {0, min(1, last), min(2, last), max(0, last - 1), last}
    for special in sorted(ids_in_use):
        labels = torch.full_like(ids, special)
        inputs = torch.where(torch.arange(ids.shape[1]) % 2 == 1, labels, ids)
        terms = _log_probabilities(subject.logits(inputs, path))
        loss = _loss(subject, inputs, labels, None, path)
        off = abs(loss - _formula(terms, labels, subject.countable(inputs)))
        worst.see(off, f"all labels are {special}")
    return Measurement(path, "max |loss - formula| of labels of one id", worst.value, bound, worst.where)


@torch.no_grad()
def _loss(
    subject: Subject,
    ids: Int[Tensor, "B T"],
    labels: Int[Tensor, "B T"],
    mask: Tensor | None,
    path: str,
) -> float:
    return float(subject.loss(ids, labels, mask, path))


def _log_probabilities(logits: Float[Tensor, "B T V"]) -> NDArray[np.float64]:
    values = logits.double().numpy()
    peak = values.max(-1, keepdims=True)
    normalized: NDArray[np.float64] = values - peak - np.log(np.exp(values - peak).sum(-1, keepdims=True))
    return normalized


def _formula(terms: NDArray[np.float64], labels: Int[Tensor, "B T"], counted: Tensor) -> float:
    """minus the mean log probability of the labels at counted positions."""
    picked = np.take_along_axis(terms, labels.numpy()[..., None], -1)[..., 0]
    return float(-picked[counted.numpy()].mean())


LOSS = Contract(
    "masked-loss",
    "The loss is the mean over counted positions of -log p(label), and a label moves its own term only.",
    frozenset({"loss"}),
    check_loss,
    level="quick",
)
