"""What the dimension letters of a sheet stand for, and their values."""

from __future__ import annotations

from typing import Literal

from proof_lm.config import DecoderConfig

AttentionCount = Literal["dense", "causal", "halved"]

LEGEND = {
    "B": "rows",
    "T": "tokens of a row",
    "S": "keys of a query",
    "P": "scores of a row and head that are counted",
    "D": "width",
    "N": "query heads",
    "K": "KV heads",
    "H": "width of a head",
    "F": "width of the feed-forward layer",
    "V": "token ids",
    "L": "layers",
    "C": "context",
}


def visible_pairs(n_tokens: int, n_keys: int | None = None, window: int | None = None) -> int:
    """The pairs (query, key) of one row and head whose key the query may see: the causal triangle, or its band.

    Query t of T, the last of which sees all S keys, sees min(t + 1 + S - T, W) of them; without a window
    P = T (T + 1) / 2 + T (S - T), and with one the sum is arithmetic until W is reached and constant after it.
    """
    n_keys = n_tokens if n_keys is None else n_keys
    first = n_keys - n_tokens + 1  # what the first query sees
    if window is None or window >= n_keys:
        return n_tokens * (first + n_keys) // 2
    growing = max(0, min(n_tokens, window - first + 1))  # queries that see less than, or just, a window
    return growing * (2 * first + growing - 1) // 2 + (n_tokens - growing) * window


def dimensions(
    config: DecoderConfig,
    batch: int,
    n_tokens: int,
    n_keys: int | None = None,
    attention: AttentionCount = "dense",
) -> dict[str, int]:
    """The value of every letter, for ``batch`` rows of ``n_tokens`` tokens that see up to ``n_keys`` keys.

    P depends on what is counted: ``dense`` takes all T S pairs, as a kernel does that masks afterwards; ``causal``
    those that are visible, exactly; ``halved`` half of dense, as papers often do (rounded down).
    """
    n_keys = n_tokens if n_keys is None else n_keys
    pairs = {
        "dense": n_tokens * n_keys,
        "causal": visible_pairs(n_tokens, n_keys, config.sliding_window),
        "halved": n_tokens * n_keys // 2,
    }
    return {
        "B": batch,
        "T": n_tokens,
        "S": n_keys,
        "P": pairs[attention],
        "N": config.n_heads,
        "K": config.kv_heads,
        "H": config.head_width,
        "D": config.d_model,
        "F": config.d_ff,
        "V": config.vocab_size,
        "L": config.n_layers,
        "C": config.context_length,
    }
