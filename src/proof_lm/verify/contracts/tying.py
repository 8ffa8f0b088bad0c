"""One matrix where it is declared one, two where two, through everything that is done to a model."""

import copy
from collections.abc import Callable, Iterator

import torch

from proof_lm.model import ProofLM
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement


def check_tying(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """A row of the head's matrix, and of the embedding, is moved for a token that does not occur.

    The head's row must move that token's logit and no other. The embedding's is the same row if declared
    tied, and must move nothing if not. Then the storages are counted, and counted again after a state dict is
    loaded (copying, then assigning), after a change of dtype, after a deep copy and after an optimizer step;
    and what the model says of itself is compared.
    """
    tied = subject.config.tie_embeddings
    ids, absent = probe.tokens_and_spare("tying", 1, min(5, probe.n_short))
    for path in subject.paths:
        before = subject.logits(ids, path)
        for name in ("embedding.weight",) if tied else ("embedding.weight", "head.weight"):
            row = subject.module.get_parameter(name)[absent].detach()
            with subject.edited(name, absent, row * 1.5 + 0.1):
                moved = (subject.logits(ids, path) - before).abs().amax((0, 1))
            own = float(moved[absent])
            moved[absent] = 0.0
            where = f"row {absent} of {name} moved"
            yield Measurement(path, "max |change of other logits|", float(moved.max()), EXACT, where)
            writes = tied or name == "head.weight"
            yield Measurement(path, "|change of the token's logit|", own, None if writes else EXACT, where)
    yield _count("as built", subject.native, tied)
    for name, treat in TREATMENTS.items():
        with subject_runs():
            treated = treat(copy.deepcopy(subject.native))
        yield _count(name, treated, tied)


def _count(name: str, model: ProofLM, tied: bool) -> Measurement:
    """Storages that embedding and head are made of, against one or two; also what the model says of itself."""
    matrices = (model.embedding.weight, model.head_weight)
    storages = {matrix.untyped_storage().data_ptr() for matrix in matrices}
    wrong = abs(len(storages) - (1 if tied else 2)) + (model.embeddings_are_tied != tied)
    wrong += int(tied and not torch.equal(*matrices))
    return Measurement("-", "storages of embedding and head: declared - found", float(wrong), EXACT, name)


def _loaded(model: ProofLM, *, assign: bool) -> ProofLM:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)
    return model


def _stepped(model: ProofLM) -> ProofLM:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.arange(min(3, model.config.context_length))[None] % model.config.vocab_size
    loss = model(ids, ids)[1]
    loss.backward()
    optimizer.step()
    return model


TREATMENTS: dict[str, Callable[[ProofLM], ProofLM]] = {
    "after load_state_dict": lambda model: _loaded(model, assign=False),
    "after load_state_dict(assign=True)": lambda model: _loaded(model, assign=True),
    "after a change of dtype": lambda model: model.to(torch.bfloat16),
    "after deepcopy": copy.deepcopy,
    "after an optimizer step": _stepped,
}
TYING = Contract(
    "tying",
    "Embedding and head are one matrix if declared tied, two if not, and stay so.",
    frozenset({"logits", "storage"}),
    check_tying,
)
