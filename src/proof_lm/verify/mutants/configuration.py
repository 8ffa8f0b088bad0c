"""Faults that only another config shows."""

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, PositionIds, Tensor
from proof_lm.functional import rope_rotation
from proof_lm.model import ProofLM
from proof_lm.model.attention import AttentionContext
from proof_lm.model.feed_forward import MLP
from proof_lm.verify.mutants.mutant import Mutant, in_decoder, norms


class FixedBase(ProofLM):
    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        context = super().context(positions, visible)
        if context.rotation is None:
            return context
        dtype = self.embedding.weight.dtype
        rotation = rope_rotation(positions, self.config.head_width, 10000.0, self.config.rope_layout, dtype)
        return AttentionContext(context.backend, context.mask, rotation, context.window)


class FixedEps(ProofLM):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        for norm in norms(self):
            vars(norm)["eps"] = 1e-5


class NeverGated(ProofLM):
    """Looks the feed-forward layer up in a table where both names mean the plain one."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        for block in self.blocks:
            block.feed_forward = MLP(config)


MUTANTS = (
    Mutant(
        "base-of-rotation-fixed",
        "The base of the rotary frequencies is 10000, whatever the config says.",
        ("config-fields",),
        in_decoder(FixedBase),
    ),
    Mutant(
        "eps-fixed",
        "Norms have an eps of 1e-5, whatever the config says.",
        ("config-fields",),
        in_decoder(FixedEps),
    ),
    Mutant(
        "never-gated",
        "Both names of the feed-forward layer mean the plain one; a plain decoder does not notice.",
        ("config-fields",),
        in_decoder(NeverGated),
    ),
)
