"""Judging a target in a process of its own, which it may hang, exit or exhaust without taking ours along.

The child (:mod:`proof_lm.cli.child`) appends its events to a file, one JSON object a line, and nothing else is read of
it: what the target prints goes to standard error, and its standard input is empty.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from proof_lm.cli.judging import Emit, Event, Request, judge
from proof_lm.errors import TargetError

TIMEOUT = 600.0  # seconds for loading the target, for one contract, and for the diagnosis
MAX_LOSSES = 3  # processes that one target may lose; after that, the rest stays undecided
START = 300.0  # seconds for our own start in the child, on however slow a machine
PAUSE = 0.02  # seconds between two looks at the file
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        help="Seconds after which code that is not ours is taken to hang, for one contract.",
    ),
]


def judge_safely(request: Request, emit: Emit, timeout: float = TIMEOUT) -> None:
    """:func:`proof_lm.cli.judging.judge`, by :func:`judge_apart` where code that is not ours makes the subject.

    Raises:
        ProofLMError: the target cannot be loaded.
    """
    if request.source.is_foreign:
        judge_apart(request, emit, timeout)
    else:
        judge(request, emit)


def judge_apart(request: Request, emit: Emit, timeout: float = TIMEOUT) -> None:
    """Judges the target in a child process, with the events of :func:`proof_lm.cli.judging.judge`.

    A contract during which the child hangs or dies is inconclusive, and the rest is judged in a new child; three
    times, then the rest is left undecided; a replay has no rest. Nothing of the child's process group is left running.

    Raises:
        ProofLMError: the target cannot be loaded, or its process hangs or dies while it is.
    """
    state = _State(request, emit)
    begun = time.monotonic()
    for _ in range(MAX_LOSSES):
        left = request.max_seconds
        if left is not None:
            left = max(left - (time.monotonic() - begun), 0.0)
        lost = _one_child(
            replace(request, earlier=tuple(state.decided), max_seconds=left), state.see, timeout
        )
        if not lost:
            return
        if not state.is_loaded:
            raise TargetError(f"{request.source.target}: while it was loaded, its process {lost}")
        if state.current is None:  # while a fault was looked for, or while a second child loaded it
            emit({"event": "failed", "message": f"the target's process {lost}; no more was asked of it"})
            return
        state.give_up(lost)
        if request.replay is not None:
            return


class _State:
    """What is known of a verification that several children may have told of."""

    def __init__(self, request: Request, emit: Emit) -> None:
        self.request, self.emit = request, emit
        self.is_loaded = False
        self.current: str | None = None
        self.decided: list[dict[str, Any]] = []

    def see(self, event: Event) -> None:
        """Takes note of an event, and tells it; that a second child has loaded the target is no news."""
        match event["event"]:
            case "failed" if not self.is_loaded:
                raise TargetError(event["message"])
            case "loaded":
                if self.is_loaded:
                    return
                self.is_loaded = True
            case "begun":
                self.current = event["contract"]
            case "decided":
                self.current = None
                self.decided.append(event["result"])
        self.emit(event)

    def give_up(self, lost: str) -> None:
        """Tells that the contract at work is inconclusive."""
        from proof_lm.verify import CONTRACTS, ContractResult, Verdict
        from proof_lm.verify.report import result_to_dict

        (contract,) = [contract for contract in CONTRACTS if contract.name == self.current]
        reason = f"the target's process {lost}"
        result = ContractResult(contract.name, contract.statement, Verdict.INCONCLUSIVE, reason=reason)
        self.see({"event": "decided", "result": result_to_dict(result)})


def _one_child(request: Request, see: Emit, timeout: float) -> str:
    """Tells what one child tells; then how it was lost, in words, or nothing if it came to its end."""
    with tempfile.TemporaryDirectory(prefix="proof-lm-") as folder:
        events, asked = Path(folder) / "events", Path(folder) / "request"
        events.touch()
        asked.write_text(json.dumps(request.to_dict()), encoding="utf-8")  # too long for an argument
        child = subprocess.Popen(
            [sys.executable, "-m", "proof_lm.cli.child", str(events), str(asked)],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,  # standard output is for the result
            start_new_session=True,
        )
        try:
            with events.open(encoding="utf-8") as file:
                return _watch(child, file, see, timeout)
        finally:
            _end(child)


def _watch(child: subprocess.Popen[bytes], file: IO[str], see: Emit, timeout: float) -> str:
    heard, limit = time.monotonic(), max(START, timeout)
    while True:
        has_ended = child.poll() is not None  # before the last look, so that nothing it wrote is missed
        for event in complete_events(file):
            heard, limit = time.monotonic(), timeout
            if event["event"] == "done":
                return ""
            if event["event"] != "ready":
                see(event)
        if has_ended:
            return death(child.returncode)
        if time.monotonic() - heard > limit:
            return f"did nothing for {limit:g} s (--timeout) and was ended"
        time.sleep(PAUSE)


def complete_events(file: IO[str]) -> Iterator[Event]:
    """The events that a child has told and that were not read yet, whose lines are complete by now."""
    while True:
        place = file.tell()
        line = file.readline()
        if not line.endswith("\n"):
            file.seek(place)
            return
        yield json.loads(line)


def death(status: int) -> str:
    """How a process ended that told no end, in words."""
    if status >= 0:
        return f"ended itself with exit status {status}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        hint = ", as for want of memory" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"was killed by signal {-status}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kills the child and whatever it has started in its group."""
    from proof_lm.verify.parallel import kill_group

    kill_group(child.pid)
    child.kill()
    child.wait()
