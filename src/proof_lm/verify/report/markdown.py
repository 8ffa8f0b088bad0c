"""A verification as GitHub flavoured Markdown, for the summary of a CI job."""

from __future__ import annotations

import re

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
from proof_lm.verify.verdict import Verdict, Verification

_MARKS = re.compile(r"[\\`*_\[\]#|~!$]")
_CODES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
_CODED = re.compile("|".join(map(re.escape, _CODES)), re.IGNORECASE)


def to_markdown(verification: Verification) -> str:
    """What came out, then violations and open questions, then a table of all contracts, then why some do not
    apply."""
    run = f"{escaped(verification.target)}, seed {verification.seed}, {verification.level}"
    blocks = [f"## proof-lm verify: {escaped(headline(verification))}", run]
    for verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE):
        for result in of_verdict(verification, verdict):
            blocks.append(f"### {result.name}: {verdict.value}\n\n{escaped(result.statement)}")
            blocks.append("\n".join(f"* {escaped(line)}" for line in evidence(result)))
    if verification.diagnosis:
        blocks.append(f"**diagnosis:** {escaped(verification.diagnosis)}")
    if steps := next_steps(verification):
        blocks.append("**next:**")
        blocks.append("\n".join(f"* `{step}`: {escaped(gives)}" for step, gives in steps))
    blocks += ["### All contracts", _table(verification)]
    for reason, names in reasons(verification).items():
        blocks.append(f"**not applicable:** {', '.join(names)}: {escaped(reason)}")
    blocks.append(escaped(totals(verification)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def escaped(text: str) -> str:
    """Text that stays text: no markup, no HTML, no link, no mention, no new line."""
    line = " ".join(printable(text).split())
    return _CODED.sub(lambda match: _CODES[match.group().lower()], _MARKS.sub(r"\\\g<0>", line))


def _table(verification: Verification) -> str:
    lines = ["| contract | verdict | measured | bound | paths |", "|---|---|--:|--:|---|"]
    for result in verification.results:
        paths = escaped(" ".join(path for path in result.paths if path != "-"))
        verdict = result.verdict.value
        if result.verdict is Verdict.VIOLATED:
            verdict = f"**{verdict}**"
        measured, bound = figures(result.worst)
        lines.append(f"| {result.name} | {verdict} | {measured} | {bound} | {paths} |")
    return "\n".join(lines)
