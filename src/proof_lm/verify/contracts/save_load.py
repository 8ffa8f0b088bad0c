"""What is saved is what comes back, to the bit."""

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from proof_lm.dims import Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.model import ProofLM
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement
from proof_lm.weights import load_proof_lm, save_proof_lm


def check_save_load(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """In the model's own dtype: through a directory on disk, and through a state dict into a scrambled copy.

    Counted are the tensors that differ in any bit or are missing on one side; then the logits are compared.
    The copy starts with every parameter at 0.5, so that what a load leaves out shows.
    """
    ids = probe.tokens("save", 2, probe.n_short)
    with subject.native_in_eval() as model:
        before = {path: _logits(model, ids, path) for path in subject.paths}
        with subject_runs(), tempfile.TemporaryDirectory() as folder:
            save_proof_lm(model, Path(folder) / "model")
            loaded = load_proof_lm(Path(folder) / "model")
        yield from _compare("directory", model, loaded, before, ids)
        del loaded
        scrambled = copy.deepcopy(model)
        for parameter in scrambled.parameters():
            parameter.detach().fill_(0.5)
        with subject_runs():
            scrambled.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
        yield from _compare("state dict", model, scrambled, before, ids)


def _compare(
    case: str,
    model: ProofLM,
    loaded: ProofLM,
    before: dict[AttentionBackend, Tensor],
    ids: Tensor,
) -> Iterator[Measurement]:
    saved, found = dict(model.named_parameters()), dict(loaded.named_parameters())
    different = [name for name in saved.keys() | found.keys() if not _same(saved.get(name), found.get(name))]
    where = ", ".join(sorted(different)[:3])
    yield Measurement("-", f"tensors that differ, {case}", float(len(different)), EXACT, where)
    for path, logits in before.items():
        error = float((_logits(loaded, ids, path) - logits).abs().max())
        yield Measurement(path, f"max |logit loaded - saved|, {case}", error, EXACT)


@torch.no_grad()
def _logits(model: ProofLM, ids: Tensor, path: AttentionBackend) -> Tensor:
    before, model.attention_backend = model.attention_backend, path
    try:
        with subject_runs():
            return model(ids)[0]
    finally:
        model.attention_backend = before


def _same(saved: Tensor | None, found: Tensor | None) -> bool:
    return (
        saved is not None
        and found is not None
        and saved.dtype == found.dtype
        and torch.equal(saved.view(torch.uint8), found.view(torch.uint8))
    )


SAVE_LOAD = Contract(
    "save-load",
    "A model saved and loaded has identical tensors and logits.",
    frozenset({"storage"}),
    check_save_load,
)
