"""docs/sheet-by-hand.md: each line computes to what it says, and to what the sheet says in the row that it names."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import pytest

from proof_lm.presets import PRESETS, preset
from proof_lm.sheet import Sheet, dimensions, saved_bytes
from proof_lm.sheet.flops import BACKWARD
from proof_lm.sheet.report import sheet_tables
from proof_lm.sheet.sheet import every_layer

DOCUMENT = (Path(__file__).parents[2] / "docs" / "sheet-by-hand.md").read_text(encoding="utf-8")

NUMBER = r"\d{1,3}(?:,\d{3})+|\d+"
HEADER = re.compile(r"# (?P<preset>\S+), (?P<table>.+)")
LINE = re.compile(rf"(?P<row>\S.*?): +(?P<left>[^=]+?) = +(?P<right>{NUMBER})")
EQUATION = re.compile(r"[=≈] *\d")
LETTER = re.compile(r"\| (?P<letter>[A-Z]) \|[^|]*\| (?P<chapter>[\d,]+) \| (?P<modern>[\d,]+) \|")
NOT_PRINTED = ("letters", "kept with fused attention")  # the sheet has these numbers; the terminal shows sums
MAX_COEFFICIENT = 12
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Line:
    """``row: left = right``, in a block under ``# preset, table``."""

    number: int
    preset: str
    table: str
    row: str
    left: str
    right: int


def computed_lines(text: str) -> tuple[list[Line], list[str]]:
    """The computed lines, and a complaint for each that cannot be read or is an equation outside the blocks."""
    lines: list[Line] = []
    unread: list[str] = []
    header: re.Match[str] | None = None
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            inside, header = not inside, None
        elif not inside and EQUATION.search(line):
            unread.append(f"{number}: an equation outside the blocks: {line}")
        elif inside and line and (heads := HEADER.fullmatch(line)):
            header = heads
        elif inside and line and header is not None and (found := LINE.fullmatch(line)):
            where = (number, header["preset"], header["table"])
            lines.append(Line(*where, found["row"], found["left"], whole(found["right"])))
        elif inside and line:
            unread.append(f"{number}: not 'row: computation = result' below '# preset, table': {line}")
    return lines, unread


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def numbers(text: str) -> list[int]:
    return [whole(found) for found in re.findall(NUMBER, text)]


def evaluate(expression: str) -> int:
    """The value, exactly.

    Raises:
        ValueError: there is something else in it than whole numbers, + - * // and parentheses, or a remainder.
    """
    try:
        return _value(ast.parse(re.sub(r"(?<=\d),(?=\d{3})", "", expression), mode="eval").body)
    except SyntaxError:
        raise ValueError(f"not an expression: {expression}") from None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            first, second = _value(left), _value(right)
            if isinstance(op, ast.FloorDiv) and (second == 0 or first % second):
                raise ValueError(f"{first} // {second} leaves a remainder")
            return OPERATORS[type(op)](first, second)
    raise ValueError(f"not whole numbers, + - * // and parentheses: {ast.unparse(node)}")


@cache
def sheet_of(name: str) -> Sheet:
    """As ``proof-lm sheet`` makes it without options."""
    config = preset(name)
    return Sheet(name, config, batch=1, n_tokens=config.context_length)


@cache
def sheet_rows(name: str) -> dict[str, dict[str, int]]:
    """Every number of a sheet that a line may name: by title of its table, and row (with column)."""
    sheet = sheet_of(name)
    parts = {part.name: part.count for part in sheet.subtotals}
    return {
        "letters": _letters(sheet),
        "Parameters": {every_layer(spec.name): spec.size for spec in sheet.distinct_tensors},
        "Parameters by part": {**parts, "one layer": sheet.layer.count, "all": sheet.parameter_count},
        "Forward pass": dict(_forward(sheet)),
        "What grows how": {f"FLOPs, {term.name}": term.value for term in sheet.terms},
        "FLOPs": dict(_passes(sheet)),
        "A training step by other conventions": sheet.conventions,
        "KV cache: 2 L K H elements a token": dict(_cache(sheet)),
        "Training memory": dict(_training_memory(sheet)),
        "kept with fused attention": _kept(sheet),
    }


