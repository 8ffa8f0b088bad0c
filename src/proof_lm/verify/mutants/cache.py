"""Faults of the cache, and of what is kept from one call to the next."""

from __future__ import annotations

from typing import Any

import torch

from proof_lm.config import DecoderConfig
from proof_lm.dims import Hidden, Int, Logits, PositionIds, Tensor, TokenIds, TokenMask
from proof_lm.model import KVCache, ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_attention, in_decoder
from proof_lm.verify.mutants.parts import LEARNED


class RemembersPosition(ProofLM):
    seen = 0

    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        positions = super().positions(token_ids, real, position_ids, cache)
        if cache is not None:
            self.seen = cache.length + token_ids.shape[1]
            return positions
        return (positions + self.seen).clamp(max=self.config.context_length - 1)


class ContinuesThePreviousCache(ProofLM):
    """A new cache does not reset the position, which the model keeps."""

    seen = 0

    def positions(
        self, token_ids: TokenIds, real: TokenMask | None, position_ids: Tensor | None, cache: KVCache | None
    ) -> PositionIds:
        positions = super().positions(token_ids, real, position_ids, cache)
        if cache is None:
            return positions
        late = self.seen if cache.length == 0 else 0
        self.seen = int(positions.max()) + 1
        return (positions + late).clamp(max=self.config.context_length - 1)


class NaNOnPrefill(ProofLM):
    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        is_prefill = options.get("cache") is not None and options["cache"].length == 0
        hidden = super().hidden_states(token_ids, **options)
        return hidden * torch.nan if is_prefill and token_ids.shape[1] > 3 else hidden


class ReadsFreeSlots(Attention):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: object = None) -> Hidden:
        output: Hidden = super().forward(hidden, context, cache)  # type: ignore[arg-type]
        if cache is not None:
            output = output + 0.0 * cache.values[:, 0].mean((1, 2))[:, None, None]  # type: ignore[attr-defined]
        return output


class MovesBeforeItSucceeds(ProofLM):
    """The cache counts tokens as they come in, not when they are through."""

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        try:
            return super().hidden_states(token_ids, **options)
        except Exception:
            cache = options.get("cache")
            if cache is not None and cache.length + token_ids.shape[1] <= cache.capacity:
                cache.advance(token_ids.shape[1])
            raise


class KeepsOrder(KVCache):
    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        self.positions = self.positions.index_select(0, rows)
        self.visible = self.visible.index_select(0, rows)


class OverwritesTheLast(KVCache):
    def check(self, config: DecoderConfig, dtype: torch.dtype, batch_size: int, n_tokens: int) -> None:
        self.length = min(self.length, self.capacity - n_tokens)
        super().check(config, dtype, batch_size, n_tokens)


class KeepsPaddingOnTruncation(KVCache):
    """Slots that are freed keep their mark of padding, which the next tokens without a mask inherit."""

    def stage(self, positions: PositionIds, mask: TokenMask | None) -> TokenMask | None:
        end = self.length + positions.shape[1]
        before = self.visible[:, self.length : end].clone()
        visible = super().stage(positions, mask)
        if mask is not None:
            return visible
        self.visible[:, self.length : end] = before
        return self.visible[:, :end] if not self.visible[:, :end].all() else visible


class GivesFaultyCache(ProofLM):
    kind: type[KVCache] = KVCache

    def new_cache(self, batch_size: int, capacity: int | None = None) -> KVCache:
        cache = super().new_cache(batch_size, capacity)
        cache.__class__ = self.kind
        return cache


class CacheKeepsOrder(GivesFaultyCache):
    kind = KeepsOrder


class CacheOverwritesTheLast(GivesFaultyCache):
    kind = OverwritesTheLast


class CacheKeepsPadding(GivesFaultyCache):
    kind = KeepsPaddingOnTruncation


class Constant(ProofLM):
    def logits(self, hidden: Hidden) -> Logits:
        return super().logits(0.0 * hidden) + torch.arange(self.config.vocab_size)


MUTANTS = (
    Mutant(
        "position-remembered",
        "The position after a cached call is kept on the model and added to later calls.",
        ("cache", "no-side-effects"),
        in_decoder(RemembersPosition),
        LEARNED,
        "rasbt/LLMs-from-scratch#1048",
        ("O47",),
    ),
    Mutant(
        "cache-continues-the-previous",
        "A new cache starts at the position at which the one before it ended.",
        ("cache", "cache-state"),
        in_decoder(ContinuesThePreviousCache),
        LEARNED,
        "time-series-foundation-models/lag-llama#81",
        ("O50",),
    ),
    Mutant(
        "nan-on-prefill",
        "A first chunk of four tokens or more gives NaN.",
        ("cache",),
        in_decoder(NaNOnPrefill),
    ),
    Mutant(
        "free-slots-read",
        "Free cache slots enter with weight 0, which does not hide a NaN.",
        ("cache",),
        in_attention(ReadsFreeSlots),
        source="pytorch/pytorch#101967",
        ids=("O13",),
    ),
    Mutant(
        "cache-moves-on-failure",
        "A call that raises leaves its tokens counted in the cache.",
        ("cache-state",),
        in_decoder(MovesBeforeItSucceeds),
    ),
    Mutant(
        "cache-not-reordered",
        "Reordering the cache leaves keys and values where they are.",
        ("cache-state",),
        in_decoder(CacheKeepsOrder),
        source="huggingface/transformers#46612",
        ids=("O49",),
    ),
    Mutant(
        "cache-overflow-overwrites",
        "A full cache takes more tokens, over its last ones.",
        ("cache-state",),
        in_decoder(CacheOverwritesTheLast),
    ),
    Mutant(
        "cache-keeps-padding",
        "Slots of padding that are freed hide the tokens that are written there next.",
        ("cache-state",),
        in_decoder(CacheKeepsPadding),
    ),
    Mutant(
        "constant",
        "The logits are the same for every input, which no invariance alone would notice.",
        (
            "causality",
            "batch-independence",
            "cache",
            "padding",
            "prefix",
            "input-gradients",
            "position-shift",
            "cache-state",
            "documents",
            "oracle-logits",
        ),
        in_decoder(Constant),
    ),
)
