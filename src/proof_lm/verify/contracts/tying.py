"""One matrix where it is declared one, two where two, through everything that is done to a model."""

import copy
from collections.abc import Callable, Iterator

import torch

from proof_lm.model import ProofLM
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject
from proof_lm.verify.verdict import EXACT, Measurement


def check_tying(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The embedding row of an absent token is moved, and the logits are looked at.

    Tied: that token's logit moves and no other. Untied: nothing does. Then the storages are counted, and
    counted again after a state dict is loaded (copying, then assigning), after a change of dtype, after a
    deep copy and after an optimizer step; and the number that the model reports is compared.
    """
    config, tied = subject.config, subject.config.tie_embeddings
    ids = probe.tokens("tying", 1, min(5, probe.n_short))
    absent = next(token for token in range(config.vocab_size) if token not in ids)
    path = subject.paths[0]
    before = subject.logits(ids, path)
    with subject.edited(
        "embedding.weight", absent, subject.module.embedding.weight[absent].detach() * 1.5 + 0.1
    ):
        moved = (subject.logits(ids, path) - before).abs().amax((0, 1))
    own = float(moved[absent])
    moved[absent] = 0.0
    yield Measurement(path, "max |change of other logits|", float(moved.max()), EXACT, f"row {absent} moved")
    if tied:
        yield Measurement(path, "|change of the token's own logit|", own, None, f"row {absent} moved")
    else:
        yield Measurement(path, "|change of the token's own logit|", own, EXACT, f"row {absent} moved")
    yield _count("as built", subject.native, tied)
    for name, treat in TREATMENTS.items():
        yield _count(name, treat(copy.deepcopy(subject.native)), tied)


def _count(name: str, model: ProofLM, tied: bool) -> Measurement:
    """Storages that embedding and head are made of, against one or two; also what the model says of itself."""
    wanted = 1 if tied else 2
    pointers = {model.embedding.weight.data_ptr(), model.head_weight.data_ptr()}
    wrong = abs(len(pointers) - wanted) + (model.embeddings_are_tied != tied)
    wrong += int(tied and not torch.equal(model.embedding.weight, model.head_weight))
    return Measurement("-", "storages of embedding and head: declared - found", float(wrong), EXACT, name)


def _loaded(model: ProofLM, *, assign: bool) -> ProofLM:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)
    return model


def _stepped(model: ProofLM) -> ProofLM:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.arange(3)[None] % model.config.vocab_size
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
