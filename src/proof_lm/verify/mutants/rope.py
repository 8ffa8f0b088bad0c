"""Faults of rotary positions: what is rotated, by which angle, in which precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from proof_lm import functional
from proof_lm.dims import Bool, Hidden, Keys, PositionIds, Queries, Tensor, TokenIds, Values
from proof_lm.functional import Rotation
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, attentions, become, in_attention, in_decoder
from proof_lm.verify.mutants.parts import rotation_at


class QueriesOnly(Attention):
    def rotate(self, queries: Queries, keys: Keys, context: AttentionContext) -> tuple[Queries, Keys]:
        return super().rotate(queries, keys, context)[0], keys


class ValuesToo(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        if context.rotation is not None and context.rotation.cos.shape[2] == values.shape[2]:
            values = functional.rotate(values, context.rotation)
        return super().attend(queries, keys, values, context)


class Altered(ProofLM):
    """Changes the rotation of every pass."""

    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        raise AssertionError("each fault says what it alters")

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        sound = super().context(positions, visible)
        assert sound.rotation is not None
        return replace(sound, rotation=self.alter(sound.rotation, positions))


class OtherLayout(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(layout="half" if rotation.layout == "interleaved" else "interleaved")


class Reversed(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(sin=-rotation.sin)


class BaseOff(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation_at(self, positions, theta=1.01 * self.config.rope_theta)


class DefaultBase(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation_at(self, positions, theta=10000.0)


class DoubledPositions(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation_at(self, 2 * positions)


class Lengthening(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(cos=1.001 * rotation.cos, sin=1.001 * rotation.sin)


class IgnoresPositions(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation_at(self, (positions >= 0).long().cumsum(1) - 1)


class Float32Angles(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(cos=rotation.cos.float().double(), sin=rotation.sin.float().double())


class AnglesIn(Altered):
    """Positions, frequencies and their product in one dtype."""

    def angles_dtype(self) -> torch.dtype:
        raise AssertionError("each fault says which")

    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        dtype, config = self.angles_dtype(), self.config
        pair = torch.arange(0, config.head_width, 2, dtype=torch.float64)
        frequencies = (config.rope_theta ** (-pair / config.head_width)).to(dtype)
        angles = (positions.to(dtype)[:, None, :, None] * frequencies).to(rotation.cos.dtype)
        return rotation._replace(cos=angles.cos(), sin=angles.sin())


class AnglesInBfloat16(AnglesIn):
    def angles_dtype(self) -> torch.dtype:
        return torch.bfloat16


class AnglesInModelDtype(AnglesIn):
    def angles_dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype


class FrequencyBuffer(Altered):
    """The frequencies are a buffer, which a change of dtype rounds."""

    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        frequencies = self.get_buffer("frequencies").to(rotation.cos.dtype)
        angles = positions.to(frequencies.dtype)[:, None, :, None] * frequencies
        return rotation._replace(cos=angles.cos(), sin=angles.sin())


@dataclass(frozen=True)
class TwoRotations(AttentionContext):
    """Queries turn by a rotation of their own."""

    of_queries: Rotation | None = None


class RotatesApart(Attention):
    def rotate(self, queries: Queries, keys: Keys, context: AttentionContext) -> tuple[Queries, Keys]:
        queries_too, keys = super().rotate(queries, keys, context)
        if not isinstance(context, TwoRotations) or context.of_queries is None:
            return queries_too, keys
        return functional.rotate(queries, context.of_queries), keys


class OffsetMovedByCache(ProofLM):
    """The cache adds to the offset in place, between the rotation of keys and that of queries."""

    moves = False

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        self.moves = options.get("cache") is not None and len(token_ids) > 1
        return super().hidden_states(token_ids, **options)

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        sound = super().context(positions, visible)
        if not self.moves:
            return sound
        after = rotation_at(self, positions + positions.shape[1])
        return TwoRotations(sound.backend, sound.mask, sound.rotation, sound.window, after)


def _frequency_buffer(model: ProofLM) -> None:
    pair = torch.arange(0, model.config.head_width, 2, dtype=torch.float64)
    frequencies = model.config.rope_theta ** (-pair / model.config.head_width)
    model.register_buffer("frequencies", frequencies, persistent=False)
    become([model], FrequencyBuffer)


def _offset_moved_by_cache(model: ProofLM) -> None:
    become([model], OffsetMovedByCache)
    become(attentions(model), RotatesApart)


MUTANTS = (
    Mutant(
        "rope-on-queries-only",
        "Keys are not rotated.",
        ("rope", "position-shift", "oracle-logits"),
        in_attention(QueriesOnly),
        ids=("cs336:rope_q_only",),
    ),
    Mutant(
        "rope-on-values",
        "Values are rotated too.",
        ("position-shift", "oracle-logits"),
        in_attention(ValuesToo),
        ids=("cs336:rope_on_v",),
    ),
    Mutant(
        "rope-layout-swapped",
        "The pairs of the other layout are rotated.",
        ("rope", "oracle-logits"),
        in_decoder(OtherLayout),
        source="huggingface/nanotron#427",
        ids=("O35", "cs336:rope_half_split"),
    ),
    Mutant(
        "rope-reversed",
        "Rotation is by minus the angle.",
        ("rope", "oracle-logits"),
        in_decoder(Reversed),
        ids=("cs336:rope_reverse",),
    ),
    Mutant(
        "rope-base-off",
        "The base is 1 % off.",
        ("rope", "oracle-logits"),
        in_decoder(BaseOff),
        ids=("cs336:rope_theta_1pct",),
    ),
    Mutant(
        "rope-base-default",
        "The base is the usual one, whatever the config says.",
        ("rope", "oracle-logits"),
        in_decoder(DefaultBase),
        {"rope_theta": 500.0},
        "Lightning-AI/litgpt#2217",
        ("O40",),
    ),
    Mutant(
        "rope-positions-doubled",
        "Positions are multiplied by two: distances still decide alone.",
        ("rope", "oracle-logits"),
        in_decoder(DoubledPositions),
        source="lablup/mlxcel#1324",
        ids=("O42",),
    ),
    Mutant(
        "rope-lengthens",
        "Rotation makes vectors 0.1 % longer.",
        ("rope", "oracle-logits"),
        in_decoder(Lengthening),
    ),
    Mutant(
        "positions-ignored",
        "Rotation counts from 0 in every call, whatever the given positions or the cache say.",
        ("rope", "position-shift", "cache", "oracle-logits"),
        in_decoder(IgnoresPositions),
        source="keras-team/keras-hub#1544",
        ids=("O36", "cs336:rope_ignore_positions"),
    ),
    Mutant(
        "rope-angles-narrow",
        "Cosines and sines are rounded to float32 in a float64 model.",
        ("rope", "oracle-logits"),
        in_decoder(Float32Angles),
    ),
    Mutant(
        "rope-angles-bfloat16",
        "Angles are computed in bfloat16, which has no odd integers above 256.",
        ("rope", "position-shift", "oracle-logits"),
        in_decoder(AnglesInBfloat16),
        ids=("cs336:rope_bf16_angles",),
    ),
    Mutant(
        "rope-angles-in-model-dtype",
        "Angles are computed in the model's dtype: right in float64, wrong in bfloat16.",
        ("narrow-dtypes",),
        in_decoder(AnglesInModelDtype),
        source="EleutherAI/gpt-neox#1003",
        ids=("O43",),
    ),
    Mutant(
        "rope-frequencies-cast",
        "The frequencies are a buffer that a change of dtype rounds, and that no change back restores.",
        ("narrow-dtypes",),
        _frequency_buffer,
        source="huggingface/transformers#25681",
        ids=("O44",),
    ),
    Mutant(
        "offset-moved-by-cache",
        "In batches the cache moves the offset before the queries are rotated.",
        ("cache",),
        _offset_moved_by_cache,
        source="ml-explore/mlx-lm#1097",
        ids=("O45",),
    ),
)
