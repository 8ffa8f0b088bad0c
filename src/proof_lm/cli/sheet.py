"""``proof-lm sheet``: shapes, parameters, FLOPs and memory, from the config alone."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from proof_lm.cli.output import out, progress, require_all_writable, write_json, write_text
from proof_lm.cli.targets import resolve
from proof_lm.errors import ConfigError
from proof_lm.presets import PRESETS

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.sheet import Machine, Plan, Sheet
    from proof_lm.sheet.plan import Parallel
    from proof_lm.sheet.report import Table
    from proof_lm.verify import Measurement

LONGEST = 2048  # tokens of a row, where none are asked for
REACHED = 0.4  # of the peak, likewise
TARGET_HELP = (
    f"A preset ({', '.join(PRESETS)}), 'smollm2', a Hugging Face or ProofLM directory, a JSON file with a config, or "
    "a .gguf file; weights are not read. With several, they are compared."
)


def sheet(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help=TARGET_HELP)],
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows (of each device), B.")] = 1,
    seq: Annotated[
        int | None,
        typer.Option("--seq", min=1, help=f"Tokens of a row, T.  [default: the context, {LONGEST} at most]"),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="float64, float32, bfloat16 or float16.")] = "float32",
    check: Annotated[
        bool, typer.Option("--check", help="Build the decoder, run it, and compare it with the sheet.")
    ] = False,
    count: Annotated[
        str,
        typer.Option(
            "--count", help="How a training step is counted: dense, causal, halved, macs, 6n, palm or all."
        ),
    ] = "dense",
    devices: Annotated[int, typer.Option("--devices", min=1, help="How many devices train.")] = 1,
    parallel: Annotated[
        str, typer.Option("--parallel", help="ddp: all of it on each device; fsdp: split.")
    ] = "ddp",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Layers keep their input alone, and run again.")
    ] = False,
    peak: Annotated[
        float | None, typer.Option("--peak-flops", help="FLOP/s of a device, such as 312e12.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", help="Bytes/s of a device's memory, such as 2e12.")
    ] = None,
    utilization: Annotated[
        float | None,
        typer.Option("--utilization", help=f"Share of the peak that training reaches.  [default: {REACHED}]"),
    ] = None,
    price: Annotated[float | None, typer.Option("--price", help="Of a device for an hour.")] = None,
    tokens: Annotated[
        float | None, typer.Option("--tokens", help="Tokens of the training run, such as 15e12.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="What the run may cost: how many tokens does it pay for?")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write it to this file; - shows it.")
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write each number to this file, one a line; - shows it.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables to this file.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write one page to this file, to be read or printed.")
    ] = None,
) -> None:
    """Shapes, parameters, FLOPs and memory of decoders, derived from their configs; and what a training run needs.

    Exit status: 0, or with --check 1 if the decoder is not as its sheet says; 2 the command or a target is wrong.
    """
    from proof_lm.sheet import Sheet, make_plan
    from proof_lm.sheet.report import conventions

    files = (json_file, csv_file, markdown_file, html_file)
    require_all_writable([file for file in files if file is not None])
    _require_sense(count, parallel)
    machine = _machine(peak, utilization, devices, price, bandwidth, tokens, budget)
    sheets = []
    for target in targets:
        config = resolve(target).read_config()
        n_tokens = min(config.context_length, LONGEST) if seq is None else seq
        try:
            sheets.append(Sheet(target, config, batch, n_tokens, dtype))
        except ConfigError as error:
            raise ConfigError(f"{target}: {error}") from error
    planned = partial(
        make_plan,
        devices=devices,
        parallel=cast("Parallel", parallel),
        recomputed=recompute,
        convention=count,
        machine=machine,
        bandwidth=bandwidth,
        tokens=None if tokens is None else int(tokens),
        budget=budget,
    )
    is_planned = machine is not None or devices > 1 or recompute
    plans = [
        planned(one.config, one.batch, one.n_tokens, one.dtype) if is_planned else None for one in sheets
    ]
    checked = [_checked(one) for one in sheets] if check else []
    lead, tables = _content(sheets, plans, checked, count)
    notes = conventions(sheets)
    _show(lead, tables, notes, out(*files))
    _write(sheets, plans, checked, lead, tables, notes, files)
    raise typer.Exit(1 if any(m.measured for found in checked for m in found) else 0)


def _require_sense(count: str, parallel: str) -> None:
    from proof_lm.sheet import CONVENTIONS

    known = [convention.name for convention in CONVENTIONS]
    if count not in known:
        raise ConfigError(f"--count must be one of {', '.join(known)}, got {count!r}")
    if parallel not in ("ddp", "fsdp"):
        raise ConfigError(f"--parallel must be ddp or fsdp, got {parallel!r}")


def _machine(
    peak: float | None,
    utilization: float | None,
    devices: int,
    price: float | None,
    bandwidth: float | None,
    tokens: float | None,
    budget: float | None,
) -> Machine | None:
    """What a run is planned on; None where no speed is given.

    Raises:
        ConfigError: an option is out of range, or needs another one, or contradicts it.
    """
    from proof_lm.sheet import Machine

    positive = {"--bandwidth": bandwidth, "--tokens": tokens, "--budget": budget, "--price": price}
    for name, value in {"--peak-flops": peak, "--utilization": utilization, **positive}.items():
        if value is not None and peak is None:
            raise ConfigError(f"{name} needs --peak-flops, the FLOP/s of a device")
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{name} must be more than 0 and finite, got {value}")
    if utilization is not None and utilization > 1:
        raise ConfigError(f"--utilization must be at most 1, got {utilization}")
    if tokens is not None and tokens < 1:
        raise ConfigError(f"--tokens must be at least 1, got {tokens}")
    if budget is not None and tokens is not None:
        raise ConfigError("--budget says how many tokens there are, and so does --tokens; give one of them")
    if budget is not None and price is None:
        raise ConfigError("--budget needs --price, the price of a device for an hour")
    if price is not None and budget is None and tokens is None:
        raise ConfigError("--price needs --tokens or --budget, the size of the run")
    return None if peak is None else Machine(devices, peak, utilization or REACHED, price)


def _checked(one: Sheet) -> list[Measurement]:
    with progress().status(f"{one.name}: loading PyTorch") as status:
        from proof_lm.verify.accounting import check_sheet

        found = []
        for measurement in check_sheet(one):
            found.append(measurement)
            status.update(f"{one.name}: {measurement.quantity}")
    return found


def _content(
    sheets: list[Sheet], plans: list[Plan | None], checked: list[list[Measurement]], count: str
) -> tuple[list[str], list[Table]]:
    from proof_lm.sheet.report import comparison, dimension_line, sheet_tables, step_line, summary

    if len(sheets) > 1:
        lead = [f"{one.name}: {summary(one)}" for one in sheets]
        tables = [comparison(sheets, plans, count)]
    else:
        (one,) = sheets
        lead = [
            f"{one.parameter_count:,} parameters: {summary(one)}",
            f"{dimension_line(one)}; {one.dtype}",
            step_line(one, count),
        ]
        tables = sheet_tables(one, plans[0])
    return lead, [*tables, *(_check_table(one, found) for one, found in zip(sheets, checked, strict=False))]


def _check_table(one: Sheet, found: list[Measurement]) -> Table:
    from proof_lm.sheet.report import Table

    rows = [
        (m.quantity, m.path, "equal" if not m.measured else f"off by {m.measured:,.0f}", m.where)
        for m in found
    ]
    wrong = sum(1 for m in found if m.measured)
    says = f"{wrong} of {len(found)} are not as the sheet says." if wrong else f"All {len(found)} are equal."
    return Table(
        f"{one.name} built, run and counted", ("compared", "attention", "verdict", "where"), rows, says, 4
    )


def _show(lead: list[str], tables: list[Table], notes: list[str], console: Console) -> None:
    import rich.table

    for line in lead:
        console.print(line, highlight=False, markup=False)
    for table in tables:
        console.print(f"\n{table.title}", style="bold", highlight=False, markup=False)
        shown = rich.table.Table(box=None, padding=(0, 1, 0, 0))
        for index, column in enumerate(table.columns):
            shown.add_column(
                column, justify="right" if index >= table.numbers else "left", header_style="dim"
            )
        for row in table.rows:
            shown.add_row(*(cell.replace("[", r"\[") for cell in row))
        console.print(shown, highlight=False)
        if table.note:
            console.print(table.note, style="dim", highlight=False, markup=False)
    console.print("\nHow it is counted", style="bold")
    for line in notes:
        console.print(f"* {line}", highlight=False, markup=False)


def _write(
    sheets: list[Sheet],
    plans: list[Plan | None],
    checked: list[list[Measurement]],
    lead: list[str],
    tables: list[Table],
    notes: list[str],
    files: Sequence[Path | None],
) -> None:
    from proof_lm.sheet.report import to_csv, to_dict, to_html, to_markdown
    from proof_lm.sheet.report.plot import plot

    json_file, csv_file, markdown_file, html_file = files
    heading = " and ".join(one.name for one in sheets)
    if json_file is not None:
        compared: list[list[dict[str, Any]] | None] = [_compared(found) for found in checked]
        compared = compared or [None] * len(sheets)
        documents = [to_dict(*parts) for parts in zip(sheets, plans, compared, strict=True)]
        many = {"format": "proof-lm/sheets", "version": 1, "sheets": documents}
        write_json(json_file, documents[0] if len(documents) == 1 else many)
    if csv_file is not None:
        write_text(csv_file, to_csv(list(zip(sheets, plans, strict=True))))
    if markdown_file is not None:
        write_text(markdown_file, to_markdown(heading, lead, tables, notes))
    if html_file is not None:
        picture = plot(sheets[0]) if len(sheets) == 1 else None
        command = shlex.join(["proof-lm", *sys.argv[1:]])
        write_text(html_file, to_html(heading, lead, tables, notes, command=command, plot=picture))


def _compared(found: list[Measurement]) -> list[dict[str, Any]]:
    return [{"quantity": m.quantity, "path": m.path, "off": m.measured, "where": m.where} for m in found]
