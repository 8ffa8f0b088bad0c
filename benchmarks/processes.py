"""Whole processes: what ``proof-lm verify`` takes, and the peak memory of one training step."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from harness import Contender, Run, Sample, Task

HERE = Path(__file__).parent
HELD = (0, 3)  # all hold, or something inconclusive; 1 is what a violation gives, and a traceback too


def tasks(tiny: bool) -> list[Task]:
    """The processes; tiny only shrinks the training step."""
    size = ["--tiny"] if tiny else []
    alone = [sys.executable, str(HERE / "run.py"), *size, "--alone", "train-smollm2"]
    return [
        _verify("verify-embedded-quick", ["--level", "quick"]),
        _verify("verify-embedded", []),
        _verify("verify-embedded-thorough", ["--level", "thorough"]),
        _verify("verify-tiny-llama", [f"{HERE / 'tiny_llama.py'}:build"]),
        _verify("verify-smollm2", ["smollm2"], rounds=1),
        Task(
            "memory-smollm2",
            "a process that builds the model and takes two steps of train-smollm2",
            (
                Contender("proof_lm", partial(_process, [*alone, "proof_lm"], (0,))),
                Contender("transformers", partial(_process, [*alone, "transformers"], (0,))),
            ),
            peer="transformers",
            rounds=1,
            warm_up=False,
        ),
    ]


def _verify(name: str, target: list[str], rounds: int = 3) -> Task:
    command = [sys.executable, "-m", "proof_lm", "verify", *target]
    about = f"{name.replace('-', ' ')}: a process, from start to exit"
    contender = Contender("proof_lm", partial(_process, command, HELD))
    return Task(name, about, (contender,), rounds=rounds, warm_up=False)


def _process(command: list[str], accepted: tuple[int, ...]) -> Run:
    def run() -> Sample:
        launcher = [sys.executable, str(HERE / "child.py"), *command]
        told = json.loads(subprocess.run(launcher, check=True, capture_output=True, text=True).stdout)
        if told["exit_status"] not in accepted:
            words = " ".join(command)
            raise RuntimeError(f"{words} ended with exit status {told['exit_status']}: {told['last_words']}")
        return Sample(told["seconds"], peak_mib=told["peak_mib"])

    return run
