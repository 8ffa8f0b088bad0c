"""A verification or a replay, from the target's name to the verdicts, told as events that can cross from process to
process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof_lm.cli.subjects import Source

if TYPE_CHECKING:
    from proof_lm.verify import Contract, ContractResult, Level, Subject

Event = Mapping[str, Any]
"""What happened, under ``"event"``, in JSON's own types:

``loaded`` (``target``, ``findings``, ``absent``), ``begun`` (``contract``), ``decided`` (``result``, as
:func:`proof_lm.verify.report.result_to_dict` writes it), ``diagnosing``, ``diagnosed`` (``diagnosis``), ``recording``,
``violations`` (``files``: documents by name), ``looking``, ``influences`` (``influences``, as
:func:`proof_lm.verify.report.influence_to_dict` writes them), ``failed`` (``message``: why no more follows).

In a replay ``replayed`` comes before ``decided``, with ``last_call`` and ``fingerprint`` as of
:class:`proof_lm.verify.replay.Replay`.
"""
Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Request:
    """What is to be judged, by which contracts, and how.

    Attributes:
        source: says how the subject is made.
        contracts: their names, in the order of judging; without any, the subject is only looked at.
        level: how much is looked at.
        max_seconds: no contract is begun after so long.
        jobs: contracts judged at a time.
        violations: whether a document is wanted of each violation.
        influences: whether it is to be measured which token moves which position.
        earlier: results of contracts that were decided before, as events tell them.
        replay: document of a violation; it alone is measured again, whatever else is said here.
    """

    source: Source
    contracts: tuple[str, ...] = ()
    level: Level = "standard"
    max_seconds: float | None = None
    jobs: int = 1
    violations: bool = False
    influences: bool = False
    earlier: tuple[Mapping[str, Any], ...] = ()
    replay: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """In JSON's own types."""
        source = self.source
        return {
            "target": source.target,
            "seed": source.seed,
            "arguments": list(source.arguments),
            "map_file": None if source.map_file is None else str(source.map_file),
            "contracts": list(self.contracts),
            "level": self.level,
            "max_seconds": self.max_seconds,
            "jobs": self.jobs,
            "violations": self.violations,
            "influences": self.influences,
            "earlier": list(self.earlier),
            "replay": self.replay,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Request:
        """What :meth:`to_dict` wrote."""
        map_file = None if given["map_file"] is None else Path(given["map_file"])
        source = Source(given["target"], given["seed"], tuple(given["arguments"]), map_file)
        return cls(
            source,
            tuple(given["contracts"]),
            given["level"],
            given["max_seconds"],
            given["jobs"],
            given["violations"],
            given["influences"],
            tuple(given["earlier"]),
            given["replay"],
        )


def judge(request: Request, emit: Emit) -> None:
    """Loads the target and judges it in this process; what is known by then has been told when it raises.

    Raises:
        ProofLMError: the target cannot be loaded.
    """
    from proof_lm.verify import CONTRACTS, Verdict, diagnose, plan, verify
    from proof_lm.verify.influence import measure_influences
    from proof_lm.verify.replay import violation_files
    from proof_lm.verify.report import influence_to_dict, result_from_dict, result_to_dict

    begun = time.monotonic()
    subject = request.source.load()
    emit(_loaded(subject))
    if request.replay is not None:
        _measure_again(request.replay, subject, emit)
        return
    if not request.contracts:
        return
    contracts = [contract for contract in CONTRACTS if contract.name in request.contracts]
    verification = plan(subject, contracts, request.source.seed, request.level)
    verification.results += map(result_from_dict, request.earlier)

    def before_each(contract: Contract) -> None:
        emit({"event": "begun", "contract": contract.name})

    def after_each(result: ContractResult) -> None:
        emit({"event": "decided", "result": result_to_dict(result)})

    left = request.max_seconds
    verify(
        subject,
        contracts[len(verification.results) :],
        seed=request.source.seed,
        level=request.level,
        max_seconds=None if left is None else max(left - (time.monotonic() - begun), 0.0),
        jobs=request.jobs,
        before_each=before_each,
        after_each=after_each,
        verification=verification,
    )
    if verification.count(Verdict.VIOLATED):
        emit({"event": "diagnosing"})
        found = diagnose(subject, verification)
        emit({"event": "diagnosed", "diagnosis": "" if found is None else str(found)})
        if request.violations:
            emit({"event": "recording"})
            source = request.source
            files = violation_files(
                verification,
                subject,
                target=source.target,
                arguments=source.arguments,
                map_file=source.map_file,
            )
            emit({"event": "violations", "files": files})
    if request.influences:
        emit({"event": "looking"})
        influences = measure_influences(subject, request.source.seed)
        emit({"event": "influences", "influences": [influence_to_dict(one) for one in influences]})


def _measure_again(document: Mapping[str, Any], subject: Subject, emit: Emit) -> None:
    from proof_lm.verify.replay import replay
    from proof_lm.verify.report import result_to_dict
    from proof_lm.verify.violation import Violation

    violation = Violation.from_dict(document)
    emit({"event": "begun", "contract": violation.contract})
    found = replay(violation, subject)
    emit({"event": "replayed", "last_call": found.last_call, "fingerprint": found.fingerprint})
    emit({"event": "decided", "result": result_to_dict(found.result)})


def _loaded(subject: Subject) -> Event:
    return {
        "event": "loaded",
        "target": subject.name,
        "findings": [[finding.what, finding.value, finding.how] for finding in subject.findings],
        "absent": dict(subject.absent),
    }
