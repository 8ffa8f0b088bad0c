"""The sheet as one page of HTML, which prints on one sheet of A4 or Letter; no network, no script."""

from __future__ import annotations

from collections.abc import Sequence

import jinja2

from proof_lm.sheet.report.plot import Plot
from proof_lm.sheet.report.tables import Table


def to_html(
    heading: str,
    lead: Sequence[str],
    tables: Sequence[Table],
    notes: Sequence[str],
    *,
    command: str,
    plot: Plot | None = None,
) -> str:
    """The page: what it describes, a plot of the terms over T, every table, and how it is counted.

    All text is escaped.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("proof_lm.sheet.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("sheet.html.jinja").render(
        heading=heading, lead=lead, tables=tables, notes=notes, command=command, plot=plot
    )
