"""Where commands write: results to standard output, progress to standard error, files whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from proof_lm.errors import ProofLMError

INTERRUPTED = 130  # the exit status that shells report for SIGINT


class OutputError(ProofLMError, OSError):
    """A result file cannot be written."""


def out() -> Console:
    """Standard output; 100 columns where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=100)


def progress() -> Console:
    """Standard error."""
    return Console(stderr=True)


def require_writable(path: Path) -> None:
    """Before long work: can its result be written?

    Raises:
        OutputError: the folder does not exist, or the path is one.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a directory; name a file")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no directory {path.parent}")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """:func:`write_text` of a JSON document."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes beside the file, then renames: the file is complete or as it was.

    Raises:
        OutputError: the system refuses.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error
