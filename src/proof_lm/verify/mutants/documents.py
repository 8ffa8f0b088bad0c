"""Faults of rows that hold several documents."""

from __future__ import annotations

from typing import Any

import torch

from proof_lm.dims import Bool, Hidden, Int, PositionIds, Tensor, TokenIds
from proof_lm.model import ProofLM
from proof_lm.model.attention import AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_decoder
from proof_lm.verify.mutants.parts import LEARNED


class OpenContext(AttentionContext):
    """Documents see each other."""

    def within(self, document_ids: Int[Tensor, "B T"]) -> AttentionContext:
        return self


class OpenUnderAMask(AttentionContext):
    def within(self, document_ids: Int[Tensor, "B T"]) -> AttentionContext:
        return super().within(document_ids) if self.mask is None else self


class Packed(ProofLM):
    """Isolates documents by a context of another kind."""

    kind: type[AttentionContext] = AttentionContext

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        sound = super().context(positions, visible)
        return self.kind(sound.backend, sound.mask, sound.rotation, sound.window)


class NotIsolated(Packed):
    kind = OpenContext


class NotIsolatedUnderAMask(Packed):
    kind = OpenUnderAMask


class PositionsRunOn(ProofLM):
    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        if options.get("document_ids") is not None and options.get("position_ids") is None:
            options["position_ids"] = torch.arange(token_ids.shape[1])
        return super().hidden_states(token_ids, **options)


class SeesFirstTokens(ProofLM):
    """The token at a border still belongs to the document before it."""

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        documents = options.get("document_ids")
        if documents is not None:
            options["document_ids"] = torch.cat([documents[:, :1], documents[:, :-1]], 1)
        return super().hidden_states(token_ids, **options)


MUTANTS = (
    Mutant(
        "documents-not-isolated",
        "Positions restart in every document, but attention goes across.",
        ("documents",),
        in_decoder(NotIsolated),
        source="huggingface/nanoVLM#204",
        ids=("O15",),
    ),
    Mutant(
        "documents-not-isolated-under-a-mask",
        "Where a padding mask is given, even one of ones, documents see each other.",
        ("documents",),
        in_decoder(NotIsolatedUnderAMask),
        source="huggingface/transformers#46634",
        ids=("O16",),
    ),
    Mutant(
        "document-positions-run-on",
        "Learned positions are not restarted in a row's later documents.",
        ("documents",),
        in_decoder(PositionsRunOn),
        LEARNED,
    ),
    Mutant(
        "documents-off-by-one",
        "The first token of a document counts as the last of the one before.",
        ("documents",),
        in_decoder(SeesFirstTokens),
    ),
)
