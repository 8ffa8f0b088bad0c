"""The violations that come with the project: each can be read, and one of a defect is shown again."""

from pathlib import Path

import pytest

from proof_lm.cli.subjects import Source
from proof_lm.verify.replay import replay
from proof_lm.verify.violation import read_violation
from proof_lm.verify.zoo.explained import EXPLAINED

VIOLATIONS = Path(__file__).parents[2] / "examples" / "violations"
ZOO = sorted((VIOLATIONS / "zoo").glob("*.json"))


@pytest.mark.parametrize("file", sorted(VIOLATIONS.rglob("*.json")), ids=lambda file: file.stem)
def test_it_is_of_the_contract_that_its_name_says(file: Path) -> None:
    violation = read_violation(file)
    assert file.stem.endswith(f"-{violation.contract}")
    assert "/tmp" not in file.read_text()
    assert "/root" not in file.read_text()


def test_each_defect_of_the_zoo_has_its_file_and_nothing_else_has_one() -> None:
    found = {tuple(file.stem.split("-", 1)) for file in ZOO}
    defects = {
        (name, contract)
        for name, known in EXPLAINED.items()
        for one in known
        if one.kind == "defect"
        for contract in one.contracts
    }
    assert found == defects


def test_prophetnet_leaks_again() -> None:
    pytest.importorskip("transformers", reason="transformers (extra 'hf') is not installed")
    violation = read_violation(VIOLATIONS / "zoo" / "ProphetNetForCausalLM-causality.json")
    found = replay(violation, Source(violation.origin.target, violation.seed).load())
    assert found.outcome == "shown again"
    assert found.now is not None
    assert found.now.where == "row 0: token 1 moves position 0"
