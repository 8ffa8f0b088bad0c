"""What held once must hold again: verdicts kept in a file, and a later verification held against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof_lm.errors import ProofLMError
from proof_lm.verify.report.words import evidence, printable
from proof_lm.verify.verdict import ContractResult, Verdict, Verification

FORMAT, VERSION = "proof-lm/baseline", 1
UNDECIDED = "undecided"  # planned, and the run did not get to it
MISSING = "not judged"
_STRENGTH = {Verdict.VIOLATED.value: 0, Verdict.HOLDS.value: 2}  # between them lies whatever decides nothing
_KNOWN = {*(verdict.value for verdict in Verdict), UNDECIDED}


class BaselineError(ProofLMError, ValueError):
    """A file is no baseline, or one that this version cannot read."""


@dataclass(frozen=True)
class Weaker:
    """A contract about which less can be said than in the baseline.

    Attributes:
        name: the contract.
        before: its verdict in the baseline.
        after: its verdict now, or that it has none.
        evidence: what speaks against it now; empty where nothing was measured.
    """

    name: str
    before: str
    after: str
    evidence: str = ""

    def __str__(self) -> str:
        line = f"{self.name}: was {self.before!r}, is {self.after!r}"
        return f"{line}: {self.evidence}" if self.evidence else line


def save(verification: Verification) -> dict[str, Any]:
    """The baseline of a verification, in JSON's own types: the verdict of each contract, and of what it is one."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "target": verification.target,
        "level": verification.level,
        "seed": verification.seed,
        "contracts": _verdicts(verification),
    }


def load(path: Path) -> dict[str, Any]:
    """The baseline in a file.

    Raises:
        BaselineError: it cannot be read, or is no baseline.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"cannot read the baseline {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(
            f"{path} is no baseline: it is not JSON; write one with --save-baseline"
        ) from error
    try:
        _require_baseline(document)
    except BaselineError as error:
        raise BaselineError(f"{path}: {error}") from error
    return document


def compare(baseline: Mapping[str, Any], verification: Verification) -> list[Weaker]:
    """The contracts that got weaker, in the order of the baseline.

    One that held and now is anything else, or was not judged; and one that is violated and was not. Contracts that the
    baseline does not know are no concern of it, and a violated one may stay so.

    Raises:
        BaselineError: it is no baseline.
    """
    _require_baseline(baseline)
    now, results = _verdicts(verification), {result.name: result for result in verification.results}
    return [
        Weaker(name, before, after, _evidence(results.get(name)))
        for name, before in baseline["contracts"].items()
        if _strength(after := now.get(name, MISSING)) < _strength(before)
    ]


def summary(baseline: Mapping[str, Any], verification: Verification) -> str:
    """What to tell of the comparison, in lines: what got weaker and why, and what holds that did not.

    Raises:
        BaselineError: it is no baseline.
    """
    weaker = compare(baseline, verification)
    saved = f"the baseline ({baseline['target']}, {baseline['level']}, seed {baseline['seed']})"
    counted = f"{len(weaker)} contracts are" if len(weaker) > 1 else f"{len(weaker) or 'no'} contract is"
    lines = [f"{counted} weaker than in {saved}", *(f"  {change}" for change in weaker)]
    if any(change.after == MISSING for change in weaker):
        lines.append(f"  judge by all contracts that it has: --level {baseline['level']}, and no --only")
    better = [
        result.name
        for result in verification.results
        if result.verdict is Verdict.HOLDS
        and baseline["contracts"].get(result.name, Verdict.HOLDS.value) != Verdict.HOLDS.value
    ]
    if better:
        lines.append(f"better than in it: {', '.join(better)}; --save-baseline FILE keeps that")
    return "\n".join(lines)


def _verdicts(verification: Verification) -> dict[str, str]:
    decided = {result.name: result.verdict.value for result in verification.results}
    return decided | dict.fromkeys(verification.undecided, UNDECIDED)


def _strength(verdict: str) -> int:
    return _STRENGTH.get(verdict, 1)


def _evidence(result: ContractResult | None) -> str:
    """The first that speaks against it, in one line."""
    lines = [] if result is None else evidence(result)
    return printable(" ".join(lines[0].split())) if lines else ""


def _require_baseline(document: object) -> None:
    """Is this a baseline of this version, with a known verdict for each contract?"""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, Mapping) else None
        what = f"it is a {found!r}" if isinstance(found, str) else f"it has no format {FORMAT!r}"
        raise BaselineError(f"no baseline: {what}; write one with --save-baseline")
    version = document.get("version")
    if version != VERSION:
        raise BaselineError(
            f"a baseline of version {version!r}, and this ProofLM reads {VERSION}; write it anew with --save-baseline"
        )
    contracts = document.get("contracts")
    if not isinstance(contracts, Mapping) or not {"target", "level", "seed"} <= document.keys():
        raise BaselineError("a damaged baseline: it needs target, level, seed and contracts")
    for name, verdict in contracts.items():
        if not isinstance(verdict, str) or verdict not in _KNOWN:
            raise BaselineError(
                f"a damaged baseline: {name!r} is {verdict!r}, which is none of {', '.join(sorted(_KNOWN))}"
            )
