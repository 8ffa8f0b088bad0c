"""The sheet for programs: JSON with a published schema (``sheet.schema.json``), and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from proof_lm.sheet.flops import BACKWARD, Flops
from proof_lm.sheet.plan import Plan
from proof_lm.sheet.report.words import conventions
from proof_lm.sheet.sheet import Sheet

FORMAT, VERSION = "proof-lm/sheet", 2


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of what :func:`to_dict` gives."""
    text = resources.files("proof_lm.sheet.report").joinpath("sheet.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def to_dict(
    sheet: Sheet, plan: Plan | None = None, checked: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Everything on the sheet in JSON's own types; counts are exact, bytes and FLOPs whole numbers.

    Args:
        sheet: what is written.
        plan: of a training run, if there is one.
        checked: what was compared with the running decoder: ``quantity``, ``path``, ``off`` (0 where it is equal) and
            ``where`` of each; None where nothing was.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "target": sheet.name,
        "config": sheet.config.to_dict(),
        "batch": sheet.batch,
        "n_tokens": sheet.n_tokens,
        "dtype": sheet.dtype,
        "dimensions": sheet.values,
        "visible_pairs": sheet.visible_pairs,
        "parameter_count": sheet.parameter_count,
        "parameters": [
            {
                "name": spec.name,
                "shape": list(spec.shape),
                "letters": list(spec.letters),
                "part": spec.role,
                "count": spec.size,
            }
            for spec in sheet.tensors
        ],
        "parts": [_subtotal(part) for part in [*sheet.subtotals, sheet.layer]],
        "operations": [
            {
                "name": step.name,
                "module": step.module,
                "kind": step.kind,
                "layers": sheet.config.n_layers if step.is_in_layer else 1,
                "letters": list(step.shape),
                "shape": list(sheet.shape_of(step)),
                "formula": str(step.flops),
                "flops": step.flops.at(sheet.values),
            }
            for step in sheet.operations
        ],
        "flops": {
            "forward": _flops(sheet.forward),
            "backward": _flops(sheet.forward * BACKWARD),
            "training_step": _flops(sheet.forward * (1 + BACKWARD)),
            "recomputation": _flops(sheet.recomputation),
            "forward_causal": _flops(sheet.causal_forward),
        },
        "conventions": sheet.conventions,
        "terms": [
            {"name": term.name, "formula": str(term.formula), "flops": term.value} for term in sheet.terms
        ],
        "kinds": [
            {"name": kind.name, "formula": str(kind.formula), "flops": kind.value} for kind in sheet.kinds
        ],
        "growth": [dataclasses.asdict(grown) for grown in sheet.growth],
        "recipes": [{**dataclasses.asdict(recipe), "total": recipe.total} for recipe in sheet.recipes],
        "activation_bytes": sheet.activations,
        "cache_bytes_per_token": sheet.cache_per_token,
        "inference": [
            {**dataclasses.asdict(call), "moved_bytes": call.moved_bytes, "intensity": call.intensity}
            for call in sheet.inference
        ],
        "plan": None if plan is None else dataclasses.asdict(plan),
        "checked": None if checked is None else list(checked),
        "how": conventions([sheet]),
    }


def to_csv(sheets: list[tuple[Sheet, Plan | None]]) -> str:
    """One number a line: target, section, name, formula, value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("target", "section", "name", "formula", "value"))
    for sheet, plan in sheets:
        for section, name, formula, value in _numbers(sheet, plan):
            writer.writerow((sheet.name, section, name, formula, value))
    return text.getvalue()


def _numbers(sheet: Sheet, plan: Plan | None) -> list[tuple[str, str, str, float]]:
    found: list[tuple[str, str, str, float]] = [
        ("dimension", letter, "", value) for letter, value in sheet.values.items()
    ]
    found += [("parameter", spec.name, str(spec.formula), spec.size) for spec in sheet.tensors]
    found += [("part", part.name, str(part.formula), part.count) for part in [*sheet.subtotals, sheet.layer]]
    found.append(("total", "parameters", "", sheet.parameter_count))
    found += [
        (
            "forward FLOPs of one",
            f"{step.module or 'decoder'}: {step.name}",
            str(step.flops),
            step.flops.at(sheet.values),
        )
        for step in sheet.operations
    ]
    for name, flops in (("forward", sheet.forward), ("recomputation", sheet.recomputation)):
        found += [
            ("FLOPs", f"{name}, products", "", flops.products),
            ("FLOPs", f"{name}, others", "", flops.others),
        ]
    found += [("training step FLOPs", name, "", value) for name, value in sheet.conventions.items()]
    found += [("activation bytes", name, "", value) for name, value in sheet.activations.items()]
    found += [("cache bytes a token", name, "", value) for name, value in sheet.cache_by_heads.items()]
    for recipe in sheet.recipes:
        found.append(("bytes a parameter", recipe.name, "", recipe.total))
    for call in sheet.inference:
        found.append((call.name, "FLOPs", "", call.flops))
        found.append((call.name, "moved bytes", "", call.moved_bytes))
    if plan is not None:
        found += [("bytes a device", name, "", memory.total) for name, memory in plan.memory.items()]
        if plan.run is not None:
            run = {name: value for name, value in dataclasses.asdict(plan.run).items() if value is not None}
            found += [("run", name, "", value) for name, value in run.items()]
    return found


def _subtotal(part: Any) -> dict[str, Any]:
    return {"name": part.name, "formula": str(part.formula), "count": part.count}


def _flops(flops: Flops) -> dict[str, int]:
    return {"products": flops.products, "others": flops.others}
