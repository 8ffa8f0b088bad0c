"""The sheet against a decoder that runs: each claim is compared with what was counted, to the last number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError
from proof_lm.model import ProofLM
from proof_lm.sheet import Product, Sheet
from proof_lm.sheet.activations import Backend
from proof_lm.verify.meter import Reading, Step, read_step
from proof_lm.verify.verdict import EXACT, Measurement

MAX_SHOWN = 3
LARGE = 5_000_000  # parameters or scores, above which nothing is computed


def untellable(sheet: Sheet) -> str:
    """Why what runs could not be told apart by its shapes; empty where it can.

    A number that is kept once a row or position is known by an axis of size 1.
    """
    halves = {"half of H": sheet.config.head_width // 2} if sheet.config.position == "rope" else {}
    sizes = {letter: sheet.values[letter] for letter in "TDFV"} | halves
    single = [letter for letter, size in sizes.items() if size == 1]
    return f"with {' and '.join(single)} = 1, activations have the shapes of statistics" if single else ""


def compare_count(sheet: Sheet, model: nn.Module) -> Measurement:
    """The closed formula against the unique registered parameters."""
    elements = sum(parameter.numel() for parameter in model.parameters())
    return _difference("|registered - closed formula|", elements, sheet.parameter_count)


def compare_parameters(sheet: Sheet, model: nn.Module) -> Iterator[Measurement]:
    """The parts' subtotals against the unique registered parameters, and each tensor against the sheet's table."""
    elements = sum(parameter.numel() for parameter in model.parameters())
    yield _difference(
        "|registered - sum of the parts|", elements, sum(part.count for part in sheet.subtotals)
    )
    table = {spec.name: tuple(spec.shape) for spec in sheet.tensors}
    found = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    yield _unlike("tensors unlike the sheet's table", table, found)


def compare_shapes(sheet: Sheet, reading: Reading) -> Iterator[Measurement]:
    """Every tensor of the sheet comes out of its module, and every activation of the pass has the size of one.

    A tensor that is only laid out anew (heads apart, groups together) is the same tensor, and a half of one is a part
    of it, as the first and second numbers of the pairs that are rotated.
    """
    claimed: dict[str, set[tuple[int, ...]]] = {}
    for step in sheet.operations:
        if step.kind != "loss":
            claimed.setdefault(step.module, set()).add(sheet.shape_of(step))
    produced: dict[str, set[tuple[int, ...]]] = {}
    for one in reading.forward:
        produced.setdefault(one.module, set()).add(one.shape)
    absent = [
        f"{step.name} {sheet.shape_of(step)}"
        for step in sheet.operations
        if step.kind != "loss" and sheet.shape_of(step) not in produced.get(step.module, ())
    ]
    yield _count("tensors of the sheet that no operation makes", absent)
    sizes = {
        module: {size for shape in shapes for size in (math.prod(shape), math.prod(shape) // 2)}
        for module, shapes in claimed.items()
    }
    unknown = [
        f"{one.name} {one.shape} in {one.module or 'the decoder'}"
        for one in reading.forward
        if one.is_activation and not _is_known(one, sizes)
    ]
    yield _count("activations that the sheet lacks", unknown)


def _is_known(step: Step, sizes: Mapping[str, set[int]]) -> bool:
    """Whether its module has such a tensor; or, for a copy, a module in that one, whose output it is."""
    inside = (
        module
        for module in sizes
        if module == step.module or (step.is_copy and module.startswith(step.module))
    )
    return any(math.prod(step.shape) in sizes[module] for module in inside)


def compare_flops(sheet: Sheet, reading: Reading) -> Iterator[Measurement]:
    """Each matrix product by its module and sizes; the totals of both passes; everything else by module."""
    claimed: Counter[tuple[str, tuple[int, int, int]]] = Counter()
    backward: Counter[int] = Counter()
    others: Counter[str] = Counter()
    for step in sheet.operations:
        layers = sheet.config.n_layers if step.is_in_layer else 1
        flops = step.flops.at(sheet.values)
        if step.product is None:
            others[step.module] += layers * flops
            continue
        claimed[step.module, _sizes(step.product, sheet.values)] += layers
        backward[flops] += 2 * layers
    counted = Counter((one.module, one.product) for one in reading.forward if one.product is not None)
    yield _unlike("products of the forward pass unlike the sheet's", claimed, counted)
    yield _difference("|FLOPs of products, forward|", _products(reading.forward), sheet.forward.products)
    counted_backward = Counter(one.flops for one in reading.backward if one.product is not None)
    yield _unlike("products of the backward pass unlike the sheet's", backward, counted_backward)
    yield _difference(
        "|FLOPs of products, training step|", _products(reading.steps), sheet.conventions["dense"]
    )
    counted_others: Counter[str] = Counter()
    for one in reading.forward:
        counted_others[one.module] += one.others
    yield _unlike("modules whose other operations are unlike the sheet's", +others, +counted_others)
    seen = {one.visible for one in reading.forward if one.visible is not None}
    if seen:
        rows = sheet.batch * sheet.config.n_heads
        yield _difference("|visible scores|", max(seen), sheet.visible_pairs * rows)


def compare_recomputation(sheet: Sheet, model: ProofLM) -> Iterator[Measurement]:
    """What a training step computes more where every layer's forward pass runs again, and what it keeps until then.

    It keeps what lies outside of the layers, and their inputs. The layers are handed the rotary angles, which autograd
    does not save then.
    """
    reading = read_step(model, sheet.batch, sheet.n_tokens, training=True, recomputed=True)
    claimed = sheet.conventions["dense"] + sheet.recomputation.products
    yield _difference("|FLOPs of products, recomputing|", _products(reading.steps), claimed)
    of_one_layer = sum(sheet.bytes_of(saved) for saved in sheet.saved("fused") if saved.is_in_layer)
    angles = sum(
        sheet.bytes_of(saved) for saved in sheet.saved("fused") if saved.name in ("cosines", "sines")
    )
    kept = sheet.activations["recomputed"] - of_one_layer - angles
    yield _difference("|saved bytes|, recomputing", sum(reading.saved), kept)


def compare_activations(sheet: Sheet, model: ProofLM, backend: Backend) -> Iterator[Measurement]:
    """Every storage that autograd keeps from a training step, by its bytes."""
    reading = read_step(model, sheet.batch, sheet.n_tokens, training=True)
    claimed: Counter[int] = Counter()
    for saved in sheet.saved(backend):
        claimed[sheet.bytes_of(saved)] += sheet.config.n_layers if saved.is_in_layer else 1
    yield _unlike("saved tensors unlike the sheet's", claimed, Counter(reading.saved), backend)
    yield _difference("|saved bytes|", sum(reading.saved), sheet.activations[backend], backend)


def compare_cache(sheet: Sheet, model: ProofLM) -> Iterator[Measurement]:
    """The bytes of a cache for the sheet's rows."""
    cache = model.new_cache(sheet.batch, sheet.n_tokens)
    held = sum(tensor.untyped_storage().nbytes() for tensor in (cache.keys, cache.values))
    claimed = sheet.cache_per_token * sheet.batch * sheet.n_tokens
    yield _difference("|bytes of the cache|", held, claimed)


