"""Faults of the loss: which label counts, how much, and what its backward does."""

from typing import Any

import torch

from proof_lm.dims import Logits, Scalar, Tensor, TokenIds, TokenMask
from proof_lm.functional import cross_entropy
from proof_lm.model import ProofLM
from proof_lm.verify.mutants.mutant import Mutant, in_decoder


class ShiftedLabels(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        return cross_entropy(logits[:, :-1], labels[:, 1:], None if mask is None else mask[:, 1:])


class MaskIgnored(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        return cross_entropy(logits, labels)


class EndIsPadding(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        real = labels != self.config.vocab_size - 1  # the end token, with which rows are padded too
        return cross_entropy(logits, labels, real if mask is None else mask & real)


class DividesByAll(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        loss = cross_entropy(logits, labels, mask)
        return loss if mask is None else loss * mask.sum() / mask.numel()


class NotDivided(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        n_counted = labels.numel() if mask is None else mask.sum()
        return cross_entropy(logits, labels, mask) * n_counted


class MeanOfRowMeans(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        if mask is None:
            return cross_entropy(logits, labels)
        rows = [cross_entropy(logits[row], labels[row], mask[row]) for row in range(len(labels))]
        return torch.stack(rows).mean()


class MeanOfShardMeans(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        counted = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
        shards = zip(logits.chunk(2), labels.chunk(2), counted.chunk(2), strict=True)
        means = [cross_entropy(*shard) for shard in shards if shard[2].any()]
        return torch.stack(means).mean() if means else cross_entropy(logits, labels, mask)


class NoLabelsNoNumber(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        if mask is None:
            return cross_entropy(logits, labels)
        terms = logits.logsumexp(-1) - logits.gather(-1, labels.masked_fill(~mask, 0)[..., None])[..., 0]
        return terms[mask].sum() / mask.sum()


class FirstUpstreamForAll(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        safe = labels if mask is None else labels.masked_fill(~mask, 0)
        terms: Tensor = _FirstUpstream.apply(logits, safe)  # type: ignore[no-untyped-call]
        return terms.mean() if mask is None else terms.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


class _FirstUpstream(torch.autograd.Function):
    """-log p(label), whose backward reads one upstream gradient, as if every term had the same."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(logits, labels)
        return logits.logsumexp(-1) - logits.gather(-1, labels[..., None])[..., 0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, labels = ctx.saved_tensors
        one_hot = torch.zeros_like(logits).scatter_(-1, labels[..., None], 1.0)
        return (logits.softmax(-1) - one_hot) * grad.flatten()[0], None


class LabelsOverwritten(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        loss = cross_entropy(logits, labels, mask)
        return loss if mask is None else loss + 0 * labels.masked_fill_(~mask, -100).sum()


MUTANTS = (
    Mutant(
        "labels-shifted",
        "Labels that are aligned are shifted once more.",
        ("masked-loss", "oracle-gradients"),
        in_decoder(ShiftedLabels),
        source="huggingface/transformers#36928",
        ids=("O73",),
    ),
    Mutant(
        "loss-mask-ignored",
        "Every label counts.",
        ("masked-loss", "oracle-gradients", "loss-gradients"),
        in_decoder(MaskIgnored),
    ),
    Mutant(
        "end-counted-as-padding",
        "Labels equal to the pad id are left out, though they are ends of documents too.",
        ("masked-loss",),
        in_decoder(EndIsPadding),
        source="huggingface/trl#6357",
        ids=("O74",),
    ),
    Mutant(
        "loss-divided-by-all",
        "The sum is divided by all positions.",
        ("masked-loss",),
        in_decoder(DividesByAll),
    ),
    Mutant(
        "loss-not-divided",
        "The loss is a sum, where a mean is declared.",
        ("masked-loss", "oracle-gradients", "loss-gradients"),
        in_decoder(NotDivided),
        source="unslothai/unsloth-zoo#1023",
        ids=("O76",),
    ),
    Mutant(
        "mean-of-row-means",
        "Rows count the same, however few labels they have.",
        ("masked-loss",),
        in_decoder(MeanOfRowMeans),
        source="huggingface/transformers#34191",
        ids=("O75",),
    ),
    Mutant(
        "mean-of-shard-means",
        "Each half of the batch is divided by its own count, then the two are averaged.",
        ("masked-loss", "loss-gradients"),
        in_decoder(MeanOfShardMeans),
        source="pytorch/torchtitan#2206",
        ids=("O77",),
    ),
    Mutant(
        "empty-mask-nan",
        "With no label counted the loss is 0 / 0.",
        ("masked-loss",),
        in_decoder(NoLabelsNoNumber),
    ),
    Mutant(
        "first-upstream-for-all",
        "The loss's backward multiplies every term by the first one's upstream gradient.",
        ("loss-gradients", "oracle-gradients"),
        in_decoder(FirstUpstreamForAll),
        source="linkedin/Liger-Kernel#968",
        ids=("O78",),
    ),
    Mutant(
        "labels-overwritten",
        "Labels that do not count become -100 in the caller's tensor.",
        ("no-side-effects",),
        in_decoder(LabelsOverwritten),
    ),
)
