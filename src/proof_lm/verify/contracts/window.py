"""A token sees exactly as many tokens as the declared window has."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from proof_lm.dims import Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.causality import Way
from proof_lm.verify.contracts.interventions import Call, intervene
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import ProofSubject, Subject
from proof_lm.verify.verdict import EXACT, Largest, Measurement, Smallest

LONGEST = 64  # tokens of a row
CAPACITIES = 3  # windows that cached decoding goes beyond


def check_window(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Each token replaced in turn: L layers of a window W carry a change L (W - 1) positions on, and no further.

    Further on every bit must be equal, and just there something must change (reach): in eval mode, in train
    mode without dropout, with a mask of ones, and decoded one by one through a cache. These logits must also equal
    those of the whole row, to beyond three windows. Where layers can be run alone, each sees W tokens exactly.
    """
    window = subject.window
    if window is None:
        raise Inapplicable("no window is declared")
    if subject.declared is None:
        raise Inapplicable("the number of layers is not known")
    layers = subject.declared.n_layers
    reach = layers * (window - 1)
    n_tokens = min(max(reach + 3, CAPACITIES * window + 2), subject.context_length)
    if n_tokens > LONGEST or n_tokens < reach + 2:
        raise Inapplicable(f"{layers} layers of a window of {window} see too much for a row of {n_tokens}")
    row = probe.tokens("window", 1, n_tokens)[0]
    others = probe.other_tokens(row, "window interventions")
    for path in subject.paths:
        for way in _ways(subject, n_tokens):
            found = intervene(_call(subject, way, path), row, others, range(n_tokens))
            beyond = found.beyond(reach)
            case = f"{way.name}, window {window}"
            yield Measurement(path, f"max |change beyond reach|, {case}", beyond.value, EXACT, beyond.where)
            farthest = torch.arange(n_tokens) == torch.arange(n_tokens)[:, None] + reach
            least = found.least(farthest)
            yield Measurement(
                path, f"min |change at the end of reach|, {case}", least.value, None, least.where
            )
        if subject.can("cache"):
            ids = probe.tokens("decoding beyond the window", n_tokens=n_tokens)
            error = (_one_by_one(subject, ids, path) - subject.logits(ids, path)).abs().amax((0, 2))
            where = f"position {int(error.argmax())}"
            yield Measurement(
                path, "max |decoded one by one - whole|", float(error.max()), probe.logit_bound, where
            )
        if isinstance(subject, ProofSubject):
            for layer in range(layers):
                yield from _one_layer(subject, probe, path, layer, window, n_tokens)


def _ways(subject: Subject, n_tokens: int) -> Iterator[Way]:
    yield Way("eval mode")
    yield Way("train mode", "train")
    if subject.can("padding mask"):
        yield Way("a mask of ones", mask="ones")
    if subject.can("cache"):
        yield Way("one by one", held=n_tokens)


def _call(subject: Subject, way: Way, path: str) -> Call:
    if way.held is not None:
        return lambda ids: _one_by_one(subject, ids, path)
    return lambda ids: way.logits(subject, ids, path)


def _one_by_one(subject: Subject, ids: Tensor, path: str) -> Tensor:
    cache = subject.new_cache(*ids.shape)
    return torch.cat([subject.logits(token, path, cache=cache) for token in ids.split(1, 1)], 1)


def _one_layer(
    subject: ProofSubject, probe: Probe, path: str, layer: int, window: int, n_tokens: int
) -> Iterator[Measurement]:
    name = f"blocks.{layer}.attention"
    hidden = torch.from_numpy(
        probe.random(f"window {layer}").standard_normal((1, n_tokens, subject.config.d_model))
    )
    places = torch.arange(n_tokens)
    same = hidden.expand(n_tokens, -1, -1).contiguous()
    changed = same.clone()
    changed[places, places] += hidden[0].roll(1, 0)
    at = places.expand(n_tokens, -1)
    with torch.no_grad():
        moved = (
            (subject.run_layer(name, changed, at, path) - subject.run_layer(name, same, at, path))
            .abs()
            .amax(-1)
        )
    stray, reach = Largest(), Smallest()
    for k in range(n_tokens):
        for position, change in enumerate(moved[k].tolist()):
            where = f"layer {layer}: token {k} and position {position}"
            if 0 <= position - k < window:
                reach.see(change, where)
            else:
                stray.see(change, where)
    yield Measurement(path, "max |change outside the window|, one layer", stray.value, EXACT, stray.where)
    yield Measurement(path, "min |change inside the window|, one layer", reach.value, None, reach.where)


WINDOW = Contract(
    "window",
    "In every layer a token sees as many tokens as the declared window has, and no more.",
    frozenset({"logits"}),
    check_window,
    level="quick",
    grows=False,
)
