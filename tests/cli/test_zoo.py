"""``proof-lm zoo``: each class in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from proof_lm.cli import zoo
from proof_lm.cli.app import app
from proof_lm.cli.judging import Request
from proof_lm.cli.subjects import Source
from proof_lm.errors import TargetError
from proof_lm.verify import ContractResult, Measurement, Verdict, at_level
from proof_lm.verify.report import result_to_dict

pytest.importorskip("transformers", reason="the extra hf is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["zoo", *arguments])


Stand = Callable[[Callable[["Told"], None]], None]


class Told:
    """What a stand-in for the judging process may do: decide contracts, tell other events."""

    def __init__(self, events: Path, errors: Path, request: Request) -> None:
        self.file, self.errors, self.request = events.open("a"), errors, request

    def tell(self, **event: object) -> None:
        print(json.dumps(event), file=self.file, flush=True)

    def decide(self, contract: str, verdict: str, path: str = "eager", measured: float = 1.0) -> None:
        reach = Measurement(path, "x", measured, None)
        self.tell(
            event="decided",
            result=result_to_dict(ContractResult(contract, "S.", Verdict(verdict), (reach,))),
        )


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Runs the given function in the place of each judging process."""

    def use(act: Callable[[Told], None]) -> None:
        def judge(*arguments: Any) -> None:
            os.setsid()
            act(Told(*arguments))

        monkeypatch.setattr(zoo, "_judge", judge)

    return use


NAMES = [contract.name for contract in at_level("quick")]


def all_but(told: Told, **verdicts: str) -> None:
    """Everything holds but what is named, by verdict."""
    named = {contract: verdict for verdict, contracts in verdicts.items() for contract in contracts.split()}
    for name in NAMES:
        told.decide(name, named.get(name, "holds"), measured=float(named.get(name) != "violated"))


def test_a_class_is_judged_on_both_backends(tmp_path: Path) -> None:
    file = tmp_path / "zoo.json"
    result = run("--only", "GPT2LMHeadModel", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "2 class-backend pairs decided: 2 holds, 0 violated, 0 inconclusive" in result.stdout
    assert "1/1 GPT2LMHeadModel: eager holds, sdpa holds" in result.stderr
    assert "about 0 s left" in result.stderr
    (found,) = json.loads(file.read_text())["classes"]
    assert "oracle-logits" in found["backends"]["sdpa"]["contracts"]["holds"]


def test_something_violated_exits_1(stand_in: Stand) -> None:
    stand_in(lambda told: told.decide("causality", "violated", "sdpa", 0.0))
    result = run("--only", "LlamaForCausalLM")
    assert result.exit_code == 1
    assert "LlamaForCausalLM: unexplained: causality: sdpa: x = 0" in result.stdout


@pytest.mark.parametrize(
    ("name", "verdicts", "status"),
    [
        ("XLMWithLMHeadModel", {"violated": "padding"}, 0),  # explained
        ("XLMWithLMHeadModel", {"violated": "padding cache"}, 1),
        ("XLMWithLMHeadModel", {}, 1),  # explained, and no longer found
        ("XLMWithLMHeadModel", {"violated": "padding", "inconclusive": "cache"}, 3),
        ("LlamaForCausalLM", {"inconclusive": "cache"}, 3),
        ("LlamaForCausalLM", {"violated": "padding", "inconclusive": "cache"}, 1),
        ("LlamaForCausalLM", {}, 0),
    ],
)
def test_the_exit_status_tells_whether_anything_is_left_to_look_at(
    name: str, verdicts: dict[str, str], status: int, stand_in: Stand
) -> None:
    stand_in(lambda told: all_but(told, **verdicts))
    assert run("--only", name).exit_code == status


def test_standard_output_can_carry_the_document_alone(stand_in: Stand) -> None:
    stand_in(all_but)
    result = run("--only", "LlamaForCausalLM", "--json", "-")
    assert json.loads(result.stdout)["pairs"] == {"holds": 1, "violated": 0, "inconclusive": 0}
    assert "1 class-backend pair decided" in result.stderr


def test_a_violation_is_kept_and_replayed_on_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, folder = tmp_path / "zoo.html", tmp_path / "violations"
    result = run("--only", "RwkvForCausalLM", "--html", str(page), "--save-violations", str(folder))
    assert result.exit_code == 0, result.output  # all of it is explained
    found = ("input-gradients", "live-parameters", "padding", "prefix")
    assert sorted(file.name for file in folder.iterdir()) == [
        f"RwkvForCausalLM-{name}.json" for name in found
    ]
    assert "which gives logits of shape (B, B, V)" in page.read_text()
    monkeypatch.setattr(Source, "is_foreign", False)  # in this process, which has transformers already
    replayed = CliRunner().invoke(app, ["replay", str(folder / "RwkvForCausalLM-prefix.json")])
    assert replayed.exit_code == 1, replayed.output
    assert replayed.stdout.startswith("prefix: shown again.")
    assert "hf-tiny:RwkvForCausalLM" in replayed.stdout


def test_violations_are_recorded_only_when_wanted_and_it_is_said_where_that_failed(
    stand_in: Stand, tmp_path: Path
) -> None:
    def act(told: Told) -> None:
        all_but(told, violated="padding")
        if told.request.violations:
            die(told)

    stand_in(act)
    without = run("--only", "XLMWithLMHeadModel")
    assert "cut short" not in without.stdout
    wanted = run("--only", "XLMWithLMHeadModel", "--save-violations", str(tmp_path / "violations"))
    assert "cut short: XLMWithLMHeadModel: its process was killed by SIGKILL" in wanted.stdout
    assert not (tmp_path / "violations").exists()


def test_a_process_that_takes_too_long_is_killed_with_its_own_and_what_it_decided_counts(
    stand_in: Stand, tmp_path: Path
) -> None:
    sign = tmp_path / "alive"

    def hang(told: Told) -> None:
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(2); open({str(sign)!r}, 'w')"])
        told.decide("causality", "holds")
        time.sleep(60)

    stand_in(hang)
    result = run("--only", "LlamaForCausalLM", "--timeout", "1")
    assert result.exit_code == 3
    assert "cut short: LlamaForCausalLM: took longer than 1 s" in result.stdout
    assert "0 holds, 0 violated, 1 inconclusive" in result.stdout
    time.sleep(1.5)
    assert not sign.exists()


def refuse(told: Told) -> None:
    told.tell(event="failed", message="hf-tiny:LlamaForCausalLM: no logits")


def die(told: Told) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(told: Told) -> None:
    told.errors.write_text("some\nout of tea\n\n")
    sys.exit(3)


def stop_while_writing(told: Told) -> None:
    told.file.write('{"event": "deci')


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (refuse, "no logits"),
        (die, "its process was killed by SIGKILL, as for want of memory"),
        (leave, "its process ended itself with exit status 3: out of tea"),
        (stop_while_writing, "its process ended itself with exit status 0: and said nothing"),
    ],
)
def test_what_cannot_run_says_why(act: Callable[[Told], None], reason: str, stand_in: Stand) -> None:
    stand_in(act)
    result = run("--only", "LlamaForCausalLM")
    assert result.exit_code == 3
    assert f"not runnable: LlamaForCausalLM: {reason}" in result.stdout


