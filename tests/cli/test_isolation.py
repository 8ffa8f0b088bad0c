"""Targets that misbehave end with a verdict or a clear error, and take nothing of ours along."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proof_lm.cli.isolation import judge_apart
from proof_lm.cli.judging import Event, Request
from proof_lm.cli.subjects import Source
from proof_lm.errors import TargetError

if sys.platform == "win32":
    pytest.skip("processes end otherwise there", allow_module_level=True)

import resource

TARGETS = Path(__file__).parent / "misbehaving.py"
CONTRACTS = ("causality", "batch-independence", "live-parameters")
MEMORY = 3 * 2**30


def _judged(name: str, contracts: tuple[str, ...] = CONTRACTS, timeout: float = 60.0) -> list[dict[str, Any]]:
    """The results, as the command gets them."""
    events: list[Event] = []
    request = Request(Source(f"{TARGETS}:{name}", 0), contracts, "quick")
    judge_apart(request, events.append, timeout)
    return [event["result"] for event in events if event["event"] == "decided"]


@pytest.mark.parametrize(
    ("name", "verdict", "reason"),
    [
        ("raises", "violated", "raised RuntimeError: five rows are too many"),
        ("gives_nan", "violated", ""),
        ("gives_another_shape", "violated", "gave logits of shape"),
        ("gives_text", "violated", "str"),
        ("exits", "violated", "raised SystemExit: enough"),
        ("reads_input", "violated", "raised EOFError"),
        ("vanishes", "inconclusive", "the target's process ended itself with exit status 0"),
        ("kills_itself", "inconclusive", "the target's process was killed by SIGKILL"),
        ("hangs", "inconclusive", "the target's process did nothing for 15 s (--timeout) and was ended"),
        ("forks", "holds", ""),
    ],
)
def test_one_contract_is_affected_and_the_others_are_decided(name: str, verdict: str, reason: str) -> None:
    results = _judged(name, timeout=15.0 if name == "hangs" else 120.0)
    assert [result["name"] for result in results] == list(CONTRACTS)
    first, second, third = results
    assert first["verdict"] == third["verdict"] == "holds", results
    assert second["verdict"] == verdict, second
    assert reason in second["reason"]


def test_a_target_that_allocates_without_end_fails_alone() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, before[1]))
    try:
        first, second, _ = _judged("allocates")
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert first["verdict"] == "holds"
    assert second["verdict"] == "inconclusive"
    assert "memory" in second["reason"]


def test_what_the_target_has_started_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    results = _judged("spawns")
    assert {result["verdict"] for result in results} == {"holds"}
    spawned = [int(pid) for pid in re.findall(r"spawned (\d+)", capfd.readouterr().err)]
    assert spawned
    deadline = time.monotonic() + 10.0
    while any(_runs(pid) for pid in spawned):
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.05)


def test_changed_weights_are_a_violation() -> None:
    (result,) = _judged("changes_its_weights", ("no-side-effects",))
    assert result["verdict"] == "violated"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exits_at_once", "while it was loaded, its process ended itself with exit status 7"),
        (
            "hangs_at_once",
            r"while it was loaded, its process did nothing for 15 s \(--timeout\) and was ended",
        ),
        ("missing", "has no 'missing'; it has raises, hangs"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_a_clear_error(name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        _judged(name, timeout=15.0)


def test_no_more_than_three_processes_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proof_lm.cli.isolation.MAX_LOSSES", 1)
    results = _judged("vanishes")
    assert [result["verdict"] for result in results] == ["holds", "inconclusive"]


def test_what_was_decided_is_kept_where_the_target_cannot_be_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADED_ONCE", str(tmp_path / "once"))
    events: list[Event] = []
    judge_apart(Request(Source(f"{TARGETS}:loads_once", 0), CONTRACTS, "quick"), events.append)
    verdicts = [event["result"]["verdict"] for event in events if event["event"] == "decided"]
    assert verdicts == ["holds", "inconclusive"]
    assert "made already" in events[-1]["message"]


def test_what_the_target_prints_stays_off_standard_output(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proof_lm", "verify", f"{TARGETS}:prints", "--only", "causality"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "PRINTED" in process.stderr
    assert "PRINTED" not in process.stdout
    assert "1 holds; 1 of 1 contracts decided" in process.stdout


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
