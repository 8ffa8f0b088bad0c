"""The files that ``proof-lm verify`` writes, and the baseline that it reads."""

import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from cli.conftest import Refused
from proof_lm.cli.app import app
from proof_lm.cli.output import write_json
from proof_lm.cli.subjects import Source
from proof_lm.verify import MUTANTS, ProofSubject

ONLY = ("--only", "causality,determinism")


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["verify", *ONLY, *map(str, arguments)])


def _make_faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    (faulty,) = [m for m in MUTANTS if m.name == "no-causal-mask"]
    monkeypatch.setattr(Source, "load", lambda _: ProofSubject("faulty <b>", faulty.build(0)))


def test_every_report_of_one_run_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make_faulty(monkeypatch)
    matrix = tmp_path / "matrix.json"
    made = CliRunner().invoke(
        app, ["mutants", "--mutant", "no-causal-mask", "--only", "causality", "--json", str(matrix)]
    )
    assert made.exit_code == 0, made.output
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "markdown", "html")}
    options = [part for name, file in files.items() for part in (f"--{name}", file)]
    result = _run(*options, "--matrix", matrix, "--save-violations", tmp_path / "violations")
    assert result.exit_code == 1, result.output
    document = json.loads(files["json"].read_text())
    assert [c["verdict"] for c in document["contracts"]] == ["violated", "holds"]
    assert [influence["path"] for influence in document["influences"]] == ["explicit", "fused"]
    suite = ElementTree.parse(files["junit"]).getroot().find(".//testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "causality" in files["markdown"].read_text()
    page = files["html"].read_text()
    assert "faulty &lt;b&gt;" in page
    assert "<b>" not in page.split("</head>")[1]
    assert "no-causal-mask" in page  # a row of the matrix, and the diagnosis
    assert [file.name for file in (tmp_path / "violations").iterdir()] == ["causality.json"]


def test_a_baseline_fails_only_where_something_got_weaker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, known = tmp_path / "sound.json", tmp_path / "known.json"
    assert _run("--save-baseline", sound).exit_code == 0
    assert _run("--baseline", sound).exit_code == 0
    _make_faulty(monkeypatch)
    worse = _run("--baseline", sound, "--save-baseline", known)
    assert worse.exit_code == 1
    assert "causality: was 'holds', is 'violated'" in worse.stdout
    assert _run("--baseline", known).exit_code == 0  # violated then, and now


def test_one_report_can_go_to_standard_output_and_the_table_goes_to_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = tmp_path / "saved.json"
    result = _run("--json", "-", "--save-baseline", saved)
    assert result.exit_code == 0
    assert [c["verdict"] for c in json.loads(result.stdout)["contracts"]] == ["holds", "holds"]
    assert "2 holds; 2 of 2 contracts decided" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["saved.json"]
    compared = _run("--junit", "-", "--baseline", saved)
    assert ElementTree.fromstring(compared.stdout).find(".//testcase") is not None
    assert "no contract is weaker than in the baseline" in compared.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes there")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        write_json(pipe, {"a": 1})
        assert pipe.is_fifo()
        assert json.load(reader) == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "{}/a", "--html", "{}/a"], "is named for two reports"),
        (["--junit", "-", "--markdown", "-"], "standard output (-) is named for two reports"),
        (["--save-violations", "-"], "standard output (-) is no directory for the violations"),
        (["--junit", "{}/none/a"], "there is no directory"),
        (["--save-violations", "{}/none/v"], "there is no directory"),
        (["--save-violations", "{}/text"], "is a file; name a directory"),
        (["--baseline", "{}/text"], "is no baseline: it is not JSON"),
        (["--baseline", "{}/none"], "cannot read the baseline"),
        (["--html", "{}/a", "--matrix", "{}/text"], "is no kill matrix: it is not JSON"),
        (["--html", "{}/a", "--matrix", "{}/object"], "`proof-lm mutants --json FILE` writes one"),
        (["--matrix", "{}/object"], "--matrix goes with --html"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused_before_any_work(
    arguments: list[str], message: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "text").write_text("text")
    (tmp_path / "object").write_text("{}")
    assert message in refused("verify", *(argument.format(tmp_path) for argument in arguments))
