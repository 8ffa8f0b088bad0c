"""Gradients, held against the loss itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from proof_lm.dims import Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.tolerance import unknown_chain
from proof_lm.verify.verdict import Bound, Largest, Measurement

N_SOME, AT_MOST = 24, 2_000_000  # parameters of a large subject, and elements of each
DECIDED = 100.0  # times what step and rounding explain


def check_gradient_directions(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """For every parameter (on further paths: all those of one kind at once) a random direction d.

    (L(p + e d) - L(p - e d)) / 2e must equal the inner product of the gradient with d. The step e is the cube
    root of the unit roundoff, times the parameter's norm. The bound is what the difference of two steps, e and
    2e, shows of the truncation, with the rounding of L over e. For a large subject d is of some of its parameters,
    together. In train mode without dropout the gradients are those of eval mode. Needs no oracle: a gradient that
    is cut off, doubled or made of another function than the forward pass shows in any decoder.
    """
    ids = probe.tokens("directions", 1 if probe.is_large else 2, probe.n_short)
    labels = probe.tokens("direction labels", *ids.shape)
    counted = subject.countable(ids)
    if not counted.any():
        return
    parameters = {name: p for name, p in subject.module.named_parameters() if p.requires_grad}
    chain = unknown_chain([tuple(p.shape) for p in subject.module.parameters()], ids.shape[1])
    for path in subject.paths[:1] if probe.is_large else subject.paths:
        loss = subject.cross_entropy(ids, labels, counted, path)
        gradients = subject.gradients_of(loss)
        noise = 20.0 * math.sqrt(chain) * subject.unit_roundoff * max(1.0, float(loss.detach()))
        groups = _some(parameters, probe) if probe.is_large else _groups(parameters, path != subject.paths[0])
        for group, names in groups.items():
            random = probe.random(f"direction {group}")
            moves = [(parameters[name], _direction(parameters[name], random)) for name in names]
            slope = sum(_inner(gradients[name], d) for name, (_, d) in zip(names, moves, strict=True))
            step = subject.unit_roundoff ** (1 / 3)
            rise = [
                _rise(subject, ids, labels, counted, path, moves, multiple * step) for multiple in (1.0, 2.0)
            ]
            rounding = 2.0 * abs(rise[1] - rise[0]) + noise / step
            derivation = f"2 |difference of two steps| + rounding of the loss / step {step:.2g}"
            bound = Bound(rounding, DECIDED * rounding, derivation)
            yield Measurement(path, "|slope - gradient . direction|", abs(rise[0] - slope), bound, group)
        if not probe.is_large:
            yield from _in_train_mode(subject, probe, path, ids, labels, counted, gradients, chain)


def _in_train_mode(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    labels: Int[Tensor, "B T"],
    counted: Tensor,
    gradients: Mapping[str, Tensor | None],
    chain: int,
) -> Iterator[Measurement]:
    """Train mode without dropout: where its logits are those of eval mode, so must its gradients be."""
    expected = subject.logits(ids, path)
    with subject.training(0.0):
        logits = subject.logits(ids, path, with_graph=True)
        trained = subject.gradients_of(nn.functional.cross_entropy(logits[counted], labels[counted]))
    moved = float((logits.detach() - expected).abs().max())
    if not moved <= probe.logit_bound.fault:
        return  # another function: *determinism* says so where it should not be
    worst = Largest()
    for name, gradient in gradients.items():
        worst.see(_distance(gradient, trained[name]), name)
    magnitude = max(_distance(gradient, None) for gradient in gradients.values())
    bound = probe.rounding(chain, magnitude)
    yield Measurement(path, "max |gradient in train mode - in eval mode|", worst.value, bound, worst.where)


def _distance(gradient: Tensor | None, other: Tensor | None) -> float:
    if gradient is None or other is None:
        return max((float(g.abs().max()) for g in (gradient, other) if g is not None), default=0.0)
    return float((gradient - other).abs().max())


def _groups(names: Iterable[str], by_kind: bool) -> dict[str, list[str]]:
    """Each name alone, or those that differ in numbers only together."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\d+", "*", name) if by_kind else name, []).append(name)
    return groups


def _some(parameters: Mapping[str, Tensor], probe: Probe) -> dict[str, list[str]]:
    """Some parameters at random, none of them so large that copies of it would matter."""
    names = [name for name, parameter in parameters.items() if parameter.numel() <= AT_MOST]
    chosen = probe.random("some parameters").permutation(len(names))[:N_SOME]
    return {f"{len(chosen)} parameters": [names[index] for index in chosen]} if len(chosen) else {}


def _inner(gradient: Tensor | None, direction: Tensor) -> float:
    return 0.0 if gradient is None else float((gradient * direction).sum())


def _direction(parameter: Tensor, random: np.random.Generator) -> Tensor:
    """A random direction as long as the parameter (or of length 1, if that is zero)."""
    values = torch.from_numpy(random.standard_normal(tuple(parameter.shape)))
    length = float(parameter.detach().double().norm()) or 1.0
    return (values * (length / float(values.norm()))).to(parameter.dtype)


@torch.no_grad()
def _rise(
    subject: Subject,
    ids: Int[Tensor, "B T"],
    labels: Int[Tensor, "B T"],
    counted: Tensor,
    path: str,
    moves: Sequence[tuple[Tensor, Tensor]],
    step: float,
) -> float:
    """The central difference along the direction; the parameters are put back to the bit."""
    before = [parameter.clone() for parameter, _ in moves]
    losses = []
    try:
        for sign in (step, -step):
            for (parameter, direction), values in zip(moves, before, strict=True):
                torch.add(values, direction, alpha=sign, out=parameter)
            losses.append(float(subject.cross_entropy(ids, labels, counted, path).detach()))
    finally:
        for (parameter, _), values in zip(moves, before, strict=True):
            parameter.copy_(values)
    return (losses[0] - losses[1]) / (2.0 * step)


GRADIENT_DIRECTIONS = Contract(
    "gradient-directions",
    "Along random directions of every parameter the loss rises as its gradient says.",
    frozenset({"logits"}),
    check_gradient_directions,
)
