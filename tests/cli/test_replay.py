"""``proof-lm replay``: a violation shown again from its file, until the target is mended."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proof_lm.cli import isolation
from proof_lm.cli.app import app
from proof_lm.cli.judging import Emit, Request, judge
from proof_lm.cli.subjects import Source
from proof_lm.verify import CONTRACTS, MUTANTS, ProofSubject, verify
from proof_lm.verify.replay import violation_files
from proof_lm.verify.verdict import EXACT, Measurement
from proof_lm.verify.violation import Origin, Violation, versions

DECODER = """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.vocab_size, self.context_length = 11, 13
        self.embedding = nn.Embedding(11, width)
        self.head = nn.Linear(width, 11)

    def forward(self, token_ids):
        hidden = self.embedding(token_ids)
        print("called")
        return self.head(PAST)

def build(width=6):
    return Decoder(width)

def wrong(width):
    raise KeyError("no such weights")
"""
LEAKS, MENDED = "hidden.flip(1).cumsum(1).flip(1)", "hidden.cumsum(1)"
FOREIGN = Path(__file__).parents[1] / "verify" / "foreign"
MISBEHAVING = Path(__file__).parent / "misbehaving.py"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def write(folder: Path, past: str, name: str = "decoder.py") -> Path:
    (folder / name).write_text(DECODER.replace("PAST", past))
    return folder / name


def save(folder: Path, source: Source, contract: str) -> Path:
    """The file of what the source violates."""
    subject = source.load()
    verification = verify(subject, [c for c in CONTRACTS if c.name == contract], seed=source.seed)
    files = violation_files(
        verification, subject, target=source.target, arguments=source.arguments, map_file=source.map_file
    )
    (folder / f"{contract}.json").write_text(json.dumps(files[f"{contract}.json"]))
    return folder / f"{contract}.json"


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs targets in this process, since another takes seconds to start; it is no matter of what is said."""

    def judged(request: Request, emit: Emit, timeout: float) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            judge(request, emit)

    monkeypatch.setattr("proof_lm.cli.replay.judge_safely", judged)


