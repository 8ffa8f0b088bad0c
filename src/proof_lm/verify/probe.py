"""What a subject is probed with: tokens, positions, sizes, all from one seed."""

from __future__ import annotations

import math
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray

from proof_lm import oracle
from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Int, Tensor
from proof_lm.verify.subjects import Subject
from proof_lm.verify.tolerance import backward_chain, forward_chain, rounding_bound, unknown_chain
from proof_lm.verify.verdict import Bound

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LARGE = 10_000_000  # parameters; above it a forward pass is no longer free, so fewer are made
NUDGE = 2.0**-26  # relative perturbation that measures a condition: small, and far above rounding


class Inapplicable(Exception):  # noqa: N818 - no error: the subject is too small for the question
    """The contract has no meaning for this subject; the message says why."""


class Probe:
    """Random but repeatable inputs for one subject, and the bounds that hold for them.

    Sizes are pairwise different and no powers of two: 3 rows of up to 19 tokens for a small model (the lengths
    above 16 exist only where the context has room), 2 rows for a large one. An exhaustive probe of a small model
    takes every case where others take some.
    """

    def __init__(
        self,
        subject: Subject,
        seed: int,
        *,
        n_rows: int | None = None,
        n_tokens: int | None = None,
        exhaustive: bool = False,
    ) -> None:
        self.subject = subject
        self.seed = seed
        self.is_large = subject.parameter_count > LARGE
        self.exhaustive = exhaustive and not self.is_large
        self.n_rows = n_rows or (2 if self.is_large else 3)
        context = subject.context_length
        self.n_tokens = n_tokens or (19 if context >= 19 else min(13, context))
        self.n_short = min(7, self.n_tokens)

    def reseeded(self) -> Probe:
        """The same sizes from another seed."""
        return Probe(self.subject, self.seed + 1, n_rows=self.n_rows, n_tokens=self.n_tokens)

    def random(self, name: str) -> np.random.Generator:
        """A generator of its own for each purpose, so that contracts do not depend on one another."""
        return np.random.default_rng([self.seed, *name.encode()])

    def tokens(self, name: str, n_rows: int | None = None, n_tokens: int | None = None) -> Int[Tensor, "B T"]:
        """Token ids, uniform over the vocabulary, without the one whose embedding takes no gradient."""
        size = (n_rows or self.n_rows, n_tokens or self.n_tokens)
        ids = torch.from_numpy(self.random(name).integers(self.subject.vocab_size, size=size))
        untrained = self.subject.untrained_id
        if untrained is None:
            return ids
        return torch.where(ids == untrained, (ids + 1) % self.subject.vocab_size, ids)

    def other_tokens(self, ids: Int[Tensor, "*n"], name: str) -> Int[Tensor, "*n"]:
        """For each id a different one.

        Raises:
            Inapplicable: there is only one token id.
        """
        vocab_size = self.subject.vocab_size
        if vocab_size < 2:
            raise Inapplicable("vocab_size is 1: no token can be replaced by another")
        steps = torch.from_numpy(self.random(name).integers(1, vocab_size, size=tuple(ids.shape)))
        return (ids + steps) % vocab_size

    def tokens_and_spare(
        self, name: str, n_rows: int | None = None, n_tokens: int | None = None
    ) -> tuple[Int[Tensor, "B T"], int]:
        """Token ids, and one that is not among them.

        Raises:
            Inapplicable: there is only one token id.
        """
        spare = self.subject.vocab_size - 1
        if spare == 0:
            raise Inapplicable("vocab_size is 1: no token can be absent")
        return self.tokens(name, n_rows, n_tokens) % spare, spare

    def ragged_mask(self, n_rows: int, n_tokens: int, *, left: bool) -> Bool[Tensor, "B T"]:
        """Row b has b pads on the chosen side (but one real token at least); so row 0 has none.

        Raises:
            Inapplicable: one token leaves no room for padding.
        """
        if n_tokens < 2:
            raise Inapplicable("context_length is 1: there is no room for padding")
        pads = torch.arange(n_rows).clamp(max=n_tokens - 1)[:, None]
        places = torch.arange(n_tokens)[None]
        return places >= pads if left else places < n_tokens - pads

    @cached_property
    def logit_bound(self) -> Bound:
        """How far two right computations of this subject's logits may lie apart.

        The condition is the largest relative change of the oracle's logits when each entry of the embedding
        changes by a relative 2^-26, up or down at random.
        """
        if not self.subject.can("weights"):
            return self._logit_bound_from_outside()
        config, ids = self.subject.config, self.tokens("condition").numpy()
        weights = self.subject.weights()
        logits = oracle.decoder_forward(config, weights, ids).logits
        nudged = oracle.decoder_forward(*self._nudged(), ids).logits
        magnitude = largest(logits)
        condition = _condition(largest_difference(nudged, logits), magnitude)
        return self.rounding(forward_chain(config, self.n_tokens), magnitude, condition)

    def _logit_bound_from_outside(self) -> Bound:
        """The same for a subject whose computation is not known: its own matrices are nudged instead."""
        subject, ids, path = self.subject, self.tokens("condition"), self.subject.paths[0]
        shapes = [tuple(parameter.shape) for parameter in subject.module.parameters()]
        logits = subject.logits(ids, path)
        nudge = 2.0 * math.sqrt(subject.unit_roundoff)
        with subject.scaled(1.0 + nudge):
            change = float((subject.logits(ids, path) - logits).abs().max())
        magnitude = float(logits.abs().max())
        condition = max(1.0, change / (nudge * magnitude)) if magnitude else 1.0
        return self.rounding(unknown_chain(shapes, self.n_tokens), magnitude, condition)

    def rounding(self, chain: int, magnitude: float, condition: float = 1.0, extra: float = 0.0) -> Bound:
        """:func:`rounding_bound` in the arithmetic of the subject."""
        return rounding_bound(chain, magnitude, condition, extra, self.subject.unit_roundoff)

    def oracle_gradients(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"] | None = None,
        counted: Bool[Tensor, "B T"] | None = None,
        *,
        upstream: FloatArray | None = None,
    ) -> tuple[dict[str, FloatArray], Bound]:
        """The oracle's gradient of every parameter, and how far a right one may lie from it.

        Of the loss, or, where ``upstream`` (B, T, V) is given, of the sum of its products with the logits. The
        magnitude is the largest entry of any gradient; the condition is measured as for the logits, on the
        gradients.
        """
        config, weights = self.subject.config, self.subject.weights()
        gradients = partial(
            _gradients,
            ids=ids.numpy(),
            labels=None if labels is None else labels.numpy(),
            counted=None if counted is None else counted.numpy(),
            upstream=upstream,
        )
        exact, nudged = gradients(config, weights), gradients(*self._nudged())
        if config.tie_embeddings:
            nudged["embedding.weight"] += nudged.pop("head.weight")
        magnitude = max(largest(gradient) for gradient in exact.values())
        change = max(largest_difference(nudged[name], gradient) for name, gradient in exact.items())
        condition = _condition(change, magnitude)
        return exact, self.rounding(backward_chain(config, ids.shape[1], ids.numel()), magnitude, condition)

    def _nudged(self) -> tuple[DecoderConfig, dict[str, FloatArray]]:
        """The subject's config and weights with a slightly different embedding, and the head as it was."""
        config, weights = self.subject.config, dict(self.subject.weights())
        weights["head.weight"] = weights["embedding.weight" if config.tie_embeddings else "head.weight"]
        signs = self.random("signs").choice(np.array([-1.0, 1.0]), size=weights["embedding.weight"].shape)
        weights["embedding.weight"] = weights["embedding.weight"] * (1.0 + NUDGE * signs)
        return config.with_(tie_embeddings=False), weights


def _condition(change: float, magnitude: float) -> float:
    """Relative change by relative nudge, at least 1; 1 where everything is zero."""
    return max(1.0, change / (NUDGE * magnitude)) if magnitude else 1.0


def largest(values: FloatArray) -> float:
    """max |x|, without a second array as large as the first."""
    return float(max(values.max(), -values.min()))


def largest_difference(values: FloatArray, others: FloatArray) -> float:
    """max |x - y|."""
    return float(np.abs(values - others).max())


def _gradients(
    config: DecoderConfig,
    weights: dict[str, FloatArray],
    ids: IntArray,
    labels: IntArray | None,
    counted: BoolArray | None,
    upstream: FloatArray | None,
) -> dict[str, FloatArray]:
    trace = oracle.decoder_forward(config, weights, ids, labels, counted)
    gradients = oracle.decoder_backward(config, weights, trace, grad_logits=upstream)
    del gradients["hidden"]
    return gradients
