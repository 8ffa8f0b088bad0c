"""Every contract can fail: each mutant is rejected by the contracts that it names.

What they measured is printed as a table at the end of the run (see ``tests/conftest.py``).
"""

from collections.abc import Callable

import pytest

from proof_lm.verify import CONTRACTS, MUTANTS, Mutant, kill_matrix

BY_NAME = {contract.name: contract for contract in CONTRACTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_rejected_by_each_contract_that_it_names(
    mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    (row,) = kill_matrix([mutant], [BY_NAME[name] for name in mutant.rejected_by]).rows
    assert row.outcome == "killed", (row.unseen, row.verdicts)
    for contract in row.killers:
        found = row.measured.get(contract)  # none where the subject raised before anything was out of bounds
        shown = ("raised", "-") if found is None else (f"{found.measured:.1e}", found.path)
        record_property("rejection", (mutant.name, contract, *shown))


def test_every_contract_rejects_a_mutant() -> None:
    named = {name for mutant in MUTANTS for name in mutant.rejected_by}
    assert named == set(BY_NAME)


def test_names_are_unique_and_faults_are_sentences() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert all(mutant.fault.endswith(".") for mutant in MUTANTS)
