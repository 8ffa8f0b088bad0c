"""``pytest --proof-lm TARGET``: one test per contract for a decoder, with or without test files.

pytest loads this module in every run of whoever has ProofLM installed: it imports nothing heavy, and does nothing
unless a target is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from proof_lm.testing import ContractCheck

MARKER = "proof_lm"
EXPECTED = "proof_lm_expected_failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and the ini value."""
    group = parser.getgroup("proof-lm", "ProofLM: contracts of decoders")
    group.addoption(
        "--proof-lm",
        action="append",
        default=[],
        metavar="TARGET",
        help="Judge this decoder, one test per contract: package.module:callable, path/to/file.py:callable, or "
        "whatever else `proof-lm verify` takes; repeat it.",
    )
    group.addoption(
        "--proof-lm-level",
        default="standard",
        metavar="LEVEL",
        help="quick, standard or thorough: how much is looked at (default: standard).",
    )
    parser.addini(
        EXPECTED,
        type="linelist",
        help="Contracts that the targets of --proof-lm are known not to keep, one `contract: reason` a line; "
        "one that holds fails.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Takes part in the run where a target is named."""
    targets = config.getoption("proof_lm")
    if targets:
        config.addinivalue_line("markers", f"{MARKER}: a contract, judged for a target of --proof-lm")
        config.pluginmanager.register(_Targets(config, targets), "proof_lm_targets")


class _Targets:
    """The decoders that were named: loaded when the session starts, judged as its first tests."""

    def __init__(self, config: pytest.Config, targets: list[str]) -> None:
        self.config = config
        self.targets = targets
        self.checks: dict[str, list[ContractCheck]] = {}

    def pytest_sessionstart(self) -> None:
        """Loads them; under xdist the controller does so too, whose error alone is shown as one.

        Raises:
            UsageError: one cannot be loaded, or a level or contract has no such name.
        """
        from proof_lm.errors import ProofLMError

        try:
            self.checks = {target: self._checks(target) for target in self.targets}
        except ProofLMError as error:
            raise pytest.UsageError(f"--proof-lm: {error}") from error

    def _checks(self, target: str) -> list[ContractCheck]:
        from proof_lm.cli.subjects import Source
        from proof_lm.testing import ContractCheck, Judged, select_contracts, undisturbed

        level, seed = self.config.getoption("proof_lm_level"), 0
        contracts = select_contracts((), level)
        expected = _expected_failures(self.config.getini(EXPECTED))
        with undisturbed(seed):
            subject = Source(target, seed).load()
        judged = Judged(lambda: subject, expected)
        return [ContractCheck(judged, contract, level, seed) for contract in contracts]

    @pytest.hookimpl(tryfirst=True)  # before -k, -m and --deselect choose
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Puts the contracts before the tests of the files."""
        collectors = [
            ContractCollector.from_parent(session, name=target, nodeid=target, checks=checks)
            for target, checks in self.checks.items()
        ]
        items[:0] = [item for collector in collectors for item in session.genitems(collector)]


class ContractCollector(pytest.Collector):
    """One target."""

    def __init__(self, *, checks: list[ContractCheck], **given: Any) -> None:
        super().__init__(**given)
        self.checks = checks

    def collect(self) -> Iterator[pytest.Item]:
        """A test per contract."""
        for check in self.checks:
            yield ContractItem.from_parent(self, name=check.contract.name, check=check)


class ContractItem(pytest.Item):
    """One contract, judged for one target."""

    def __init__(self, *, check: ContractCheck, **given: Any) -> None:
        super().__init__(**given)
        self.check = check
        self.add_marker(MARKER)

    def runtest(self) -> None:
        """Judges."""
        self.check()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report alone where the contract failed: a stack of ours says nothing about the decoder."""
        from proof_lm.testing import ContractFailure

        return super().repr_failure(excinfo, "value" if isinstance(excinfo.value, ContractFailure) else style)

    def reportinfo(self) -> tuple[Any, None, str]:
        """No line of a file; the heading names target and contract."""
        assert self.parent is not None
        return self.path, None, f"{self.parent.name} {self.name}"


def _expected_failures(lines: list[str]) -> dict[str, str]:
    """Reasons by contract.

    Raises:
        UsageError: a line has no reason.
        TargetError: there is no contract of that name.
    """
    from proof_lm.testing import require_contracts

    expected = {}
    for line in lines:
        name, _, reason = (part.strip() for part in line.partition(":"))
        if not reason:
            raise pytest.UsageError(f"{EXPECTED}: a line must be `contract: reason`, got {line!r}")
        expected[name] = reason
    require_contracts(expected)
    return expected
