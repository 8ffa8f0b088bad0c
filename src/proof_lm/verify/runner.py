"""Judges a subject by contracts, one after another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.probe import Probe
from proof_lm.verify.subject import Subject
from proof_lm.verify.verdict import Verification


def verify(
    subject: Subject,
    contracts: Sequence[Contract] = CONTRACTS,
    *,
    seed: int = 0,
    before_each: Callable[[Contract], None] | None = None,
    verification: Verification | None = None,
) -> Verification:
    """The verdict of each contract on the subject.

    Args:
        subject: what is judged.
        contracts: by which properties.
        seed: of every random choice; the same seed measures the same.
        before_each: called with each contract before it is judged, to show progress.
        verification: where results go as they come, from :func:`plan`: pass one to keep what was decided when
            the run is interrupted.
    """
    results = plan(subject, contracts, seed) if verification is None else verification
    probe = Probe(subject, seed)
    with _threads(None if probe.is_large else 1):
        for contract in contracts:
            if before_each is not None:
                before_each(contract)
            results.results.append(contract.judge(subject, probe))
    return results


@contextmanager
def _threads(wanted: int | None) -> Iterator[None]:
    """That many threads for the time being: matrices of a small model lose more by a second than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def plan(subject: Subject, contracts: Sequence[Contract], seed: int) -> Verification:
    """A verification with nothing decided yet."""
    return Verification(subject.name, seed, tuple(contract.name for contract in contracts))
