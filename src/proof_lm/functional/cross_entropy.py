"""The loss of next-token prediction."""

import torch

from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.functional.precision import widen


def cross_entropy(
    logits: Float[Tensor, "*rows V"],
    labels: Int[Tensor, "*rows"],
    mask: Bool[Tensor, "*rows"] | None = None,
) -> Scalar:
    """The mean over counted rows of log(sum_v exp(logits_v)) - logits_label.

    ``mask`` is True where a row counts; elsewhere the label may be anything and the logits may be NaN. When
    no row counts the loss is 0, with zero gradients, so that a shard without labels stays finite. In nats.
    """
    rows = widen(logits)
    if mask is not None:
        rows = rows.masked_fill(~mask[..., None], 0.0)
        labels = labels.masked_fill(~mask, 0)
    surprise = torch.logsumexp(rows, -1) - rows.gather(-1, labels[..., None]).squeeze(-1)
    if mask is None:
        return surprise.mean()
    return surprise.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)
