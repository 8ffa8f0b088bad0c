"""One matrix where it is declared one, two where two, through everything that is done to a model."""

import pickle
from collections.abc import Callable, Iterator

import torch
from torch import nn

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject, copied, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement


def check_tying(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """A row of the head's matrix, and of the embedding, is moved for a token that does not occur.

    The head's row must move that token's logit and no other. The embedding's is the same row if declared
    tied, and must move nothing if not. Then the storages are counted, and counted again after a state dict is
    loaded (copying, then assigning), after a change of dtype, after a deep copy and after an optimizer step; of
    strict subjects also when built on the meta device and loaded, and after pickling. What the model says of itself
    is compared.
    """
    tied = subject.config.tie_embeddings
    ids, absent = probe.tokens_and_spare("tying", 1, min(5, probe.n_short))
    embedding, head = subject.embedding_and_head(subject.module)
    for path in subject.paths:
        before = subject.logits(ids, path)
        matrices = {"the embedding": embedding} if tied else {"the embedding": embedding, "the head": head}
        for name, matrix in matrices.items():
            with subject.edited(matrix, absent, matrix[absent].detach() * 1.5 + 0.1):
                moved = (subject.logits(ids, path) - before).abs().amax((0, 1))
            own = float(moved[absent])
            moved[absent] = 0.0
            where = f"row {absent} of {name} moved"
            yield Measurement(path, "max |change of other logits|", float(moved.max()), EXACT, where)
            writes = tied or name == "the head"
            yield Measurement(path, "|change of the token's logit|", own, None if writes else EXACT, where)
    yield _count("as built", subject, subject.native, tied)
    for name, treat in TREATMENTS.items():
        with subject_runs():
            treated = treat(copied(subject.native), subject, ids)
        yield _count(name, subject, treated, tied)
    if subject.strict and subject.build is not None and not probe.is_large:
        with torch.random.fork_rng(), subject_runs():
            made = {
                "built on meta, then loaded by assignment": _materialized(subject.build, subject.native),
                "after pickling": pickle.loads(pickle.dumps(subject.native)),
            }
        for name, treated in made.items():
            yield _count(name, subject, treated, tied)


def _count(name: str, subject: Subject, model: nn.Module, tied: bool) -> Measurement:
    """Storages that embedding and head are made of, against one or two; also what the model says of itself."""
    matrices = subject.embedding_and_head(model)
    storages = {matrix.untyped_storage().data_ptr() for matrix in matrices}
    wrong = abs(len(storages) - (1 if tied else 2))
    wrong += int(getattr(model, "embeddings_are_tied", tied) != tied)
    wrong += int(tied and not torch.equal(*matrices))
    return Measurement("-", "storages of embedding and head: declared - found", float(wrong), EXACT, name)


def _loaded(model: nn.Module, *, assign: bool) -> nn.Module:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)
    return model


def _materialized(build: Callable[[], nn.Module], native: nn.Module) -> nn.Module:
    with torch.device("meta"):
        model = build()
    model.load_state_dict({name: tensor.clone() for name, tensor in native.state_dict().items()}, assign=True)
    return model


def _stepped(model: nn.Module, subject: Subject, ids: Tensor) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logits = subject.swapped(model).logits(ids, subject.paths[0], with_graph=True)
    logits.square().mean().backward()
    optimizer.step()
    return model


TREATMENTS: dict[str, Callable[[nn.Module, Subject, Tensor], nn.Module]] = {
    "after load_state_dict": lambda model, subject, ids: _loaded(model, assign=False),
    "after load_state_dict(assign=True)": lambda model, subject, ids: _loaded(model, assign=True),
    "after a change of dtype": lambda model, subject, ids: model.to(torch.bfloat16),
    "after deepcopy": lambda model, subject, ids: copied(model),
    "after an optimizer step": _stepped,
}
TYING = Contract(
    "tying",
    "Embedding and head are one matrix if declared tied, two if not, and stay so.",
    frozenset({"logits", "weights"}),
    check_tying,
    level="quick",
)
