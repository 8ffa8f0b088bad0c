"""``proof-lm verify``: what it prints, what it writes, how it exits."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import proof_lm.verify
from proof_lm.cli import verify as command
from proof_lm.cli.app import app
from proof_lm.verify import CONTRACTS, MUTANTS, ProofSubject


@pytest.fixture
def mutant(monkeypatch: pytest.MonkeyPatch) -> str:
    """A faulty decoder in the place of whatever is asked for."""
    (faulty,) = [m for m in MUTANTS if m.name == "no-causal-mask"]
    monkeypatch.setattr(command, "_subject", lambda *_: ProofSubject(faulty.name, faulty.build(0)))
    return faulty.name


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


def test_the_embedded_decoder_holds_throughout() -> None:
    result = run("--only", "oracle-logits,causality", "--only", "parameter-count")
    assert result.exit_code == 0, result.output
    assert "3 holds; 3 of 3 contracts decided" in result.stdout
    assert "oracle-logits" not in result.stderr.split("[1/3]")[0]
    assert "[2/3] causality" in result.stderr


def test_a_violation_exits_1_and_says_what_moved_where(mutant: str) -> None:
    result = run("--only", "causality")
    assert result.exit_code == 1
    assert "causality: violated" in result.stdout
    assert "token" in result.stdout
    assert "moves position" in result.stdout


def test_the_evidence_is_written_as_json(mutant: str, tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    result = run("--only", "causality,masked-loss", "--seed", "3", "--json", str(file))
    document = json.loads(file.read_text())
    assert result.exit_code == document["exit_status"] == 1
    assert document["seed"] == 3
    assert [c["verdict"] for c in document["contracts"]] == ["violated", "holds"]
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


def test_list_and_explain_name_every_contract() -> None:
    listed = run("--list").stdout
    for contract in CONTRACTS:
        assert contract.name in listed
        explained = run("--explain", contract.name)
        assert explained.exit_code == 0
        assert contract.statement.split(",")[0].split()[0] in explained.stdout
    assert "kv-heads-tiled" in run("--explain", "grouped-heads").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-thing"], "no target 'no-such-thing'"),
        (["--only", "nonsense"], "no contract named 'nonsense'; there are oracle-logits"),
        (["--only", ","], "no contract named ''"),
        (["--explain", ""], "no contract named ''"),
        ([""], "no target ''"),
        (["--explain", "nonsense"], "no contract named 'nonsense'"),
        (["--json", "/no/such/folder/file.json"], "there is no directory /no/such/folder"),
        (["--json", "/"], "is a directory; name a file"),
    ],
)
def test_wrong_input_is_refused_before_any_work_with_status_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(command, "_subject", lambda *_: pytest.fail("work was done"))
    assert message in refused("verify", *arguments)


def test_an_interrupted_run_reports_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        proof_lm.verify,
        "CONTRACTS",
        (
            *CONTRACTS[:1],
            type(CONTRACTS[2])("causality", "No leak.", frozenset(), interrupted),
            *CONTRACTS[3:],
        ),
    )
    result = run()
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "1 holds; 1 of 13 contracts decided" in result.stdout
    assert "not decided: causality, batch-independence" in result.stdout
