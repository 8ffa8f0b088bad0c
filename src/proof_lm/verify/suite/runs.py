"""Runs a test suite once for each fault, and scores which it notices."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from proof_lm.config import DecoderConfig
from proof_lm.errors import ProofLMError
from proof_lm.verify.mutants import Mutant
from proof_lm.verify.parallel import can_fork, forked, kill_group
from proof_lm.verify.suite.applicable import SIZES, why_not_shown
from proof_lm.verify.suite.events import read_events
from proof_lm.verify.threads import threads

STARTUP = Path(__file__).parent / "startup"
PATIENCE = 10.0  # times the unmutated run, until a run counts as hanging
LEAST_PATIENCE = 30.0  # seconds
LAST_LINES = 5  # of a failing run's output
Result = Literal["noticed", "timed out", "missed", "not planted"]
ORACLE = ("oracle-logits", "oracle-gradients")  # see everything, so they say least of what a fault is about


class SuiteError(ProofLMError, RuntimeError):
    """The suite cannot be scored: its command does not run, or does not pass without a fault."""


@dataclass(frozen=True)
class Suite:
    """Somebody's tests.

    Attributes:
        command: the words of the command that runs them, in the current directory; it exits with 0 if they pass.
        place: ``package.module:Class``, the decoder under test; empty where that is ProofLM.
        map_file: where the weights of that class lie; None where its layout is known.
        timeout: seconds after which a run counts as hanging; None for ten times the unmutated run, and half a minute
            at least.
    """

    command: tuple[str, ...]
    place: str = ""
    map_file: Path | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class Examined:
    """What a suite tests, as its run without a fault told.

    Attributes:
        configs: of the decoders that it made, one of each kind.
        absent: what calls of them cannot show, with the reason.
        passed: calls that the class under test answered itself.
        seconds: of that run.
    """

    configs: tuple[DecoderConfig, ...]
    absent: Mapping[str, str]
    passed: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What a suite made of one fault.

    Attributes:
        mutant: the fault.
        result: "noticed" if the command failed, "timed out" if it hung, which notices it too, "missed" if it passed,
            "not planted" if nothing it tests could show the fault.
        reason: why it was not planted.
        seconds: of the run; 0 where there was none.
    """

    mutant: Mutant
    result: Result
    reason: str = ""
    seconds: float = 0.0

    @property
    def about(self) -> str:
        """The contract that says best what the fault is about."""
        named = self.mutant.rejected_by
        return next((name for name in named if name not in ORACLE), named[0])


@dataclass
class Score:
    """Which faults a suite notices."""

    suite: Suite
    tested: Examined
    outcomes: list[Outcome] = field(default_factory=list)

    def of(self, *results: Result) -> list[Outcome]:
        """The outcomes with these results."""
        return [outcome for outcome in self.outcomes if outcome.result in results]

    @property
    def n_noticed(self) -> int:
        """Faults that fail the suite or hang it."""
        return len(self.of("noticed", "timed out"))

    @property
    def n_planted(self) -> int:
        """Faults that count."""
        return len(self.outcomes) - len(self.of("not planted"))

    @property
    def exit_status(self) -> int:
        """0 if all planted faults are noticed and there is one at least, else 1."""
        return 0 if self.n_planted and self.n_noticed == self.n_planted else 1

    def gaps(self) -> list[tuple[str, list[Outcome], int]]:
        """What the suite misses: contract, missed faults, and how many were planted; most missed first."""
        groups: dict[str, list[Outcome]] = {}
        n_planted: dict[str, int] = {}
        for outcome in self.outcomes:
            if outcome.result == "not planted":
                continue
            n_planted[outcome.about] = n_planted.get(outcome.about, 0) + 1
            if outcome.result == "missed":
                groups.setdefault(outcome.about, []).append(outcome)
        found = [(about, missed, n_planted[about]) for about, missed in groups.items()]
        return sorted(found, key=lambda gap: (-len(gap[1]), gap[2], gap[0]))


def examine(suite: Suite) -> Examined:
    """Runs the suite without a fault, and finds out what it tests.

    A class of somebody else's is tested twice: as it is, then with the sound reference answering in its place.

    Raises:
        SuiteError: the command cannot be run, fails, hangs, or meets no decoder; or the reference is no faithful
            stand-in.
    """
    plain = None
    if suite.place:
        plain = _run(suite, None, None, suite.timeout)
        _require_pass(plain, "the suite does not pass as it is: put that right first")
    with _event_file() as events:
        run = _run(suite, "", events, suite.timeout)
        told = read_events(events)
    met = [event for event in told if event["kind"] in ("made", "mapped")]
    unmapped = [event["why"] for event in told if event["kind"] == "unmapped"]
    if unmapped and not met:
        raise SuiteError(f"no reference can stand in for {suite.place}: {unmapped[0]}")
    _require_pass(
        run,
        f"the suite passes as it is, but not with the sound reference answering for {suite.place}: the stand-in is "
        "not faithful, so no fault is planted"
        if suite.place
        else "the suite does not pass as it is: put that right first",
    )
    if not met:
        what = f"called no {suite.place}" if suite.place else "made no proof_lm.model.ProofLM"
        raise SuiteError(f"the command {what}{_HINT}")
    configs = _one_of_each_kind([DecoderConfig.from_dict(event["config"]) for event in met])
    lacking: Any = [set(event.get("absent", {})) for event in met]
    absent = {name: why for event in met for name, why in event.get("absent", {}).items()}
    everywhere = set.intersection(*lacking)
    passed = tuple(sorted({event["why"] for event in told if event["kind"] == "passed"}))
    kept = {name: absent[name] for name in sorted(everywhere)}
    return Examined(configs, kept, passed, run.seconds)


