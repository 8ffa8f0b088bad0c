"""A verification as a table that is read at a glance."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proof_lm.verify.verdict import ContractResult, Measurement, Verdict, Verification

STYLES = {
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}


def render(verification: Verification, console: Console) -> None:
    """Prints the table, then each violation and each open question with what moved where, then why others do not
    apply, then the totals."""
    title = f"{verification.target}, seed {verification.seed}, {verification.level}"
    console.print(title, style="italic", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None)
    table.add_column("contract", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    table.add_column("paths", overflow="fold")
    for result in verification.results:
        style = STYLES[result.verdict]
        verdict = f"[{style}]{result.verdict.value}[/]"
        measured, bound = _figures(result.worst)
        paths = " ".join(path for path in result.paths if path != "-")
        table.add_row(result.name, verdict, measured, bound, escape(paths))
    console.print(table)
    for verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE):
        for result in verification.results:
            if result.verdict is verdict:
                console.print(_explain(result), highlight=False, soft_wrap=True)
    for line in _inapplicable(verification):
        console.print(line, highlight=False, soft_wrap=True)
    if verification.diagnosis:
        console.print(
            f"\n[bold]diagnosis:[/] {escape(verification.diagnosis)}", highlight=False, soft_wrap=True
        )
    console.print(_totals(verification), highlight=False, soft_wrap=True)


def _figures(worst: Measurement | None) -> tuple[str, str]:
    if worst is None:
        return "", ""
    if worst.bound is None:
        return f"{worst.measured:.1e}", "> 0"
    exact = worst.bound.rounding == 0.0
    measured = "0" if worst.measured == 0.0 else f"{worst.measured:.1e}"
    return measured, "0 (exact)" if exact else f"{worst.bound.rounding:.1e}"


def _explain(result: ContractResult) -> str:
    style = STYLES[result.verdict]
    lines = [f"\n[{style}]{result.name}: {result.verdict.value}[/]. {escape(result.statement)}"]
    if result.reason:
        lines.append(f"  {escape(result.reason)}")
    unsound = [m for m in result.measurements if m.verdict is not Verdict.HOLDS]
    worst_first = sorted(unsound, key=lambda m: m.severity, reverse=True)
    lines += [f"  {escape(_sentence(m))}" for m in worst_first[:3]]
    if len(unsound) > 3:
        lines.append(f"  and {len(unsound) - 3} more; --json FILE writes them all")
    if result.smallest:
        lines.append(f"  smallest case: {escape(str(result.smallest))}")
    return "\n".join(lines)


def _inapplicable(verification: Verification) -> list[str]:
    """One line for each reason, with the contracts that do not apply for it."""
    names: dict[str, list[str]] = {}
    for result in verification.results:
        if result.verdict is Verdict.NOT_APPLICABLE:
            names.setdefault(result.reason, []).append(result.name)
    style = STYLES[Verdict.NOT_APPLICABLE]
    return [
        f"\n[{style}]not applicable:[/] {', '.join(found)}\n  {escape(reason)}"
        for reason, found in names.items()
    ]


def _sentence(measurement: Measurement) -> str:
    wanted = "must exceed 0"
    if measurement.bound is not None:
        wanted = f"must not exceed {measurement.bound.rounding:.2g}"
    where = f", at {measurement.where}" if measurement.where else ""
    return f"{measurement.path}: {measurement.quantity} = {measurement.measured:.3g}, {wanted}{where}"


def _totals(verification: Verification) -> str:
    seconds = sum(result.seconds for result in verification.results)
    shown = [verdict for verdict in Verdict if verdict is Verdict.HOLDS or verification.count(verdict)]
    counts = ", ".join(f"{verification.count(verdict)} {verdict.value}" for verdict in shown)
    decided = (
        f"{len(verification.results)} of {len(verification.planned)} contracts decided in {seconds:.1f} s"
    )
    line = f"\n{counts}; {decided}"
    if verification.undecided:
        line += f"; not decided: {', '.join(verification.undecided)}"
    return line