@pytest.fixture
def leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a leak in ``decoder.py:build``, which lies beside it in the current directory."""
    write(tmp_path, LEAKS)
    monkeypatch.chdir(tmp_path)
    return save(tmp_path, Source("decoder.py:build", 3, ("width=5",)), "causality")


@pytest.mark.usefixtures("at_home")
def test_a_leak_is_shown_again_until_the_file_is_mended(leak: Path, tmp_path: Path) -> None:
    shown = run(leak)
    assert shown.exit_code == 1, shown.output
    assert shown.stdout.startswith("causality: shown again. ")
    assert "decoder.py:build, 1 row of 2 tokens, seed 3" in shown.stdout
    assert "the same number" in shown.stdout
    assert "called" not in shown.stdout
    document = json.loads(leak.read_text())
    assert shown.stdout.count(f"{document['measured']:.9g}") == 2
    assert shown.stdout.count(str(document["last_call"]["token_ids"])) == 2
    assert shown.stdout.count(document["fingerprint"][:16]) == 2

    write(tmp_path, MENDED)
    gone = run(leak)
    assert gone.exit_code == 0, gone.output
    assert gone.stdout.startswith("causality: gone. ")
    assert "weights are not those" not in gone.stdout


@pytest.mark.usefixtures("at_home")
def test_a_given_target_is_replayed_instead_and_other_weights_are_pointed_out(
    leak: Path, tmp_path: Path
) -> None:
    write(tmp_path, LEAKS, "moved.py")
    (tmp_path / "decoder.py").unlink()
    for arguments, note in ((["--arg", "width=5"], False), ([], True), (["--arg", "width=7"], True)):
        shown = run(leak, "moved.py:build", *arguments)
        assert shown.exit_code == 1, shown.output
        assert ("the weights are not those in which it was found" in shown.stdout) is note
        assert "shown again" in shown.stdout


@pytest.mark.usefixtures("at_home")
def test_recorded_arguments_are_replaced_by_given_ones(leak: Path) -> None:
    assert "the weights are not those" not in run(leak, "--arg", "width=5").stdout
    assert "another number" in run(leak, "--arg", "width=7").stdout


def test_a_process_of_its_own_measures_the_same_to_the_bit(
    leak: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(leak, "--json", "-")
    document = json.loads(result.stdout)
    assert (document["format"], document["version"]) == ("proof-lm/replay", 1)
    assert (document["outcome"], document["exit_status"]) == ("shown again", 1)
    assert result.exit_code == 1
    assert document["then"] == json.loads(leak.read_text())
    for key in ("path", "quantity", "where", "measured", "bound", "last_call", "fingerprint", "environment"):
        assert document["now"][key] == document["then"][key]
    assert result.stderr.startswith("causality: shown again. ")
    assert "the same number" in result.stderr
    assert "called" in capfd.readouterr().err  # as the process printed


@pytest.fixture
def misbehaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a file that has a target called with five rows; it is too long to be an argument of a process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the decoders are tiny, and others may be computing too

    def write(name: str) -> Path:
        violation = Violation(
            contract="batch-independence",
            statement="No row moves another. " * 10_000,
            measurement=Measurement("forward", "max |change|", 0.25, EXACT, "row 0"),
            raised="",
            seed=0,
            level="quick",
            probe_seed=0,
            n_rows=5,
            n_tokens=7,
            exhaustive=False,
            last_call=None,
            origin=Origin(f"{MISBEHAVING}:{name}"),
            fingerprint="1" * 64,
            versions=versions(),
        )
        (tmp_path / "violation.json").write_text(json.dumps(violation.to_dict()))
        return tmp_path / "violation.json"

    return write


@pytest.mark.skipif(sys.platform == "win32", reason="processes end otherwise there")
@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("reads_input", 1, "raised EOFError"),
        ("vanishes", 3, "the target's process ended itself with exit status 0"),
        ("kills_itself", 3, "the target's process was killed by SIGKILL"),
        ("hangs", 3, "the target's process did nothing for 5 s (--timeout) and was ended"),
    ],
)
def test_a_target_that_misbehaves_takes_nothing_along(
    name: str,
    status: int,
    said: str,
    misbehaves: Callable[[str], Path],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_child, lost = isolation._one_child, []

    def counted(*given: Any) -> str:
        lost.append(one_child(*given))
        return lost[-1]

    monkeypatch.setattr(isolation, "_one_child", counted)
    shown = run(misbehaves(name), *(["--timeout", 5] if name == "hangs" else []))
    assert shown.exit_code == status, shown.output
    assert shown.stdout.startswith(f"batch-independence: {'shown again' if status == 1 else 'undecided'}. ")
    assert said in " ".join(shown.stdout.split())
    assert ("the weights are not those" in shown.stdout) is (status == 1)  # nothing is known of lost ones
    assert len(lost) == 1  # and it is not tried again
    assert "PRINTED" not in shown.stdout
    assert ("PRINTED" in capfd.readouterr().err) is (name == "reads_input")


def test_a_target_that_raises_while_it_is_loaded_is_refused_with_status_2(
    misbehaves: Callable[[str], Path], refused: Callable[..., str]
) -> None:
    message = "raises_at_once raised RuntimeError: no weights"
    assert message in refused("replay", str(misbehaves("raises_at_once")))


@pytest.mark.usefixtures("at_home")
def test_what_raised_is_shown_as_that(tmp_path: Path) -> None:
    target = write(tmp_path, "hidden.cumsum(1) if token_ids.shape[1] != 13 else [][len(hidden)]")
    file = save(tmp_path, Source(f"{target}:build", 0), "prefix")
    shown = run(file)
    assert shown.exit_code == 1
    assert shown.stdout.count("raised IndexError: list index out of range") == 2
    write(tmp_path, MENDED)
    assert run(file).exit_code == 0


def test_on_a_target_without_that_path_it_is_not_gone(leak: Path) -> None:
    undecided = run(leak, "modern")
    assert undecided.exit_code == 3, undecided.output
    assert "on path forward, is not measured now" in undecided.stdout


@pytest.mark.usefixtures("at_home")
def test_what_cannot_be_asked_any_more_exits_3(leak: Path, tmp_path: Path) -> None:
    (tmp_path / "decoder.py").write_text(
        DECODER.replace("PAST", LEAKS).replace("context_length = 11, 13", "context_length = 11, 1")
    )
    undecided = run(leak)
    assert undecided.exit_code == 3, undecided.output
    assert "causality: undecided" in undecided.stdout
    assert "the case has rows of 2 tokens, and its context is 1" in undecided.stdout


def test_a_preset_needs_no_file_of_its_own(tmp_path: Path) -> None:
    (mutant,) = [m for m in MUTANTS if m.name == "no-causal-mask"]
    subject = ProofSubject("faulty", mutant.build(0))
    (contract,) = [c for c in CONTRACTS if c.name == "prefix"]
    verification = verify(subject, [contract], level="quick")
    files = violation_files(verification, subject, target="modern")
    file = tmp_path / "violation.json"
    file.write_text(json.dumps(files["prefix.json"]))
    gone = run(file)
    assert gone.exit_code == 0, gone.output
    assert "modern, random weights" in gone.stdout
    assert "the weights are not those" in gone.stdout


@pytest.mark.usefixtures("at_home")
def test_a_map_is_found_by_its_name_and_known_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (FOREIGN / "torch_nn_decoder.json").read_text()
    (tmp_path / "map.json").write_text(text)
    target = f"{FOREIGN / 'torch_nn_decoder.py'}:gqa_interleaved"
    file = save(tmp_path, Source(target, 0, (), Path("map.json")), "oracle-logits")
    assert json.loads(file.read_text())["map"]["file"] == "map.json"
    shown = run(file)
    assert shown.exit_code == 1
    assert "the map" not in shown.stdout
    (tmp_path / "map.json").rename(tmp_path / "other.json")
    assert "the map map.json of the violation is not there; give it with --map FILE" in refused(
        "replay", str(file)
    )
    (tmp_path / "other.json").write_text(text + "\n")
    shown = run(file, "--map", "other.json")
    assert shown.exit_code == 1
    assert "the map is not that with which it was found" in shown.stdout


@pytest.mark.usefixtures("at_home")
def test_text_of_a_file_is_shown_as_text(leak: Path) -> None:
    hostile = json.loads(leak.read_text()) | {"statement": "[red]\x1b[2J\n\ud800", "where": "[/]\x1b]0;x\x07"}
    hostile["environment"] = {"torch": "\x1b[31m"}
    leak.write_text(json.dumps(hostile))
    shown = run(leak)
    assert shown.exit_code == 1, shown.output
    assert "[red]\\x1b[2J\\n\\ud800" in shown.stdout
    assert "[/]\\x1b]0;x\\x07" in shown.stdout
    assert "\x1b" not in shown.stdout


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.json"], "cannot read no-such.json: No such file or directory"),
        (["decoder.py"], "decoder.py is no violation file: it is not JSON"),
        (["causality.json", "gone.py:build"], "there is no file gone.py"),
        (["causality.json", "decoder.py:nothing"], "decoder.py has no 'nothing'; it has"),
        (["causality.json", "decoder.py:wrong", "--arg", "width=5"], "raised KeyError"),
        (["causality.json", "--arg", "height=5"], "unexpected keyword argument 'height'"),
        (["causality.json", "--json", "no/such/folder.json"], "there is no directory no/such"),
        (["causality.json", "modern", "--arg", "width=5"], "--arg goes with a callable or hf:DIR"),
    ],
)
def test_wrong_input_is_refused_with_status_2(
    arguments: list[str], message: str, leak: Path, refused: Callable[..., str]
) -> None:
    assert message in refused("replay", *arguments)


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"version": 2}, "a newer proof-lm reads it"),
        ({"contract": "kindness"}, "no contract named 'kindness'"),
        ({"seed": "three"}, "is damaged: seed must be a whole number"),
        ({"target": "away.py:build"}, "there is no file away.py"),
    ],
)
def test_a_damaged_file_is_refused_with_status_2(
    damage: dict[str, Any], message: str, leak: Path, refused: Callable[..., str]
) -> None:
    leak.write_text(json.dumps(json.loads(leak.read_text()) | damage))
    assert message in refused("replay", str(leak))