_HINT = (
    " (or its Python does not read PYTHONPATH, as with -I or -E, or imports it through another import hook); if the "
    "decoder is a class of yours, name it with --in package.module:Class"
)


def score(
    suite: Suite,
    tested: Examined,
    mutants: Sequence[Mutant],
    *,
    jobs: int = 1,
    on_chosen: Callable[[int], None] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Score:
    """Runs the suite once for each fault that what it tests can show.

    Args:
        suite: the tests.
        tested: what :func:`examine` found.
        mutants: the faults.
        jobs: how many runs go on at a time.
        on_chosen: called once, with the number of runs.
        on_outcome: called with each outcome as it comes, those without a run first.
    """
    found = Score(suite, tested)

    def keep(outcome: Outcome) -> None:
        found.outcomes.append(outcome)
        if on_outcome is not None:
            on_outcome(outcome)

    chosen = []
    for mutant, why in zip(mutants, _why_not(suite, tested, mutants, jobs), strict=True):
        if why:
            keep(Outcome(mutant, "not planted", why))
        else:
            chosen.append(mutant)
    if on_chosen is not None:
        on_chosen(len(chosen))
    timeout = suite.timeout or max(PATIENCE * tested.seconds, LEAST_PATIENCE)
    executor = ThreadPoolExecutor(max(min(jobs, len(chosen)), 1))
    try:
        for pending in [executor.submit(_try, suite, mutant, timeout) for mutant in chosen]:
            keep(pending.result())
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in list(_running):
            _kill(process)
        executor.shutdown()
    return found


def _why_not(suite: Suite, tested: Examined, mutants: Sequence[Mutant], jobs: int) -> Iterator[str]:
    def why(index: int) -> str:
        reasons = []
        for config in tested.configs:
            reason = why_not_shown(mutants[index], config, tested.absent, stands_in=bool(suite.place))
            if not reason:
                return ""
            reasons.append(reason)
        return reasons[0]

    with threads(1):
        if jobs > 1 and can_fork() and mutants:
            yield from forked(why, mutants, jobs)
        else:
            yield from map(why, range(len(mutants)))


def _try(suite: Suite, mutant: Mutant, timeout: float) -> Outcome:
    with _event_file() as events:
        run = _run(suite, mutant.name, events, timeout)
        told = read_events(events)
    outcome = partial(Outcome, mutant, seconds=run.seconds)
    if not any(event["kind"] == "planted" for event in told):
        refused = [event["why"] for event in told if event["kind"] == "refused"]
        return outcome("not planted", refused[0] if refused else "this run met no decoder to plant it in")
    if run.status is None:
        return outcome("timed out")
    return outcome("missed" if run.status == 0 else "noticed")


def _one_of_each_kind(configs: Sequence[DecoderConfig]) -> tuple[DecoderConfig, ...]:
    """Of the configs that differ in sizes only, the one on which most can show: layers, then context."""

    def kind(config: DecoderConfig) -> tuple[Any, ...]:
        fields = [value for name, value in config.to_dict().items() if name not in SIZES]
        return (*fields, config.kv_heads == 1, config.kv_heads == config.n_heads)

    best: dict[tuple[Any, ...], DecoderConfig] = {}
    for config in sorted(configs, key=lambda c: (min(c.n_layers, 2), min(c.context_length, 32))):
        best[kind(config)] = config
    return tuple(best.values())


@dataclass(frozen=True)
class _Run:
    """One run of the command; without a status if it was ended for taking too long."""

    status: int | None
    seconds: float
    output: str


_running: set[subprocess.Popen[bytes]] = set()


def _run(suite: Suite, mutant: str | None, events: Path | None, timeout: float | None) -> _Run:
    """Runs the command; without ``events`` untouched.

    Raises:
        SuiteError: there is no such command.
    """
    environment = dict(os.environ)
    if events is not None:
        paths = [str(STARTUP), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        environment["PROOF_LM_MUTANT"] = mutant or ""
        environment["PROOF_LM_SUITE_IN"] = suite.place
        environment["PROOF_LM_SUITE_MAP"] = "" if suite.map_file is None else str(suite.map_file.resolve())
        environment["PROOF_LM_SUITE_EVENTS"] = str(events)
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:  # a pipe would stay open as long as a grandchild holds it
        try:
            process = subprocess.Popen(
                suite.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise SuiteError(f"cannot run {suite.command[0]!r}: {error.strerror}") from error
        _running.add(process)
        status: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs: no status
                status = process.wait(timeout)
        finally:
            _kill(process)
            _running.discard(process)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return _Run(status, time.monotonic() - start, text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and whatever it started and left running."""
    kill_group(process.pid)
    process.kill()
    process.wait()


@contextlib.contextmanager
def _event_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="proof-lm-suite-") as folder:
        path = Path(folder) / "events"
        path.touch()
        yield path


def _require_pass(run: _Run, otherwise: str) -> None:
    if run.status == 0:
        return
    how = "it hung" if run.status is None else f"exit status {run.status}"
    last = " | ".join(line.strip() for line in run.output.splitlines()[-LAST_LINES:] if line.strip())
    raise SuiteError(f"{otherwise} ({how}): {last or 'no output'}")
