"""Faults of the embedding's positions."""

from proof_lm.dims import Hidden, PositionIds, TokenIds, TokenMask
from proof_lm.model import ProofLM
from proof_lm.verify.mutants.mutant import Mutant, in_decoder


class LearnedSkippedForOneToken(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        hidden = super().embed(token_ids, positions, real)
        assert self.position_embedding is not None
        return hidden if token_ids.shape[1] > 1 else hidden - self.position_embedding(positions)


MUTANTS = (
    Mutant(
        "position-skipped-for-one-token",
        "Learned positions are added only to calls of two tokens or more.",
        ("cache",),
        in_decoder(LearnedSkippedForOneToken),
        {"position": "learned"},
        "ml-explore/mlx-lm#93",
    ),
)
