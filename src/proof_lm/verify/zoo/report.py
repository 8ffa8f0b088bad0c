"""The zoo as a table for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proof_lm.verify.report import result_to_dict
from proof_lm.verify.report.machine import environment
from proof_lm.verify.report.terminal import STYLES
from proof_lm.verify.verdict import Verdict
from proof_lm.verify.zoo.entry import ZooEntry, decided_pairs
from proof_lm.verify.zoo.explained import Explanation, explanations

FORMAT_VERSION = 1
AGAINST = (Verdict.VIOLATED, Verdict.INCONCLUSIVE)


def render_zoo(entries: Sequence[ZooEntry], console: Console, seconds: float, n_left: int = 0) -> None:
    """Prints class by backend, then why classes are not runnable, what is violated and why, and the totals.

    ``n_left`` classes were not come to.
    """
    judged = [entry for entry in entries if entry.verification is not None]
    columns = sorted({backend for entry in judged for backend in entry.backends})
    table = Table(box=None)
    table.add_column("class", no_wrap=True)
    for column in columns:
        table.add_column(column, no_wrap=True)
    table.add_column("against it", overflow="fold")
    for entry in judged:
        table.add_row(
            escape(entry.name), *(_cell(entry, column) for column in columns), escape(_against(entry))
        )
    console.print(table)
    _print_explanations(judged, console)
    for entry in entries:
        if entry.reason:
            what = "not runnable" if entry.verification is None else "cut short"
            line = f"{entry.name}: {' '.join(entry.reason.split())}"
            console.print(f"[yellow]{what}:[/] {escape(line)}", highlight=False, soft_wrap=True)
    for entry in judged:
        for known in entry.outdated:
            line = f"{entry.name}: explained, and no longer found: {known.sentence}"
            console.print(escape(line), style="bold red", highlight=False, soft_wrap=True)
    console.print(f"\n{totals(entries, seconds, n_left)}", markup=False, highlight=False, soft_wrap=True)


def totals(entries: Sequence[ZooEntry], seconds: float, n_left: int = 0) -> str:
    """How many classes and pairs came to what, in one line."""
    judged = [entry for entry in entries if entry.verification is not None]
    pairs = decided_pairs(judged)
    n_decided = pairs[Verdict.HOLDS] + pairs[Verdict.VIOLATED]
    counts = ", ".join(f"{n} {verdict.value}" for verdict, n in pairs.items())
    defective = sum(any(known.kind == "defect" for known in entry.known) for entry in judged)
    unexplained = sum(bool(entry.unexplained) for entry in judged)
    left = f", {n_left} not come to" if n_left else ""
    n_not_runnable = len(entries) - len(judged)
    return (
        f"{len(entries)} class{'es' * (len(entries) != 1)}, {n_not_runnable} not runnable{left}; "
        f"{n_decided} class-backend pair{'s' * (n_decided != 1)} decided: {counts}; "
        f"classes with a defect: {defective}, with an unexplained violation: {unexplained}; {seconds:.0f} s"
    )


def zoo_to_dict(
    entries: Sequence[ZooEntry], *, level: str, seconds: float, left: Sequence[str]
) -> dict[str, Any]:
    """Everything that was decided, in JSON's own types, with the measurements of what is not as it should be.

    ``left`` are the classes that were not come to.
    """
    pairs = decided_pairs([entry for entry in entries if entry.verification is not None])
    return {
        "format": "proof-lm/zoo",
        "version": FORMAT_VERSION,
        "level": level,
        "seconds": round(seconds, 1),
        "environment": zoo_environment(),
        "pairs": {verdict.value: n for verdict, n in pairs.items()},
        "not_come_to": list(left),
        "classes": [_entry_to_dict(entry) for entry in entries],
    }


def zoo_environment() -> dict[str, str]:
    """What computes here, and whose classes."""
    return environment() | {"transformers": version("transformers")}


def _entry_to_dict(entry: ZooEntry) -> dict[str, Any]:
    results = () if entry.verification is None else entry.verification.results
    backends = {}
    for backend in entry.backends:
        named = {verdict.value: list(entry.of(backend, verdict)) for verdict in Verdict}
        backends[backend] = {"verdict": entry.verdict(backend).value, "contracts": named}
    return {
        "name": entry.name,
        "seconds": round(entry.seconds, 1),
        "not_runnable": entry.reason if entry.verification is None else None,
        "cut_short": entry.reason or None if entry.verification is not None else None,
        "backends": backends,
        "explanations": [
            {"contracts": sorted(known.contracts), "kind": known.kind, "sentence": known.sentence}
            for known in entry.known
        ],
        "unexplained": [result.name for result in entry.unexplained],
        "outdated": [known.sentence for known in entry.outdated],
        "evidence": [result_to_dict(result) for result in results if result.verdict in AGAINST],
    }


def _cell(entry: ZooEntry, backend: str) -> str:
    if backend not in entry.backends:
        return ""
    verdict = entry.verdict(backend)
    return f"[{STYLES[verdict]}]{verdict.value}[/]"


def _against(entry: ZooEntry) -> str:
    """Violated contracts with the kind of explanation, then inconclusive ones."""
    words = []
    for result in entry.violated:
        kinds = dict.fromkeys(known.kind for known in explanations(entry.name, result))
        words.append(f"{result.name} ({', '.join(kinds) or 'unexplained'})")
    assert entry.verification is not None
    words += [f"{r.name} ?" for r in entry.verification.results if r.verdict is Verdict.INCONCLUSIVE]
    return ", ".join(words)


def _print_explanations(judged: Sequence[ZooEntry], console: Console) -> None:
    """Each explanation once, with the classes that it is for; then what was measured where there is none."""
    classes: dict[Explanation, list[str]] = {}
    for entry in judged:
        for known in entry.known:
            classes.setdefault(known, []).append(entry.name)
    for known, names in classes.items():
        console.print(
            f"\n[bold]{known.kind}[/], {', '.join(sorted(known.contracts))}: {escape(known.sentence)}",
            highlight=False,
        )
        console.print(escape(f"  {', '.join(names)}"), highlight=False)
    for entry in judged:
        for result in entry.unexplained:
            worst = result.worst
            found = result.reason or "nothing was measured"
            if worst is not None and not result.reason:
                at = f" at {worst.where}" if worst.where else ""
                found = f"{worst.path}: {worst.quantity} = {worst.measured:.3g}{at}"
            line = f"{entry.name}: unexplained: {result.name}: {found}"
            console.print(escape(line), style="bold red", highlight=False, soft_wrap=True)
