"""Gradients: of any function of the logits, of the loss, and with activations computed twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import NUDGE, Inapplicable, Probe
from proof_lm.verify.subjects import ProofSubject, Subject, subject_runs
from proof_lm.verify.tolerance import rounding_bound, unknown_chain
from proof_lm.verify.verdict import EXACT, Largest, Measurement


def check_upstream(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The gradient of a random linear function of the logits for every entry of every parameter, against the oracle's.

    The function's coefficients, which are the upstream gradient, differ from logit to logit and by orders of
    magnitude from token to token; the first token's are 0. A backward that takes one for all, as any would do for
    the sum of the logits, shows here.
    """
    if probe.is_large:
        raise Inapplicable("too large for a second gradient of everything; that of the loss is compared")
    ids = probe.tokens("upstream", n_tokens=probe.n_short)
    random = probe.random("upstream gradients")
    upstream = random.standard_normal((*ids.shape, subject.vocab_size))
    upstream *= 10.0 ** random.uniform(-1.5, 1.5, (*ids.shape, 1))
    if ids.numel() > 1:
        upstream[0, 0] = 0.0
    expected, bound = probe.oracle_gradients(ids, upstream=upstream)
    for path in subject.paths:
        logits = subject.logits(ids, path, with_graph=True)
        found = subject.to_oracle(subject.gradients_of((logits * torch.from_numpy(upstream)).sum()))
        worst = Largest()
        for name, gradient in found.items():
            wanted = torch.from_numpy(expected[name])
            worst.see(float((wanted if gradient is None else gradient - wanted).abs().max()), name)
        yield Measurement(path, "max |gradient - oracle|, uneven upstream", worst.value, bound, worst.where)


def check_loss_gradients(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The gradient of the loss for every parameter (the vectors, of a large subject), against that of the logits
    with the upstream gradient (softmax - onehot) / n at the n counted positions, and 0 elsewhere.

    Without a mask, and with a ragged one that leaves out the first position. A backward that assumes all positions
    to have the same upstream gradient, or a mean to be over all of them, shows here.
    """
    ids = probe.tokens("loss gradients", n_tokens=min(5, probe.n_short))
    labels = probe.tokens("labels of gradients", n_tokens=ids.shape[1])
    countable = subject.countable(ids)
    if not countable.any():
        raise Inapplicable("one token: no position has a label that the subject counts")
    ragged = torch.from_numpy(probe.random("gradient mask").random(tuple(ids.shape)) < 0.6) & countable
    ragged[-1, :1] = countable[-1, :1]
    ragged[0, 0] = False
    cases: dict[str, Tensor | None] = {"no mask": None}
    if subject.can("loss mask") and ragged.any():
        cases["first position not counted"] = ragged
    named = [
        (name, parameter)
        for name, parameter in subject.module.named_parameters()
        if parameter.requires_grad and (parameter.dim() == 1 or not probe.is_large)
    ]
    for path in subject.paths[:1] if probe.is_large else subject.paths:
        for case, mask in cases.items():
            counted = countable if mask is None else mask
            loss = subject.loss(ids, labels, mask, path)
            found = _gradients(loss, [p for _, p in named])
            logits = subject.logits(ids, path, with_graph=True)
            upstream = _upstream(logits.detach(), labels, counted)
            signs = torch.from_numpy(probe.random("signs").choice([-1.0, 1.0], size=tuple(upstream.shape)))
            parameters = [p for _, p in named]
            expected = _gradients((logits * upstream).sum(), parameters, keep=True)
            nudged = _gradients((logits * upstream * (1.0 + NUDGE * signs)).sum(), parameters)
            magnitude = max(float(gradient.abs().max()) for gradient in expected)
            change = max(float((n - e).abs().max()) for n, e in zip(nudged, expected, strict=True))
            condition = max(1.0, change / (NUDGE * magnitude)) if magnitude else 1.0
            shapes = [tuple(parameter.shape) for parameter in subject.module.parameters()]
            chain = 2 * unknown_chain(shapes, ids.shape[1]) + subject.vocab_size + ids.numel()
            bound = rounding_bound(chain, magnitude, condition, unit_roundoff=subject.loss_roundoff)
            worst = Largest()
            for (name, _), gradient, wanted in zip(named, found, expected, strict=True):
                worst.see(float((gradient - wanted).abs().max()), name)
            quantity = f"max |gradient of the loss - formula|, {case}"
            yield Measurement(path, quantity, worst.value, bound, worst.where)


def _gradients(value: Scalar, parameters: list[nn.Parameter], *, keep: bool = False) -> list[Tensor]:
    """Gradients, 0 where no graph leads to a parameter."""
    with subject_runs():
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            value, parameters, allow_unused=True, retain_graph=keep
        )
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]


def _upstream(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], counted: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T V"]:
    gradient: Tensor = logits.softmax(-1) - nn.functional.one_hot(labels, logits.shape[-1])
    return gradient.masked_fill(~counted[..., None], 0.0) / counted.sum()


def check_recomputation(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Gradients with every block's activations computed again in the backward pass, against those without.

    In eval mode, and in train mode with dropout, whose random numbers must be the same the second time; both to the
    bit. A block that carries state from one call to the next differs.
    """
    if probe.is_large:
        raise Inapplicable(
            "too large to be differentiated twice; a smaller model of the class shows the same"
        )
    ids = probe.tokens("recomputation", 2, probe.n_short)
    upstream = torch.from_numpy(probe.random("recomputed").standard_normal((*ids.shape, subject.vocab_size)))
    for path in subject.paths:
        for mode, dropout in {"eval": None, "train": 0.3}.items():
            with nullcontext() if dropout is None else subject.training(dropout):
                runs = []
                for recompute in (_as_is, _recomputed):
                    with recompute(subject.module.blocks):
                        logits = subject.logits(ids, path, with_graph=True)
                        runs.append(subject.gradients_of((logits * upstream).sum()))
            worst = Largest()
            for name, gradient in runs[0].items():
                again = runs[1][name]
                if gradient is not None and again is not None:
                    worst.see(float((gradient - again).abs().max()), name)
            quantity = f"max |gradient with recomputation - without|, {mode}"
            yield Measurement(path, quantity, worst.value, EXACT, worst.where)


@contextmanager
def _as_is(blocks: nn.ModuleList) -> Iterator[None]:
    yield


@contextmanager
def _recomputed(blocks: nn.ModuleList) -> Iterator[None]:
    """Blocks that keep their input only, and run again when gradients are wanted."""
    for block in blocks:
        vars(block)["forward"] = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del vars(block)["forward"]


UPSTREAM = Contract(
    "upstream-gradients",
    "Gradients are right whatever is asked of the logits, not only for the mean loss.",
    frozenset({"weights"}),
    check_upstream,
    grows=False,
)
LOSS_GRADIENTS = Contract(
    "loss-gradients",
    "The loss sends (softmax - onehot) / n back to the n counted positions, and nothing to the others.",
    frozenset({"loss"}),
    check_loss_gradients,
    grows=False,
)
RECOMPUTATION = Contract(
    "recomputation",
    "Gradients with activations computed a second time keep every bit.",
    frozenset({"parts"}),
    check_recomputation,
    grows=False,
)
