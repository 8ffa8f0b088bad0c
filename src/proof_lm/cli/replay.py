"""``proof-lm replay``: a violation from its file, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proof_lm.cli.isolation import TIMEOUT, Timeout, judge_safely
from proof_lm.cli.judging import Event, Request
from proof_lm.cli.output import out, progress, require_writable, write_json
from proof_lm.cli.subjects import SUBJECT_HELP, Source
from proof_lm.cli.targets import EMBEDDED
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from proof_lm.verify.replay import Replay
    from proof_lm.verify.verdict import Bound, Measurement
    from proof_lm.verify.violation import Violation

MAX_SHOWN = 64  # characters of the token ids


def replay(
    file: Annotated[Path, typer.Argument(help="A violation file, as verify writes it.")],
    target: Annotated[
        str | None,
        typer.Argument(
            help=SUBJECT_HELP + " Without one, what the file names, with its --arg and --map: that code runs."
        ),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--arg", help="name=value for the callable, instead of the file's; repeat it."),
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", help="JSON file of a foreign decoder's map, instead of the file's."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write what was measured then and now to this file; - is standard output."
        ),
    ] = None,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Show a violation again in the case in which it was found, or say that it is gone.

    Exit status: 1 the contract is violated again, 0 it holds, 2 the file, the command or the target is wrong, 3 it
    could not be decided, 130 interrupted.
    """
    from proof_lm.verify.violation import read_violation

    violation = read_violation(file)
    if json_file is not None:
        require_writable(json_file)
    source = _source(violation, target, argument, map_file)
    loaded, found = _measured_again(violation, source, timeout)
    _render(found, loaded, _map_differs(violation, source), out(json_file))
    if json_file is not None:
        write_json(json_file, _to_dict(found, loaded))
    raise typer.Exit(found.exit_status)


def _source(
    violation: Violation, target: str | None, arguments: list[str] | None, map_file: Path | None
) -> Source:
    """What is loaded: a given target comes without the arguments and the map that were recorded of another.

    Raises:
        TargetError: the recorded map is not there.
    """
    origin, seed = violation.origin, violation.seed
    if target is not None:
        return Source(target, seed, tuple(arguments or ()), map_file)
    if map_file is None and origin.map_file is not None:
        map_file = Path(origin.map_file)
        if not map_file.is_file():
            raise TargetError(f"the map {map_file} of the violation is not there; give it with --map FILE")
    return Source(origin.target, seed, tuple(arguments or origin.arguments), map_file)


def _measured_again(violation: Violation, source: Source, timeout: float) -> tuple[str, Replay]:
    """What the subject is called, and what came of it; undecided where its process was lost."""
    from proof_lm.verify import ContractResult, Verdict
    from proof_lm.verify.replay import Replay
    from proof_lm.verify.report import result_from_dict

    told: dict[str, Event] = {}
    name = source.target or f"embedded decoder ({EMBEDDED})"
    with progress().status(_escaped(f"loading {name}")) as status:

        def on_event(event: Event) -> None:
            told[event["event"]] = event
            if event["event"] == "begun":
                status.update(_escaped(f"{name}: measuring {violation.contract}"))

        judge_safely(Request(source, replay=violation.to_dict()), on_event, timeout)
    if "decided" in told:
        result = result_from_dict(told["decided"]["result"])
    else:
        reason = told["failed"]["message"]
        result = ContractResult(violation.contract, violation.statement, Verdict.INCONCLUSIVE, reason=reason)
    now = told.get("replayed", {"last_call": None, "fingerprint": ""})
    return told["loaded"]["target"], Replay(violation, result, now["last_call"], now["fingerprint"])


def _map_differs(violation: Violation, source: Source) -> bool:
    from proof_lm.verify.violation import file_digest

    digest = None if source.map_file is None else file_digest(source.map_file)
    return digest != violation.origin.map_digest


