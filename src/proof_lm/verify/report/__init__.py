"""A verification for people (terminal, Markdown, one page of HTML) and for machines (JSON with its schema, JUnit)."""

from proof_lm.verify.report.junit import to_junit
from proof_lm.verify.report.machine import (
    SCHEMA_VERSION,
    from_dict,
    influence_from_dict,
    influence_to_dict,
    result_from_dict,
    result_to_dict,
    schema,
    to_dict,
)
from proof_lm.verify.report.markdown import to_markdown
from proof_lm.verify.report.page import ReportError, to_html
from proof_lm.verify.report.terminal import render

__all__ = [
    "SCHEMA_VERSION",
    "ReportError",
    "from_dict",
    "influence_from_dict",
    "influence_to_dict",
    "render",
    "result_from_dict",
    "result_to_dict",
    "schema",
    "to_dict",
    "to_html",
    "to_junit",
    "to_markdown",
]
