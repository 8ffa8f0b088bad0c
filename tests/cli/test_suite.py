"""``proof-lm mutants --suite``: real suites with real faults, and scripts that tell what a suite would."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proof_lm.cli.app import app
from proof_lm.verify.suite import runs
from sizes import SMALL

EXAMPLE = Path(__file__).parents[2] / "examples" / "suite"


def run(command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["mutants", "--suite", command, *arguments])


def told_by(tmp_path: Path, body: str) -> str:
    """A command that stands for a suite: a script without torch that tells what the planting would."""
    script = tmp_path / "suite.py"
    script.write_text(
        "import json, os, sys, time\n"
        "name = os.environ.get('PROOF_LM_MUTANT')\n"
        "def tell(**event):\n"
        "    with open(os.environ['PROOF_LM_SUITE_EVENTS'], 'a') as file:\n"
        "        file.write(json.dumps(event) + '\\n')\n"
        f"config = json.loads({SMALL.to_json()!r})\n" + body
    )
    return f"{sys.executable} {script}"


@pytest.fixture
def in_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the decoders are tiny, and others may be computing too


@pytest.mark.usefixtures("in_example")
def test_the_gaps_of_a_suite_for_proof_lm_are_found(tmp_path: Path) -> None:
    file = tmp_path / "score.json"
    result = run(
        f"{sys.executable} -m pytest -q -x -p no:cacheprovider -k later_token tests/test_proof_lm.py",
        "--mutant",
        "no-causal-mask,padding-ignored,position-skipped-for-one-token",
        "--json",
        str(file),
    )
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("1 of 2 faults noticed (50 %), 1 missed, 1 not planted: ")
    assert lines[2].startswith("padding: 1 of 1 missed. Padding on either side moves no real logit")
    assert lines[3] == "  padding-ignored: Attention drops the padding mask."
    assert lines[4] == "  padding would reject them: proof-lm verify --explain padding"
    assert "  1: it needs position = learned (position-skipped-for-one-token)" in lines
    assert "2/2 padding-ignored: missed; 0 s left" in result.stderr
    document = json.loads(file.read_text())
    assert (document["format"], document["version"]) == ("proof-lm/suite-score", 1)
    found = {fault["name"]: fault["result"] for fault in document["faults"]}
    assert found == {
        "position-skipped-for-one-token": "not planted",
        "no-causal-mask": "noticed",
        "padding-ignored": "missed",
    }
    assert document["configs"][0]["n_kv_heads"] == 3


@pytest.mark.usefixtures("in_example")
def test_a_fault_is_planted_in_a_class_of_somebody_else_s() -> None:
    result = run(
        f"{sys.executable} -m pytest -q -x -p no:cacheprovider -k later_token tests/test_tiny_decoder.py",
        "--in",
        "tiny_decoder:TinyDecoder",
        "--mutant",
        "no-causal-mask,cache-not-reordered",
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 of 1 faults noticed (100 %), 0 missed, 1 not planted: ")
    assert (
        "  1: forward takes none of cache, past_key_values, kv_cache (cache-not-reordered)" in result.stdout
    )


BY_NAME = """
tell(kind='made', config=config)
if name:
    tell(kind='planted') if name != 'rope-reversed' else tell(kind='refused', why='a \\x1b[2J reason')
if name == 'constant':
    time.sleep(60)
sys.exit(name == 'kv-heads-tiled')
"""


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_failing_and_hanging_notice_passing_misses_and_without_a_fault_nothing_counts(
    tmp_path: Path, jobs: str
) -> None:
    wanted = "no-causal-mask,kv-heads-tiled,rope-reversed,constant"
    result = run(told_by(tmp_path, BY_NAME), "--mutant", wanted, "--timeout", "5", "--jobs", jobs)
    assert result.exit_code == 1, result.output
    headline = result.stdout.splitlines()[0]
    assert headline.startswith(
        "2 of 3 faults noticed (67 %), 1 of them by hanging, 1 missed, 1 not planted: "
    )
    assert "  1: a \\x1b[2J reason (rope-reversed)" in result.stdout
    assert "causality: 1 of 2 missed" in result.stdout


def test_all_noticed_exits_0(tmp_path: Path) -> None:
    body = "tell(kind='made', config=config)\nif name: tell(kind='planted')\nsys.exit(bool(name))"
    result = run(told_by(tmp_path, body), "--mutant", "no-causal-mask")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 of 1 faults noticed (100 %), 0 missed, 0 not planted: ")


def test_an_interrupted_score_shows_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = runs._try

    def interrupted(suite: runs.Suite, mutant: runs.Mutant, timeout: float) -> runs.Outcome:
        if mutant.name == "constant":
            raise KeyboardInterrupt
        return tried(suite, mutant, timeout)

    monkeypatch.setattr(runs, "_try", interrupted)
    body = "tell(kind='made', config=config)\nif name: tell(kind='planted')\nsys.exit(bool(name))"
    result = run(told_by(tmp_path, body), "--mutant", "no-causal-mask,constant")
    assert result.exit_code == 130, result.output
    assert result.stdout.splitlines()[1] == "interrupted: 1 faults were not tried"


@pytest.mark.parametrize(
    ("body", "arguments", "message"),
    [
        (
            "sys.exit('first\\nlast words')",
            [],
            "does not pass as it is: put that right first (exit status 1): first | last",
        ),
        ("time.sleep(60)", ["--timeout", "0.5"], "(it hung): no output"),
        ("", [], "made no proof_lm.model.ProofLM (or its Python does not read PYTHONPATH"),
        ("", ["--in", "a.b:C"], "called no a.b:C"),
        (
            "if name is not None: tell(kind='unmapped', why='unlike'); sys.exit(1)",
            ["--in", "a.b:C"],
            "no reference can stand in for a.b:C: unlike",
        ),
        (
            "if name is not None: tell(kind='mapped', config=config, absent={}); sys.exit(1)",
            ["--in", "a.b:C"],
            "not with the sound reference answering for a.b:C: the stand-in is not faithful",
        ),
    ],
)
def test_a_suite_that_cannot_be_scored_is_refused(
    body: str, arguments: list[str], message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    command = told_by(tmp_path, body)
    assert message in refused("mutants", "--suite", command, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", ""], "--suite needs the command that runs the tests"),
        (["--suite", "'"], "No closing quotation"),
        (["--suite", "no-such-command-here"], "cannot run 'no-such-command-here': No such file"),
        (
            ["--suite", "true", "--in", "module.Class"],
            "--in must be package.module:Class, got 'module.Class'",
        ),
        (["--suite", "true", "--map", "x.json"], "--map goes with --in"),
        (
            ["--suite", "true", "--in", "a:B", "--map", "absent.json"],
            "--map absent.json: there is no such file",
        ),
        (["--suite", "true", "--only", "causality"], "--only goes without --suite"),
        (["--suite", "true", "--mutant", "nonsense"], "no mutant named 'nonsense'; there are"),
        (["--suite", "true", "--json", "/"], "is a directory; name a file"),
        (["--in", "a:B"], "--in goes with --suite"),
        (["--timeout", "3"], "--timeout goes with --suite"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("mutants", *arguments)
