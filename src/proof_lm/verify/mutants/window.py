"""Faults of the sliding window: its width on one path, and the cache that holds as much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from proof_lm.dims import Bool, Hidden, Keys, PositionIds, Queries, Tensor, TokenIds, Values
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.verify.mutants.mutant import Mutant, in_attention, in_decoder
from proof_lm.verify.mutants.parts import WINDOWED, attend, band


class TwelveKeys(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return attend(queries, keys, values, band(queries, keys, context, 12))


class Widened(Attention):
    """Attention with another window than the declared one, sometimes."""

    def window(self, queries: Queries, keys: Keys, context: AttentionContext) -> int | None:
        raise AssertionError("each fault says which")

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        changed = replace(context, window=self.window(queries, keys, context))
        return super().attend(queries, keys, values, changed)


class OneMoreWhenExplicit(Widened):
    def window(self, queries: Queries, keys: Keys, context: AttentionContext) -> int | None:
        assert context.window is not None
        return context.window + (context.backend == "explicit")


class OneLess(Widened):
    def window(self, queries: Queries, keys: Keys, context: AttentionContext) -> int | None:
        assert context.window is not None
        return context.window - 1


class NoWindowInTraining(Widened):
    def window(self, queries: Queries, keys: Keys, context: AttentionContext) -> int | None:
        return None if self.training else context.window


class NoWindowWhenDecoding(Widened):
    def window(self, queries: Queries, keys: Keys, context: AttentionContext) -> int | None:
        return context.window if queries.shape[2] == keys.shape[2] else None


class RollsAKeyEarly(Widened):
    def window(self, queries: Queries, keys: Keys, context: AttentionContext) -> int | None:
        assert context.window is not None
        is_full = queries.shape[2] < keys.shape[2] == context.window
        return context.window - is_full


class RingWithUnwrappedMask(Attention):
    """Token s lies in slot s mod W, but slots are compared with positions that do not wrap."""

    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        n_queries, n_keys = queries.shape[2], keys.shape[2]
        window = context.window
        if window is None or n_queries == n_keys:
            return super().attend(queries, keys, values, context)
        slots = torch.arange(n_keys) % window
        positions = torch.arange(n_keys - n_queries, n_keys)
        unwrapped = slots[None] > positions[:, None] - window
        return attend(queries, keys, values, band(queries, keys, context, window) & unwrapped)


class RingKeepsPadding(ProofLM):
    """Slots of a ring that padding was written to stay hidden when tokens take their place."""

    cached = False

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        self.cached = options.get("cache") is not None
        return super().hidden_states(token_ids, **options)

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        window = self.config.sliding_window
        assert window is not None
        if visible is None or not self.cached:
            return super().context(positions, visible)
        still = visible.clone()
        for first in range(window, visible.shape[1]):
            still[:, first] &= still[:, first - window]
        still[:, -1] = visible[:, -1]
        return super().context(positions, still)


MUTANTS = (
    Mutant(
        "window",
        "Keys more than 11 tokens back are not seen.",
        ("oracle-logits",),
        in_attention(TwelveKeys),
        ids=("cs336:cap_context12",),
    ),
    Mutant(
        "window-one-more-when-explicit",
        "One of two attention paths sees a key more than the window has.",
        ("window", "oracle-logits"),
        in_attention(OneMoreWhenExplicit),
        WINDOWED,
        "huggingface/transformers#39408",
        ("O08",),
    ),
    Mutant(
        "window-one-less",
        "The window is counted without the token itself.",
        ("window", "oracle-logits"),
        in_attention(OneLess),
        WINDOWED,
    ),
    Mutant(
        "no-window-in-training",
        "In train mode the whole past is seen.",
        ("window",),
        in_attention(NoWindowInTraining),
        WINDOWED,
        "unslothai/unsloth#8253",
        ("O09",),
    ),
    Mutant(
        "no-window-when-decoding",
        "With a cache the whole past is seen.",
        ("window", "cache"),
        in_attention(NoWindowWhenDecoding),
        WINDOWED,
    ),
    Mutant(
        "window-rolled-early",
        "The cache counts as full when it is exactly full, and drops a key that the window still has.",
        ("window", "cache"),
        in_attention(RollsAKeyEarly),
        WINDOWED,
        "huggingface/transformers#37574",
        ("O48",),
    ),
    Mutant(
        "ring-with-unwrapped-mask",
        "The cache is a ring, its mask is not: after twice the window nothing is seen.",
        ("window", "cache"),
        in_attention(RingWithUnwrappedMask),
        WINDOWED,
        "Lightning-AI/litgpt#2153",
        ("O46",),
    ),
    Mutant(
        "ring-keeps-padding",
        "Slots of a ring that held padding stay hidden when later tokens take them.",
        ("cache", "padding"),
        in_decoder(RingKeepsPadding),
        WINDOWED,
        "ml-explore/mlx-lm#439",
        ("O25",),
    ),
)
