"""The compiled model equals the eager one, without a graph break."""

import os
import subprocess
import sys
from pathlib import Path

import proof_lm


def test_one_graph_gives_the_eager_logits_and_loss() -> None:
    """Excludes a check of values that stays inside the graph."""
    tests, package = Path(__file__).parents[1], Path(proof_lm.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tests, package)))}
    program = tests / "model" / "compiled.py"
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
