"""The kill matrix: which contract rejects which planted fault, and that none rejects a sound decoder."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proof_lm.verify.contract import Contract
from proof_lm.verify.mutants import Mutant
from proof_lm.verify.mutants.controls import Control
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import ProofSubject, Subject
from proof_lm.verify.threads import threads
from proof_lm.verify.verdict import Measurement, Verdict

SEED = 1  # of the weights; the probe's is the next


@dataclass(frozen=True)
class Row:
    """One mutant or control, what each contract said of it, and what the rejecting ones measured first."""

    planted: Mutant | Control
    verdicts: dict[str, Verdict]
    measured: dict[str, Measurement]

    @property
    def name(self) -> str:
        """Of the mutant or the control."""
        return self.planted.name

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the public reports that it stands for."""
        return self.planted.ids if isinstance(self.planted, Mutant) else (self.planted.id,)

    @property
    def killers(self) -> tuple[str, ...]:
        """The contracts that reject it."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict is Verdict.VIOLATED)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Of the contracts that were tried, those that should have rejected it and did not."""
        if isinstance(self.planted, Control):
            return ()
        return tuple(
            name for name in self.planted.rejected_by if name in self.verdicts and name not in self.killers
        )

    @property
    def outcome(self) -> str:
        """For a mutant "killed", if by every contract that it names, or "survived"; for a control "equivalent" or
        "accused"."""
        if isinstance(self.planted, Control):
            return "accused" if self.killers else "equivalent"
        return "killed" if self.killers and not self.unseen else "survived"


@dataclass(frozen=True)
class KillMatrix:
    """All mutants and controls against all contracts."""

    contracts: tuple[Contract, ...]
    rows: tuple[Row, ...]

    def count(self, outcome: str) -> int:
        """How many rows came out so."""
        return sum(row.outcome == outcome for row in self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether every mutant is killed and no control is."""
        return not self.count("survived") and not self.count("accused")

    def kills(self, contract: str) -> tuple[str, ...]:
        """The mutants that a contract rejects."""
        return tuple(row.name for row in self.rows if contract in row.killers)

    def alone(self, contract: str) -> tuple[str, ...]:
        """The mutants that no other contract rejects."""
        return tuple(row.name for row in self.rows if row.killers == (contract,))


def kill_matrix(
    planted: Sequence[Mutant | Control],
    contracts: Sequence[Contract],
    *,
    jobs: int = 1,
    on_row: Callable[[Row], None] | None = None,
) -> KillMatrix:
    """Judges every mutant and control by every contract, which stops at the first violation that it measures.

    Args:
        planted: the rows.
        contracts: the columns.
        jobs: how many rows are judged at a time, each in a process of its own where processes can be forked.
        on_row: called with each row as it is done.
    """
    rows = []
    with threads(1):
        for row in _rows(planted, contracts, jobs):
            if on_row is not None:
                on_row(row)
            rows.append(row)
    return KillMatrix(tuple(contracts), tuple(rows))


def _rows(planted: Sequence[Mutant | Control], contracts: Sequence[Contract], jobs: int) -> Iterator[Row]:
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        for one in planted:
            yield _row(one, contracts)
        return
    global _inherited  # the children take it from their parent's memory: faults are functions, which do not pickle
    _inherited = (planted, contracts)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        found = pool.imap(_verdicts_inherited, range(len(planted)))
        for one, (verdicts, measured) in zip(planted, found, strict=True):
            yield Row(one, verdicts, measured)


_inherited: tuple[Sequence[Mutant | Control], Sequence[Contract]] | None = None


def _verdicts_inherited(index: int) -> tuple[dict[str, Verdict], dict[str, Measurement]]:
    assert _inherited is not None
    planted, contracts = _inherited
    row = _row(planted[index], contracts)
    return row.verdicts, row.measured


def _row(planted: Mutant | Control, contracts: Sequence[Contract]) -> Row:
    verdicts, measured = {}, {}
    subject: Subject
    for contract in contracts:
        if isinstance(planted, Control):
            subject = planted.build(SEED)
        else:
            subject = ProofSubject(planted.name, planted.build(SEED))
        verdict, violating = contract.first_violation(subject, Probe(subject, SEED + 1))
        verdicts[contract.name] = verdict
        if violating is not None:
            measured[contract.name] = violating
    return Row(planted, verdicts, measured)
