"""Which token moves which position, by replacing tokens and by gradients, and what the heads attend to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contracts.input_gradients import distinct_tokens, gradient_sizes
from proof_lm.verify.contracts.interventions import intervene
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import ProofSubject, Subject, SubjectError
from proof_lm.verify.verdict import AttentionMap, Influence, Matrix

LENGTH = 12  # tokens of the row, as many as a picture shows well; a large subject gets the probe's short row
SHOWN_LAYERS = 3  # of a large subject: the first, the middle and the last


def measure_influences(subject: Subject, seed: int) -> tuple[Influence, ...]:
    """:func:`measure_influence` on every path of the subject."""
    return tuple(measure_influence(subject, seed, path) for path in subject.paths)


def measure_influence(subject: Subject, seed: int, path: str) -> Influence:
    """What every token of one row does to every position's logits, in eval mode, without mask and cache.

    All tokens of the row differ, as does the one that replaces each in turn; the row is called alone, so that what
    lies beside it in a batch has no part. What cannot be measured is absent with the reason: nothing is raised for
    what the subject does.
    """
    probe = Probe(subject, seed)
    n_tokens = probe.n_short if probe.is_large else min(LENGTH, probe.n_tokens)
    try:
        row, spare = distinct_tokens(subject, probe, n_tokens)
    except Inapplicable as error:
        return Influence(
            path, (), absent=dict.fromkeys(("interventions", "gradients", "attention"), str(error))
        )
    absent: dict[str, str] = {}
    by_intervention: Matrix = ()
    by_gradient: Matrix = ()
    attention: tuple[AttentionMap, ...] = ()
    with _noting(absent, "interventions"):
        by_intervention = _by_intervention(subject, row, spare, path)
    with _noting(absent, "gradients"):
        by_gradient = _by_gradient(subject, row, spare, path)
    with _noting(absent, "attention"):
        attention = _attention_maps(subject, row, path, probe)
    return Influence(path, tuple(row.tolist()), by_intervention, by_gradient, attention, absent)


@contextmanager
def _noting(absent: dict[str, str], what: str) -> Iterator[None]:
    """What cannot be had is written down with the reason."""
    try:
        yield
    except (Inapplicable, SubjectError) as error:
        absent[what] = str(error)
    except (MemoryError, torch.OutOfMemoryError) as error:
        absent[what] = f"not enough memory: {error}"


def _by_intervention(subject: Subject, row: Int[Tensor, " T"], spare: int, path: str) -> Matrix:
    others = torch.full_like(row, spare)
    moved = [
        intervene(lambda ids: subject.logits(ids, path), row, others, [k]).moved[0] for k in range(len(row))
    ]
    return _matrix(torch.stack(moved))


def _by_gradient(subject: Subject, row: Int[Tensor, " T"], spare: int, path: str) -> Matrix:
    embedding = subject.embedding
    if embedding is None:
        raise Inapplicable("its embedding is not known")
    if not embedding.requires_grad:
        raise Inapplicable("its embedding takes no gradient")
    return _matrix(gradient_sizes(subject, embedding, row, spare, path, range(len(row))).mT)


def _attention_maps(
    subject: Subject, row: Int[Tensor, " T"], path: str, probe: Probe
) -> tuple[AttentionMap, ...]:
    if not isinstance(subject, ProofSubject):
        raise Inapplicable("its attention layers cannot be watched from outside")
    layers = list(range(len(subject.module.blocks)))
    if probe.is_large:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})[:SHOWN_LAYERS]
    maps = []
    for layer in layers:
        with _watched(subject.module.get_submodule(f"blocks.{layer}.attention")) as seen:
            subject.logits(row[None], path)
        if not seen:
            raise Inapplicable("its attention layers do not say what they attend to")
        maps.append(AttentionMap(layer, tuple(_matrix(head) for head in seen[0][0])))
    return tuple(maps)


@contextmanager
def _watched(attention: nn.Module) -> Iterator[list[Float[Tensor, "B N T S"]]]:
    """Collects, call by call, the weights that an attention layer applies.

    Attention is linear in the values, so what it makes of one-hot values is its weights, H columns at a time: on
    whichever path, and whatever a faulty layer does with the mask.
    """
    layer: Any = attention
    attend, seen = layer.attend, []

    def watching(queries: Tensor, keys: Tensor, values: Tensor, context: Any) -> Tensor:
        n_keys, width = values.shape[2], values.shape[3]
        columns = torch.eye(n_keys, dtype=values.dtype, device=values.device).split(width, dim=1)
        padded = [nn.functional.pad(part, (0, width - part.shape[1])) for part in columns]
        parts = [attend(queries, keys, part.expand_as(values).contiguous(), context) for part in padded]
        seen.append(torch.cat(parts, dim=-1)[..., :n_keys])
        attended: Tensor = attend(queries, keys, values, context)
        return attended

    layer.attend = watching
    try:
        yield seen
    finally:
        del layer.attend


def _matrix(values: Float[Tensor, "T S"]) -> Matrix:
    return tuple(tuple(row) for row in values.detach().double().tolist())
