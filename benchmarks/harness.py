"""Contenders, tasks, and rounds that interleave them: nothing here knows what is measured."""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """What one run gave.

    Attributes:
        seconds: the timed part of the run.
        peak_mib: largest resident memory, where the run was a process of its own.
        outcome: what was computed, where contenders must compute the same.
    """

    seconds: float
    peak_mib: float | None = None
    outcome: Hashable = None


Run = Callable[[], Sample]


@dataclass(frozen=True)
class Contender:
    """Something to time: ``make()`` builds it, untimed, and gives the function that runs it once."""

    name: str
    make: Callable[[], Run]


@dataclass(frozen=True)
class Task:
    """One question, and who answers it.

    Attributes:
        name: what ``--only`` selects.
        about: one line for the reader of the table.
        contenders: they run in turns, in one process.
        peer: the contender that ratios are taken to; None where there is nothing to compare.
        tokens: tokens a run handles, for tokens per second; None where that has no meaning.
        rounds: timed rounds, unless the command line says otherwise.
        warm_up: whether each contender runs once, unmeasured, before the first round.
    """

    name: str
    about: str
    contenders: tuple[Contender, ...]
    peer: str | None = None
    tokens: int | None = None
    rounds: int = 7
    warm_up: bool = True

    def contender(self, name: str) -> Contender:
        """The contender of that name."""
        return next(contender for contender in self.contenders if contender.name == name)


@dataclass
class Result:
    """The samples of one contender, one a round."""

    name: str
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """The timed part of every round."""
        return [sample.seconds for sample in self.samples]

    @property
    def median(self) -> float:
        """The median round, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def peak_mib(self) -> float | None:
        """The largest peak of any round; None where memory was not measured."""
        peaks = [sample.peak_mib for sample in self.samples if sample.peak_mib is not None]
        return max(peaks) if peaks else None

    def speed_against(self, peer: Result) -> float:
        """How many times as fast as the peer: the median over rounds of peer seconds / own seconds."""
        return statistics.median(theirs / own for theirs, own in zip(peer.seconds, self.seconds, strict=True))

    def agrees_with(self, peer: Result) -> bool | None:
        """Whether every round computed what the peer's did; None where outcomes are not compared."""
        outcomes = {sample.outcome for sample in (*self.samples, *peer.samples)}
        return None if outcomes == {None} else len(outcomes) == 1


def measure(task: Task, rounds: int | None = None) -> list[Result]:
    """Runs every contender once a round; each round starts with the next contender, so that none is always first."""
    runs: dict[str, Run] = {}
    for contender in task.contenders:
        progress(f"{task.name}: building {contender.name}")
        runs[contender.name] = contender.make()
    if task.warm_up:
        for name, run in runs.items():
            progress(f"{task.name}: warming up {name}")
            run()
    results = {name: Result(name) for name in runs}
    names = list(runs)
    n_rounds = task.rounds if rounds is None else rounds
    for index in range(n_rounds):
        first = index % len(names)
        for name in names[first:] + names[:first]:
            sample = runs[name]()
            results[name].samples.append(sample)
            progress(f"{task.name}: round {index + 1}/{n_rounds}: {name} {sample.seconds:.3f} s")
    runs.clear()
    gc.collect()
    return list(results.values())


def progress(line: str) -> None:
    """One line on standard error: standard output carries the tables only."""
    print(line, file=sys.stderr, flush=True)