def _letters(sheet: Sheet) -> dict[str, int]:
    values = sheet.values
    products = {f"{heads} H": values[heads] * values["H"] for heads in "NK"}
    return {**values, **products, "N / K": sheet.config.group_size, "P, causal": sheet.visible_pairs}


def _causal(sheet: Sheet) -> dict[str, int]:
    return dimensions(sheet.config, sheet.batch, sheet.n_tokens, attention="causal")


def _forward(sheet: Sheet) -> Iterator[tuple[str, int]]:
    for step in sheet.operations:
        yield step.name, step.flops.at(sheet.values)
        yield f"{step.name}, causal", step.flops.at(_causal(sheet))


def _passes(sheet: Sheet) -> Iterator[tuple[str, int]]:
    for kind, forward, again in (
        ("dense", sheet.forward, sheet.recomputation),
        ("causal", sheet.causal_forward, sheet.causal_recomputation),
    ):
        backward = forward * BACKWARD
        step = forward + backward
        passes = {"forward": forward, "backward": backward, "training step": step}
        for name, flops in {**passes, "training step, layers recomputed": step + again}.items():
            yield f"{name}, products, {kind}", flops.products
            if kind == "dense":
                yield f"{name}, other", flops.others


def _cache(sheet: Sheet) -> Iterator[tuple[str, int]]:
    for name, per_token in sheet.cache_by_heads.items():
        yield f"{name}, bytes a token", per_token
        yield f"{name}, B = {sheet.batch}, {sheet.n_tokens} tokens", per_token * sheet.batch * sheet.n_tokens


def _training_memory(sheet: Sheet) -> Iterator[tuple[str, int]]:
    for recipe in sheet.recipes:
        columns = {
            "parameters": recipe.parameter,
            "gradients": recipe.gradient,
            "optimizer": recipe.master + recipe.moments,
            "sum": recipe.total,
        }
        for column, n_bytes in columns.items():
            yield f"{recipe.name}, {column}", n_bytes * sheet.parameter_count
        yield f"{recipe.name}, bytes a parameter", recipe.total


def _kept(sheet: Sheet) -> dict[str, int]:
    rows: dict[str, int] = {}
    layer = outside = 0
    for saved in sheet.saved("fused"):
        n_bytes = saved_bytes(saved, sheet.values, sheet.dtype)
        rows[f"{saved.module}, {saved.name}"] = n_bytes
        layer, outside = (layer + n_bytes, outside) if saved.is_in_layer else (layer, outside + n_bytes)
    sums = {"one layer": layer, "outside": outside, "all": sheet.activations["fused"]}
    return {**rows, **sums, "all, layers recomputed": sheet.activations["recomputed"]}


@cache
def factors(name: str) -> dict[tuple[str, str], list[int]]:
    """Of each tensor and matrix product, in the order of the shape: rows, inner, columns behind the number of them."""
    sheet = sheet_of(name)
    found = {("Parameters", every_layer(spec.name)): list(spec.shape) for spec in sheet.distinct_tensors}
    for step in sheet.operations:
        if (of := step.product) is not None:
            sizes = [
                prod(sheet.values[letter] for letter in axis) for axis in (of.rows, of.inner, of.columns)
            ]
            times = [prod(sheet.values[letter] for letter in of.batch)] if of.batch else []
            found["Forward pass", step.name] = [*times, 2, *sizes]
    return found


def complaints(text: str) -> list[str]:
    """What is wrong with the document, with numbers of lines."""
    lines, found = computed_lines(text)
    results: dict[str, set[int]] = {name: set() for name in PRESETS}
    for line in lines:
        found += [f"{line.number}: {message}" for message in _complaints(line, results)]
        results.setdefault(line.preset, set()).add(line.right)
    if not lines:
        found.append("no computed lines")
    found += _wrong_letters(text)
    known = set.union(*results.values())
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    said = [whole(number) for number in re.findall(r"\d{1,3}(?:,\d{3})+", prose)]
    return found + [
        f"no line results in {number:,}, which the text names" for number in said if number not in known
    ]


