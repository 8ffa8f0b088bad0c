"""The contracts as tests of a decoder's own suite, in the shape of scikit-learn's ``check_estimator`` and
``parametrize_with_checks``.

pytest is imported only where one test per contract is made of them; ``check_decoder`` runs anywhere.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from torch import nn

from proof_lm.errors import TargetError
from proof_lm.model import ProofLM
from proof_lm.verify import (
    CONTRACTS,
    LEVELS,
    Adapter,
    Contract,
    ContractResult,
    ForeignSubject,
    Level,
    ProofSubject,
    Subject,
    Verdict,
    Verification,
    at_level,
    diagnose,
    verify,
)
from proof_lm.verify.noise import seeded
from proof_lm.verify.report import render
from proof_lm.verify.report.words import evidence, printable

if TYPE_CHECKING:
    import pytest

__all__ = [
    "ContractCheck",
    "ContractFailure",
    "ContractUndecided",
    "ContractViolation",
    "Judged",
    "UnexpectedPass",
    "check_decoder",
    "parametrize_with_contracts",
    "require_contracts",
    "select_contracts",
    "undisturbed",
]

Decoder = nn.Module | Adapter | Subject
Reasons = Mapping[str, str]  # by contract, why it is expected to fail
NONE: Reasons = MappingProxyType({})
WIDTH = 100  # columns of a report inside an exception


class ContractFailure(AssertionError):  # noqa: N818 - a test that fails, as AssertionError is for pytest
    """A decoder did not pass. The text is one line that says why, and the report.

    Attributes:
        verification: all that was measured.
    """

    def __init__(self, summary: str, verification: Verification) -> None:
        super().__init__(f"{summary}\n\n{_report(verification)}")
        self.verification = verification


class ContractViolation(ContractFailure):
    """A contract is violated."""


class ContractUndecided(ContractFailure):
    """No contract is violated, but one is inconclusive, or none applies."""


class UnexpectedPass(ContractFailure):
    """A contract that was expected to fail holds."""


def check_decoder(
    model: Decoder | Callable[[], Decoder],
    *,
    level: Level = "standard",
    only: Sequence[str] = (),
    seed: int = 0,
    expected_failures: Reasons = NONE,
) -> Verification:
    """Judges a decoder by every contract of the level.

    Args:
        model: a module, an adapter, a subject, or what makes one when it is called without arguments: then
            contracts on a newly made decoder apply as well.
        level: "quick", "standard" or "thorough".
        only: judge by these contracts alone.
        seed: of every random choice.
        expected_failures: by contract, the reason why it need not hold; it is an error when it does.

    Raises:
        ContractViolation: a contract is violated that is not expected to be.
        ContractUndecided: one is inconclusive, or none applies.
        UnexpectedPass: one holds that was expected to fail.
        TargetError: the model cannot be called as a decoder, or there is no contract of that name.
    """
    __tracebackhide__ = True
    contracts = select_contracts(only, level)
    require_contracts(expected_failures)
    subject = _subject(model, seed)
    with undisturbed(seed):
        verification = verify(subject, contracts, seed=seed, level=level)
        if _unexpected(verification, Verdict.VIOLATED, expected_failures):
            found = diagnose(subject, verification)
            verification.diagnosis = "" if found is None else str(found)
    failure = _failure(verification, expected_failures)
    if failure is not None:
        raise failure
    return verification


def parametrize_with_contracts(
    models: Sequence[Decoder | Callable[[], Decoder]],
    *,
    level: Level = "standard",
    only: Sequence[str] = (),
    seed: int = 0,
    expected_failures: Reasons | Callable[[Any], Reasons] = NONE,
) -> pytest.MarkDecorator:
    """One test per model and contract; the test function takes ``check`` and calls it::

        @parametrize_with_contracts([build_small, build_large])
        def test_decoder(check):
            check()

    A test is skipped where the contract does not apply, with the reason, and fails where nothing is decided. Each
    model is made when the first of its tests runs, and kept for the others.

    Args:
        models: as for :func:`check_decoder`; ids are their names, as in ``build_small-causality``.
        level: "quick", "standard" or "thorough".
        only: judge by these contracts alone.
        seed: of every random choice.
        expected_failures: by contract, the reason why it need not hold, or a function of the model that gives
            this; such a test is reported as an expected failure, and fails when the contract holds.

    Raises:
        TargetError: there is no contract of that name.
    """
    import pytest

    contracts = select_contracts(only, level)
    if not callable(expected_failures):
        require_contracts(expected_failures)
    judged = [(_name(model), Judged(partial(_subject, model, seed), expected_failures)) for model in models]
    return pytest.mark.parametrize(
        "check",
        [
            pytest.param(ContractCheck(shared, contract, level, seed), id=f"{name}-{contract.name}")
            for name, shared in judged
            for contract in contracts
        ],
    )


class Judged:
    """A subject that is made on first use, and what is expected of it.

    Args:
        load: makes it.
        expected_failures: reasons by contract, or a function of the decoder that gives them.
    """

    def __init__(
        self, load: Callable[[], Subject], expected_failures: Reasons | Callable[[Any], Reasons] = NONE
    ) -> None:
        self._load = load
        self._expected = expected_failures

    @cached_property
    def subject(self) -> Subject:
        """Made once."""
        return self._load()

    @cached_property
    def expected_failures(self) -> Reasons:
        """Reasons by contract."""
        if not callable(self._expected):
            return self._expected
        reasons = self._expected(self.subject.native)
        require_contracts(reasons)
        return reasons


class ContractCheck:
    """Judges one subject by one contract when it is called, and tells pytest the outcome."""

    def __init__(self, judged: Judged, contract: Contract, level: Level, seed: int) -> None:
        self.judged = judged
        self.contract = contract
        self.level = level
        self.seed = seed

    def __call__(self) -> None:
        """Passes where the contract holds, skips where it does not apply.

        Raises:
            ContractViolation, ContractUndecided or UnexpectedPass: as for :func:`check_decoder`.
            TargetError: the model cannot be called as a decoder.
        """
        __tracebackhide__ = True
        import pytest

        subject = self.judged.subject
        expected = {
            name: reason
            for name, reason in self.judged.expected_failures.items()
            if name == self.contract.name
        }
        with undisturbed(self.seed):
            verification = verify(subject, [self.contract], seed=self.seed, level=self.level)
        (result,) = verification.results
        if result.verdict is Verdict.NOT_APPLICABLE:
            pytest.skip(f"not applicable: {printable(result.reason)}")
        failure = _failure(verification, NONE)
        if failure is not None and expected:
            pytest.xfail(expected[self.contract.name])  # does nothing under --runxfail
        failure = failure or _failure(verification, expected)
        if failure is not None:
            raise failure


@contextmanager
def undisturbed(seed: int) -> Iterator[None]:
    """Judging as the command does it, whatever tests do: random numbers begin from the seed and leave no trace, and
    a warning of the subject is reported, but is no error even where the tests' filters make it one."""
    with warnings.catch_warnings(), seeded(seed):
        warnings.simplefilter("default")
        yield


