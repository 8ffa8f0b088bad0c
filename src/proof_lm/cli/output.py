"""Where commands write: results to standard output, progress to standard error, files whole or not at all.

A file that is named ``-`` is standard output: what people read goes to standard error then.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from proof_lm.errors import ProofLMError

INTERRUPTED = 130  # the exit status that shells report for SIGINT
STANDARD_OUTPUT = Path("-")


class OutputError(ProofLMError, OSError):
    """A result file cannot be written."""


def out(*files: Path | None) -> Console:
    """Where people read the result: standard output, or standard error where one of the files takes the former; 100
    columns where it is no terminal."""
    is_taken = STANDARD_OUTPUT in files
    console = Console(stderr=is_taken)
    return console if console.is_terminal else Console(stderr=is_taken, width=100)


def progress() -> Console:
    """Standard error."""
    return Console(stderr=True)


def require_writable(path: Path) -> None:
    """Before long work: can its result be written?

    Raises:
        OutputError: the folder does not exist, or the path is one.
    """
    if path == STANDARD_OUTPUT:
        return
    if path.is_dir():
        raise OutputError(f"{path} is a directory; name a file")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no directory {path.parent}")


def require_all_writable(files: Sequence[Path]) -> None:
    """:func:`require_writable` of each, and that no two are the same.

    Raises:
        OutputError: one cannot be written, or is named twice.
    """
    for file in files:
        require_writable(file)
    resolved = [file.resolve() for file in files]
    for file in files:
        if resolved.count(file.resolve()) > 1:
            place = "standard output (-)" if file == STANDARD_OUTPUT else file
            raise OutputError(f"{place} is named for two reports; give each a file of its own")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """:func:`write_text` of a JSON document."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes beside the file, then renames: the file is complete or as it was. Standard output, a pipe and a device
    are written to as they are.

    Raises:
        OutputError: the system refuses.
    """
    try:
        if path == STANDARD_OUTPUT:
            typer.echo(text.encode(), nl=False)
            return
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
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
        place = "standard output" if path == STANDARD_OUTPUT else path
        raise OutputError(f"cannot write {place}: {error.strerror}") from error