def test_an_interrupted_run_reports_what_is_done_and_leaves_nothing_running(
    stand_in: Stand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def act(told: Told) -> None:
        all_but(told)
        if "Llama" in str(told.request.source.target):
            time.sleep(60)

    stand_in(act)
    killed: list[Any] = []
    kill, judged = zoo._Process.kill, zoo.judge_classes

    def until_the_first(*arguments: Any, **options: Any) -> Any:
        entries = judged(*arguments, **options)
        yield next(entries)
        entries.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "judge_classes", until_the_first)
    monkeypatch.setattr(zoo._Process, "kill", lambda self: (kill(self), killed.append(self)))
    page = tmp_path / "zoo.html"
    result = run("--only", "GPT2LMHeadModel,LlamaForCausalLM", "--jobs", "2", "--html", str(page))
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "1 class, 0 not runnable, 1 not come to" in result.stdout
    assert "interrupted before these were judged: LlamaForCausalLM." in page.read_text()
    assert {process.name for process in killed} == {"GPT2LMHeadModel", "LlamaForCausalLM"}
    assert all(process.has_ended for process in killed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "LamaForCausalLM"], "near it are LlamaForCausalLM"),
        (["--level", "deep"], "no level named 'deep'; there are quick, standard, thorough"),
        (["--json", "/no/such/folder/file.json"], "there is no directory /no/such/folder"),
        (["--html", "/no/such/folder/file.html"], "there is no directory /no/such/folder"),
        (["--save-violations", "/no/such/folder"], "there is no directory /no/such"),
        (["--save-violations", __file__], "is a file; name a directory"),
        (["--json", "both", "--html", "both"], "both is named for two reports"),
    ],
)
def test_wrong_input_is_refused(arguments: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("zoo", *arguments)


def test_a_tiny_class_is_a_target() -> None:
    subject = Source("hf-tiny:OPTForCausalLM", 0).load()
    assert (subject.name, subject.paths) == ("hf-tiny:OPTForCausalLM", ("eager", "sdpa"))
    assert subject.build is not None
    made = subject.build().get_parameter("model.decoder.final_layer_norm.weight")
    assert torch.equal(made, torch.ones_like(made))  # as its author begins, not as it is judged
    with pytest.raises(TargetError, match="near it are OPTForCausalLM"):
        Source("hf-tiny:OTPForCausalLM", 0).load()
