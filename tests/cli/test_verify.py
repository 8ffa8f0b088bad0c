"""``proof-lm verify``: what it prints, what it writes, how it exits."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proof_lm.cli.app import app
from proof_lm.cli.subjects import Source
from proof_lm.verify import CONTRACTS, MUTANTS, ProofSubject


@pytest.fixture
def mutant(monkeypatch: pytest.MonkeyPatch) -> str:
    """A faulty decoder in the place of whatever is asked for."""
    (faulty,) = [m for m in MUTANTS if m.name == "no-causal-mask"]
    monkeypatch.setattr(Source, "load", lambda _: ProofSubject(faulty.name, faulty.build(0)))
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
    assert "smallest case: 1 row of 2 tokens" in result.stdout
    assert "diagnosis: behaves as no-causal-mask: " in result.stdout


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
        (["--level", "deep"], "no level named 'deep'; there are quick, standard, thorough"),
        (["chapter", "--arg", "a=1"], "--arg goes with a callable or hf:DIR, and 'chapter' is neither"),
        (["chapter", "--map", "x.json"], "--map goes with a callable or hf:DIR"),
        (["hf:/no/such"], "hf:/no/such: there is no such directory"),
        ([__file__], "is Python; name what in it makes the decoder, as"),
        (["no/such.py:build"], "there is no file no/such.py"),
        (["no_such_module:build"], "importing no_such_module raised ModuleNotFoundError"),
        (
            [f"{Path(__file__).parent}/misbehaving.py:on_meta"],
            "is on the meta device, where parameters have no values",
        ),
        (["json:nothing"], "json has no 'nothing'; it has"),
        (["json:dumps"], "missing a required argument: 'obj'; give --arg obj=VALUE"),
        (["json:dumps", "--arg", "obj"], "--arg must be name=value, got 'obj'"),
        (["os:getcwd"], "made a str; it must be or return a torch.nn.Module"),
        (["os:sep"], "is a str, and neither callable nor a model"),
        (["os:listdir", "--arg", "path='/no/such'"], "calling os:listdir raised FileNotFoundError"),
        (["--explain", "nonsense"], "no contract named 'nonsense'"),
        (["--json", "/no/such/folder/file.json"], "there is no directory /no/such/folder"),
        (["--json", "/"], "is a directory; name a file"),
    ],
)
def test_wrong_input_is_refused_before_any_work_with_status_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(ProofSubject, "logits", lambda *_: pytest.fail("work was done"))
    assert message in refused("verify", *arguments)


def test_an_interrupted_run_reports_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> object:
        raise KeyboardInterrupt

    replaced = [replace(c, check=interrupted) if c.name == "causality" else c for c in CONTRACTS]
    monkeypatch.setattr("proof_lm.verify.CONTRACTS", tuple(replaced))
    result = run("--only", "oracle-logits,causality,tying")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "1 holds; 1 of 3 contracts decided" in result.stdout
    assert "not decided: causality, tying" in result.stdout


FOREIGN = Path(__file__).parents[1] / "verify" / "foreign"


def test_a_callable_in_a_file_is_a_target_and_a_map_declares_its_config() -> None:
    target = f"{FOREIGN / 'torch_nn_decoder.py'}:gqa_interleaved"
    unseen = run(target, "--only", "causality,oracle-logits")
    assert unseen.exit_code == 0
    assert "is of no known layout" in unseen.stdout
    seen = run(target, "--only", "causality,oracle-logits", "--map", str(FOREIGN / "torch_nn_decoder.json"))
    assert seen.exit_code == 1
    assert "behaves as kv-heads-tiled: Query head h reads KV head h mod K." in seen.stdout


def test_what_is_known_of_a_subject_is_shown_and_what_is_not_and_why() -> None:
    shown = run(f"{FOREIGN / 'torch_nn_decoder.py'}:correct", "--show-subject")
    assert shown.exit_code == 0
    for words in (
        "attention_mask: integers, 1 = real",
        "labels, shifted inside",
        "it has no method generate",
    ):
        assert words in shown.stdout


def test_what_a_target_prints_does_not_reach_the_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "chatty.py"
    file.write_text(
        "from proof_lm.model import DecoderConfig, ProofLM\n"
        "print('imported')\n"
        "def build(width=8):\n"
        "    print('built')\n"
        "    return ProofLM(DecoderConfig(vocab_size=11, context_length=9, n_layers=1, d_model=width, n_heads=2, "
        "d_ff=13))\n"
    )
    result = run(f"{file}:build", "--arg", "width=12", "--only", "parameter-count")
    assert result.exit_code == 0
    assert "imported" not in result.stdout
    assert "built" in capfd.readouterr().err  # of the process that ran it


def test_a_model_that_is_there_already_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "json.py"  # a name that others import
    file.write_text(
        "import torch\nfrom verify.foreign import cs336_style\n"
        "MODEL = cs336_style.build()\n"
        "def build():\n    return MODEL\n"
    )
    for name in ("build", "MODEL"):
        result = run(f"{file}:{name}", "--only", "materialization,causality")
        assert result.exit_code == 0, result.output
        assert "what should make a new one gives the same one again" in result.stdout
    assert sys.modules["json"] is json


def test_what_there_was_no_time_for_is_named() -> None:
    result = run("--only", "causality,masked-loss", "--max-seconds", "0")
    assert result.exit_code == 3
    assert "not decided: causality, masked-loss" in result.stdout


def test_contracts_judged_at_a_time_give_the_same_verdicts() -> None:
    result = run("--only", "causality,masked-loss,tying", "--jobs", "2")
    assert result.exit_code == 0
    assert "3 holds; 3 of 3 contracts decided" in result.stdout


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_hugging_face_directory_runs_through_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=13, n_embd=12, n_layer=1, n_head=3, bos_token_id=None, eos_token_id=None
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    result = run(f"hf:{tmp_path}", "--only", "oracle-logits,causality,tying")
    assert result.exit_code == 0, result.output
    assert "eager sdpa" in result.stdout
    assert "3 holds" in result.stdout
