"""What the decoder accepts: checked before anything is computed, skipped while compiling."""

import torch

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Int, Tensor
from proof_lm.errors import InputError
from proof_lm.model.documents import returns_to_document


def check_tokens(config: DecoderConfig, token_ids: Tensor, start: int) -> None:
    """(B, T) integer ids in [0, V), ending within the context.

    Raises:
        InputError: says which rule is broken, and where.
    """
    _check_integers("token_ids", token_ids)
    if token_ids.dim() != 2 or 0 in token_ids.shape:
        raise InputError(
            f"token_ids must have shape (batch, time), neither of them 0, got {tuple(token_ids.shape)}"
        )
    n_tokens = token_ids.shape[1]
    if start + n_tokens > config.context_length:
        held = f" after {start} in the cache" if start else ""
        raise InputError(
            f"{n_tokens} tokens{held} exceed context_length = {config.context_length}; shorten the sequence"
        )
    _check_range("token_ids", token_ids, config.vocab_size, "vocab_size")


def check_positions(config: DecoderConfig, position_ids: Tensor, token_ids: Tensor) -> Int[Tensor, "B T"]:
    """Positions as (B, T): not negative, and inside the table where positions are learned.

    Raises:
        InputError: says which rule is broken, and where.
    """
    _check_integers("position_ids", position_ids)
    if position_ids.shape not in (token_ids.shape, token_ids.shape[1:]):
        raise InputError(
            f"position_ids must have shape {tuple(token_ids.shape)} or {tuple(token_ids.shape[1:])} as "
            f"token_ids has, got {tuple(position_ids.shape)}"
        )
    limit = config.context_length if config.position == "learned" else None
    _check_range("position_ids", position_ids, limit, "context_length")
    return position_ids.expand_as(token_ids)


def check_documents(
    document_ids: Tensor, token_ids: Tensor, real: Bool[Tensor, "B T"] | None, *, cached: bool
) -> Int[Tensor, "B T"]:
    """Document ids as (B, T) integers, each id in one piece; what stands at padding does not matter.

    Raises:
        InputError: says which rule is broken, and where.
    """
    if cached:
        raise InputError(
            "document_ids do not go with a cache: a packed sequence is one call, without a cache"
        )
    _check_integers("document_ids", document_ids)
    if document_ids.shape != token_ids.shape:
        raise InputError(
            f"document_ids must have the shape of token_ids, {tuple(token_ids.shape)}, got "
            f"{tuple(document_ids.shape)}"
        )
    if torch.compiler.is_compiling() or document_ids.device.type == "meta":
        return document_ids
    returns = returns_to_document(document_ids, real)
    if returns.any():
        row, time = returns.nonzero()[0].tolist()
        raise InputError(
            f"document_ids must hold each document in one piece, got {int(document_ids[row, time])} again at "
            f"{[row, time]}, after another document"
        )
    return document_ids


def check_loss(
    config: DecoderConfig, token_ids: Tensor, labels: Tensor | None, loss_mask: Tensor | None
) -> Bool[Tensor, "B T"] | None:
    """The loss mask as booleans, once labels fit the tokens and counted labels the vocabulary.

    Raises:
        InputError: says which rule is broken, and where.
    """
    if labels is None:
        if loss_mask is not None:
            raise InputError("loss_mask was given without labels")
        return None
    _check_integers("labels", labels)
    if labels.shape != token_ids.shape:
        raise InputError(
            f"labels must have the shape of token_ids, {tuple(token_ids.shape)}, got {tuple(labels.shape)}"
        )
    mask = token_mask("loss_mask", loss_mask, token_ids)
    counted = labels if mask is None else labels.masked_fill(~mask, 0)
    _check_range("labels", counted, config.vocab_size, "vocab_size")
    return mask


def token_mask(name: str, mask: Tensor | None, token_ids: Tensor) -> Bool[Tensor, "B T"] | None:
    """A mask over tokens as booleans, True = real: from booleans, or from numbers that are all 0 or 1.

    Raises:
        InputError: another shape, or an additive mask.
    """
    if mask is None:
        return None
    if mask.shape != token_ids.shape:
        raise InputError(
            f"{name} must have the shape of token_ids, {tuple(token_ids.shape)}, got {tuple(mask.shape)}"
        )
    if mask.dtype == torch.bool:
        return mask
    if not torch.compiler.is_compiling() and not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"{name} must be boolean (True = real token) or hold only 0 and 1; an additive mask of 0 and -inf "
            "must be converted first: mask == 0"
        )
    return mask == 1


def _check_integers(name: str, ids: Tensor) -> None:
    if ids.dtype not in (torch.int64, torch.int32):
        raise InputError(f"{name} must hold integers (int64 or int32), got {ids.dtype}")


def _check_range(name: str, ids: Tensor, limit: int | None, limit_name: str) -> None:
    """One reduction over the ids; the place is looked for only once something is known to be wrong."""
    if torch.compiler.is_compiling() or ids.device.type == "meta":
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low >= 0 and (limit is None or high < limit):
        return
    wrong = (ids < 0) if limit is None else (ids < 0) | (ids >= limit)
    place = tuple(wrong.nonzero()[0].tolist())
    wanted = (
        "must not be negative" if limit is None else f"must lie in [0, {limit}), as {limit_name} = {limit}"
    )
    raise InputError(f"{name} {wanted}, got {int(ids[place])} at {list(place)}")
