"""The residual stream, judged from outside: what is added to it, and what reads it at the end."""

import math
from collections.abc import Iterator
from contextlib import ExitStack

import torch

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import Bound, Measurement

SMALL, LARGE = 2.0**9, 2.0**18  # the embedding is multiplied by each
FAINT = 2.0**-12  # what every other matrix is multiplied by
GROWTH = Bound(
    0.25, 0.75, "powers are whole: 0 where a norm is the last to touch the stream, 1 where none is"
)
SHARE = Bound(
    0.05, 0.5, f"branches at {FAINT:g} leave others a share of that order, and all of it without a skip"
)


def check_final_norm(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The embedding is multiplied by 2^9, then by 2^18, and the power with which the logits grow is taken.

    Where the head reads a normalized stream they do not grow; where head and embedding are one matrix they
    grow with the first power, that of the head. The head's own power is found from a token that does not occur.
    """
    embedding, ids = _embedding(subject), probe.tokens("final norm", n_tokens=probe.n_short)
    head = _power_of_head(subject, probe, embedding)
    for path in subject.paths:
        sizes = []
        for factor in (SMALL, LARGE):
            with subject.edited(embedding, slice(None), embedding.detach() * factor):
                sizes.append(float(subject.logits(ids, path).abs().max()))
        power = math.log(sizes[1] / sizes[0]) / math.log(LARGE / SMALL) if min(sizes) else 0.0
        where = f"head and embedding are {'one matrix' if head else 'two matrices'}"
        yield Measurement(path, "power of growth with the stream", max(power - head, 0.0), GROWTH, where)


def check_skip_path(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Every matrix but embedding and head is multiplied by 2^-12, so that what the layers add is faint.

    The stream then carries each token's own embedding past them: other tokens' share in the change of a logit is
    faint too, and the own token's is not (reach). A layer that replaces its input instead of adding to it leaves
    nothing else than the others.
    """
    if probe.n_short < 2:
        raise Inapplicable("context_length is 1: there are no other tokens")
    ids = probe.tokens("skip path", n_tokens=probe.n_short)
    others = probe.other_tokens(ids, "skipped")
    own, rest = ids.clone(), others.clone()
    own[:, -1], rest[:, -1] = others[:, -1], ids[:, -1]
    layers = _layers(subject)
    for path in subject.paths:
        with ExitStack() as stack:
            for matrix in layers:
                stack.enter_context(subject.edited(matrix, slice(None), matrix.detach() * FAINT))
            before, by_own, by_others = (subject.logits(tokens, path)[:, -1] for tokens in (ids, own, rest))
        moved, stray = float((by_own - before).abs().max()), float((by_others - before).abs().max())
        yield Measurement(path, "change by the own token", moved, None)
        if moved:
            yield Measurement(path, "change by other tokens / by the own", stray / moved, SHARE)


def _embedding(subject: Subject) -> Tensor:
    if subject.embedding is None:
        raise Inapplicable("which matrix is the embedding is not known")
    return subject.embedding


def _layers(subject: Subject) -> list[Tensor]:
    """All matrices but embedding and head; without a map, all that have no side as long as the vocabulary."""
    matrices = [parameter for parameter in subject.module.parameters() if parameter.dim() > 1]
    if subject.can("weights"):
        ends = {id(matrix) for matrix in subject.embedding_and_head(subject.module)}
        return [matrix for matrix in matrices if id(matrix) not in ends]
    if _embedding(subject).shape[1] == subject.vocab_size:
        raise Inapplicable("the width equals the vocabulary: which matrix is the head is not known")
    return [matrix for matrix in matrices if subject.vocab_size not in matrix.shape]


def _power_of_head(subject: Subject, probe: Probe, embedding: Tensor) -> float:
    """1 if a row of the embedding makes the logit of its token, else 0."""
    ids, absent = probe.tokens_and_spare("final norm, head", 1, min(3, probe.n_short))
    path = subject.paths[0]
    before = subject.logits(ids, path)
    with subject.edited(embedding, absent, embedding[absent].detach() * 2.0 + 1.0):
        return float(not torch.equal(subject.logits(ids, path)[..., absent], before[..., absent]))


FINAL_NORM = Contract(
    "final-norm",
    "The head reads a normalized stream: logits do not grow with the embedding.",
    frozenset({"logits"}),
    check_final_norm,
)
SKIP_PATH = Contract(
    "skip-path",
    "Layers add to the stream: where they add little, a token's own embedding decides its logits.",
    frozenset({"logits"}),
    check_skip_path,
)
