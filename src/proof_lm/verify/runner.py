"""Judges a subject by contracts, one after another or several at a time."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from proof_lm.verify.contract import LEVELS, Contract, Level
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.threads import threads
from proof_lm.verify.verdict import ContractResult, Verification

LONGEST = 67  # tokens of a row at the thorough level


def verify(
    subject: Subject,
    contracts: Sequence[Contract] | None = None,
    *,
    seed: int = 0,
    level: Level = "standard",
    max_seconds: float | None = None,
    jobs: int = 1,
    before_each: Callable[[Contract], None] | None = None,
    verification: Verification | None = None,
) -> Verification:
    """The verdict of each contract on the subject.

    Args:
        subject: what is judged.
        contracts: by which properties; by default, all those of the level.
        seed: of every random choice; the same seed measures the same.
        level: "quick" probes once, and has fewer contracts; "standard" probes a small subject twice, the second
            time with sizes that coincide (as many rows and tokens as heads), a large one once; "thorough" adds
            a fresh seed, and for a small subject one long row.
        max_seconds: no contract is begun after so long; the rest stays undecided.
        jobs: how many contracts are judged at a time, each in a process of its own; only where processes can be
            forked, so not on Windows.
        before_each: called with each contract before it is judged, to show progress.
        verification: where results go as they come, from :func:`plan`: pass one to keep what was decided when
            the run is interrupted.
    """
    selected = at_level(level) if contracts is None else contracts
    results = plan(subject, selected, seed, level) if verification is None else verification
    probes = _probes(subject, seed, level)
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    with threads(None if probes[0].is_large and jobs == 1 else 1):
        judge = _judge_forked if jobs > 1 else _judge_here
        for result in judge(subject, probes, selected, jobs, deadline, before_each):
            results.results.append(result)
    return results


def at_level(level: Level) -> list[Contract]:
    """The contracts that the level judges by."""
    return [contract for contract in CONTRACTS if LEVELS.index(contract.level) <= LEVELS.index(level)]


def _probes(subject: Subject, seed: int, level: Level) -> list[Probe]:
    first = Probe(subject, seed, exhaustive=level != "quick")
    probes = [first]
    n_heads = subject.n_heads or 4
    if level != "quick" and not first.is_large and 1 < n_heads <= min(subject.context_length, 16):
        probes.append(Probe(subject, seed, n_rows=n_heads, n_tokens=n_heads))
    if level == "thorough":
        probes.append(first.reseeded())
        if not first.is_large and subject.context_length > first.n_tokens:
            n_tokens = min(subject.context_length, LONGEST)
            probes.append(Probe(subject, seed, n_rows=1, n_tokens=n_tokens))
    return probes


def _judge_here(
    subject: Subject,
    probes: Sequence[Probe],
    contracts: Sequence[Contract],
    jobs: int,
    deadline: float | None,
    before_each: Callable[[Contract], None] | None,
) -> Iterator[ContractResult]:
    for contract in contracts:
        if deadline is not None and time.monotonic() >= deadline:
            return
        if before_each is not None:
            before_each(contract)
        yield contract.judge(subject, *probes)


def _judge_forked(
    subject: Subject,
    probes: Sequence[Probe],
    contracts: Sequence[Contract],
    jobs: int,
    deadline: float | None,
    before_each: Callable[[Contract], None] | None,
) -> Iterator[ContractResult]:
    """The same in child processes, which inherit the subject as it lies in memory; results come in order."""
    if "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        yield from _judge_here(subject, probes, contracts, 1, deadline, before_each)
        return
    global _inherited  # the children take it from their parent's memory
    _inherited = (subject, probes, contracts)
    with multiprocessing.get_context("fork").Pool(min(jobs, len(contracts))) as pool:
        pending = [pool.apply_async(_judge_inherited, (index,)) for index in range(len(contracts))]
        for contract, result in zip(contracts, pending, strict=True):
            if before_each is not None:
                before_each(contract)
            left = None if deadline is None else deadline - time.monotonic()
            try:
                yield result.get(left if left is None else max(left, 0.0))
            except multiprocessing.TimeoutError:
                return
    _inherited = None


_inherited: tuple[Subject, Sequence[Probe], Sequence[Contract]] | None = None


def _judge_inherited(index: int) -> ContractResult:
    assert _inherited is not None
    subject, probes, contracts = _inherited
    return contracts[index].judge(subject, *probes)


def plan(
    subject: Subject, contracts: Sequence[Contract], seed: int, level: Level = "standard"
) -> Verification:
    """A verification with nothing decided yet."""
    return Verification(subject.name, seed, tuple(contract.name for contract in contracts), level=level)
