"""Faults of accounting: the decoder is sound, and the sheet that it comes with is not."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import nn

from proof_lm.dims import Hidden, Logits
from proof_lm.model import ProofLM
from proof_lm.sheet import Flops, Operation, SavedTensor, Sheet, TensorSpec
from proof_lm.sheet.activations import Backend
from proof_lm.verify.mutants.mutant import Mutant, become, in_decoder


class CountsTiedTwice(Sheet):
    @cached_property
    def parameter_count(self) -> int:
        config = self.config
        return super().parameter_count + config.vocab_size * config.d_model


class ForgetsBias(Sheet):
    @cached_property
    def tensors(self) -> list[TensorSpec]:
        return [spec for spec in super().tensors if not spec.name.endswith("attention.out.bias")]


class ForgetsWindow(Sheet):
    @cached_property
    def visible_pairs(self) -> int:
        return self.n_tokens * (self.n_tokens + 1) // 2


class HalvesTwice(Sheet):
    @cached_property
    def visible_pairs(self) -> int:
        return super().visible_pairs // 2


class CountsMultiplyAdds(Sheet):
    @cached_property
    def forward(self) -> Flops:
        return Flops(super().forward.products // 2, super().forward.others)


class ForgetsScores(Sheet):
    @cached_property
    def operations(self) -> list[Operation]:
        return [step for step in super().operations if step.name not in ("scores", "attended")]


class WidensKeys(Sheet):
    @cached_property
    def operations(self) -> list[Operation]:
        wide = ("B", "N", "T", "H")
        return [
            replace(step, shape=wide) if step.name == "rotated key" else step for step in super().operations
        ]


class ForgetsMask(Sheet):
    def saved(self, backend: Backend) -> list[SavedTensor]:
        return [saved for saved in super().saved(backend) if saved.name != "mask"]


class CachesEveryHead(Sheet):
    @cached_property
    def cache_per_token(self) -> int:
        return super().cache_per_token * self.config.group_size


class HeadWithBias(ProofLM):
    def logits(self, hidden: Hidden) -> Logits:
        return super().logits(hidden) + self.get_parameter("head_bias")


def _head_with_bias(model: ProofLM) -> None:
    become([model], HeadWithBias)
    model.head_bias = nn.Parameter(torch.zeros(model.config.vocab_size))


def _with(sheet: type[Sheet]) -> Callable[[ProofLM], None]:
    """Gives a sound decoder this accounting."""
    return in_decoder(type(f"With{sheet.__name__}", (ProofLM,), {"accounting": sheet}))


MUTANTS = (
    Mutant(
        "tied-matrix-counted-twice",
        "The formula of the parameter count counts embedding and head of a tied decoder.",
        ("parameter-count",),
        _with(CountsTiedTwice),
    ),
    Mutant(
        "bias-left-out-of-table",
        "The table of parameters lacks the bias of the projection that leaves attention.",
        ("parameter-count",),
        _with(ForgetsBias),
    ),
    Mutant(
        "head-with-bias",
        "The head has a bias that the config knows nothing of.",
        ("parameter-count",),
        _head_with_bias,
    ),
    Mutant(
        "window-counted-as-triangle",
        "The scores of a window are counted as the whole triangle, quadratic in the length.",
        ("flops",),
        _with(ForgetsWindow),
        {"sliding_window": 5},
    ),
    Mutant(
        "triangle-halved-twice",
        "The visible scores are halved, though the triangle is half of the square already.",
        ("flops",),
        _with(HalvesTwice),
    ),
    Mutant(
        "multiply-adds-counted-once",
        "FLOPs of the forward pass are multiply-accumulates.",
        ("flops",),
        _with(CountsMultiplyAdds),
    ),
    Mutant(
        "scores-left-out",
        "The products of attention are left out, as a counter does that knows no fused kernel.",
        ("flops",),
        _with(ForgetsScores),
    ),
    Mutant(
        "keys-as-wide-as-queries",
        "The table of shapes has a key for every query head.",
        ("tensor-shapes",),
        _with(WidensKeys),
    ),
    Mutant(
        "mask-not-kept",
        "The memory of a training step lacks the masks of explicit attention.",
        ("activation-memory",),
        _with(ForgetsMask),
    ),
    Mutant(
        "cache-of-every-query-head",
        "The bytes of the cache are those of as many KV heads as query heads.",
        ("activation-memory",),
        _with(CachesEveryHead),
    ),
)
