"""What is saved is what comes back, to the bit."""

from collections.abc import Iterator

import torch
from torch import nn

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Measurement


def check_save_load(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """In the model's own dtype: through a directory on disk, where the subject has a format of its own, and
    through a state dict into a scrambled copy.

    Counted are the tensors that differ in any bit or are missing on one side; then the logits are compared.
    The copy starts with every parameter at 0.5, so that what a load leaves out shows.
    """
    ids = probe.tokens("save", 2, probe.n_short)
    with subject.native_in_eval() as model:
        own = subject.swapped(model)
        before = {path: own.logits(ids, path) for path in subject.paths}
        for case, loaded in subject.saved_and_loaded(model):
            yield from _compare(case, subject, loaded, before, ids)


def _compare(
    case: str, subject: Subject, loaded: nn.Module, before: dict[str, Tensor], ids: Tensor
) -> Iterator[Measurement]:
    saved, found = dict(subject.native.named_parameters()), dict(loaded.named_parameters())
    different = [name for name in saved.keys() | found.keys() if not _same(saved.get(name), found.get(name))]
    where = ", ".join(sorted(different)[:3])
    yield Measurement("-", f"tensors that differ, {case}", float(len(different)), EXACT, where)
    restored = subject.swapped(loaded)
    for path, logits in before.items():
        error = float((restored.logits(ids, path) - logits).abs().max())
        yield Measurement(path, f"max |logit loaded - saved|, {case}", error, EXACT)


def _same(saved: Tensor | None, found: Tensor | None) -> bool:
    return (
        saved is not None
        and found is not None
        and saved.dtype == found.dtype
        and torch.equal(_bits(saved), _bits(found))
    )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


SAVE_LOAD = Contract(
    "save-load",
    "A model saved and loaded has identical tensors and logits.",
    frozenset({"storage"}),
    check_save_load,
    once=True,
)
