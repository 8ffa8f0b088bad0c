"""``proof-lm verify``: the main job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proof_lm.cli.output import out, progress, require_writable, write_json
from proof_lm.cli.targets import MAX_SEED, TARGET_HELP, Target, resolve
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify import Contract, Subject, Verification

INTERRUPTED = 130  # what shells report for SIGINT


def verify(
    target: Annotated[
        str | None, typer.Argument(help=TARGET_HELP + " Without one, the embedded decoder.")
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
    contracts = _select(CONTRACTS, only)
    if json_file is not None:
        require_writable(json_file)
    verification, interrupted = _run(resolve(target), contracts, seed)
    _report(verification, json_file)
    raise typer.Exit(INTERRUPTED if interrupted else verification.exit_status)


def _run(target: Target, contracts: Sequence[Contract], seed: int) -> tuple[Verification, bool]:
    """Judges the target with progress on standard error; the flag says whether it was interrupted."""
    from proof_lm.verify import plan
    from proof_lm.verify import verify as judge

    console = progress()
    begun = time.perf_counter()
    with console.status(f"loading {target.name}") as status:
        subject = _subject(target, seed)
        verification = plan(subject, contracts, seed)

        def before_each(contract: Contract) -> None:
            step = f"[{len(verification.results) + 1}/{len(contracts)}] {contract.name}"
            elapsed = f"{time.perf_counter() - begun:.0f} s"
            status.update(f"{target.name} {step.replace('[', chr(92) + '[')}, after {elapsed}")
            if not console.is_terminal:
                console.print(f"{step}, after {elapsed}", markup=False, highlight=False)

        try:
            judge(subject, contracts, seed=seed, before_each=before_each, verification=verification)
        except KeyboardInterrupt:
            console.print("interrupted: what was decided until then follows", highlight=False)
            return verification, True
    return verification, False


def _subject(target: Target, seed: int) -> Subject:
    """A preset gets weights on which every fault shows; a path has weights of its own."""
    from proof_lm.verify import Subject, randomized

    if target.config is None:
        return Subject(target.name, target.load(seed))
    return Subject(f"{target.name}, random weights", randomized(target.config, seed))


def _report(verification: Verification, json_file: Path | None) -> None:
    from proof_lm.verify.report import render, to_dict

    render(verification, out())
    if json_file is not None:
        write_json(json_file, to_dict(verification))


def _select(contracts: Sequence[Contract], names: list[str] | None) -> list[Contract]:
    """The contracts of these names, in the order of judging; all of them without names.

    Raises:
        TargetError: there is no contract of that name, or no name in what was given.
    """
    if not names:
        return list(contracts)
    wanted = {_find(contracts, name.strip()).name for entry in names for name in entry.split(",")}
    return [contract for contract in contracts if contract.name in wanted]


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
