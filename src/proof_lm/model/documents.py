"""Packed rows: several documents, one after the other, in one sequence."""

import torch

from proof_lm.dims import Bool, Int, PositionIds, Tensor, TokenMask


def same_document(document_ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """True at [b, t, s] where tokens t and s of row b have one document id."""
    return document_ids[:, :, None] == document_ids[:, None, :]


def document_positions(document_ids: Int[Tensor, "B T"], real: TokenMask | None) -> PositionIds:
    """The real tokens of a token's document up to and with itself, less 1, at least 0: each restarts at 0."""
    counted = same_document(document_ids).tril()
    if real is not None:
        counted = counted & real[:, None, :]
    return (counted.sum(-1) - 1).clamp(min=0)


def returns_to_document(document_ids: Int[Tensor, "B T"], real: TokenMask | None) -> Bool[Tensor, "B T"]:
    """True at the tokens that go on with a document after one of another; padding is of the document before it."""
    if real is None:
        real = torch.ones_like(document_ids, dtype=torch.bool)
    steps = torch.arange(real.shape[1], device=real.device).expand_as(real)
    last_real = steps.masked_fill(~real, 0).cummax(1).values
    begins = document_ids.gather(1, last_real).diff(dim=1, prepend=document_ids[:, :1]) != 0
    return begins & (document_positions(document_ids, real) > 0)
