"""``proof-lm mutants --suite``: which planted faults somebody's tests notice."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof_lm.cli.output import INTERRUPTED, out, progress, write_json
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify import Mutant
    from proof_lm.verify.suite import Outcome, Score

NAMES_SHOWN = 6  # of the faults that were not planted for one reason


def score_suite(
    command: str,
    place: str | None,
    map_file: Path | None,
    mutants: Sequence[Mutant],
    *,
    timeout: float | None,
    jobs: int,
    json_file: Path | None,
) -> int:
    """Scores the suite, prints the score, and gives the exit status: 130 where it was interrupted.

    Raises:
        TargetError: the command or the place is malformed, or there is no such map file.
        SuiteError: the suite cannot be scored.
    """
    from proof_lm.verify.suite import Score, Suite, examine, score

    suite = Suite(_words(command), _checked(place), map_file, timeout)
    if map_file is not None and not map_file.is_file():
        raise TargetError(f"--map {map_file}: there is no such file")
    console = progress()
    with console.status("running the suite without a fault"):
        tested = examine(suite)
    partial = Score(suite, tested)
    n_runs = n_done = 0
    with console.status(f"unmutated {tested.seconds:.1f} s; looking for faults that it could show") as status:

        def on_chosen(n_chosen: int) -> None:
            nonlocal n_runs
            n_runs = n_chosen
            left = _duration(n_chosen * tested.seconds / jobs)
            step = f"{n_chosen} runs of {tested.seconds:.1f} s, {jobs} at a time: about {left}"
            status.update(step)
            console.print(step, markup=False, highlight=False)

        def on_outcome(outcome: Outcome) -> None:
            nonlocal n_done
            partial.outcomes.append(outcome)
            if outcome.result == "not planted" and not outcome.seconds:
                return
            n_done += 1
            left = _duration((n_runs - n_done) * tested.seconds / jobs)
            step = f"{n_done}/{n_runs} {outcome.mutant.name}: {outcome.result}; {left} left"
            status.update(step)
            if not console.is_terminal:
                console.print(step, markup=False, highlight=False)

        try:
            found = score(suite, tested, mutants, jobs=jobs, on_chosen=on_chosen, on_outcome=on_outcome)
        except KeyboardInterrupt:
            found = partial
    is_whole = len(found.outcomes) == len(mutants)
    _render(found, len(mutants), out(json_file))
    if json_file is not None:
        write_json(json_file, _to_dict(found, len(mutants)))
    return found.exit_status if is_whole else INTERRUPTED


def _words(command: str) -> tuple[str, ...]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TargetError(f"--suite {command!r}: {error}") from error
    if not words:
        raise TargetError("--suite needs the command that runs the tests, such as 'pytest -q tests'")
    return tuple(words)


def _checked(place: str | None) -> str:
    if place is None:
        return ""
    module, _, name = place.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise TargetError(f"--in must be package.module:Class, got {place!r}")
    return place


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _render(found: Score, n_wanted: int, console: Console) -> None:
    """The score; then what is missed, most first; then what was not planted, by reason."""
    from proof_lm.verify import CONTRACTS
    from proof_lm.verify.report.words import printable

    statements = {contract.name: contract.statement for contract in CONTRACTS}
    lines = [_headline(found, n_wanted)]
    for about, missed, n_planted in found.gaps():
        lines += ["", f"{about}: {len(missed)} of {n_planted} missed. {statements[about]}"]
        lines += [f"  {outcome.mutant.name}: {outcome.mutant.fault}" for outcome in missed]
        lines.append(f"  {about} would reject them: proof-lm verify --explain {about}")
    reasons: dict[str, list[str]] = {}
    for outcome in found.of("not planted"):
        reasons.setdefault(outcome.reason, []).append(outcome.mutant.name)
    if reasons:
        lines += ["", "not planted, and not counted:"]
    for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        lines.append(f"  {len(names)}: {reason} ({', '.join(names[:NAMES_SHOWN])}{more})")
    if found.tested.passed:
        calls = "; ".join(found.tested.passed)
        lines += ["", f"answered by {found.suite.place} itself, so no fault shows there: {calls}"]
    console.print("\n".join(map(printable, lines)), markup=False, highlight=False, soft_wrap=True)


def _headline(found: Score, n_wanted: int) -> str:
    n_hung = len(found.of("timed out"))
    hung = f", {n_hung} of them by hanging" if n_hung else ""
    share = f" ({100 * found.n_noticed / found.n_planted:.0f} %)" if found.n_planted else ""
    line = (
        f"{found.n_noticed} of {found.n_planted} faults noticed{share}{hung}, {len(found.of('missed'))} missed, "
        f"{len(found.of('not planted'))} not planted: {shlex.join(found.suite.command)}"
    )
    n_left = n_wanted - len(found.outcomes)
    return f"{line}\ninterrupted: {n_left} faults were not tried" if n_left else line


def _to_dict(found: Score, n_wanted: int) -> dict[str, Any]:
    suite, tested = found.suite, found.tested
    return {
        "format": "proof-lm/suite-score",
        "version": 1,
        "command": list(suite.command),
        "in": suite.place or None,
        "map": None if suite.map_file is None else str(suite.map_file),
        "unmutated_seconds": round(tested.seconds, 3),
        "configs": [config.to_dict() for config in tested.configs],
        "answered_by_the_class": list(tested.passed),
        "counts": {
            "noticed": len(found.of("noticed")),
            "timed out": len(found.of("timed out")),
            "missed": len(found.of("missed")),
            "not planted": len(found.of("not planted")),
            "not tried": n_wanted - len(found.outcomes),
        },
        "faults": [
            {
                "name": outcome.mutant.name,
                "fault": outcome.mutant.fault,
                "about": outcome.about,
                "rejected_by": list(outcome.mutant.rejected_by),
                "source": outcome.mutant.source,
                "result": outcome.result,
                "reason": outcome.reason,
                "seconds": round(outcome.seconds, 3),
            }
            for outcome in found.outcomes
        ],
    }
