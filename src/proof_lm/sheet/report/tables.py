"""The sheet as tables of text: what the terminal, Markdown and the page show alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proof_lm.sheet.flops import BACKWARD, CONVENTIONS, SCORES, Flops
from proof_lm.sheet.plan import DeviceMemory, Machine, Plan
from proof_lm.sheet.report.words import duration, factor, n_bytes, scaled, share
from proof_lm.sheet.sheet import Sheet, every_layer


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: what it shows.
        columns: their heads.
        rows: of as many cells.
        note: what must be known to read it; often empty.
        numbers: from which column on cells are numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    numbers: int = 1


def sheet_tables(sheet: Sheet, plan: Plan | None = None) -> list[Table]:
    """Everything on the sheet, in the order of reading."""
    tables = [
        _parts(sheet),
        _parameters(sheet),
        _forward(sheet),
        _kinds(sheet),
        _passes(sheet),
        _growth(sheet),
        _conventions(sheet),
        _training_memory(sheet),
        _cache(sheet),
        _inference(sheet, plan),
    ]
    return tables + ([] if plan is None else _plan(sheet, plan))


def _parts(sheet: Sheet) -> Table:
    rows = [
        (part.name, str(part.formula), f"{part.count:,}", share(part.count, sheet.parameter_count))
        for part in sheet.subtotals
    ]
    rows.append(("one layer", str(sheet.layer.formula), f"{sheet.layer.count:,}", ""))
    rows.append(("all", "", f"{sheet.parameter_count:,}", "100.0 %"))
    is_tied = sheet.config.tie_embeddings
    otherwise = sheet.with_(tie_embeddings=not is_tied).parameter_count
    rows.append(("all, untied" if is_tied else "all, tied", "", f"{otherwise:,}", ""))
    note = "The head is the embedding." if is_tied else "The head is a matrix of its own."
    return Table("Parameters by part", ("part", "formula", "parameters", "share"), rows, note, 2)


def _parameters(sheet: Sheet) -> Table:
    rows = [
        (
            every_layer(spec.name),
            " x ".join(" ".join(axis) for axis in spec.letters),
            " x ".join(f"{size:,}" for size in spec.shape),
            f"{spec.size:,}",
        )
        for spec in sheet.distinct_tensors
    ]
    note = f"blocks.* stands for each of {sheet.config.n_layers} layers; weights are (out, in)."
    return Table("Parameters", ("tensor", "shape", "numbers", "parameters"), rows, note, 2)


def _forward(sheet: Sheet) -> Table:
    rows = []
    for step in sheet.operations:
        flops = step.flops.at(sheet.values)
        rows.append(
            (
                ("  " if step.is_in_layer else "") + step.name,
                " x ".join(" ".join(axis) if "/" not in axis else axis for axis in step.shape)
                or "one number",
                " x ".join(f"{size:,}" for size in sheet.shape_of(step)),
                str(step.flops) if step.flops else "",
                f"{flops:,}" if flops else "",
            )
        )
    note = f"Indented: in each of {sheet.config.n_layers} layers, counted once here, and with every score: P = T S."
    return Table("Forward pass", ("tensor", "shape", "numbers", "FLOPs", "value"), rows, note, 2)


def _passes(sheet: Sheet) -> Table:
    tokens = sheet.batch * sheet.n_tokens
    dense = _by_pass(sheet.forward, sheet.recomputation)
    causal = _by_pass(sheet.causal_forward, sheet.causal_recomputation)
    rows = [
        (
            name,
            f"{flops.products:,}",
            f"{causal[name].products:,}",
            f"{flops.others:,}",
            scaled(flops.products / tokens),
        )
        for name, flops in dense.items()
    ]
    return Table("FLOPs", ("pass", "products, dense", "products, causal", "other", "dense, a token"), rows)


def _by_pass(forward: Flops, again: Flops) -> dict[str, Flops]:
    step = forward * (1 + BACKWARD)
    return {
        "forward": forward,
        "backward": forward * BACKWARD,
        "training step": step,
        "training step, layers recomputed": step + again,
    }


def _kinds(sheet: Sheet) -> Table:
    whole = sheet.forward.total
    rows = [
        (kind.name, str(kind.formula), f"{kind.value:,}", share(kind.value, whole)) for kind in sheet.kinds
    ]
    return Table("Forward pass by kind", ("kind", "formula", "FLOPs", "share"), rows, "", 2)


def _growth(sheet: Sheet) -> Table:
    formulas = {f"FLOPs, {term.name}": str(term.formula) for term in sheet.terms}
    whole = sum(term.value for term in sheet.terms)
    rows = [
        (
            grown.name,
            formulas.get(grown.name, ""),
            n_bytes(grown.value) if "bytes" in grown.name else scaled(grown.value),
            share(grown.value, whole) if grown.name in formulas else "",
            factor(grown.tokens),
            factor(grown.batch),
            factor(grown.width),
        )
        for grown in sheet.growth
    ]
    note = "Of the forward pass. With D double, F, N and K are double too, and H stays."
    return Table(
        "What grows how", ("quantity", "formula", "value", "share", "2 T", "2 B", "2 D"), rows, note, 2
    )


def _conventions(sheet: Sheet) -> Table:
    dense = sheet.conventions["dense"]
    rows = [
        (
            known.name,
            known.meaning,
            scaled(sheet.conventions[known.name]),
            f"{sheet.conventions[known.name] / dense:.3f}",
        )
        for known in CONVENTIONS
    ]
    return Table(
        "A training step by other conventions", ("count", "meaning", "FLOPs", "by dense"), rows, "", 2
    )


def _training_memory(sheet: Sheet) -> Table:
    count = sheet.parameter_count
    rows = [
        (
            recipe.name,
            n_bytes(recipe.parameter * count),
            n_bytes(recipe.gradient * count),
            n_bytes((recipe.master + recipe.moments) * count),
            n_bytes(recipe.total * count),
            str(recipe.total),
        )
        for recipe in sheet.all_recipes
    ]
    kept = ", ".join(
        f"{name} {n_bytes(value)}"
        for name, value in zip(
            ("fused attention", "explicit attention", "fused, layers recomputed"),
            sheet.activations.values(),
            strict=True,
        )
    )
    note = f"Activations kept for the backward pass of B = {sheet.batch}, T = {sheet.n_tokens}: {kept}."
    columns = ("recipe", "parameters", "gradients", "optimizer", "sum", "bytes a parameter")
    return Table("Training memory", columns, rows, note)


def _cache(sheet: Sheet) -> Table:
    rows = []
    for name, per_token in sheet.cache_by_heads.items():
        whole = per_token * sheet.batch * sheet.n_tokens
        longest = per_token * sheet.config.context_length
        rows.append((name, f"{per_token:,}", n_bytes(whole), n_bytes(longest)))
    columns = (
        "KV heads",
        "bytes a token",
        f"B = {sheet.batch}, {sheet.n_tokens:,} tokens",
        "one row, whole context",
    )
    return Table("KV cache: 2 L K H elements a token", columns, rows, f"In {sheet.dtype}.")


def _inference(sheet: Sheet, plan: Plan | None) -> Table:
    columns: tuple[str, ...] = ("call", "FLOPs", "weights", "cache", "FLOPs a byte")
    rows = []
    machine, bandwidth = (None, None) if plan is None else (plan.machine, plan.bandwidth)
    for call in sheet.inference:
        name = (
            f"{call.name} of {sheet.n_tokens:,} tokens"
            if call.name == "prefill"
            else f"token {sheet.n_tokens:,}"
        )
        row: tuple[str, ...] = (
            name,
            scaled(call.flops),
            n_bytes(call.weight_bytes),
            n_bytes(call.cache_bytes),
            f"{call.intensity:.3g}",
        )
        if machine is not None and bandwidth is not None:
            computing, moving = call.flops / machine.peak, call.moved_bytes / bandwidth
            row += (duration(max(computing, moving)), "arithmetic" if computing > moving else "memory")
        rows.append(row)
    if bandwidth is not None:
        columns += ("at least", "bound by")
    return Table(f"Inference, B = {sheet.batch}", columns, rows)


def _plan(sheet: Sheet, plan: Plan) -> list[Table]:
    rows = [(name, *_memory_row(memory)) for name, memory in plan.memory.items()]
    columns = ("recipe", "parameters", "gradients", "optimizer", "gathered", "activations", "sum")
    note = f"B = {sheet.batch} rows a device, T = {sheet.n_tokens}."
    tables = [Table(f"Memory of each device: {_way(plan)}", columns, rows, note)]
    run = plan.run
    if run is not None:
        assert plan.machine is not None
        facts = [
            ("FLOPs of a step, all devices", f"{scaled(run.flops)} ({plan.convention})"),
            ("tokens of a step", f"{run.tokens_per_step:,}"),
            ("a step", duration(run.seconds_per_step)),
            ("tokens a second", scaled(run.tokens_per_step / run.seconds_per_step)),
        ]
        if run.tokens is not None and run.seconds is not None:
            facts += [("tokens of the run", scaled(run.tokens)), ("the run", duration(run.seconds))]
            facts.append(("device hours", f"{run.seconds / 3600 * plan.devices:,.4g}"))
        if run.cost is not None:
            facts.append(("cost", f"{run.cost:,.2f}"))
        tables.append(Table("Time and cost", ("of the run", "value"), facts, _speed(plan.machine)))
    return tables


def _way(plan: Plan) -> str:
    how = f"{plan.devices} devices, {plan.parallel}" if plan.devices > 1 else "one device"
    return how + (", layers recomputed" if plan.recomputed else "")


def _speed(machine: Machine) -> str:
    return f"{scaled(machine.peak, 'FLOP/s')} a device, of which {machine.utilization:.0%} is reached."


def _memory_row(memory: DeviceMemory) -> tuple[str, ...]:
    parts = (
        memory.parameters,
        memory.gradients,
        memory.optimizer,
        memory.gathered,
        memory.activations,
        memory.total,
    )
    return tuple(n_bytes(part) for part in parts)


def _share_of(sheet: Sheet, name: str) -> str:
    return share(next(term.value for term in sheet.terms if term.name == name), sheet.forward.products)


_COMPARED: dict[str, Callable[[Sheet], str]] = {
    "parameters": lambda s: f"{s.parameter_count:,}",
    "one layer": lambda s: f"{s.layer.count:,}",
    "layers, width": lambda s: f"{s.config.n_layers}, {s.config.d_model}",
    "query heads, KV heads, head width": lambda s: (
        f"{s.config.n_heads}, {s.config.kv_heads}, {s.config.head_width}"
    ),
    "feed-forward width": lambda s: f"{s.config.d_ff:,}",
    "B, T": lambda s: f"{s.batch}, {s.n_tokens:,}",
    "forward FLOPs, dense": lambda s: scaled(s.forward.products),
    "forward FLOPs, causal": lambda s: scaled(s.causal_forward.products),
    "forward FLOPs a token, dense": lambda s: scaled(s.forward.products / (s.batch * s.n_tokens)),
    "share of the scores": lambda s: _share_of(s, SCORES),
    "share of the head": lambda s: _share_of(s, "head"),
    "weights": lambda s: n_bytes(s.parameter_count * s.recipes[0].parameter),
    "parameters, gradients, optimizer": lambda s: n_bytes(s.parameter_count * s.recipes[0].total),
    "activations, fused attention": lambda s: n_bytes(s.activations["fused"]),
    "activations, explicit attention": lambda s: n_bytes(s.activations["explicit"]),
    "activations, layers recomputed": lambda s: n_bytes(s.activations["recomputed"]),
    "cache a token": lambda s: n_bytes(s.cache_per_token),
    "cache of one row, whole context": lambda s: n_bytes(s.cache_per_token * s.config.context_length),
    "FLOPs a byte, prefill": lambda s: f"{s.inference[0].intensity:.3g}",
    "FLOPs a byte, decoding": lambda s: f"{s.inference[1].intensity:.3g}",
}


def comparison(sheets: Sequence[Sheet], plans: Sequence[Plan | None], convention: str = "dense") -> Table:
    """Several decoders side by side; a training step is counted by the convention."""
    rows = [(name, *(tell(sheet) for sheet in sheets)) for name, tell in _COMPARED.items()]
    rows.append(
        (f"training step ({convention})", *(scaled(sheet.conventions[convention]) for sheet in sheets))
    )
    known = [plan for plan in plans if plan is not None]
    if known:
        rows.append(
            ("sum on each device", *(n_bytes(next(iter(plan.memory.values())).total) for plan in known))
        )
    runs = [plan.run for plan in known if plan.run is not None]
    if runs:
        rows.append(("a step", *(duration(run.seconds_per_step) for run in runs)))
        if all(run.seconds is not None for run in runs):
            rows.append(("the run", *(duration(run.seconds or 0.0) for run in runs)))
            rows.append(("tokens of the run", *(scaled(run.tokens or 0) for run in runs)))
        if all(run.cost is not None for run in runs):
            rows.append(("cost", *(f"{run.cost:,.2f}" for run in runs)))
    note = f"In {sheets[0].dtype}; optimizer: {sheets[0].recipes[0].name}."
    if known:
        note += f" {_way(known[0])[0].upper()}{_way(known[0])[1:]}, B rows each."
    if runs:
        assert known[0].machine is not None
        note += f" {_speed(known[0].machine)}"
    return Table("Side by side", ("", *(sheet.name for sheet in sheets)), rows, note)
