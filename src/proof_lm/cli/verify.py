"""``proof-lm verify``: the main job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proof_lm.cli.output import out, progress, require_writable, write_json
from proof_lm.cli.subjects import SUBJECT_HELP, Source, show_subject
from proof_lm.cli.targets import EMBEDDED, MAX_SEED
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify import Contract, Level, Verification

INTERRUPTED = 130  # what shells report for SIGINT


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
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all evidence to this file.")] = None,
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
    list_contracts: Annotated[bool, typer.Option("--list", help="List the contracts and stop.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Say how a contract is measured, and stop.")
    ] = None,
) -> None:
    """Prove or refute that a decoder keeps every contract.

    Exit status: 0 all hold, 1 one is violated, 2 the command or the target is wrong, 3 none is violated but
    one is undecided or none applies, 130 interrupted.
    """
    from proof_lm.verify import CONTRACTS

    if list_contracts:
        _list(out(), CONTRACTS)
        return
    if explain is not None:
        _explain(out(), _find(CONTRACTS, explain))
        return
    contracts = _select(only, _level(level))
    if json_file is not None:
        require_writable(json_file)
    source = Source(target, seed, tuple(argument or ()), map_file)
    if show:
        show_subject(source.load(), out())
        return
    verification, interrupted = _run(source, contracts, _level(level), max_seconds, jobs)
    _report(verification, json_file)
    raise typer.Exit(INTERRUPTED if interrupted else verification.exit_status)


def _run(
    source: Source, contracts: Sequence[Contract], level: Level, max_seconds: float | None, jobs: int
) -> tuple[Verification, bool]:
    """Judges the target with progress on standard error; the flag says whether it was interrupted."""
    from rich.markup import escape

    from proof_lm.verify import Verdict, diagnose, plan
    from proof_lm.verify import verify as judge

    console = progress()
    begun = time.perf_counter()
    name = escape(source.target or f"embedded decoder ({EMBEDDED})")
    with console.status(f"loading {name}") as status:
        subject = source.load()
        verification = plan(subject, contracts, source.seed, level)

        def before_each(contract: Contract) -> None:
            step = f"[{len(verification.results) + 1}/{len(contracts)}] {contract.name}"
            elapsed = f"{time.perf_counter() - begun:.0f} s"
            status.update(f"{name} {step.replace('[', chr(92) + '[')}, after {elapsed}")
            if not console.is_terminal:
                console.print(f"{step}, after {elapsed}", markup=False, highlight=False)

        try:
            judge(
                subject,
                contracts,
                seed=source.seed,
                level=level,
                max_seconds=max_seconds,
                jobs=jobs,
                before_each=before_each,
                verification=verification,
            )
            if verification.count(Verdict.VIOLATED):
                status.update(f"{name}: looking for a fault that behaves so")
                found = diagnose(subject, verification)
                verification.diagnosis = "" if found is None else str(found)
        except KeyboardInterrupt:
            console.print("interrupted: what was decided until then follows", highlight=False)
            return verification, True
    return verification, False


def _report(verification: Verification, json_file: Path | None) -> None:
    from proof_lm.verify.report import render, to_dict

    render(verification, out())
    if json_file is not None:
        write_json(json_file, to_dict(verification))


def _level(name: str) -> Level:
    """The level of that name.

    Raises:
        TargetError: there is none.
    """
    from proof_lm.verify import LEVELS

    for level in LEVELS:
        if level == name:
            return level
    raise TargetError(f"no level named {name!r}; there are {', '.join(LEVELS)}")


def _select(names: list[str] | None, level: Level) -> list[Contract]:
    """The contracts of these names, in the order of judging; those of the level without names.

    Raises:
        TargetError: there is no contract of that name, or no name in what was given.
    """
    from proof_lm.verify import CONTRACTS, at_level

    if not names:
        return at_level(level)
    wanted = {_find(CONTRACTS, name.strip()).name for entry in names for name in entry.split(",")}
    return [contract for contract in CONTRACTS if contract.name in wanted]


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
