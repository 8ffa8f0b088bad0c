"""The kill matrix: which contract rejects which planted fault, and that none rejects a sound decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proof_lm.errors import ProofLMError
from proof_lm.verify.contract import Contract
from proof_lm.verify.mutants import Mutant
from proof_lm.verify.mutants.controls import Control
from proof_lm.verify.parallel import can_fork, forked
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import ProofSubject, Subject
from proof_lm.verify.threads import threads
from proof_lm.verify.verdict import Measurement, Verdict

SEED = 1  # of the weights; the probe's is the next


class MatrixError(ProofLMError):
    """The kill matrix cannot be completed."""


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

    Raises:
        MatrixError: a process was killed.
    """
    rows = []
    with threads(1):
        if jobs > 1 and can_fork() and planted:
            found = forked(lambda index: _verdicts(planted[index], contracts), planted, jobs)
        else:
            found = (_verdicts(one, contracts) for one in planted)
        for one, (verdicts, measured) in zip(planted, found, strict=False):
            row = Row(one, verdicts, measured)
            if on_row is not None:
                on_row(row)
            rows.append(row)
    if len(rows) < len(planted):
        name = planted[len(rows)].name
        raise MatrixError(
            f"the process that judged {name} was killed, as for want of memory: try fewer --jobs"
        )
    return KillMatrix(tuple(contracts), tuple(rows))


Verdicts = tuple[dict[str, Verdict], dict[str, Measurement]]


def _verdicts(planted: Mutant | Control, contracts: Sequence[Contract]) -> Verdicts:
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
    return verdicts, measured
