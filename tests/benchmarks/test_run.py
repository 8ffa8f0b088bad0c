"""The benchmarks run, in a size that says nothing about speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "transformers", reason="the benchmarks compare with transformers (pip install proof-lm[hf])"
)
ROOT = Path(__file__).parents[2]
TASKS = ("train-char-gpt2", "decode-8")


def test_one_tiny_round(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    chosen = [word for name in TASKS for word in ("--only", name)]
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--tiny", "--rounds", "1", *chosen]
    ended = subprocess.run(
        [*command, "--json", str(written)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr

    document = json.loads(written.read_text(encoding="utf-8"))
    assert tuple(task["task"] for task in document["tasks"]) == TASKS
    for task in document["tasks"]:
        assert task["task"] in ended.stdout
        assert all(contender["median_s"] > 0 for contender in task["contenders"])
        if task["task"].startswith(("prefill", "decode")):
            assert all(contender["same_outcome_as_peer"] for contender in task["contenders"])
