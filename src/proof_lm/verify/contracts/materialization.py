"""A model that gets its weights from elsewhere is the model that they came from."""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, copied, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement


def check_materialization(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """New models that load the given one's state dict, in its own dtype, and give its logits to the bit.

    One whose parameters are replaced by the loaded tensors; for strict subjects also one that was built on the
    meta device, and whose memory held NaN before it was loaded: what is neither loaded nor computed again stays
    NaN. Then, for these, the model cast to bfloat16 and back to float32, against one whose parameters alone were
    rounded: what else it holds must not lose precision.
    """
    if subject.build is None:
        raise Inapplicable("nothing says how to make a new one")
    with torch.random.fork_rng(), subject_runs():
        is_new = subject.build() is not subject.native
    if not is_new:
        raise Inapplicable("what should make a new one gives the same one again")
    ids = probe.tokens("materialization", 2, probe.n_short)
    with subject.native_in_eval() as model:
        state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        before = {path: subject.swapped(model).logits(ids, path) for path in subject.paths}
    yield from _compare("replaced by load_state_dict(assign=True)", subject, before, ids, _assigned, state)
    if not subject.strict:
        return
    yield from _compare("built on meta, then loaded", subject, before, ids, _materialized, state)
    if probe.is_large:
        return
    rounded = _rounded(subject.native)
    before = {path: subject.swapped(rounded).logits(ids, path) for path in subject.paths}
    yield from _compare("cast to bfloat16 and back", subject, before, ids, _cast_and_back, state)


Maker = Callable[[Subject, dict[str, Tensor]], nn.Module]


def _compare(
    case: str,
    subject: Subject,
    before: dict[str, Tensor],
    ids: Tensor,
    make: Maker,
    state: dict[str, Tensor],
) -> Iterator[Measurement]:
    with torch.random.fork_rng(), subject_runs():
        made = make(subject, state).eval()
    other = subject.swapped(made)
    for path, logits in before.items():
        error = float((other.logits(ids, path) - logits).abs().max())
        yield Measurement(path, f"max |logit - the given model's|, {case}", error, EXACT)


def _assigned(subject: Subject, state: dict[str, Tensor]) -> nn.Module:
    assert subject.build is not None
    model = subject.build()
    model.load_state_dict(state, assign=True)
    return model


def _materialized(subject: Subject, state: dict[str, Tensor]) -> nn.Module:
    assert subject.build is not None
    dtype = next(subject.native.parameters()).dtype
    with torch.device("meta"):
        model = subject.build()
    model.to_empty(device="cpu").to(dtype)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.detach().fill_(torch.nan)
    model.load_state_dict(state)
    return model


def _rounded(model: nn.Module) -> nn.Module:
    rounded = copied(model).float().eval()
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.bfloat16())
    return rounded


def _cast_and_back(subject: Subject, state: dict[str, Tensor]) -> nn.Module:
    return copied(subject.native).to(torch.bfloat16).to(torch.float32)


MATERIALIZATION = Contract(
    "materialization",
    "A new model with the given one's state dict gives its logits, however it was made.",
    frozenset({"logits", "construction"}),
    check_materialization,
    grows=False,
)
