"""Tables as GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from proof_lm.sheet.report.tables import Table


def to_markdown(heading: str, lead: Sequence[str], tables: Sequence[Table], notes: Sequence[str]) -> str:
    """A document: heading, lead, one section a table, and how it is counted."""
    parts = [f"# {_cell(heading)}", *(_cell(line) for line in lead)]
    for table in tables:
        parts += [f"## {_cell(table.title)}", _table(table)]
        if table.note:
            parts.append(_cell(table.note))
    parts += ["## How it is counted", "\n".join(f"* {_cell(line)}" for line in notes)]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    rules = ["---" if column < table.numbers else "---:" for column in range(len(table.columns))]
    rows = [table.columns, rules, *table.rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows)


def _cell(text: str) -> str:
    """Without what Markdown would take for its own: names may come from a path."""
    for sign in "\\`*_|<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
