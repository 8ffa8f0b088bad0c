"""The main job on real weights: SmolLM2-135M, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof_lm.errors import WeightsError
from proof_lm.weights import find_smollm2

MEMORY_LIMIT_KIB = 6 * 1024 * 1024
CHOSEN = ("oracle-logits", "oracle-gradients", "causality", "cache")
"""Those that tell most; ``make verify`` proves all of them, in minutes."""


@pytest.fixture
def smollm2() -> Path:
    """The weights file; the test is skipped where the package is not installed."""
    try:
        return find_smollm2()
    except WeightsError as error:
        pytest.skip(str(error))


@pytest.mark.real
def test_smollm2_holds_in_less_than_6_gib_and_shows_progress(smollm2: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence.json"
    command = [sys.executable, "-m", "proof_lm", "verify", str(smollm2), "--level", "quick"]
    command += ["--only", ",".join(CHOSEN), "--json", str(evidence)]
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    shown = (tmp_path / "stderr").read_text()
    assert process.returncode == 0, shown
    assert usage.ru_maxrss < MEMORY_LIMIT_KIB
    document = json.loads(evidence.read_text())
    verdicts = {c["name"]: c["verdict"] for c in document["contracts"]}
    assert verdicts == dict.fromkeys(CHOSEN, "holds")
    assert shown.count("after") == len(CHOSEN)
