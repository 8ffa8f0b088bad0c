"""Gradients flow to every earlier input, and to no later one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, subject_runs
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest

DROPOUT = 0.25


def check_input_gradients(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The gradient of one logit at each position (the first, middle and last, for a large subject).

    All tokens of the row differ, so each has a row of the embedding to itself; and the logit is that of a token
    that does not occur, so that a tied head adds nothing to their rows. The gradient for every later token must
    be 0 exactly; for the token itself and every earlier one it must not be (reach; within the declared window,
    and unless attention is so sharp that weights round to zero). In eval mode; then in train mode, with dropout
    where there is any, which may cut the reach.
    """
    embedding = subject.embedding
    if embedding is None:
        raise Inapplicable("its embedding is not known")
    if not embedding.requires_grad:
        raise Inapplicable("its embedding takes no gradient")
    row, spare = distinct_tokens(subject, probe, probe.n_short)
    asked = {0, len(row) // 2, len(row) - 1} if probe.is_large else range(len(row))
    for path in subject.paths:
        sizes = gradient_sizes(subject, embedding, row, spare, path, asked)
        yield _after(path, sizes, "eval mode")
        if (sizes.tril() + torch.ones_like(sizes).triu(1) == 0.0).any():
            with subject.scaled(0.25):
                softer = gradient_sizes(subject, embedding, row, spare, path, asked)
            sizes = torch.where(softer == 0.0, sizes, sizes.clamp(min=torch.finfo(sizes.dtype).tiny))
        yield _before(subject, path, sizes)
        dropout = DROPOUT if subject.can("dropout") else 0.0
        with subject.training(dropout):
            sizes = gradient_sizes(subject, embedding, row, spare, path, asked)
        yield _after(path, sizes, f"train mode, dropout {dropout:g}")


def distinct_tokens(subject: Subject, probe: Probe, n_tokens: int) -> tuple[Int[Tensor, " T"], int]:
    """A row of up to ``n_tokens`` ids, all different, and one that is not among them.

    Raises:
        Inapplicable: the vocabulary, or the row, is too short for two.
    """
    n_tokens = min(n_tokens, subject.vocab_size - 1)
    if n_tokens < 2:
        raise Inapplicable("there are no two tokens beside a third")
    order = torch.from_numpy(probe.random("distinct tokens").permutation(subject.vocab_size))
    if subject.untrained_id is not None:
        order = torch.cat([order[order != subject.untrained_id], torch.tensor([subject.untrained_id])])
    return order[:n_tokens], int(order[n_tokens])


def gradient_sizes(
    subject: Subject,
    embedding: Tensor,
    row: Int[Tensor, " T"],
    spare: int,
    path: str,
    asked: Iterable[int],
) -> Float[Tensor, "T T"]:
    """[t, k]: the largest entry of the gradient, for token k's embedding, of the logit of ``spare`` at position t;
    -1 at positions that were not asked for."""
    logits = subject.logits(row[None], path, with_graph=True)[0, :, spare]
    sizes = torch.full((len(row), len(row)), -1.0, dtype=torch.float64)
    for t in asked:
        with subject_runs():
            (gradient,) = torch.autograd.grad(logits[t], embedding, retain_graph=True)
        sizes[t] = gradient[row].abs().amax(-1)
    return sizes


def _after(path: str, sizes: Float[Tensor, "T T"], case: str) -> Measurement:
    leak = Largest()
    for t, gradients in enumerate(sizes[:-1]):
        later = gradients[t + 1 :]
        leak.see(float(later.max()), f"position {t}, token {t + 1 + int(later.argmax())}")
    return Measurement(path, f"max |gradient for later tokens|, {case}", leak.value, EXACT, leak.where)


def _before(subject: Subject, path: str, sizes: Float[Tensor, "T T"]) -> Measurement:
    reach = Smallest()
    window = subject.window or len(sizes)
    for t, gradients in enumerate(sizes):
        for k in range(max(0, t - window + 1), t + 1):
            if gradients[k] != -1.0:
                reach.see(float(gradients[k]), f"position {t}, token {k}")
    return Measurement(path, "min |gradient for tokens up to it|", reach.value, None, reach.where)


INPUT_GRADIENTS = Contract(
    "input-gradients",
    "The gradient of a logit is zero for every later token, and for no earlier one.",
    frozenset({"logits"}),
    check_input_gradients,
    level="quick",
)
