"""``proof-lm verify``: the main job."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from proof_lm.cli.isolation import TIMEOUT, Timeout, judge_safely
from proof_lm.cli.judging import Event, Request
from proof_lm.cli.output import INTERRUPTED, out, progress
from proof_lm.cli.report_files import ReportFiles, read_matrix
from proof_lm.cli.subjects import SUBJECT_HELP, Source, show_subject
from proof_lm.cli.targets import EMBEDDED, MAX_SEED
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify import Contract, Level, Verification


def verify(
    target: Annotated[
        str | None, typer.Argument(help=SUBJECT_HELP + " Without one, the embedded decoder.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Judge by this contract only; repeat it, or use commas."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=0, max=MAX_SEED, help="Of every random choice, a preset's weights included."
        ),
    ] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all evidence to this file; - is standard output.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with everything, pictures included.")
    ] = None,
    matrix_file: Annotated[
        Path | None,
        typer.Option("--matrix", help="What `proof-lm mutants --json` wrote, to be shown in the page."),
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write a summary, as CI services show it.")
    ] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="Write one JUnit test case per contract.")
    ] = None,
    violations: Annotated[
        Path | None,
        typer.Option(
            "--save-violations", help="Write each violation to this folder, for `proof-lm replay FILE`."
        ),
    ] = None,
    save_baseline: Annotated[
        Path | None, typer.Option("--save-baseline", help="Write the verdicts, for --baseline.")
    ] = None,
    baseline_file: Annotated[
        Path | None,
        typer.Option("--baseline", help="Fail only if a contract got weaker than in this file."),
    ] = None,
    argument: Annotated[
        list[str] | None, typer.Option("--arg", help="name=value for the callable; repeat it.")
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", help="JSON file: config of a foreign decoder, and its weights' names."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show-subject", help="Say what was found of the target, and stop.")
    ] = False,
    level: Annotated[
        str, typer.Option("--level", help="quick, standard or thorough: how much is looked at.")
    ] = "standard",
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0, help="Begin no contract after so long.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Contracts judged at a time.")] = 1,
    timeout: Timeout = TIMEOUT,
    list_contracts: Annotated[bool, typer.Option("--list", help="List the contracts and stop.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Say how a contract is measured, and stop.")
    ] = None,
) -> None:
    """Prove or refute that a decoder keeps every contract.

    Exit status: 0 all hold, 1 one is violated, 2 the command or the target is wrong, 3 none is violated but
    one is undecided or none applies, 130 interrupted. With --baseline: 0 nothing got weaker, 1 something did.
    """
    from proof_lm.testing import select_contracts
    from proof_lm.verify import CONTRACTS
    from proof_lm.verify.baseline import compare, summary
    from proof_lm.verify.baseline import load as load_baseline
    from proof_lm.verify.report import render

    if list_contracts:
        _list(out(), CONTRACTS)
        return
    if explain is not None:
        _explain(out(), _find(CONTRACTS, explain))
        return
    chosen = cast("Level", level)  # what select_contracts refuses is none
    contracts = select_contracts(_names(only), chosen)
    if matrix_file is not None and html_file is None:
        raise TargetError("--matrix goes with --html: the page shows it")
    matrix = None if matrix_file is None else read_matrix(matrix_file)
    files = ReportFiles(json_file, junit_file, markdown_file, html_file, save_baseline, violations, matrix)
    files.require_writable()
    baseline = None if baseline_file is None else load_baseline(baseline_file)
    source = Source(target, seed, tuple(argument or ()), map_file)
    request = Request(
        source,
        tuple(contract.name for contract in contracts),
        chosen,
        max_seconds,
        jobs,
        violations=violations is not None,
        influences=html_file is not None,
    )
    if show:
        judge_safely(replace(request, contracts=()), partial(_show, out()), timeout)
        return
    run = _run(request, timeout)
    files.write(run.verification, run.violations)  # first: who reads what follows may stop early
    console = out(*files.named)
    render(run.verification, console)
    status = run.verification.exit_status
    if baseline is not None:
        console.print(summary(baseline, run.verification), markup=False, highlight=False, soft_wrap=True)
        status = 1 if compare(baseline, run.verification) else 0
    raise typer.Exit(INTERRUPTED if run.interrupted else status)


@dataclass
class _Run:
    verification: Verification
    violations: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False


def _run(request: Request, timeout: float) -> _Run:
    """Judges the target with progress on standard error."""
    from proof_lm.verify import Verification
    from proof_lm.verify.report import influence_from_dict, result_from_dict

    source = request.source
    console = progress()
    begun = time.perf_counter()
    name = source.target or f"embedded decoder ({EMBEDDED})"
    verification = Verification(name, source.seed, request.contracts, level=request.level)
    run = _Run(verification)
    with console.status(f"loading {escape(name)}") as status:

        def on_event(event: Event) -> None:
            match event["event"]:
                case "loaded":
                    verification.target = event["target"]
                case "begun":
                    step = f"[{len(verification.results) + 1}/{len(request.contracts)}] {event['contract']}"
                    elapsed = f"{time.perf_counter() - begun:.0f} s"
                    status.update(escape(f"{name} {step}, after {elapsed}"))
                    if not console.is_terminal:
                        console.print(f"{step}, after {elapsed}", markup=False, highlight=False)
                case "decided":
                    verification.results.append(result_from_dict(event["result"]))
                case "diagnosing":
                    status.update(escape(f"{name}: looking for a fault that behaves so"))
                case "diagnosed":
                    verification.diagnosis = event["diagnosis"]
                case "failed":
                    console.print(event["message"], markup=False, highlight=False, soft_wrap=True)
                case "recording":
                    status.update(escape(f"{name}: recording violations"))
                case "violations":
                    run.violations = event["files"]
                case "looking":
                    status.update(escape(f"{name}: looking which token moves which position"))
                case "influences":
                    verification.influences = tuple(map(influence_from_dict, event["influences"]))

        try:
            judge_safely(request, on_event, timeout)
        except KeyboardInterrupt:
            console.print("interrupted: what was decided until then follows", highlight=False)
            run.interrupted = True
    return run


def _show(console: Console, event: Event) -> None:
    if event["event"] == "loaded":
        show_subject(event, console)


def _names(given: list[str] | None) -> list[str]:
    return [name.strip() for entry in given or () for name in entry.split(",")]


def _find(contracts: Sequence[Contract], name: str) -> Contract:
    for contract in contracts:
        if contract.name == name:
            return contract
    raise TargetError(f"no contract named {name!r}; there are {', '.join(c.name for c in contracts)}")


def _list(console: Console, contracts: Sequence[Contract]) -> None:
    from rich.table import Table

    table = Table(box=None)
    table.add_column("contract", no_wrap=True)
    table.add_column("statement")
    for contract in contracts:
        table.add_row(contract.name, contract.statement)
    console.print(table)


def _explain(console: Console, contract: Contract) -> None:
    from proof_lm.verify import MUTANTS

    console.print(f"[bold]{contract.name}[/]: {contract.statement}\n", highlight=False)
    console.print(contract.explanation, markup=False, highlight=False)
    needs = ", ".join(sorted(contract.needs))
    console.print(f"\nNeeds: {needs}.", markup=False, highlight=False)
    console.print("Rejects, among the planted faults:", markup=False, highlight=False)
    for mutant in MUTANTS:
        if contract.name in mutant.rejected_by:
            source = f" ({mutant.source})" if mutant.source else ""
            console.print(f"  {mutant.name}: {mutant.fault}{source}", markup=False, highlight=False)
