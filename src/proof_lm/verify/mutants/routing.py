"""Faults outside attention by which tokens learn of one another."""

from __future__ import annotations

from proof_lm.dims import Hidden, Tensor
from proof_lm.model import ProofLM
from proof_lm.model.feed_forward import MLP
from proof_lm.verify.mutants.mutant import Mutant, become


class ChoosesTokens(MLP):
    """The half of a row with the largest first entries passes, later tokens among them."""

    def forward(self, inputs: Hidden) -> Hidden:
        ranks = inputs[..., 0].argsort(dim=1, descending=True).argsort(dim=1)
        return super().forward(inputs) * (ranks < (inputs.shape[1] + 1) // 2)[..., None]


class FixedCapacity(MLP):
    """Of those routed here only the first four of a row pass, padding included."""

    def forward(self, inputs: Hidden) -> Hidden:
        routed = self.routed(inputs)
        passes = routed & (routed.cumsum(1) <= 4)
        return super().forward(inputs) * passes[..., None]

    def routed(self, inputs: Hidden) -> Tensor:
        return inputs[..., 0] > -1.0


class SharedCapacity(FixedCapacity):
    """The capacity is of the whole batch."""

    def forward(self, inputs: Hidden) -> Hidden:
        routed = self.routed(inputs)
        taken = routed.flatten().cumsum(0).view_as(routed)
        return MLP.forward(self, inputs) * (routed & (taken <= inputs.shape[1]))[..., None]


def _in_feed_forward(kind: type[MLP]):  # type: ignore[no-untyped-def]
    def plant(model: ProofLM) -> None:
        become([block.get_submodule("feed_forward") for block in model.blocks], kind)

    return plant


MUTANTS = (
    Mutant(
        "padding-uses-capacity",
        "The feed-forward layer takes four tokens of a row, and padding counts.",
        ("padding",),
        _in_feed_forward(FixedCapacity),
        source="NVIDIA/Megatron-LM#5542",
        ids=("O19",),
    ),
    Mutant(
        "batch-shares-capacity",
        "The feed-forward layer takes as many tokens of the batch as a row has.",
        ("batch-independence",),
        _in_feed_forward(SharedCapacity),
    ),
    Mutant(
        "feed-forward-chooses-tokens",
        "Which tokens enter the feed-forward layer is decided over the whole row.",
        ("causality", "prefix", "oracle-logits"),
        _in_feed_forward(ChoosesTokens),
        source="piotrpiekos/MoSA#3",
        ids=("O20",),
    ),
)