def select_contracts(only: Sequence[str], level: Level) -> list[Contract]:
    """The contracts of these names, in the order of judging; those of the level without names.

    Raises:
        TargetError: there is no such contract, or no such level.
    """
    if level not in LEVELS:
        raise TargetError(f"no level named {level!r}; there are {', '.join(LEVELS)}")
    if not only:
        return at_level(level)
    wanted = [only] if isinstance(only, str) else only
    require_contracts(wanted)
    return [contract for contract in CONTRACTS if contract.name in wanted]


def require_contracts(names: Sequence[str] | Reasons) -> None:
    """Are these all names of contracts?

    Raises:
        TargetError: one is not.
    """
    known = [contract.name for contract in CONTRACTS]
    for name in names:
        if name not in known:
            raise TargetError(f"no contract named {name!r}; there are {', '.join(known)}")


def _subject(model: Decoder | Callable[[], Decoder], seed: int) -> Subject:
    name = _name(model)
    if isinstance(model, nn.Module | Adapter | Subject):
        return _settled(name, model, None)
    if not callable(model):
        raise TargetError(
            f"a {type(model).__name__} is no decoder; give a torch.nn.Module, a proof_lm.verify.Adapter or Subject, "
            "or a callable that makes one"
        )
    with undisturbed(seed):
        made = model()
        if not isinstance(made, nn.Module | Adapter | Subject):
            raise TargetError(
                f"{name} made a {type(made).__name__}; it must return a torch.nn.Module, or a "
                "proof_lm.verify.Adapter or Subject"
            )
        return _settled(name, made, model)


def _settled(name: str, made: Decoder, make: Callable[[], Decoder] | None) -> Subject:
    if isinstance(made, Subject):
        return made
    if isinstance(made, ProofLM):
        return ProofSubject(name, made)
    return ForeignSubject(name, made, build=None if make is None else partial(_new_module, make))


def _new_module(make: Callable[[], Any]) -> nn.Module:
    made = make()
    return made.module if isinstance(made, Adapter) else made


def _name(model: object) -> str:
    """What a test id calls it."""
    match model:
        case Subject():
            return model.name
        case Adapter():
            return type(model.module).__name__
        case partial():
            return _name(model.func)
    return getattr(model, "__name__", type(model).__name__)


def _failure(verification: Verification, expected: Reasons) -> ContractFailure | None:
    """What to raise for it, the worst first."""
    for verdict, kind in (
        (Verdict.VIOLATED, ContractViolation),
        (Verdict.INCONCLUSIVE, ContractUndecided),
    ):
        found = _unexpected(verification, verdict, expected)
        if found:
            return kind(_summary(verification, found), verification)
    passed = [r.name for r in verification.results if r.verdict is Verdict.HOLDS and r.name in expected]
    if passed:
        reasons = "; ".join(f"{name} was expected to fail ({expected[name]})" for name in passed)
        return UnexpectedPass(f"{reasons}, and holds: expect it no longer", verification)
    if verification.count(Verdict.NOT_APPLICABLE) == len(verification.results):
        return ContractUndecided(f"{verification.target}: no contract applies to it", verification)
    return None


def _unexpected(verification: Verification, verdict: Verdict, expected: Reasons) -> list[ContractResult]:
    return [r for r in verification.results if r.verdict is verdict and r.name not in expected]


def _summary(verification: Verification, found: Sequence[ContractResult]) -> str:
    """One line: the contract with its evidence, or which contracts."""
    verdict = found[0].verdict.value
    if len(found) == 1:
        return f"{found[0].name} is {verdict}: {_evidence(found[0])}"
    names = ", ".join(result.name for result in found)
    n_judged = len(verification.results)
    return f"{len(found)} of {n_judged} contracts are {verdict} for {verification.target}: {names}"


def _evidence(result: ContractResult) -> str:
    """The first that speaks against it, in one line: what a subject raised may have several."""
    lines = evidence(result)
    return printable(" ".join(lines[0].split())) if lines else result.statement


def _report(verification: Verification) -> str:
    stream = io.StringIO()
    render(verification, Console(file=stream, width=WIDTH, force_terminal=False, color_system=None))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
