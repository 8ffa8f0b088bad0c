"""What came of one class of the zoo, by attention backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proof_lm.verify.verdict import ContractResult, Verdict, Verification, worst_verdict
from proof_lm.verify.zoo.explained import EXPLAINED, Explanation, explanations

NO_PATH = "-"  # of measurements in which attention takes no part
_RANK = (Verdict.NOT_APPLICABLE, Verdict.HOLDS, Verdict.INCONCLUSIVE, Verdict.VIOLATED)


@dataclass(frozen=True)
class ZooEntry:
    """One class, judged or not runnable.

    Attributes:
        name: of the class.
        seconds: wall time of its process.
        verification: what was decided; None where nothing was.
        reason: why nothing was decided, or not all of it, or why what was wanted of it is not recorded.
        replays: documents of what is violated, as :func:`proof_lm.verify.replay.violation_files` makes them, by
            the names of their files.
    """

    name: str
    seconds: float
    verification: Verification | None
    reason: str = ""
    replays: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def backends(self) -> tuple[str, ...]:
        """The attention backends that it was judged on; ``forward`` where it has no choice of them."""
        if self.verification is None:
            return ()
        paths = (path for result in self.verification.results for path in result.paths)
        return tuple(path for path in dict.fromkeys(paths) if path != NO_PATH)

    def of(self, backend: str, verdict: Verdict) -> tuple[str, ...]:
        """Contracts with that verdict on that backend."""
        results = () if self.verification is None else self.verification.results
        return tuple(result.name for result in results if on_backend(result, backend) is verdict)

    def verdict(self, backend: str) -> Verdict:
        """The worst of its contracts; inconclusive where the run was cut short before anything was violated."""
        assert self.verification is not None
        verdicts = [on_backend(result, backend) for result in self.verification.results]
        if self.verification.undecided:
            verdicts.append(Verdict.INCONCLUSIVE)
        return max(verdicts, key=_RANK.index)

    @property
    def is_open(self) -> bool:
        """Whether something was asked and not decided."""
        verification = self.verification
        return verification is not None and bool(
            verification.undecided or verification.count(Verdict.INCONCLUSIVE)
        )

    @property
    def violated(self) -> tuple[ContractResult, ...]:
        """What it violates on any backend."""
        results = () if self.verification is None else self.verification.results
        return tuple(result for result in results if result.verdict is Verdict.VIOLATED)

    @property
    def unexplained(self) -> tuple[ContractResult, ...]:
        """Violations of which nobody has said why."""
        return tuple(result for result in self.violated if not explanations(self.name, result))

    @property
    def known(self) -> tuple[Explanation, ...]:
        """Explanations of what it violates."""
        found = (known for result in self.violated for known in explanations(self.name, result))
        return tuple(dict.fromkeys(found))

    @property
    def outdated(self) -> tuple[Explanation, ...]:
        """Explanations of which nothing was found, though their contracts were decided."""
        if self.verification is None:
            return ()
        open_ones = {r.name for r in self.verification.results if r.verdict is Verdict.INCONCLUSIVE}
        decided = {r.name for r in self.verification.results} - open_ones
        found = self.known
        return tuple(e for e in EXPLAINED.get(self.name, ()) if e not in found and e.contracts <= decided)


def on_backend(result: ContractResult, backend: str) -> Verdict:
    """One contract's verdict on one backend: of the measurements there, and of those that take none.

    Where the subject raised, or the check broke off, no measurement says so: then it counts on every backend. A
    residual near a bound that a fresh seed judged otherwise is no worse here than the contract's own verdict.
    """
    if result.verdict is Verdict.NOT_APPLICABLE:
        return Verdict.NOT_APPLICABLE
    here = tuple(m for m in result.measurements if m.path in (backend, NO_PATH))
    told = max((m.verdict for m in result.measurements), key=_RANK.index, default=Verdict.HOLDS)
    if _RANK.index(told) < _RANK.index(result.verdict):
        return result.verdict
    if not here:
        return Verdict.NOT_APPLICABLE
    return min(worst_verdict(here), result.verdict, key=_RANK.index)


def decided_pairs(entries: Sequence[ZooEntry]) -> dict[Verdict, int]:
    """How many pairs of class and backend hold, are violated, and are inconclusive."""
    verdicts = [entry.verdict(backend) for entry in entries for backend in entry.backends]
    return {
        verdict: verdicts.count(verdict)
        for verdict in (Verdict.HOLDS, Verdict.VIOLATED, Verdict.INCONCLUSIVE)
    }


def exit_status(entries: Sequence[ZooEntry]) -> int:
    """0 all that is violated is explained; 1 something is not, or is explained and no longer found; 3 neither, but
    something is inconclusive or no class could be judged."""
    judged = [entry for entry in entries if entry.verification is not None]
    if any(entry.unexplained or entry.outdated for entry in judged):
        return 1
    return 3 if not judged or any(entry.is_open for entry in judged) else 0
