"""Faults of tying the head to the embedding, and of counting and grouping parameters."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from proof_lm.dims import Float, Tensor
from proof_lm.model import ProofLM
from proof_lm.verify.mutants.mutant import Mutant, become, in_decoder


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


class TiedByLoading(ProofLM):
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        if self.head is not None:
            self.head.weight = self.embedding.weight
        return result


class SubtractsTiedTwice(ProofLM):
    @property
    def parameter_count(self) -> int:
        return super().parameter_count - self.embedding.weight.numel()


class GainsDecay(ProofLM):
    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        exempt = ("bias", "LayerNorm.weight")  # no parameter is called by the second
        named = list(self.named_parameters())
        return [
            {"params": [p for name, p in named if not name.endswith(exempt)], "weight_decay": weight_decay},
            {"params": [p for name, p in named if name.endswith(exempt)], "weight_decay": 0.0},
        ]


class DecaysTiedTwice(ProofLM):
    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        matrices, vectors = super().parameter_groups(weight_decay)
        return [{**matrices, "params": [*matrices["params"], self.head_weight]}, vectors]


class ForgetsBiases(ProofLM):
    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        groups = super().parameter_groups(weight_decay)
        biases = {id(p) for name, p in self.named_parameters() if name.endswith("bias")}
        return [{**group, "params": [p for p in group["params"] if id(p) not in biases]} for group in groups]


def _copy_head(model: ProofLM) -> None:
    become([model], CopiedHead)
    model.copy = nn.Parameter(model.embedding.weight.detach().clone())


def _unused_parameter(model: ProofLM) -> None:
    model.blocks[0].scale = nn.Parameter(torch.ones(model.config.d_model))


MUTANTS = (
    Mutant(
        "tied-by-copy",
        "The head is a copy of the embedding.",
        ("tying", "parameter-count"),
        _copy_head,
        source="rasbt/LLMs-from-scratch#822",
        ids=("O65",),
    ),
    Mutant(
        "tied-anyway",
        "The head is the embedding though declared untied; its own matrix has no effect.",
        ("tying", "oracle-logits", "live-parameters"),
        in_decoder(TiedAnyway),
        {"tie_embeddings": False},
        ids=("cs336:tied_head",),
    ),
    Mutant(
        "untied-by-loading",
        "Loading gives the head a matrix of its own.",
        ("tying",),
        in_decoder(UntiedByLoading),
        source="huggingface/accelerate#1204",
        ids=("O66",),
    ),
    Mutant(
        "tied-by-loading",
        "Loading ties the head to the embedding though declared untied, and loses what it was.",
        ("save-load", "tying"),
        in_decoder(TiedByLoading),
        {"tie_embeddings": False},
        "huggingface/transformers#42612",
        ids=("O67",),
    ),
    Mutant(
        "unused-parameter",
        "A parameter is created and never used.",
        ("parameter-count", "live-parameters"),
        _unused_parameter,
        source="lucidrains/x-transformers#352",
        ids=("O63",),
    ),
    Mutant(
        "tied-subtracted-twice",
        "The model subtracts the tied matrix from a count that has it once.",
        ("parameter-count",),
        in_decoder(SubtractsTiedTwice),
        source="pytorch/torchtitan#3225",
        ids=("O91",),
    ),
    Mutant(
        "gains-decay",
        "The rule that spares gains from decay looks for a name that no gain has.",
        ("optimizer-groups",),
        in_decoder(GainsDecay),
        source="karpathy/minGPT#23",
        ids=("O95",),
    ),
    Mutant(
        "tied-grouped-twice",
        "The tied matrix is in its group once as embedding and once as head.",
        ("optimizer-groups",),
        in_decoder(DecaysTiedTwice),
    ),
    Mutant("biases-in-no-group", "Biases never train.", ("optimizer-groups",), in_decoder(ForgetsBiases)),
)
