"""Reads attention scores off an attention layer's output, whatever computes them."""

from __future__ import annotations

import torch

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.subjects import ProofSubject

MARKERS = 2  # hidden dimensions that tell the key apart from the reference
SEEN = 3  # tokens that the query must see: the key, the reference and itself


def recover_scores(
    subject: ProofSubject,
    layer: int,
    queries: Float[Tensor, "P H"],
    keys: Float[Tensor, "P H"],
    query_positions: Int[Tensor, " P"],
    key_positions: Int[Tensor, " P"],
    path: str,
) -> Float[Tensor, "P N"]:
    """The score of query p at its position with key p at its own, for every query head: (P, N).

    A copy of the layer gets weights that take query and key from chosen dimensions of the hidden state. Each
    row holds three tokens: the key; a reference, whose key is zero and whose score is therefore 0; and the
    query. Their values mark the first and the second, so the output shows both weights, and
    log(weight of key / weight of reference) is the score. A head wider than d_model - 2 is covered window by
    window; the score is bilinear, so the windows' scores add up.
    """
    config = subject.config
    room = config.d_model - MARKERS
    windows = [slice(at, min(at + room, config.head_width)) for at in range(0, config.head_width, room)]
    total = torch.zeros(len(queries), config.n_heads, dtype=torch.float64)
    for query_window in windows:
        for key_window in windows:
            hidden = torch.zeros(len(queries), 3, config.d_model, dtype=torch.float64)
            hidden[:, 0, 0] = hidden[:, 1, 1] = 1.0
            hidden[:, 0, MARKERS:][:, : _width(key_window)] = keys[:, key_window]
            hidden[:, 2, MARKERS:][:, : _width(query_window)] = queries[:, query_window]
            positions = torch.stack([key_positions, key_positions, query_positions], 1)
            total += _log_ratios(subject, layer, hidden, positions, query_window, key_window, path)
    return total


def _log_ratios(
    subject: ProofSubject,
    layer: int,
    hidden: Float[Tensor, "P 3 D"],
    positions: Int[Tensor, "P 3"],
    query_window: slice,
    key_window: slice,
    path: str,
) -> Float[Tensor, "P N"]:
    config = subject.config
    n_heads, head_dim = config.n_heads, config.head_width
    per_pass = config.d_model // MARKERS
    edits: dict[str, Tensor | float] = {
        "query.weight": _from_hidden(config.d_model, head_dim, query_window).repeat(n_heads, 1),
        "key.weight": _from_hidden(config.d_model, head_dim, key_window).repeat(config.kv_heads, 1),
        "value.weight": torch.eye(head_dim, config.d_model, dtype=torch.float64)
        .mul(torch.arange(head_dim)[:, None] < MARKERS)
        .repeat(config.kv_heads, 1),
        **dict.fromkeys(("query.bias", "key.bias", "value.bias", "out.bias"), 0.0),
    }
    ratios = []
    for first in range(0, n_heads, per_pass):
        out = torch.zeros(config.d_model, n_heads, head_dim, dtype=torch.float64)
        heads = range(first, min(first + per_pass, n_heads))
        for row, head in enumerate(heads):
            out[2 * row, head, 0] = out[2 * row + 1, head, 1] = 1.0
        planted = {**edits, "out.weight": out.flatten(1)}
        with torch.no_grad():
            output = subject.run_layer(f"blocks.{layer}.attention", hidden, positions, path, planted)
        marks = output[:, 2, : 2 * len(heads)]
        ratios.append((marks[:, 0::2] / marks[:, 1::2]).log())
    return torch.cat(ratios, 1)


def _from_hidden(d_model: int, head_dim: int, window: slice) -> Float[Tensor, "H D"]:
    """The weight that reads a window of a head from the hidden dimensions after the markers."""
    weight = torch.zeros(head_dim, d_model, dtype=torch.float64)
    weight[window, MARKERS : MARKERS + _width(window)] = torch.eye(_width(window), dtype=torch.float64)
    return weight


def _width(window: slice) -> int:
    return int(window.stop - window.start)
