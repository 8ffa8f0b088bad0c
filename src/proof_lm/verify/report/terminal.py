"""A verification in a terminal: what matters first, then the table."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proof_lm.verify.report.words import (
    evidence,
    figures,
    headline,
    next_steps,
    of_verdict,
    printable,
    reasons,
    totals,
)
from proof_lm.verify.verdict import ContractResult, Verdict, Verification

STYLES = {
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}


def render(verification: Verification, console: Console) -> None:
    """Prints the target and what came out; each violation and each open question with what moved where; the
    diagnosis; what to do next; the table; why others do not apply; the totals."""
    title = f"{verification.target}, seed {verification.seed}, {verification.level}"
    _print(console, Text(printable(title), "italic"))
    _print(console, Text(headline(verification), _style(verification)))
    for verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE):
        for result in of_verdict(verification, verdict):
            _explain(console, result)
    if verification.diagnosis:
        console.print()
        _print(console, Text.assemble(("diagnosis: ", "bold"), printable(verification.diagnosis)))
    steps = next_steps(verification)
    if steps:
        console.print("\n[bold]next:[/]")
        for step, gives in steps:
            _print(console, Text(f"{step}: {gives}"), indent=2)
    console.print()
    console.print(_table(verification))
    for reason, names in reasons(verification).items():
        style = STYLES[Verdict.NOT_APPLICABLE]
        console.print()
        _print(console, Text.assemble(("not applicable:", style), f" {', '.join(names)}"))
        _print(console, Text(printable(reason)), indent=2)
    console.print()
    console.print(Text(totals(verification)), soft_wrap=True)  # one line, to be searched for


def _style(verification: Verification) -> str:
    worst = {0: Verdict.HOLDS, 1: Verdict.VIOLATED, 3: Verdict.INCONCLUSIVE}[verification.exit_status]
    return STYLES[worst]


def _explain(console: Console, result: ContractResult) -> None:
    console.print()
    head = (f"{result.name}: {result.verdict.value}", STYLES[result.verdict])
    _print(console, Text.assemble(head, f". {result.statement}"))
    for line in evidence(result, n_shown=1):
        _print(console, Text(printable(line)), indent=2)


def _table(verification: Verification) -> Table:
    table = Table(box=None)
    table.add_column("contract", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    table.add_column("paths", overflow="fold")
    for result in verification.results:
        measured, bound = figures(result.worst)
        paths = " ".join(path for path in result.paths if path != "-")
        verdict = Text(result.verdict.value, STYLES[result.verdict])
        table.add_row(result.name, verdict, measured, bound, Text(printable(paths)))
    return table


def _print(console: Console, text: Text, indent: int = 0) -> None:
    """Lines break between words at the console's width, and go on under their beginning."""
    for line in text.wrap(console, console.width - indent):
        line.rstrip()
        console.print(Text(" " * indent).append_text(line), highlight=False, soft_wrap=True)
