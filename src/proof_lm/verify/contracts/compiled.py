"""Compiled and not compiled, a decoder is one."""

from collections.abc import Iterator
from functools import partial

import torch

from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.interventions import intervene
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, SubjectError, copied
from proof_lm.verify.verdict import EXACT, Measurement


def check_compiled(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The module through ``torch.compile``, with the backend that traces it and runs what was traced.

    Its logits are those of the module as it is, to rounding, and no token moves an earlier one: code that asks
    whether it is being compiled takes another way. A subject that cannot be traced is not judged.
    """
    if probe.is_large:
        raise Inapplicable("too large to be compiled by the way")
    ids = probe.tokens("compiled", n_tokens=probe.n_short)
    others = probe.other_tokens(ids, "compiled interventions")
    compiled = subject.swapped(copied(subject.module))
    for path in subject.paths:
        torch.compiler.reset()
        compiled.module.compile(backend="aot_eager", dynamic=False)
        expected = subject.logits(ids, path)
        try:
            found = compiled.logits(ids, path)
        except SubjectError as error:
            raise Inapplicable(f"torch.compile cannot trace it: it {error}") from error
        difference = float((found - expected).abs().max())
        yield Measurement(path, "max |compiled - not|", difference, probe.logit_bound)
        call = partial(compiled.logits, path=path)
        leak = intervene(call, ids[0], others[0], range(ids.shape[1])).leak()
        yield Measurement(path, "max |change before the token|", leak.value, EXACT, leak.where)
    torch.compiler.reset()


COMPILED = Contract(
    "compiled",
    "torch.compile makes no other decoder of it.",
    frozenset({"logits"}),
    check_compiled,
    level="thorough",
    once=True,
)
