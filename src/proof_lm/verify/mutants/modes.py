"""Faults of modes and state: dropout, random numbers, what a call leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from proof_lm import functional
from proof_lm.dims import Hidden, Keys, Queries, Tensor, TokenIds, Values
from proof_lm.model import ProofLM
from proof_lm.model.attention import Attention, AttentionContext
from proof_lm.model.block import Block
from proof_lm.model.cache import CacheLayer
from proof_lm.verify.mutants.mutant import Mutant, become, in_attention, in_decoder


class DropoutInEval(Attention):
    def attend(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Queries:
        return functional.attention(
            queries,
            keys,
            values,
            mask=context.mask,
            causal=True,
            window=context.window,
            dropout_probability=self.dropout,
            backend=context.backend,
        )


class NoDropout(ProofLM):
    def train(self, mode: bool = True) -> NoDropout:
        super().train(mode)
        for module in self.modules():
            module.training = False
        return self


class ScaledInTraining(Block):
    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        output = super().forward(hidden, context, cache)
        return output * 0.9 if self.training else output


class OwnGenerator(Block):
    """Draws its dropout from a generator that recomputation does not set back."""

    def forward(self, hidden: Hidden, context: AttentionContext, cache: CacheLayer | None = None) -> Hidden:
        output = super().forward(hidden, context, cache)
        if not self.training:
            return output
        if "generator" not in vars(self):
            vars(self)["generator"] = torch.Generator().manual_seed(0)
        kept = torch.rand(output.shape, generator=vars(self)["generator"]) >= 0.1
        return output * kept / 0.9


class Reseeds(ProofLM):
    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        torch.manual_seed(0)
        return super().hidden_states(token_ids, **options)


class StaysInEval(ProofLM):
    def generate(self, token_ids: TokenIds, max_new_tokens: int, **settings: Any) -> Tensor:
        self.eval()
        return super().generate(token_ids, max_new_tokens, **settings)


class KeepsLongestMask(ProofLM):
    """Remembers that a longer row was seen, and treats shorter ones otherwise from then on."""

    longest = 0

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        hidden = super().hidden_states(token_ids, **options)
        if options.get("cache") is None:
            self.longest = max(self.longest, token_ids.shape[1])
        return hidden * (1.0 + 1e-3 * (self.longest > token_ids.shape[1]))


class BrokenByAnError(ProofLM):
    """Sets a flag for the time of a call, and forgets it when the call raises."""

    busy = False

    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        factor = 1.5 if self.busy else 1.0
        self.busy = True
        hidden = super().hidden_states(token_ids, **options) * factor
        self.busy = False
        return hidden


class CountsCalls(ProofLM):
    def hidden_states(self, token_ids: TokenIds, **options: Any) -> Hidden:
        with torch.no_grad():
            self.final_norm.weight.mul_(1.0 + 2.0**-20)
        return super().hidden_states(token_ids, **options)


def _blocks(kind: type[Block]) -> Callable[[ProofLM], None]:
    return lambda model: become(model.blocks, kind)


MUTANTS = (
    Mutant(
        "dropout-in-eval",
        "Attention drops weights in eval mode too.",
        ("determinism",),
        in_attention(DropoutInEval),
        source="pytorch/pytorch#124464",
        ids=("O79",),
    ),
    Mutant("dropout-without-effect", "Train mode drops nothing.", ("determinism",), in_decoder(NoDropout)),
    Mutant(
        "scaled-in-training",
        "Train mode differs from eval mode by more than dropout.",
        ("determinism",),
        _blocks(ScaledInTraining),
    ),
    Mutant(
        "recomputation-differs",
        "Recomputed activations are dropped by other random numbers than the first time.",
        ("recomputation",),
        _blocks(OwnGenerator),
    ),
    Mutant(
        "reseeds", "Every call seeds PyTorch's global generator.", ("no-side-effects",), in_decoder(Reseeds)
    ),
    Mutant(
        "eval-after-generating",
        "Generation switches to eval mode, and does not switch back.",
        ("no-side-effects",),
        in_decoder(StaysInEval),
    ),
    Mutant(
        "longest-row-remembered",
        "A row longer than this one, seen before, changes the result.",
        ("no-side-effects",),
        in_decoder(KeepsLongestMask),
    ),
    Mutant(
        "broken-by-an-error",
        "A call that raises leaves a flag behind that changes the next.",
        ("no-side-effects",),
        in_decoder(BrokenByAnError),
    ),
    Mutant(
        "gain-drifts",
        "Every call changes a gain a little.",
        ("no-side-effects",),
        in_decoder(CountsCalls),
    ),
)
