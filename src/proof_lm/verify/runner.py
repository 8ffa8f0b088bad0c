"""Judges a subject by contracts, one after another or several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from proof_lm.verify.contract import LEVELS, Contract, Level
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.parallel import can_fork, forked
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
    after_each: Callable[[ContractResult], None] | None = None,
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
        max_seconds: no contract is begun after so long, and with several jobs none is waited for; the rest stays
            undecided.
        jobs: how many contracts are judged at a time, in child processes; one where processes cannot be forked,
            as on Windows. A child that is killed leaves its contract, and those after it, undecided.
        before_each: called with each contract before it is judged, to show progress.
        after_each: called with each result.
        verification: where results go as they come, from :func:`plan`: pass one to keep what was decided when
            the run is interrupted.
    """
    selected = at_level(level) if contracts is None else contracts
    results = plan(subject, selected, seed, level) if verification is None else verification
    probes = planned_probes(subject, seed, level)
    deadline = None if max_seconds is None else time.monotonic() + max_seconds
    in_parallel = jobs > 1 and can_fork() and bool(selected)
    with threads(None if probes[0].is_large and not in_parallel else 1):
        if in_parallel:
            judged = forked(lambda index: selected[index].judge(subject, *probes), selected, jobs, deadline)
        else:
            judged = _in_turn(subject, probes, selected, deadline)
        for contract in selected:
            if before_each is not None:
                before_each(contract)
            result = next(judged, None)
            if result is None:
                break
            results.results.append(result)
            if after_each is not None:
                after_each(result)
    return results


def at_level(level: Level) -> list[Contract]:
    """The contracts that the level judges by."""
    return [contract for contract in CONTRACTS if LEVELS.index(contract.level) <= LEVELS.index(level)]


def planned_probes(subject: Subject, seed: int, level: Level) -> list[Probe]:
    """What :func:`verify` probes a subject with at a level."""
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


def _in_turn(
    subject: Subject, probes: Sequence[Probe], contracts: Sequence[Contract], deadline: float | None
) -> Iterator[ContractResult]:
    for contract in contracts:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield contract.judge(subject, *probes)


def plan(
    subject: Subject, contracts: Sequence[Contract], seed: int, level: Level = "standard"
) -> Verification:
    """A verification with nothing decided yet."""
    return Verification(subject.name, seed, tuple(contract.name for contract in contracts), level=level)