def _sizes(product: Product, values: Mapping[str, int]) -> tuple[int, int, int]:
    rows, inner, columns = (
        math.prod(values[letter] for letter in letters)
        for letters in (product.batch + product.rows, product.inner, product.columns)
    )
    return rows, inner, columns


def _products(steps: Iterable[Step]) -> int:
    return sum(step.flops for step in steps)


def _difference(quantity: str, counted: int, claimed: int, path: str = "-") -> Measurement:
    return Measurement(path, quantity, float(abs(counted - claimed)), EXACT, f"{claimed:,} in the sheet")


def _unlike(
    quantity: str, claimed: Mapping[Any, object], counted: Mapping[Any, object], path: str = "-"
) -> Measurement:
    """How many entries two tables do not have in common, and the first of them."""
    wrong = [key for key in {**claimed, **counted} if claimed.get(key) != counted.get(key)]
    where = ", ".join(f"{key}: {counted.get(key)} for {claimed.get(key)}" for key in wrong[:MAX_SHOWN])
    return Measurement(path, quantity, float(len(wrong)), EXACT, where)


def _count(quantity: str, found: list[str]) -> Measurement:
    return Measurement("-", quantity, float(len(found)), EXACT, ", ".join(found[:MAX_SHOWN]))


def check_sheet(sheet: Sheet) -> Iterator[Measurement]:
    """Builds the decoder, runs it and compares it with the sheet; every measurement should be 0.

    A decoder with more than :data:`LARGE` parameters or scores is built on the meta device, where shapes, operations
    and bytes are as everywhere and nothing is computed. What needs numbers, or a kernel, is then compared in a small
    decoder of the same kind: the visible scores, and what the fused kernel keeps. That has no dropout, with which a CPU
    uses another kernel.

    Raises:
        ConfigError: sizes are such that nothing could be told apart.
    """
    config = sheet.config
    reason = untellable(sheet)
    if reason:
        raise ConfigError(f"{sheet.name} cannot be checked: {reason}")
    scores = sheet.batch * config.n_heads * sheet.n_tokens**2
    is_large = max(sheet.parameter_count, scores) > LARGE
    model = _built(sheet, "meta" if is_large else "cpu")
    yield compare_count(sheet, model)
    yield from compare_parameters(sheet, model)
    reading = read_step(model, sheet.batch, sheet.n_tokens)
    yield from compare_shapes(sheet, reading)
    yield from compare_flops(sheet, reading)
    yield from compare_recomputation(sheet, model)
    yield from compare_activations(sheet, model, "explicit")
    yield from compare_cache(sheet, model)
    small = Sheet(sheet.name, _in_small(config), 3, 19, sheet.dtype)
    model = _built(small, "cpu")
    found = [*compare_flops(small, read_step(model, small.batch, small.n_tokens))]
    model.attention_backend = "fused"
    found += compare_activations(small, model, "fused")
    yield from (replace(one, path="fused, in small" if one.path == "fused" else "in small") for one in found)


def _built(sheet: Sheet, device: str) -> ProofLM:
    with torch.device(device):
        model = ProofLM(sheet.config, attention_backend="explicit")
    return model.to(getattr(torch, sheet.dtype))


def _in_small(config: DecoderConfig) -> DecoderConfig:
    heads = 1 if config.n_heads == 1 else 6 if 1 < config.group_size < config.n_heads else 3
    kv_heads = {1: heads, config.n_heads: 1}.get(config.group_size, 2)
    return config.with_(
        vocab_size=31,
        context_length=29,
        n_layers=2,
        d_model=24,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=10,
        d_ff=37,
        sliding_window=None if config.sliding_window is None else 7,
        dropout=0.0,
    )
