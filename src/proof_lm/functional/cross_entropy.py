"""The loss of next-token prediction."""

from typing import Any

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
    if mask is None:
        return _surprise(rows, labels).mean()
    counted = _surprise(rows.masked_fill(~mask[..., None], 0.0), labels.masked_fill(~mask, 0))
    return counted.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def _surprise(logits: Float[Tensor, "*rows V"], labels: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    surprise: Tensor = _Surprise.apply(logits, labels.long())[0]  # type: ignore[no-untyped-call]
    return surprise


class _Surprise(torch.autograd.Function):
    """-log p(label), with its derivative g (softmax - onehot(label)).

    Left to autograd, it takes three tensors of the size of the logits, the largest of a training step; this
    takes one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        normalizer = torch.logsumexp(logits, -1, keepdim=True)
        return (normalizer - logits.gather(-1, labels[..., None])).squeeze(-1), normalizer

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None]:
        logits, labels, normalizer = ctx.saved_tensors
        slope = (logits - normalizer).exp_()
        slope.scatter_add_(-1, labels[..., None], torch.full_like(normalizer, -1.0))
        return slope.mul_(grad[..., None]), None
