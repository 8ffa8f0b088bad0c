"""Numbers and conventions in words."""

from __future__ import annotations

from collections.abc import Sequence

from proof_lm.sheet.dimensions import LEGEND
from proof_lm.sheet.flops import CONVENTIONS
from proof_lm.sheet.sheet import Sheet

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def scaled(number: float, unit: str = "") -> str:
    """Three digits and a decimal prefix: ``1.32 GB``, ``875 GFLOP``; whole numbers below 1000 as they are."""
    step = 0
    while abs(number) >= 999.5 and step < len(_PREFIXES) - 1:
        number, step = number / 1000, step + 1
    digits = str(int(number)) if number == int(number) and step == 0 else f"{number:.3g}"
    return f"{digits} {_PREFIXES[step]}{unit}".rstrip()


def n_bytes(number: float) -> str:
    """Bytes with a decimal prefix: GB are 10^9 bytes."""
    return scaled(number, "B")


def duration(seconds: float) -> str:
    """In the unit that fits: ``3.2 ms``, ``41 s``, ``2.5 h``, ``12.3 days``."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:,.4g} days"


def factor(value: float) -> str:
    """By what something is multiplied: ``x2``, ``x3.98``."""
    return f"x{value:.3g}"


def share(part: int, whole: int) -> str:
    """In percent, of a whole that is not 0."""
    return f"{100 * part / whole:.1f} %"


def summary(sheet: Sheet) -> str:
    """What kind of decoder it is, in a line."""
    config = sheet.config
    heads = f"{config.n_heads} heads"
    if config.kv_heads == 1:
        heads += " over one KV head"
    elif config.kv_heads != config.n_heads:
        heads += f" over {config.kv_heads} KV heads"
    window = "" if config.sliding_window is None else f", window {config.sliding_window}"
    tie = "tied head" if config.tie_embeddings else "untied head"
    return (
        f"{config.n_layers} layers of width {config.d_model}, {heads} of {config.head_width}, feed-forward "
        f"{config.d_ff} ({config.feed_forward}, {config.activation}), {config.norm}, positions {config.position}"
        f"{window}, {config.vocab_size:,} token ids, {tie}"
    )


def dimension_line(sheet: Sheet) -> str:
    """The value of every letter, in a line."""
    values = dict(sheet.values)
    del values["S"], values["P"]
    return ", ".join(
        f"{'T = S' if letter == 'T' else letter} = {value:,}" for letter, value in values.items()
    )


def step_line(sheet: Sheet, convention: str) -> str:
    """What a training step takes by that convention, in a line that says how it counts."""
    (known,) = [known for known in CONVENTIONS if known.name == convention]
    unit = "MACs" if convention == "macs" else "FLOPs"
    return f"A training step takes {sheet.conventions[convention]:,} {unit} ({known.name}: {known.meaning})"


def conventions(sheets: Sequence[Sheet]) -> list[str]:
    """How it is counted, a line each; in numbers where there is one sheet."""
    if len(sheets) == 1:
        (sheet,) = sheets
        seen = f"P = {sheet.visible_pairs:,} a row and head"
        if sheet.config.sliding_window is not None:
            seen += f", in a window of {sheet.config.sliding_window}"
    else:
        seen = "P = T (T + 1) / 2 a row and head, fewer in a window"
    legend = ", ".join(f"{letter} {meaning}" for letter, meaning in LEGEND.items())
    return [f"{legend}.", *_CONVENTIONS.format(seen=seen).strip().split("\n")]


_CONVENTIONS = """
A multiply-add is 2 FLOPs. Products are matrix products; other operations are one an element and function (exp, erf, \
sigmoid). Left out: what is done once a row or position (a mean, a root), lookups, copies, masks, dropout, optimizer.
Dense counts all T S scores, as explicit attention computes them; causal counts the visible ones, {seen}.
The backward pass has two products for each of the forward pass: exact for explicit attention. A flash kernel computes \
the scores once more. For other operations twice the forward pass is a convention.
Recomputation runs the forward pass of every layer again, to its end, which PyTorch spares in part.
A tied matrix is one tensor: counted once, multiplied in the head.
Kept activations are what autograd saves in ProofLM's training step, masks of dropout included; gradients of \
activations and workspaces come on top. Fused is PyTorch's kernel on a CPU, which with dropout falls back to another.
AdamW keeps two averages a parameter. No parameter is frozen.
Prefill and decoding read each weight once, write the cache of each new token and read that of every \
token once; activations stay near.
kB, MB, GB, TB are powers of 1000.
"""
