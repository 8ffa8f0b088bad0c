"""Runs the suite with shapes checked.

jaxtyping and beartype wrap the annotated functions of every package that works on tensors; the oracle checks its own
shapes. A verification makes thousands of small calls, which would take five times as long: there, the tests that are
marked ``shapes_checked`` alone are.
"""

import os
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of started processes: the workers fill the cores
CHECKED = ("functional", "generate", "model", "text", "verify", "weights")

with install_import_hook([f"proof_lm.{name}" for name in CHECKED], "beartype.beartype"):
    import proof_lm.text
    import proof_lm.verify  # noqa: F401 - imports the rest

torch.set_num_threads(1)  # the models are tiny: a second thread costs more than it brings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with real weights first: they take longest, and should not keep one worker alone at the end."""
    slow = {item.path for item in items if item.get_closest_marker("real")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same random states."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - what other libraries may draw from


@pytest.fixture(autouse=True)
def _shapes_checked(request: pytest.FixtureRequest) -> None:
    verifies = request.path.relative_to(Path(__file__).parent).parts[0] in ("cli", "verify")
    marked = request.node.get_closest_marker("shapes_checked") is not None
    jaxtyping.config.update("jaxtyping_disable", verifies and not marked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of mutants: which contract rejected which, what it measured, and on which path."""
    rejections = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "rejection"
    ]
    if not rejections:
        return
    terminalreporter.section("mutants and the contracts that rejected them")
    widths = [max(len(row[column]) for row in rejections) for column in range(3)]
    for mutant, contract, measured, path in rejections:
        cells = (f"{mutant:{widths[0]}}", f"{contract:{widths[1]}}", f"{measured:>{widths[2]}}", path)
        terminalreporter.write_line("  ".join(cells).rstrip(" -"))