def _render(found: Replay, target: str, map_differs: bool, console: Console) -> None:
    """What came of it; then what was measured then and now, side by side; then what else is different."""
    from rich.table import Table

    violation = found.violation
    then, now = violation.measurement, found.now
    is_again = found.outcome == "shown again"
    style = {"shown again": "bold red", "gone": "green"}.get(found.outcome, "yellow")
    lines = [
        f"{violation.contract}: [{style}]{found.outcome}[/]. {_escaped(violation.statement)}",
        f"  {_escaped(target)}, {_case(violation)}",
    ]
    lines += [f"  {_escaped(remark)}" for remark in _remarks(found, map_differs)]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
    table = Table(box=None)
    for heading in ("", "then", "now"):
        table.add_column(heading, overflow="fold")
    rows = [
        ("path", then and then.path, now and now.path),
        ("quantity", then and then.quantity, now and now.quantity),
        ("measured", _measured(then, violation.raised), _measured(now, found.result.reason)),
        ("must be", _bound(then), _bound(now)),
        ("where", then and then.where, now and now.where),
        ("token ids", _token_ids(violation.last_call), _token_ids(found.last_call) if is_again else ""),
        ("weights", violation.fingerprint[:16], found.fingerprint[:16]),
        *_versions(violation),
    ]
    for heading, *cells in rows:
        if any(cells):
            table.add_row(heading, *(_escaped(cell or "") for cell in cells))
    console.print(table)


def _case(violation: Violation) -> str:
    rows, tokens = (
        f"{n} {word}{'s' * (n > 1)}" for n, word in ((violation.n_rows, "row"), (violation.n_tokens, "token"))
    )
    return f"{rows} of {tokens}, seed {violation.probe_seed}"


def _remarks(found: Replay, map_differs: bool) -> list[str]:
    then, now = found.violation.measurement, found.now
    remarks = [found.reason] if found.outcome == "undecided" else []
    if found.outcome == "shown again" and not found.is_same:
        remarks.append("what was found then is not what violates it now")
    elif found.outcome == "shown again" and then is not None and now is not None:
        remarks.append("the same number" if repr(then.measured) == repr(now.measured) else "another number")
    if found.fingerprint not in ("", found.violation.fingerprint):
        remarks.append("the weights are not those in which it was found")
    if map_differs:
        remarks.append("the map is not that with which it was found")
    return remarks


def _measured(measurement: Measurement | None, otherwise: str) -> str:
    return otherwise if measurement is None else f"{measurement.measured:.9g}"


def _bound(measurement: Measurement | None) -> str:
    if measurement is None:
        return ""
    bound: Bound | None = measurement.bound
    if bound is None:
        return "greater than 0"
    return "0 (exact)" if bound.rounding == 0 else f"at most {bound.rounding:.3g}"


def _token_ids(call: Any) -> str:
    ids = "" if call is None else str(call.get("token_ids", ""))
    return ids if len(ids) <= MAX_SHOWN else f"{ids[:MAX_SHOWN]}..."


def _versions(violation: Violation) -> list[tuple[str, str, str]]:
    """Those that are not the same now."""
    from proof_lm.verify.violation import versions

    return [
        (name, violation.versions.get(name, ""), version)
        for name, version in versions().items()
        if violation.versions.get(name) != version
    ]


def _escaped(text: str) -> str:
    from rich.markup import escape

    from proof_lm.verify.report.words import printable

    return escape(printable(text).replace("\n", "\\n"))  # a file forges no line of ours


def _to_dict(found: Replay, target: str) -> dict[str, Any]:
    from proof_lm.verify.violation import measured_to_dict, versions

    return {
        "format": "proof-lm/replay",
        "version": 1,
        "outcome": found.outcome,
        "exit_status": found.exit_status,
        "then": found.violation.to_dict(),
        "now": {
            "target": target,
            "verdict": found.result.verdict.value,
            "reason": found.reason,
            **measured_to_dict(found.now),
            "last_call": found.last_call,
            "fingerprint": found.fingerprint,
            "environment": versions(),
        },
    }
