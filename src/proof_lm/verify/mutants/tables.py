"""Faults of positions that depend on a table's end, on the number of tokens, or on what was seen before."""

from __future__ import annotations

import torch

from proof_lm.dims import Bool, Hidden, PositionIds, Tensor, TokenIds, TokenMask
from proof_lm.functional import Rotation
from proof_lm.model import KVCache, ProofLM
from proof_lm.model.attention import AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_decoder
from proof_lm.verify.mutants.parts import LEARNED, rotation_at
from proof_lm.verify.mutants.rope import Altered

TRAINED = 4  # tokens up to which a scaled base is the declared one


class ClampedTable(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation_at(self, positions.clamp(max=self.config.context_length - 1))


class WrappedTable(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation_at(self, positions % self.config.context_length)


class GrownTable(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        grown = rotation_at(self, positions, theta=10000.0)
        first = (positions < self.config.context_length)[:, None, :, None]
        return rotation._replace(
            cos=torch.where(first, rotation.cos, grown.cos), sin=torch.where(first, rotation.sin, grown.sin)
        )


class ScaledWhenDecoding(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        if positions.shape[1] > 1:
            return rotation
        return rotation_at(self, positions, theta=8.0 * self.config.rope_theta)


class BaseOfLongest(Altered):
    longest = TRAINED

    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        self.longest = max(self.longest, int(positions.max()) + 1)
        return rotation_at(self, positions, theta=self.config.rope_theta * self.longest / TRAINED)


class StartsAtOne(ProofLM):
    """Learned positions count from 1."""

    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        positions = super().positions(token_ids, real, position_ids, cache)
        return (positions + 1).clamp(max=self.config.context_length - 1)


class NoPositionForOneToken(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        hidden = super().embed(token_ids, positions, real)
        if token_ids.shape[1] > 1:
            return hidden
        assert self.position_embedding is not None
        return hidden - self.position_embedding(positions)


class OneRotationForAllRows(ProofLM):
    """Every row is rotated by the first one's positions."""

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        return super().context(positions[:1].expand_as(positions), visible)


MUTANTS = (
    Mutant(
        "rope-table-clamped",
        "Positions beyond the context repeat its last one.",
        ("rope", "position-shift"),
        in_decoder(ClampedTable),
        source="pegainfer-project/pegainfer#220",
        ids=("O37",),
    ),
    Mutant(
        "rope-table-wrapped",
        "Positions beyond the context begin at 0 again.",
        ("rope", "position-shift"),
        in_decoder(WrappedTable),
    ),
    Mutant(
        "rope-table-grown",
        "Positions beyond the context are rotated by the usual base, not by the declared one.",
        ("rope", "position-shift"),
        in_decoder(GrownTable),
        {"rope_theta": 500.0},
        "sgl-project/sglang#35171",
        ("O38",),
    ),
    Mutant(
        "rope-scaled-when-decoding",
        "A single token is rotated with a scaled base.",
        ("cache",),
        in_decoder(ScaledWhenDecoding),
        source="Xilinx/mlir-air#1948",
        ids=("O39",),
    ),
    Mutant(
        "rope-base-of-longest",
        "The base grows with the longest sequence seen so far, and never shrinks again.",
        ("prefix",),
        in_decoder(BaseOfLongest),
        source="huggingface/transformers#25104",
        ids=("O41",),
    ),
    Mutant(
        "learned-positions-from-one",
        "Learned positions count from 1.",
        ("oracle-logits",),
        in_decoder(StartsAtOne),
        LEARNED,
    ),
    Mutant(
        "no-position-for-one-token",
        "A single token gets no learned position.",
        ("prefix", "cache"),
        in_decoder(NoPositionForOneToken),
        LEARNED,
        "ml-explore/mlx-lm#93",
        ("O51",),
    ),
    Mutant(
        "positions-of-first-row",
        "Every row is rotated by the positions of the first.",
        ("oracle-logits", "position-shift"),
        in_decoder(OneRotationForAllRows),
    ),
)
