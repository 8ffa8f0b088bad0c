"""Faults of padding: who sees it, and what it does to positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from proof_lm.dims import Bool, Hidden, Keys, PositionIds, Queries, Tensor, TokenIds, TokenMask, Values
from proof_lm.model import KVCache, ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_attention, in_decoder
from proof_lm.verify.mutants.parts import LEARNED


class IgnoresPadding(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return super().attend(queries, keys, values, replace(context, mask=None))


class FirstRowsPadding(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        mask = None if context.mask is None else context.mask[:1].expand_as(context.mask)
        return super().attend(queries, keys, values, replace(context, mask=mask))


class PositionsCountPadding(ProofLM):
    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        if position_ids is not None:
            return super().positions(token_ids, real, position_ids, cache)
        start = 0 if cache is None else cache.length
        return torch.arange(start, start + token_ids.shape[1]).expand_as(token_ids)


class PositionsOfSlots(PositionsCountPadding):
    """After the first chunk, the position of every row is the cache's length."""

    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        if cache is None or cache.length == 0:
            return ProofLM.positions(self, token_ids, real, position_ids, cache)
        return super().positions(token_ids, real, position_ids, cache)


class PositionsFromFirstReal(ProofLM):
    """Positions are counted from the first real token on, padding in between included."""

    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        positions = super().positions(token_ids, real, position_ids, cache)
        if real is None or position_ids is not None:
            return positions
        return positions + (~real & (real.cumsum(1) > 0)).long().cumsum(1)


class ForgetsPaddingInCache(ProofLM):
    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        continues = visible is not None and visible.shape[1] > positions.shape[1]
        return super().context(positions, None if continues else visible)


class KeepsPaddingsEmbedding(ProofLM):
    def embed(self, token_ids: TokenIds, positions: PositionIds, real: TokenMask | None) -> Hidden:
        hidden = super().embed(token_ids, positions, None)
        if real is None:
            return hidden
        leak = self.embedding(token_ids).masked_fill(real[..., None], 0.0).sum(1, keepdim=True)
        return hidden.masked_fill(~real[..., None], 0.0) + 0.0 * leak


class OverwritesIds(ProofLM):
    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        mask = options.get("padding_mask")
        if mask is not None:
            token_ids[mask == 0] = 0
        return super().hidden_states(token_ids, **options)


class AcceptsAdditiveMask(ProofLM):
    """Whatever is not 0 in a mask counts as visible: so an additive mask shows what it hides."""

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        mask = options.get("padding_mask")
        return super().hidden_states(
            token_ids, **{**options, "padding_mask": None if mask is None else mask.bool()}
        )


MUTANTS = (
    Mutant(
        "padding-ignored",
        "Attention drops the padding mask.",
        ("padding", "padded-generation", "oracle-logits"),
        in_attention(IgnoresPadding),
        source="ml-explore/mlx-lm#1906",
        ids=("O24",),
    ),
    Mutant(
        "padding-of-first-row",
        "Every row gets the padding mask of the first.",
        ("padding", "oracle-logits"),
        in_attention(FirstRowsPadding),
    ),
    Mutant(
        "positions-count-padding",
        "Learned positions run over padding, so a padded row starts late (rotary positions would not show it).",
        ("padding", "padded-generation", "oracle-logits"),
        in_decoder(PositionsCountPadding),
        LEARNED,
        "ndif-team/nnsight#673",
        ("O23",),
    ),
    Mutant(
        "positions-shared-when-decoding",
        "Once there is a cache all rows continue at its length, whatever padding they had.",
        ("cache", "padding", "padded-generation"),
        in_decoder(PositionsOfSlots),
        LEARNED,
        "unslothai/unsloth#3699",
        ("O21",),
    ),
    Mutant(
        "queries-at-slot-index",
        "Keys are rotated by a row's own positions, later queries by the slot that they take in the cache.",
        ("cache", "padding"),
        in_decoder(PositionsOfSlots),
        source="scouzi1966/maclocal-api#92",
        ids=("O26",),
    ),
    Mutant(
        "positions-count-holes",
        "Padding inside a row counts as a position.",
        ("padding",),
        in_decoder(PositionsFromFirstReal),
    ),
    Mutant(
        "padding-forgotten-in-cache",
        "After the first chunk the padding in the cache becomes visible.",
        ("cache", "padding", "padded-generation"),
        in_decoder(ForgetsPaddingInCache),
        source="unslothai/unsloth#1066",
        ids=("O22",),
    ),
    Mutant(
        "padding-with-weight-zero",
        "Padding enters with weight 0, which does not hide a NaN.",
        ("padding",),
        in_decoder(KeepsPaddingsEmbedding),
        source="pytorch/pytorch#101967",
        ids=("O13",),
    ),
    Mutant(
        "ids-overwritten",
        "The caller's token ids are set to 0 under the padding.",
        ("padding",),
        in_decoder(OverwritesIds),
    ),
    Mutant(
        "additive-mask-taken-for-boolean",
        "An additive mask of 0 and -inf is accepted, and shows what it hides.",
        ("padding",),
        in_decoder(AcceptsAdditiveMask),
    ),
)
