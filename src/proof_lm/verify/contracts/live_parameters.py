"""Every parameter takes part."""

from collections.abc import Iterator

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import Measurement, Smallest


def check_live_parameters(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Each trainable parameter's gradient of a random linear function of the logits, and the logits' change as the
    parameter is multiplied by 1.1 and moved by 0.1.

    Neither may be exactly zero (reach): rounding alone makes a parameter of no mathematical effect, such as a key's
    bias without rotation, differ from zero. A large subject is moved only where a gradient is missing.
    """
    if probe.n_tokens == 1 or subject.window == 1:
        raise Inapplicable("a token sees itself alone: attention has no choice")
    ids = probe.tokens("live", 1 if probe.is_large else 2, probe.n_short)
    size = (*ids.shape, subject.vocab_size)
    weights = torch.from_numpy(probe.random("live weights").standard_normal(size))
    for path in subject.paths[:1] if probe.is_large else subject.paths:
        logits = subject.logits(ids, path, with_graph=True)
        found = subject.gradients_of((logits * weights.to(logits.dtype)).sum())
        base = logits.detach()
        gradient, effect = Smallest(), Smallest()
        for name, parameter in subject.module.named_parameters():
            if not parameter.requires_grad:
                continue
            slope = found.pop(name)
            size_of_slope = 0.0 if slope is None else float(slope.abs().max())
            gradient.see(size_of_slope, name)
            if not probe.is_large or size_of_slope == 0.0:
                effect.see(_effect(subject, path, ids, parameter, base), name)
        yield Measurement(path, "min over parameters of max |gradient|", gradient.value, None, gradient.where)
        yield Measurement(path, "min |change as a parameter moves|", effect.value, None, effect.where)


def _effect(
    subject: Subject, path: str, ids: Int[Tensor, "B T"], parameter: Tensor, base: Float[Tensor, "B T V"]
) -> float:
    before = parameter.detach().clone()
    try:
        with torch.no_grad():
            parameter.mul_(1.1).add_(0.1)
        return float((subject.logits(ids, path) - base).abs().max())
    finally:
        with torch.no_grad():
            parameter.copy_(before)


LIVE_PARAMETERS = Contract(
    "live-parameters",
    "Every trainable parameter has a gradient, and moves the logits.",
    frozenset({"logits"}),
    check_live_parameters,
    level="quick",
    grows=False,
)