def _complaints(line: Line, results: dict[str, set[int]]) -> Iterator[str]:
    if line.preset not in PRESETS:
        yield f"no preset is called {line.preset!r}"
        return
    try:
        value = evaluate(line.left)
    except ValueError as error:
        yield str(error)
        return
    if value != line.right:
        yield f"{line.left} is {value:,} and not {line.right:,}"
    expected = sheet_rows(line.preset).get(line.table, {}).get(line.row)
    if expected is None:
        yield f"the sheet of {line.preset} has no row {line.row!r} in {line.table!r}"
    elif expected != line.right:
        yield f"the sheet of {line.preset} says {expected:,} for {line.row!r} and not {line.right:,}"
    known = {*sheet_of(line.preset).values.values(), *results[line.preset], *range(MAX_COEFFICIENT + 1)}
    for number in numbers(line.left):
        if number not in known:
            yield f"{number:,} is no size, no small coefficient and no earlier result"
    sizes = factors(line.preset).get((line.table, line.row))
    if sizes is not None and numbers(line.left) != sizes:
        yield f"the sizes of {line.row!r} are {sizes}, not {line.left}"


def _wrong_letters(text: str) -> Iterator[str]:
    rows = list(LETTER.finditer(text))
    for name in ("chapter", "modern"):
        said = {row["letter"]: whole(row[name]) for row in rows}
        if said != sheet_of(name).values:
            yield f"the letters of {name} are {sheet_of(name).values}, not {said}"


def test_every_line_is_right_and_what_the_sheet_says() -> None:
    assert complaints(DOCUMENT) == []


def test_every_row_is_one_that_is_printed() -> None:
    printed = {
        (name, table.title): [row[0].strip() for row in table.rows]
        for name in ("chapter", "modern")
        for table in sheet_tables(sheet_of(name))
    }
    for line in computed_lines(DOCUMENT)[0]:
        if line.table not in NOT_PRINTED:
            rows = printed[line.preset, line.table]
            assert any(f"{line.row}, ".startswith(f"{row}, ") for row in rows), line


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("= 69,120\n", "= 69,121\n", "and not 69,121"),
        (
            "query:   2 * 64 * 48 * 48 = 294,912",
            "query:   2 * 64 * 48 * 48 = 294,913",
            "is 294,912 and not 294,913",
        ),
        (
            "key:     2 * 64 * 48 * 16 =  98,304",
            "key:     2 * 64 * 48 * 48 = 294,912",
            "says 98,304 for 'key'",
        ),
        ("down:   2 * 64 * 128 * 48", "down:   2 * 64 * 48 * 128", "the sizes of 'down'"),
        ("silu(gate) up:", "gelu(gate) up:", "has no row 'gelu(gate) up' in 'Forward pass'"),
        ("# modern, FLOPs", "# modern, FLOP", "in 'FLOP'"),
        ("# chapter, Training memory", "# modern, Training memory", "the sheet of modern says"),
        ("# chapter, letters", "# charter, letters", "no preset is called 'charter'"),
        ("# chapter, letters\n", "", "not 'row: computation = result'"),
        ("weights:                 5", "                         5", "not 'row: computation = result'"),
        ("64 * (64 + 1) // 2", "64 * 65 // 2", "65 is no size"),
        ("64 * (64 + 1) // 2", "(64 * 65 + 1) // 2", "leaves a remainder"),
        ("5 * 6 * 64 * 64 ", "5 * 6 * 64 ** 2 ", "not whole numbers, + - * //"),
        ("5 * 6 * 64 * 64 ", "5 * 6 * T * 64 ", "not whole numbers, + - * //"),
        ("5 * 6 * 64 * 64 ", "5 * 6 * (64 64 ", "not an expression"),
        ("# A sheet by hand", "# 7 // 2 = 3", "an equation outside the blocks"),
        ("| K | key/value heads | 4 | 2 |", "| K | key/value heads | 4 | 3 |", "the letters of modern"),
        ("and 3,072 four times", "and 3,073 four times", "no line results in 3,073"),
    ],
)
def test_a_mistake_is_found(old: str, new: str, complaint: str) -> None:
    assert old in DOCUMENT
    assert any(complaint in found for found in complaints(DOCUMENT.replace(old, new, 1)))


def test_a_document_without_lines_is_not_right() -> None:
    assert "no computed lines" in complaints("# A sheet by hand\n")
