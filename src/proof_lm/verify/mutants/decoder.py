"""Faults of padding, cache bookkeeping, loss, tying, saving and counting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from proof_lm.dims import Float, Hidden, Logits, PositionIds, Scalar, Tensor, TokenIds, TokenMask
from proof_lm.functional import cross_entropy
from proof_lm.model import KVCache, ProofLM
from proof_lm.verify.mutants.mutant import Mutant, become


class PositionsCountPadding(ProofLM):
    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        if position_ids is not None:
            return super().positions(token_ids, real, position_ids, cache)
        start = 0 if cache is None else cache.length
        return torch.arange(start, start + token_ids.shape[1]).expand_as(token_ids)


class RemembersPosition(ProofLM):
    seen = 0

    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        positions = super().positions(token_ids, real, position_ids, cache)
        if cache is not None:
            self.seen = cache.length + token_ids.shape[1]
            return positions
        return (positions + self.seen).clamp(max=self.config.context_length - 1)


class KeepsPaddingsEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        hidden = super().embed(token_ids, positions, None)
        if real is None:
            return hidden
        leak = self.embedding(token_ids).masked_fill(real[..., None], 0.0).sum(1, keepdim=True)
        return hidden.masked_fill(~real[..., None], 0.0) + 0.0 * leak


class NaNOnPrefill(ProofLM):
    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        is_prefill = options.get("cache") is not None and options["cache"].length == 0
        hidden = super().hidden_states(token_ids, **options)
        return hidden * torch.nan if is_prefill and token_ids.shape[1] > 3 else hidden


class Constant(ProofLM):
    def logits(self, hidden: Hidden) -> Logits:
        return super().logits(0.0 * hidden) + torch.arange(self.config.vocab_size)


class ShiftedLabels(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        return cross_entropy(logits[:, :-1], labels[:, 1:], None if mask is None else mask[:, 1:])


class MaskIgnored(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        return cross_entropy(logits, labels)


class DividesByAll(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        loss = cross_entropy(logits, labels, mask)
        return loss if mask is None else loss * mask.sum() / mask.numel()


class MeanOfRowMeans(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        if mask is None:
            return cross_entropy(logits, labels)
        rows = [cross_entropy(logits[row], labels[row], mask[row]) for row in range(len(labels))]
        return torch.stack(rows).mean()


class NoLabelsNoNumber(ProofLM):
    def loss(self, logits: Logits, labels: TokenIds, mask: TokenMask | None) -> Scalar:
        if mask is None:
            return cross_entropy(logits, labels)
        terms = logits.logsumexp(-1) - logits.gather(-1, labels.masked_fill(~mask, 0)[..., None])[..., 0]
        return terms[mask].sum() / mask.sum()


class CopiedHead(ProofLM):
    @property
    def head_weight(self) -> Float[Tensor, "V D"]:
        return self.copy  # type: ignore[return-value]


class TiedAnyway(ProofLM):
    @property
    def head_weight(self) -> Float[Tensor, "V D"]:
        return self.embedding.weight + 0.0 * self.head.weight.sum()  # type: ignore[union-attr]


class UntiedByLoading(ProofLM):
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        if self.head is None:
            become([self], CopiedHead)
            self.copy = nn.Parameter(self.embedding.weight.detach().clone())
        return result


class Reinitializes(ProofLM):
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        with torch.no_grad():
            self.final_norm.weight.fill_(1.0)
        return result


class ForgetsOnSaving(ProofLM):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        state["final_norm.weight"] = torch.ones_like(state["final_norm.weight"])
        return state


class SubtractsTiedTwice(ProofLM):
    @property
    def parameter_count(self) -> int:
        return super().parameter_count - self.embedding.weight.numel()


def _decoder(kind: type[ProofLM]) -> Callable[[ProofLM], None]:
    return lambda model: become([model], kind)


def _copy_head(model: ProofLM) -> None:
    become([model], CopiedHead)
    model.copy = nn.Parameter(model.embedding.weight.detach().clone())


def _unused_parameter(model: ProofLM) -> None:
    model.blocks[0].scale = nn.Parameter(torch.ones(model.config.d_model))


MUTANTS = (
    Mutant(
        "positions-count-padding",
        "Learned positions run over padding, so a padded row starts late (rotary positions would not show it).",
        ("padding", "oracle-logits"),
        _decoder(PositionsCountPadding),
        {"position": "learned"},
        "ndif-team/nnsight#673",
    ),
    Mutant(
        "position-remembered",
        "The position after a cached call is kept on the model and added to later calls.",
        ("cache",),
        _decoder(RemembersPosition),
        {"position": "learned"},
        "rasbt/LLMs-from-scratch#1048",
    ),
    Mutant(
        "padding-with-weight-zero",
        "Padding enters with weight 0, which does not hide a NaN.",
        ("padding",),
        _decoder(KeepsPaddingsEmbedding),
        source="pytorch/pytorch#101967",
    ),
    Mutant(
        "nan-on-prefill",
        "A first chunk of four tokens or more gives NaN.",
        ("cache",),
        _decoder(NaNOnPrefill),
    ),
    Mutant(
        "constant",
        "The logits are the same for every input, which no invariance alone would notice.",
        ("causality", "batch-independence", "cache", "padding", "oracle-logits"),
        _decoder(Constant),
    ),
    Mutant(
        "labels-shifted",
        "Labels that are aligned are shifted once more.",
        ("masked-loss", "oracle-gradients"),
        _decoder(ShiftedLabels),
        source="huggingface/transformers#36928",
    ),
    Mutant(
        "loss-mask-ignored", "Every label counts.", ("masked-loss", "oracle-gradients"), _decoder(MaskIgnored)
    ),
    Mutant(
        "loss-divided-by-all",
        "The sum is divided by all positions.",
        ("masked-loss",),
        _decoder(DividesByAll),
    ),
    Mutant(
        "mean-of-row-means",
        "Rows count the same, however few labels they have.",
        ("masked-loss",),
        _decoder(MeanOfRowMeans),
        source="huggingface/transformers#34191",
    ),
    Mutant(
        "empty-mask-nan",
        "With no label counted the loss is 0 / 0.",
        ("masked-loss",),
        _decoder(NoLabelsNoNumber),
    ),
    Mutant(
        "tied-by-copy",
        "The head is a copy of the embedding.",
        ("tying", "parameter-count"),
        _copy_head,
        source="rasbt/LLMs-from-scratch#822",
    ),
    Mutant(
        "tied-anyway",
        "The head is the embedding though declared untied; its own matrix has no effect.",
        ("tying", "oracle-logits"),
        _decoder(TiedAnyway),
        {"tie_embeddings": False},
        "huggingface/transformers#42612",
    ),
    Mutant(
        "untied-by-loading",
        "Loading gives the head a matrix of its own.",
        ("tying",),
        _decoder(UntiedByLoading),
        source="huggingface/accelerate#1204",
    ),
    Mutant(
        "reinitialized-after-loading",
        "A gain is set to 1 after loading.",
        ("save-load",),
        _decoder(Reinitializes),
        source="huggingface/transformers#46620",
    ),
    Mutant("forgotten-on-saving", "A gain is saved as 1.", ("save-load",), _decoder(ForgetsOnSaving)),
    Mutant(
        "unused-parameter",
        "A parameter is created and never used.",
        ("parameter-count",),
        _unused_parameter,
        source="lucidrains/x-transformers#352",
    ),
    Mutant(
        "tied-subtracted-twice",
        "The model subtracts the tied matrix from a count that has it once.",
        ("parameter-count",),
        _decoder(SubtractsTiedTwice),
        source="pytorch/torchtitan#3225",
    ),
)
