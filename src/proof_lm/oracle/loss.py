"""Cross-entropy over counted positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.oracle.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    bool_array,
    float_array,
    int_array,
    require_range,
)
from proof_lm.oracle.softmax import softmax_forward


@dataclass(frozen=True, eq=False)
class CrossEntropyTrace:
    """Which positions count (...), their labels (n,), and their logits (n, V); a copy of those rows only."""

    counted: BoolArray
    labels: IntArray
    logits: FloatArray


def cross_entropy_forward(
    logits: ArrayLike, labels: ArrayLike, loss_mask: ArrayLike | None = None
) -> tuple[float, CrossEntropyTrace]:
    """Mean over the counted positions of -log softmax(logits)[label], in nats.

    Labels are aligned with the logits: nothing is shifted. What stands at a position that does not count,
    label or logits, has no influence. Where nothing counts the loss is 0.

    Args:
        logits: (..., V).
        labels: integers, (...), in 0 .. V-1 where counted.
        loss_mask: boolean, (...), True = counted; None counts every position.

    Returns:
        The loss, and the trace for :func:`cross_entropy_backward`.

    Raises:
        InputError: the shapes do not fit each other, or a counted label lies outside the vocabulary.
    """
    logits = float_array("logits", logits, (..., "V"))
    labels = int_array("labels", labels, logits.shape[:-1])
    counted = np.ones(labels.shape, dtype=np.bool_)
    if loss_mask is not None:
        counted = bool_array("loss_mask", loss_mask, labels.shape)
    trace = CrossEntropyTrace(counted, labels[counted], logits[counted])
    require_range("labels", trace.labels, logits.shape[-1])
    if not trace.labels.size:
        return 0.0, trace
    shifted = trace.logits - trace.logits.max(axis=-1, keepdims=True)
    of_label = shifted[np.arange(trace.labels.size), trace.labels]
    return float((np.log(np.exp(shifted).sum(axis=-1)) - of_label).mean()), trace


def cross_entropy_backward(trace: CrossEntropyTrace) -> FloatArray:
    """Gradient of :func:`cross_entropy_forward` with respect to the logits, (..., V).

    (softmax(logits) - one_hot(label)) / n at the n counted positions, 0 elsewhere.
    """
    gradient = np.zeros((*trace.counted.shape, trace.logits.shape[-1]))
    if trace.labels.size:
        of_counted = softmax_forward(trace.logits)
        of_counted[np.arange(trace.labels.size), trace.labels] -= 1.0
        gradient[trace.counted] = of_counted / trace.labels.size
    return gradient
