"""Every contract can fail: each mutant is rejected by the contracts that it names."""

import pytest
from rich.console import Console
from rich.table import Table

from proof_lm.verify import CONTRACTS, MUTANTS, Mutant, Subject, Verdict, verify

BY_NAME = {contract.name: contract for contract in CONTRACTS}


@pytest.fixture(scope="module")
def kills() -> dict[str, dict[str, str]]:
    """What each mutant's contracts measured, filled by the tests and printed at the end."""
    found: dict[str, dict[str, str]] = {}
    return found


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_rejected_by_each_contract_that_it_names(
    mutant: Mutant, kills: dict[str, dict[str, str]]
) -> None:
    contracts = [BY_NAME[name] for name in mutant.rejected_by]
    verification = verify(Subject(mutant.name, mutant.build(seed=1)), contracts, seed=2)
    for result in verification.results:
        assert result.verdict is Verdict.VIOLATED, (result.name, result.worst)
        assert result.measurements, f"rejected by an error alone: {result.reason}"
        worst = result.worst
        assert worst is not None
        kills.setdefault(mutant.name, {})[result.name] = f"{worst.measured:.1e} {worst.path}"


def test_every_contract_rejects_a_mutant() -> None:
    named = {name for mutant in MUTANTS for name in mutant.rejected_by}
    assert named == set(BY_NAME)


def test_names_are_unique_and_faults_are_sentences() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert all(mutant.fault.endswith(".") for mutant in MUTANTS)


def test_the_table_of_mutants_and_contracts(
    kills: dict[str, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints which contract rejected which mutant, by how much and on which path."""
    if len(kills) < len(MUTANTS):
        pytest.skip("only a part of the mutants was run in this session")
    table = Table("mutant", "rejected by", "measured", box=None)
    for name, rejected in kills.items():
        for contract, figure in rejected.items():
            table.add_row(name, contract, figure)
    with capsys.disabled():
        console = Console(width=100)
        console.print()
        console.print(table)
    assert set(kills) == {mutant.name for mutant in MUTANTS}
