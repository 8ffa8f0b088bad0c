"""The zoo as one page of HTML, made like that of a verification."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from proof_lm.verify.report.page import CLASSES, templates
from proof_lm.verify.verdict import Verdict, Verification
from proof_lm.verify.zoo.entry import ZooEntry, decided_pairs, exit_status
from proof_lm.verify.zoo.explained import explanations
from proof_lm.verify.zoo.report import AGAINST, totals, zoo_environment

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # where a long name of a class may go on in the next line


def zoo_to_html(
    entries: Sequence[ZooEntry], *, command: str, level: str, seconds: float, left: Sequence[str]
) -> str:
    """The page: what nobody has explained, class by backend with the evidence, what could not be judged.

    Args:
        entries: the classes that were judged or are not runnable.
        command: what was typed, shown as text.
        level: how much was looked at.
        seconds: wall time.
        left: classes that were not come to.

    All text is escaped, and characters that cannot be seen are written out.
    """
    judged = [entry for entry in entries if entry.verification is not None]
    not_runnable = [entry for entry in entries if entry.verification is None]
    backends = sorted({backend for entry in judged for backend in entry.backends})
    status, word = _status(entries, left)
    environment = zoo_environment()
    facts = {"command": command, "level": level, "time": f"{seconds:.0f} s"}
    return (
        templates("proof_lm.verify.zoo")
        .get_template("zoo.html.jinja")
        .render(
            heading=f"Causal language models of transformers {environment['transformers']}",
            status=status,
            word=word,
            kind=CLASSES[status],
            totals=totals(entries, seconds, len(left)),
            tiles=[
                *((CLASSES[verdict], verdict.value, n) for verdict, n in decided_pairs(judged).items()),
                ("off", "not runnable", len(not_runnable)),
                ("unsure", "not come to", len(left)),
            ],
            unexplained=[entry for entry in judged if entry.unexplained],
            outdated=[entry for entry in judged if entry.outdated],
            backends=backends,
            rows=[_row(entry, entry.verification, backends) for entry in judged if entry.verification],
            not_runnable=not_runnable,
            left=left,
            facts=facts | environment,
        )
    )


def _status(entries: Sequence[ZooEntry], left: Sequence[str]) -> tuple[Verdict, str]:
    """The colour of the page, and what it stands for."""
    status = exit_status(entries)
    if status == 1:
        found = any(entry.unexplained for entry in entries)
        return Verdict.VIOLATED, "not all is explained" if found else "not all that is explained is found"
    if status == 3 or left:
        return Verdict.INCONCLUSIVE, "not all is decided"
    violated = any(entry.violated for entry in entries)
    return Verdict.HOLDS, "all that is violated is explained" if violated else "nothing is violated"


def _row(entry: ZooEntry, verification: Verification, backends: Sequence[str]) -> dict[str, Any]:
    """A class: its verdict on each backend (None where it has no such), and each contract against it."""
    return {
        "parts": _HUMPS.split(entry.name),
        "verdicts": [entry.verdict(backend) if backend in entry.backends else None for backend in backends],
        "against": [
            (result, explanations(entry.name, result))
            for verdict in AGAINST
            for result in verification.results
            if result.verdict is verdict
        ],
        "reason": entry.reason,
        "undecided": verification.undecided,
    }
