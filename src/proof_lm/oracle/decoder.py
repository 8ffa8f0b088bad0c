"""The whole decoder: token ids to logits and loss, and the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from proof_lm.config import DecoderConfig
from proof_lm.errors import InputError
from proof_lm.oracle.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    bool_array,
    float_array,
    int_array,
    require_range,
)
from proof_lm.oracle.block import BlockTrace, block_backward, block_forward
from proof_lm.oracle.embedding import embedding_backward, embedding_forward
from proof_lm.oracle.linear import linear_backward, linear_forward
from proof_lm.oracle.loss import CrossEntropyTrace, cross_entropy_backward, cross_entropy_forward
from proof_lm.oracle.norm import NormTrace, norm_backward, norm_forward
from proof_lm.oracle.parameters import check_weights, inside, prefixed


@dataclass(frozen=True, eq=False)
class DecoderTrace:
    """A forward pass: its result (``logits`` (B, T, V), ``loss``) and every value on the way to it.

    ``real`` (B, T) says which tokens are no padding, ``visible`` (B, T, T) which key each query sees;
    ``hidden`` (B, T, D) enters the first block; ``loss`` is None without labels.
    """

    token_ids: IntArray
    position_ids: IntArray
    real: BoolArray
    visible: BoolArray
    hidden: FloatArray
    blocks: tuple[BlockTrace, ...]
    final_norm: FloatArray
    final_norm_trace: NormTrace
    logits: FloatArray
    loss: float | None
    loss_trace: CrossEntropyTrace | None

    def stages(self) -> dict[str, FloatArray]:
        """What every component put out, in the order of computation, under the component's name.

        The first entry in which two passes differ names the component that made them differ.
        ``hidden`` is the input of the first block, ``blocks.{i}`` the residual stream that leaves block i.
        """
        stages = {"hidden": self.hidden}
        for i, block in enumerate(self.blocks):
            for name in ("attention_norm", "attention", "feed_forward_norm", "feed_forward"):
                stages[f"blocks.{i}.{name}"] = getattr(block, name)
            stages[f"blocks.{i}"] = block.output
        return stages | {"final_norm": self.final_norm, "logits": self.logits}


def decoder_forward(
    config: DecoderConfig,
    weights: Mapping[str, FloatArray],
    token_ids: ArrayLike,
    labels: ArrayLike | None = None,
    loss_mask: ArrayLike | None = None,
    *,
    padding_mask: ArrayLike | None = None,
    position_ids: ArrayLike | None = None,
    document_ids: ArrayLike | None = None,
) -> DecoderTrace:
    """x = embed(tokens), x = block_i(x) for every i, logits = norm(x) E^T. Dropout is not modelled.

    Padding is hidden from every query, and its hidden state is set to zero after the embedding, so that
    nothing stored for a pad token can reach a real one. A token sees no later one, none that lies
    ``sliding_window`` tokens or more before it, and none of another document.

    Args:
        config: the decoder's definition.
        weights: every parameter by name, float64; linear weights (out, in). Read, never copied.
        token_ids: (B, T), in 0 .. V-1.
        labels: (B, T), aligned with the logits: ``labels[b, t]`` is the target of position t.
        loss_mask: boolean (B, T), True = the position counts in the loss; None counts all.
        padding_mask: boolean (B, T), True = a real token; None where all are.
        position_ids: (B, T). Default: 0 .. T-1, or with a padding mask the number of real tokens before
            and at the position, less 1, and at least 0; with documents the same, within the document.
        document_ids: integers (B, T), one run of equal ids a document; None where a row is one document.
            What stands at the padding has no meaning.

    Raises:
        InputError: an input's shape, dtype or range does not fit, or the sequence exceeds context_length.
        WeightsError: the weights are not those of the config.
    """
    check_weights(config, weights)
    token_ids = int_array("token_ids", token_ids, ("B", "T"))
    require_range("token_ids", token_ids, config.vocab_size)
    if not 1 <= token_ids.shape[1] <= config.context_length:
        raise InputError(
            f"token_ids must hold 1 to context_length = {config.context_length} tokens a row, "
            f"got {token_ids.shape[1]}"
        )
    if labels is None and loss_mask is not None:
        raise InputError("loss_mask needs labels: there is no loss without them")
    real = np.ones(token_ids.shape, dtype=np.bool_)
    if padding_mask is not None:
        real = bool_array("padding_mask", padding_mask, token_ids.shape)
    documents = np.zeros(token_ids.shape, dtype=np.int64)
    if document_ids is not None:
        documents = int_array("document_ids", document_ids, token_ids.shape)
        _require_whole_documents(documents, real)
    positions = _default_positions(real, documents)
    if position_ids is not None:
        positions = int_array("position_ids", position_ids, token_ids.shape)
    visible = _visible(config, real, documents)

    hidden = first_hidden = _embed(config, weights, token_ids, positions, real)
    blocks = []
    for i in range(config.n_layers):
        parameters = inside(weights, f"blocks.{i}")
        block = block_forward(config, parameters, hidden, visible=visible, position_ids=positions)
        hidden = block.output
        blocks.append(block)
    normed, norm_trace = norm_forward(config, inside(weights, "final_norm"), hidden)
    logits = linear_forward(normed, weights[_head_name(config)])
    loss, loss_trace = None, None
    if labels is not None:
        loss, loss_trace = cross_entropy_forward(logits, labels, loss_mask)
    return DecoderTrace(
        token_ids=token_ids,
        position_ids=positions,
        real=real,
        visible=visible,
        hidden=first_hidden,
        blocks=tuple(blocks),
        final_norm=normed,
        final_norm_trace=norm_trace,
        logits=logits,
        loss=loss,
        loss_trace=loss_trace,
    )


def decoder_backward(
    config: DecoderConfig,
    weights: Mapping[str, FloatArray],
    trace: DecoderTrace,
    *,
    grad_logits: ArrayLike | None = None,
) -> dict[str, FloatArray]:
    """Gradient of the loss, or of sum(grad_logits * logits), with respect to every parameter.

    A tied embedding gets the sum of its two uses, as table and as head.

    Args:
        config: the decoder's definition.
        weights: as in the forward pass.
        trace: the forward pass.
        grad_logits: (B, T, V); None takes the gradient of the loss.

    Returns:
        The gradients by the parameters' names, and under ``hidden`` the gradient with respect to the
        input of the first block, (B, T, D).

    Raises:
        InputError: ``grad_logits`` does not fit, or there is neither it nor a loss.
    """
    if grad_logits is not None:
        grad_logits = float_array("grad_logits", grad_logits, trace.logits.shape)
    elif trace.loss_trace is not None:
        grad_logits = cross_entropy_backward(trace.loss_trace)
    else:
        raise InputError("decoder_backward needs grad_logits, or a forward pass with labels")
    gradients: dict[str, FloatArray] = {}
    head = _head_name(config)
    grad, gradients[head], _ = linear_backward(grad_logits, trace.final_norm, weights[head])
    grad, of_norm = norm_backward(config, inside(weights, "final_norm"), grad, trace.final_norm_trace)
    gradients |= prefixed("final_norm", of_norm)
    for i in reversed(range(config.n_layers)):
        grad, of_block = block_backward(config, inside(weights, f"blocks.{i}"), grad, trace.blocks[i])
        gradients |= prefixed(f"blocks.{i}", of_block)
    gradients["hidden"] = grad
    _embed_backward(config, weights, grad, trace, gradients)
    return gradients


def _default_positions(real: BoolArray, documents: IntArray) -> IntArray:
    """Real tokens of the document up to and at each position, less 1, at least 0: 0 .. T-1 if all are real."""
    positions = np.zeros(real.shape, dtype=np.int64)
    for row in range(real.shape[0]):
        found: dict[int, int] = {}
        for t, document in enumerate(documents[row].tolist()):
            found[document] = found.get(document, 0) + int(real[row, t])
            positions[row, t] = max(found[document] - 1, 0)
    return positions


def _visible(config: DecoderConfig, real: BoolArray, documents: IntArray) -> BoolArray:
    """Which key each query sees, (B, T, T): from how far back it lies, whether it is real, and its document."""
    n_tokens = real.shape[1]
    distance = np.arange(n_tokens)[:, None] - np.arange(n_tokens)
    reach = n_tokens if config.sliding_window is None else config.sliding_window
    visible: BoolArray = (distance >= 0) & (distance < reach) & real[:, None, :]
    return visible & np.equal(documents[:, :, None], documents[:, None, :])


def _require_whole_documents(documents: IntArray, real: BoolArray) -> None:
    """Check that no document goes on after a real token of another one.

    Raises:
        InputError: one does; the message has its id and the place.
    """
    for row in range(real.shape[0]):
        ended: set[int] = set()
        current: int | None = None
        for t in np.flatnonzero(real[row]).tolist():
            document = int(documents[row, t])
            if document in ended:
                raise InputError(
                    f"document_ids must be one run of equal ids a document, but row {row} returns to document "
                    f"{document} at token {t}"
                )
            if current is not None and document != current:
                ended.add(current)
            current = document


def _head_name(config: DecoderConfig) -> str:
    """The parameter that makes logits: the embedding itself where the two are tied."""
    return "embedding.weight" if config.tie_embeddings else "head.weight"


def _embed(
    config: DecoderConfig,
    weights: Mapping[str, FloatArray],
    token_ids: IntArray,
    position_ids: IntArray,
    real: BoolArray,
) -> FloatArray:
    """Token embedding, plus the position's where it is learned, and zeros at the padding; (B, T, D)."""
    hidden = embedding_forward(token_ids, weights["embedding.weight"])
    if config.position == "learned":
        require_range("position_ids", position_ids, config.context_length)
        hidden = hidden + embedding_forward(position_ids, weights["position_embedding.weight"])
    return np.where(real[..., None], hidden, 0.0)


def _embed_backward(
    config: DecoderConfig,
    weights: Mapping[str, FloatArray],
    grad: FloatArray,
    trace: DecoderTrace,
    gradients: dict[str, FloatArray],
) -> None:
    """Add the gradients of :func:`_embed`; padding has none."""
    grad = grad[trace.real]
    if not config.tie_embeddings:
        gradients["embedding.weight"] = np.zeros_like(weights["embedding.weight"])
    embedding_backward(grad, trace.token_ids[trace.real], gradients["embedding.weight"])
    if config.position == "learned":
        gradients["position_embedding.weight"] = np.zeros_like(weights["position_embedding.weight"])
        positions = trace.position_ids[trace.real]
        embedding_backward(grad, positions, gradients["position_embedding.weight"])
