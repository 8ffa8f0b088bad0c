"""What the tests of commands share."""

import os
import sys
from collections.abc import Callable

import pytest

from proof_lm.cli.app import main

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the command find what lies beside the tests, as the tests do."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs the real entry point, which must refuse with status 2 and one line; gives that line."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["proof-lm", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = captured.err.splitlines()
        assert len(lines) == 1, captured.err
        assert lines[0].startswith("proof-lm: ")
        return lines[0]

    return run
