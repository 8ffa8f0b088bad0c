"""Every contract can fail: each mutant is rejected by the contracts that it names.

What they measured is printed as a table at the end of the run (see ``tests/conftest.py``).
"""

from collections.abc import Callable

import pytest

from proof_lm.verify import CONTRACTS, MUTANTS, Mutant, ProofSubject, Verdict, verify

BY_NAME = {contract.name: contract for contract in CONTRACTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_rejected_by_each_contract_that_it_names(
    mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    contracts = [BY_NAME[name] for name in mutant.rejected_by]
    verification = verify(ProofSubject(mutant.name, mutant.build(seed=1)), contracts, seed=2, level="quick")
    for result in verification.results:
        assert result.verdict is Verdict.VIOLATED, (result.name, result.worst)
        worst = result.worst
        assert worst is not None, f"rejected by an error alone: {result.reason}"
        record_property("rejection", (mutant.name, result.name, f"{worst.measured:.1e}", worst.path))


def test_every_contract_rejects_a_mutant() -> None:
    named = {name for mutant in MUTANTS for name in mutant.rejected_by}
    assert named == set(BY_NAME)


def test_names_are_unique_and_faults_are_sentences() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert all(mutant.fault.endswith(".") for mutant in MUTANTS)
