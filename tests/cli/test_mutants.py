"""``proof-lm mutants``: the kill matrix, and the table of public reports."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proof_lm.cli.app import app
from proof_lm.verify import CONTRACTS, MUTANTS, Mutant, kill_matrix

DOCS = Path(__file__).parents[2] / "docs"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["mutants", *arguments])


def test_the_matrix_names_what_kills_and_ends_with_the_totals(tmp_path: Path) -> None:
    file = tmp_path / "matrix.json"
    chosen = "no-causal-mask,kv-heads-tiled,half-split-pairs"
    result = run("--mutant", chosen, "--only", "causality", "--only", "grouped-heads", "--json", str(file))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].split()[:2] == ["no-causal-mask", "X."]
    assert lines[2].split()[:2] == ["kv-heads-tiled", ".X"]
    assert "equivalent: The other layout of pairs" in lines[3]
    assert lines[-1] == "3 decoders by 2 contracts: 2 killed, 0 survived, 1 equivalent"
    document = json.loads(file.read_text())
    assert [row["outcome"] for row in document["rows"]] == ["killed", "killed", "equivalent"]


def test_the_matrix_can_go_to_standard_output_and_the_table_goes_to_standard_error() -> None:
    result = run("--mutant", "no-causal-mask", "--only", "causality", "--json", "-")
    assert result.exit_code == 0, result.output
    assert [row["outcome"] for row in json.loads(result.stdout)["rows"]] == ["killed"]
    assert result.stderr.endswith("1 decoders by 1 contracts: 1 killed, 0 survived, 0 equivalent\n")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_survivor_is_named_and_exits_1(jobs: str) -> None:
    result = run("--mutant", "no-causal-mask,kv-heads-tiled", "--only", "causality", "--jobs", jobs)
    assert result.exit_code == 1
    assert "SURVIVES all contracts" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("1 killed, 1 survived, 0 equivalent")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mutant", "nonsense"], "no mutant named 'nonsense'; there are"),
        (["--only", "nonsense"], "no contract named 'nonsense'; there are oracle-logits"),
        (["--json", "/"], "is a directory; name a file"),
    ],
)
def test_wrong_input_is_refused(arguments: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("mutants", *arguments)


def test_the_table_of_public_reports_in_the_docs_is_the_one_that_is_printed() -> None:
    printed = run("--table").stdout
    assert (DOCS / "mutants.md").read_text() == printed


def test_enough_of_the_public_reports_are_planted() -> None:
    ids = {name for planted in MUTANTS for name in planted.ids}
    assert len({name for name in ids if name.startswith("O")}) >= 85
    assert len({name for name in ids if name.startswith("cs336:")}) == 47  # two change nothing: see the table


def test_a_mutant_that_a_contract_does_not_see_survives_in_the_api_too() -> None:
    (sound,) = [m for m in MUTANTS if m.name == "no-causal-mask"]
    blind = Mutant("blind", "Nothing is wrong.", ("causality",), lambda model: None)
    matrix = kill_matrix([sound, blind], [c for c in CONTRACTS if c.name == "causality"])
    assert [row.outcome for row in matrix.rows] == ["killed", "survived"]
    assert not matrix.is_complete
