"""The sheet for people (tables, Markdown, one HTML page) and for machines (JSON with a schema, CSV)."""

from proof_lm.sheet.report.machine import schema, to_csv, to_dict
from proof_lm.sheet.report.markdown import to_markdown
from proof_lm.sheet.report.page import to_html
from proof_lm.sheet.report.tables import Table, comparison, sheet_tables
from proof_lm.sheet.report.words import conventions, dimension_line, step_line, summary

__all__ = [
    "Table",
    "comparison",
    "conventions",
    "dimension_line",
    "schema",
    "sheet_tables",
    "step_line",
    "summary",
    "to_csv",
    "to_dict",
    "to_html",
    "to_markdown",
]
