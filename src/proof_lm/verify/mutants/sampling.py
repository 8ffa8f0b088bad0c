"""Faults of choosing the next token, and of stopping."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from proof_lm.dims import Bool, Float, Int, Tensor, TokenIds
from proof_lm.generate import keep_top_k, keep_top_p, next_token_distribution
from proof_lm.model import ProofLM
from proof_lm.verify.mutants.mutant import Mutant, in_decoder


class Sampler(ProofLM):
    """The loop of :mod:`proof_lm.generate` in short, with the steps that a fault replaces as methods."""

    def generate(
        self,
        token_ids: TokenIds,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_ids: Sequence[int] = (),
        padding_mask: Tensor | None = None,
    ) -> Int[Tensor, "B _"]:
        generator = torch.Generator().manual_seed(seed or 0)
        cache = self.new_cache(token_ids.shape[0], token_ids.shape[1] + max_new_tokens)
        finished = torch.zeros(len(token_ids), dtype=torch.bool)
        ids, given = token_ids, token_ids
        for _ in range(max_new_tokens):
            with torch.no_grad():
                logits = self.next_logits(given, cache=cache, padding_mask=padding_mask)
            padding_mask = None
            if temperature == 0.0:
                drawn = self.best(logits)
            else:
                drawn = self.draw(self.distribution(logits, temperature, top_k, top_p), generator)
            tokens = self.keep_finished(finished, ids[:, -1], drawn)
            ids = torch.cat([ids, tokens[:, None]], 1)
            finished = self.now_finished(finished, torch.isin(tokens, torch.tensor(list(stop_ids))))
            if stop_ids and finished.all():
                break
            given = tokens[:, None]
        return ids

    def best(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, " B"]:
        return logits.argmax(-1)

    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        return next_token_distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p)

    def draw(self, distribution: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
        return torch.multinomial(distribution, 1, generator=generator)[:, 0]

    def keep_finished(
        self, finished: Bool[Tensor, " B"], last: Int[Tensor, " B"], drawn: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        return torch.where(finished, last, drawn)

    def now_finished(self, finished: Bool[Tensor, " B"], stopped: Bool[Tensor, " B"]) -> Bool[Tensor, " B"]:
        return finished | stopped


class TinyFill(Sampler):
    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        if top_k is not None:
            logits = keep_top_k(logits, top_k)
            logits = logits.masked_fill(logits == -math.inf, 1e-10)  # -1e10 was meant
        return super().distribution(logits, temperature, None, top_p)


class NucleusWithoutCrossing(Sampler):
    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        distribution = super().distribution(logits, temperature, top_k, None)
        if top_p is None:
            return distribution
        ordered, order = distribution.sort(descending=True)
        kept = ordered.cumsum(-1) <= top_p
        kept[:, 0] = True
        distribution = distribution * torch.zeros_like(kept).scatter_(-1, order, kept)
        return distribution / distribution.sum(-1, keepdim=True)


class OneTooMany(Sampler):
    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        return super().distribution(logits, temperature, None if top_k is None else top_k + 1, top_p)


class NucleusOfTheWhole(Sampler):
    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        distribution = super().distribution(logits, temperature, None, None)
        if top_k is not None:
            distribution = distribution * (keep_top_k(distribution.log(), top_k) > -math.inf)
        if top_p is not None:
            ordered, order = distribution.sort(descending=True)
            before = ordered.cumsum(-1) - ordered  # of a mass that top-k has taken from
            distribution = distribution * torch.zeros_like(distribution).scatter_(
                -1, order, (before < top_p).to(distribution.dtype)
            )
        return distribution / distribution.sum(-1, keepdim=True)


class TemperatureAfterNucleus(Sampler):
    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        if top_p is not None:
            logits = keep_top_p(logits if top_k is None else keep_top_k(logits, top_k), top_p)
        return super().distribution(logits, temperature, top_k, None)


class TemperatureMultiplies(Sampler):
    def distribution(
        self, logits: Float[Tensor, "B V"], temperature: float, top_k: int | None, top_p: float | None
    ) -> Float[Tensor, "B V"]:
        return super().distribution(logits, 1.0 / temperature, top_k, top_p)


class CoarseUniform(Sampler):
    def draw(self, distribution: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
        uniform = torch.rand(len(distribution), 1, generator=generator, dtype=torch.bfloat16)
        return (uniform <= distribution.cumsum(-1)).int().argmax(-1)  # a 0 finds a token of no mass


class OneDrawForAll(Sampler):
    def draw(self, distribution: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
        uniform = torch.rand(1, 1, generator=generator, dtype=torch.float64)
        return (uniform < distribution.cumsum(-1)).int().argmax(-1)


class LeastProbable(Sampler):
    def best(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, " B"]:
        return logits.topk(min(2, logits.shape[-1])).indices[:, -1]


class StopsDownTheBatch(Sampler):
    def now_finished(self, finished: Bool[Tensor, " B"], stopped: Bool[Tensor, " B"]) -> Bool[Tensor, " B"]:
        return finished | (stopped.cumsum(0) > 0)


class FinishedRowsGoOn(Sampler):
    def keep_finished(
        self, finished: Bool[Tensor, " B"], last: Int[Tensor, " B"], drawn: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        return drawn


class StopsWithTheFirst(Sampler):
    def now_finished(self, finished: Bool[Tensor, " B"], stopped: Bool[Tensor, " B"]) -> Bool[Tensor, " B"]:
        return (finished | stopped).any().expand_as(finished)


MUTANTS = (
    Mutant(
        "filled-with-tiny",
        "Tokens outside the top k get the logit 1e-10, where -1e10 was meant.",
        ("sampling",),
        in_decoder(TinyFill),
        source="karpathy/minGPT#10",
        ids=("O83",),
    ),
    Mutant(
        "nucleus-without-crossing",
        "The token that crosses p is dropped, so the nucleus holds less than p.",
        ("sampling",),
        in_decoder(NucleusWithoutCrossing),
        source="rasbt/reasoning-from-scratch#164",
        ids=("O84",),
    ),
    Mutant(
        "top-k-plus-one",
        "Top-k keeps k + 1 tokens.",
        ("sampling",),
        in_decoder(OneTooMany),
        source="kingoflolz/mesh-transformer-jax#164",
        ids=("O85",),
    ),
    Mutant(
        "nucleus-of-the-whole",
        "Top-p counts mass that top-k has taken away.",
        ("sampling",),
        in_decoder(NucleusOfTheWhole),
        source="ml-explore/mlx-lm#388",
        ids=("O86",),
    ),
    Mutant(
        "temperature-after-nucleus",
        "The nucleus is chosen before the temperature acts.",
        ("sampling",),
        in_decoder(TemperatureAfterNucleus),
    ),
    Mutant(
        "temperature-multiplies",
        "Logits are multiplied by the temperature.",
        ("sampling",),
        in_decoder(TemperatureMultiplies),
    ),
    Mutant(
        "zero-mass-drawn",
        "A uniform number of 0 draws the first token, whatever its mass.",
        ("sampling",),
        in_decoder(CoarseUniform),
        source="huggingface/transformers#23088",
        ids=("O88",),
    ),
    Mutant("one-draw-for-all", "All rows share one random number.", ("sampling",), in_decoder(OneDrawForAll)),
    Mutant(
        "second-best", "Greedy decoding takes the second best token.", ("greedy",), in_decoder(LeastProbable)
    ),
    Mutant(
        "stops-down-the-batch",
        "A row that stops stops the rows after it.",
        ("greedy",),
        in_decoder(StopsDownTheBatch),
        source="keras-team/keras-hub#1029",
        ids=("O89",),
    ),
    Mutant(
        "finished-rows-go-on",
        "A row goes on after its stop until all rows have stopped.",
        ("greedy",),
        in_decoder(FinishedRowsGoOn),
        source="mistralai/mistral-inference#270",
        ids=("O90",),
    ),
    Mutant(
        "first-stop-stops-all", "The first row to stop stops all.", ("greedy",), in_decoder(StopsWithTheFirst)
    ),
)
