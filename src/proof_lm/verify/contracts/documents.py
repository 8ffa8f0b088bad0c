"""Documents in one row do not know of one another."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest

DROPOUT = 0.25


def check_documents(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Rows of three documents, one of a single token, cut at other places in every row.

    Each document has the logits that it has alone; in another order it has them too. As all tokens of one
    document change, the others keep every bit, and the document's own logits move (reach). Without a mask and
    with one of ones, which must give the same; with rows padded on the left; and in train mode, with dropout
    where there is any.
    """
    n_tokens = probe.n_short
    if n_tokens < 3:
        raise Inapplicable("context_length leaves no room for documents")
    ids = probe.tokens("documents", n_tokens=n_tokens)
    others = probe.other_tokens(ids, "other documents")
    cuts = 1 + torch.arange(len(ids)) % (n_tokens - 2)
    places = torch.arange(n_tokens)[None]
    documents = 7 + (places >= cuts[:, None]).long() + (places > cuts[:, None]).long()
    masks: dict[str, Tensor | None] = {"no mask": None}
    if subject.can("padding mask"):
        masks["a mask of ones"] = torch.ones_like(ids, dtype=torch.bool)
        if not probe.is_large:
            masks["left padding"] = probe.ragged_mask(*ids.shape, left=True)
    for path in subject.paths[-1:] if probe.is_large else subject.paths:
        for case, mask in masks.items():
            packed = subject.logits(ids, path, padding_mask=mask, document_ids=documents)
            yield _alone(subject, probe, path, ids, documents, mask, packed, case)
            yield from _isolated(subject, path, ids, others, documents, mask, case)
        yield _permuted(subject, probe, path, ids, documents)
        dropout = DROPOUT if subject.can("dropout") else 0.0
        with subject.training(dropout):
            found = _isolated(subject, path, ids, others, documents, None, f"train mode, dropout {dropout:g}")
            yield next(found)


def _alone(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    documents: Int[Tensor, "B T"],
    mask: Tensor | None,
    packed: Float[Tensor, "B T V"],
    case: str,
) -> Measurement:
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    worst = Largest()
    for row in range(len(ids)):
        for document in documents[row].unique().tolist():
            own = (documents[row] == document) & real[row]
            if own.any():
                alone = subject.logits(ids[row, own][None], path)[0]
                error = float((packed[row, own] - alone).abs().max())
                worst.see(error, f"row {row}, positions {own.nonzero().flatten().tolist()}")
    return Measurement(path, f"max |packed - alone|, {case}", worst.value, probe.logit_bound, worst.where)


def _isolated(
    subject: Subject,
    path: str,
    ids: Int[Tensor, "B T"],
    others: Int[Tensor, "B T"],
    documents: Int[Tensor, "B T"],
    mask: Tensor | None,
    case: str,
) -> Iterator[Measurement]:
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    packed = subject.logits(ids, path, padding_mask=mask, document_ids=documents)
    stray, reach = Largest(), Smallest()
    for document in documents.unique().tolist():
        own = documents == document
        changed = torch.where(own, others, ids)
        moved = subject.logits(changed, path, padding_mask=mask, document_ids=documents) - packed
        by_token = moved.abs().amax(-1)
        stray.see(float(by_token[~own & real].max()), f"document {document} changed")
        reach.see(float(by_token[own & real].min()), f"document {document} changed")
    yield Measurement(path, f"max |change of other documents|, {case}", stray.value, EXACT, stray.where)
    yield Measurement(path, f"min |change of the document|, {case}", reach.value, None, reach.where)


def _permuted(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], documents: Int[Tensor, "B T"]
) -> Measurement:
    """The same documents, the last first."""
    order = (-documents).argsort(dim=1, stable=True)
    packed = subject.logits(ids, path, document_ids=documents)
    permuted = subject.logits(ids.gather(1, order), path, document_ids=documents.gather(1, order))
    expected = packed.gather(1, order[..., None].expand_as(packed))
    error = float((permuted - expected).abs().max())
    return Measurement(path, "max |documents reordered|", error, probe.logit_bound)


DOCUMENTS = Contract(
    "documents",
    "A document in a packed row has the logits that it has alone, whatever the others are.",
    frozenset({"document ids"}),
    check_documents,
    level="quick",
)
