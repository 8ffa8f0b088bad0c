"""The command line as a real process."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "proof_lm"]


def test_help_and_version_do_not_import_torch() -> None:
    code = "import sys; from proof_lm.cli.app import app; assert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", code], check=True)
    shown = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("verify", "generate", "sheet", "convert"):
        assert name in shown
    version = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == "proof-lm 0.1.0\n"


def test_sigint_ends_a_run_with_what_was_proved_so_far() -> None:
    process = subprocess.Popen(
        [*COMMAND, "verify", "modern"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # ignored in a shell's background
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "causality" in line:
            break
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "oracle-logits" in stdout
    assert "not decided" in stdout
    assert "Traceback" not in stderr


@pytest.mark.parametrize("target", ["truncated.gguf", "empty-directory", "pickled"])
def test_a_damaged_target_is_refused_with_one_line(target: str, tmp_path: Path) -> None:
    path = tmp_path / target
    if target == "truncated.gguf":
        path.write_bytes(b"GGUF\x03\x00\x00")
    else:
        path.mkdir()
    if target == "pickled":
        (path / "config.json").write_text('{"model_type": "llama"}')
        (path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    result = subprocess.run([*COMMAND, "verify", str(path)], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("proof-lm: ")]
    assert len(errors) == 1
    assert "Traceback" not in result.stderr
    assert target in errors[0]
