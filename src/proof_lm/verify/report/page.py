"""A verification as one page of HTML that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from proof_lm.errors import ProofLMError
from proof_lm.verify.report import words
from proof_lm.verify.report.machine import environment
from proof_lm.verify.report.picture import head_pictures, pictures
from proof_lm.verify.verdict import ContractResult, Influence, Measurement, Verdict, Verification

SIGNS = {
    Verdict.HOLDS: "✓",
    Verdict.VIOLATED: "✕",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_APPLICABLE: "–",
}
CLASSES = {
    Verdict.HOLDS: "good",
    Verdict.VIOLATED: "bad",
    Verdict.INCONCLUSIVE: "unsure",
    Verdict.NOT_APPLICABLE: "off",
}
MARKS = {"violated": "X", "holds": "·", "inconclusive": "?", "not applicable": "–"}
CAUSAL = ("causality", "input-gradients", "sharp-attention", "prefix")


class ReportError(ProofLMError, ValueError):
    """What was handed over for a report is not of the kind that it says."""


def to_html(verification: Verification, *, command: str, matrix: Mapping[str, Any] | None = None) -> str:
    """The page: what came out, violations first, the influence pictures, every contract with its evidence.

    Args:
        verification: what is shown; its ``influences`` become pictures.
        command: what was typed, shown as text.
        matrix: what ``proof-lm mutants --json FILE`` wrote, shown as a table.

    All text is escaped, and characters that cannot be seen are written out.

    Raises:
        ReportError: the matrix is no kill matrix.
    """
    status = {0: Verdict.HOLDS, 1: Verdict.VIOLATED, 3: Verdict.INCONCLUSIVE}[verification.exit_status]
    paths = [_path(influence) for influence in verification.influences]
    seconds = sum(result.seconds for result in verification.results)
    facts = {
        "command": command,
        "seed": verification.seed,
        "level": verification.level,
        "time": f"{seconds:.1f} s",
    }
    return (
        templates()
        .get_template("page.html.jinja")
        .render(
            verification=verification,
            heading=verification.target,
            status=status,
            kind=CLASSES[status],
            headline=words.headline(verification),
            totals=words.totals(verification),
            tiles=_tiles(verification),
            unsound=[
                result
                for verdict in (Verdict.VIOLATED, Verdict.INCONCLUSIVE)
                for result in words.of_verdict(verification, verdict)
            ],
            steps=words.next_steps(verification, drawn=bool(paths)),
            paths=paths,
            leaking=[path for path in paths if path["worst_leak"]],
            unseen=_unseen(verification),
            reasons=words.reasons(verification),
            matrix=None if matrix is None else _matrix(matrix),
            facts=facts | environment(),
        )
    )


def templates(*packages: str) -> jinja2.Environment:
    """The templates of pages, and those of other packages: all text is escaped, and what cannot be seen written out."""
    loaders = [jinja2.PackageLoader(package) for package in ("proof_lm.verify.report", *packages)]
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: words.printable(value) if type(value) is str else value,
    )
    found.globals.update(signs=SIGNS, classes=CLASSES, figures=words.figures, evidence=words.evidence)
    found.filters.update(derivations=_derivations, worst_first=_worst_first)
    return found


def _tiles(verification: Verification) -> list[tuple[str, str, int]]:
    """Class, name and number of what is counted."""
    tiles = [(CLASSES[verdict], verdict.value, verification.count(verdict)) for verdict in Verdict]
    return [*tiles, ("unsure", "not decided", len(verification.undecided))]


def _path(influence: Influence) -> dict[str, Any]:
    drawn = pictures(influence)
    return {
        "name": influence.path,
        "pictures": drawn,
        "worst_leak": next((picture.worst_leak for picture in drawn if picture.leaks), ""),
        "layers": [head_pictures(each) for each in influence.attention],
        "absent": influence.absent,
    }


def _unseen(verification: Verification) -> list[str]:
    """Violated contracts about the future where no picture shows a leak."""
    drawn = [picture for influence in verification.influences for picture in pictures(influence)]
    if not drawn or any(picture.leaks for picture in drawn):
        return []
    violated = words.of_verdict(verification, Verdict.VIOLATED)
    return [result.name for result in violated if result.name in CAUSAL]


def _worst_first(measurements: tuple[Measurement, ...]) -> list[Measurement]:
    """What does not hold, then the rest, each as it was measured."""
    return sorted(measurements, key=lambda m: m.verdict is Verdict.HOLDS)


def _derivations(result: ContractResult) -> list[str]:
    """Where the bounds come from, each once."""
    return list(dict.fromkeys(m.bound.derivation for m in result.measurements if m.bound is not None))


def _matrix(document: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a kill matrix, with a mark for each verdict."""
    if document.get("format") != "proof-lm/kill-matrix" or document.get("version") != 1:
        raise ReportError("no kill matrix of version 1; `proof-lm mutants --json FILE` writes one")
    outcomes = [row["outcome"] for row in document["rows"]]
    return {
        "contracts": document["contracts"],
        "rows": [
            row | {"marks": [MARKS[row["verdicts"][name]] for name in document["contracts"]]}
            for row in document["rows"]
        ],
        "counts": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
    }
