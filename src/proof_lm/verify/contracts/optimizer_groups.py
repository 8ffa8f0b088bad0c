"""What weight decay reaches."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject, copied, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement

DECAY = 0.1


def check_optimizer_groups(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The groups that the model hands to an optimizer.

    Every parameter is in one of them, once, a tied matrix too. Those with two dimensions or more decay, gains
    and biases do not. For a small subject: a step of AdamW with a gradient of zero shrinks the former
    (reach) and leaves every bit of the latter.
    """
    native = subject.native
    groups = _groups(native)
    names = {id(parameter): name for name, parameter in native.named_parameters()}
    times = Counter(id(parameter) for group in groups for parameter in group["params"])
    wrong = sorted(name for key, name in names.items() if times[key] != 1)
    strangers = sum(key not in names for key in times)
    yield _count("parameters not in exactly one group", wrong, strangers)
    can_step = not (wrong or strangers or probe.is_large)
    decaying = {id(p) for group in groups if group["weight_decay"] > 0 for p in group["params"]}
    wrong = sorted(names[id(p)] for p in native.parameters() if (p.dim() > 1) != (id(p) in decaying))
    yield _count("parameters that decay, or do not, against their kind", wrong)
    if can_step:
        yield from _step(native)


def _step(native: nn.Module) -> Iterator[Measurement]:
    model = copied(native)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with subject_runs():
        optimizer = torch.optim.AdamW(_groups(model), lr=0.1)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    matrices = {name for name, parameter in before.items() if parameter.dim() > 1 and bool(parameter.any())}
    yield _count("vectors that moved without a gradient", sorted(moved - matrices))
    yield Measurement("-", "matrices that shrank", float(len(moved & matrices)), None)
    yield _count("matrices that did not shrink", sorted(matrices - moved))


def _groups(model: Any) -> list[dict[str, Any]]:
    with subject_runs():
        return [{**group, "params": list(group["params"])} for group in model.parameter_groups(DECAY)]


def _count(quantity: str, names: list[str], more: int = 0) -> Measurement:
    return Measurement("-", quantity, float(len(names) + more), EXACT, ", ".join(names[:3]))


OPTIMIZER_GROUPS = Contract(
    "optimizer-groups",
    "Every parameter is in one optimizer group; matrices decay, gains and biases do not.",
    frozenset({"parameter groups"}),
    check_optimizer_groups,
    level="quick",
    grows=False,
    once=True,
)
