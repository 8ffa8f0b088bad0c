"""``proof-lm mutants``: the proof that the proof can fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proof_lm.cli.output import out, progress, require_writable, write_json
from proof_lm.cli.suite import score_suite
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify import KillMatrix, Row

MARKS = {"violated": "X", "holds": ".", "inconclusive": "?", "not applicable": "-"}


def mutants(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Judge by this contract only; repeat it, or use commas."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--mutant", help="Plant this mutant only; repeat it, or use commas.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Mutants judged at a time.")] = 1,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write the matrix, or the suite's score, to this file; - is standard output."
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", help="Judge by this command instead: your tests, such as 'pytest -q -x tests'."
        ),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--in", help="The class that the suite tests, as package.module:Class; by default ProofLM itself."
        ),
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", help="Where the weights of that class lie, if its layout is not known."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.1,
            help="Seconds after which a run of the suite hangs, which notices the fault; by default ten times "
            "the unmutated run, and 30 at least.",
        ),
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Print the public reports, with mutants and contracts, and stop.")
    ] = False,
) -> None:
    """Plant every known fault in a decoder, and see which contracts reject it; and that none rejects a sound one.

    With --suite, see instead which faults a test command of yours notices: it is run once for each.

    Exit status: 0 every mutant is rejected by all contracts that it names and no control by any (or: the suite
    notices every fault), 1 one survives or is accused, 2 the command is wrong (or: the suite fails without a fault).
    """
    from proof_lm.verify import CONTRACTS, CONTROLS, MUTANTS, kill_matrix, reports_table

    if suite is not None:
        for given, option in ((only, "--only"), (table, "--table")):
            if given:
                raise TargetError(f"{option} goes without --suite")
        if map_file is not None and place is None:
            raise TargetError("--map goes with --in")
        if json_file is not None:
            require_writable(json_file)
        wanted = _named(name, _by_name(MUTANTS), "mutant")
        raise typer.Exit(
            score_suite(suite, place, map_file, wanted, timeout=timeout, jobs=jobs, json_file=json_file)
        )
    for unused, option in ((place, "--in"), (map_file, "--map"), (timeout, "--timeout")):
        if unused is not None:
            raise TargetError(f"{option} goes with --suite")
    if table:
        typer.echo(reports_table(), nl=False)
        return
    contracts = _named(only, _by_name(CONTRACTS), "contract")
    chosen = _named(name, _by_name(MUTANTS) | _by_name(CONTROLS), "mutant")
    if json_file is not None:
        require_writable(json_file)
    console = progress()
    with console.status("planting") as status:
        n_done = 0

        def on_row(row: Row) -> None:
            nonlocal n_done
            n_done += 1
            step = f"{n_done}/{len(chosen)} {row.name}"
            status.update(step)
            if not console.is_terminal:
                console.print(step, markup=False, highlight=False)

        matrix = kill_matrix(chosen, contracts, jobs=jobs, on_row=on_row)
    _render(matrix, out(json_file))
    if json_file is not None:
        write_json(json_file, _to_dict(matrix))
    raise typer.Exit(0 if matrix.is_complete else 1)


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    return {value.name: value for value in values}


def _named(names: list[str] | None, known: dict[str, Any], what: str) -> list[Any]:
    if not names:
        return list(known.values())
    wanted = [name.strip() for entry in names for name in entry.split(",")]
    for name in wanted:
        if name not in known:
            raise TargetError(f"no {what} named {name!r}; there are {', '.join(known)}")
    return [value for name, value in known.items() if name in wanted]


def _render(matrix: KillMatrix, console: Console) -> None:
    """The matrix, one line a mutant and one column a contract; then the contracts' scores; then the totals."""
    letters = dict(zip((contract.name for contract in matrix.contracts), ascii_letters, strict=False))
    width = max(len(row.name) for row in matrix.rows)
    lines = [f"{'':{width}}  {''.join(letters.values())}"]
    for row in matrix.rows:
        marks = "".join(MARKS[row.verdicts[contract.name].value] for contract in matrix.contracts)
        lines.append(f"{row.name:{width}}  {marks}  {_remark(row)}".rstrip())
    lines += ["", "X rejected, . holds, ? undecided, - not applicable", ""]
    for name, letter in letters.items():
        n_alone = len(matrix.alone(name))
        lines.append(
            f"{letter}  {name:{width}}  rejects {len(matrix.kills(name)):3}, {n_alone:3} of them alone"
        )
    accused = f", {matrix.count('accused')} sound ones accused" if matrix.count("accused") else ""
    totals = (
        f"{len(matrix.rows)} decoders by {len(matrix.contracts)} contracts: {matrix.count('killed')} killed, "
        f"{matrix.count('survived')} survived, {matrix.count('equivalent')} equivalent{accused}"
    )
    lines += ["", totals]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _remark(row: Row) -> str:
    """Which reports it stands for, and what is remarkable."""
    from proof_lm.verify import Control

    ids = ", ".join(row.ids)
    if row.outcome == "survived":
        return f"{ids}  SURVIVES {', '.join(row.unseen) or 'all contracts'}".strip()
    if isinstance(row.planted, Control):
        accused = f"ACCUSED by {', '.join(row.killers)}: " if row.killers else "equivalent: "
        return f"{ids}  {accused}{row.planted.what}".strip()
    return ids


def _to_dict(matrix: KillMatrix) -> dict[str, Any]:
    from proof_lm.verify import Mutant

    return {
        "format": "proof-lm/kill-matrix",
        "version": 1,
        "contracts": [contract.name for contract in matrix.contracts],
        "rows": [
            {
                "name": row.name,
                "outcome": row.outcome,
                "what": row.planted.fault if isinstance(row.planted, Mutant) else row.planted.what,
                "ids": list(row.ids),
                "source": row.planted.source,
                "verdicts": {name: verdict.value for name, verdict in row.verdicts.items()},
            }
            for row in matrix.rows
        ],
    }
