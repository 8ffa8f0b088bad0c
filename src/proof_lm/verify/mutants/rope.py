"""Faults of rotary positions."""

from dataclasses import replace

from proof_lm import functional
from proof_lm.dims import Bool, Keys, PositionIds, Queries, Tensor, Values
from proof_lm.functional import Rotation, rope_rotation
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, attentions, become


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

    def again(self, positions: Tensor, *, theta: float = 1.0) -> Rotation:
        """The rotation at other positions, or with the base multiplied."""
        config = self.config
        base = config.rope_theta * theta
        return rope_rotation(
            positions, config.head_width, base, config.rope_layout, self.embedding.weight.dtype
        )


class OtherLayout(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(layout="half" if rotation.layout == "interleaved" else "interleaved")


class Reversed(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(sin=-rotation.sin)


class BaseOff(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return self.again(positions, theta=1.01)


class DoubledPositions(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return self.again(2 * positions)


class Float32Angles(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(cos=rotation.cos.float().double(), sin=rotation.sin.float().double())


class ClampedTable(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return self.again(positions.clamp(max=self.config.context_length - 1))


class Lengthening(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return rotation._replace(cos=1.001 * rotation.cos, sin=1.001 * rotation.sin)


class IgnoresPositions(Altered):
    def alter(self, rotation: Rotation, positions: PositionIds) -> Rotation:
        return self.again((positions >= 0).long().cumsum(1) - 1)


def _attention(kind: type[Attention]):  # type: ignore[no-untyped-def]
    return lambda model: become(attentions(model), kind)


def _decoder(kind: type[ProofLM]):  # type: ignore[no-untyped-def]
    return lambda model: become([model], kind)


MUTANTS = (
    Mutant(
        "rope-on-queries-only", "Keys are not rotated.", ("rope", "oracle-logits"), _attention(QueriesOnly)
    ),
    Mutant("rope-on-values", "Values are rotated too.", ("oracle-logits",), _attention(ValuesToo)),
    Mutant(
        "rope-layout-swapped",
        "The pairs of the other layout are rotated.",
        ("rope", "oracle-logits"),
        _decoder(OtherLayout),
        source="huggingface/nanotron#427",
    ),
    Mutant("rope-reversed", "Rotation is by minus the angle.", ("rope", "oracle-logits"), _decoder(Reversed)),
    Mutant(
        "rope-base-off",
        "The base is 1 % off.",
        ("rope", "oracle-logits"),
        _decoder(BaseOff),
        source="Lightning-AI/litgpt#2217",
    ),
    Mutant(
        "rope-positions-doubled",
        "Positions are multiplied by two: distances still decide alone.",
        ("rope", "oracle-logits"),
        _decoder(DoubledPositions),
        source="lablup/mlxcel#1324",
    ),
    Mutant(
        "rope-angles-narrow",
        "Cosines and sines are rounded to float32 in a float64 model.",
        ("rope", "oracle-logits"),
        _decoder(Float32Angles),
        source="EleutherAI/gpt-neox#1003",
    ),
    Mutant(
        "rope-table-clamped",
        "Positions beyond the context repeat its last one.",
        ("rope",),
        _decoder(ClampedTable),
        source="pegainfer-project/pegainfer#220",
    ),
    Mutant(
        "rope-lengthens",
        "Rotation makes vectors 0.1 % longer.",
        ("rope", "oracle-logits"),
        _decoder(Lengthening),
    ),
    Mutant(
        "positions-ignored",
        "Rotation counts from 0 in every call, whatever the given positions or the cache say.",
        ("rope", "cache", "oracle-logits"),
        _decoder(IgnoresPositions),
        source="keras-team/keras-hub#1544",
    ),
)
