"""The files that a verification can be written to, beside what is shown."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof_lm.cli.output import STANDARD_OUTPUT, OutputError, require_all_writable, write_json, write_text
from proof_lm.errors import TargetError

if TYPE_CHECKING:
    from proof_lm.verify import Verification


def read_matrix(path: Path) -> Mapping[str, Any]:
    """The kill matrix in a file.

    Raises:
        TargetError: there is none.
    """
    try:
        matrix = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TargetError(f"cannot read the kill matrix {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TargetError(f"{path} is no kill matrix: it is not JSON") from error
    if not isinstance(matrix, dict) or matrix.get("format") != "proof-lm/kill-matrix":
        raise TargetError(f"{path} is no kill matrix; `proof-lm mutants --json FILE` writes one")
    return matrix


@dataclass(frozen=True)
class ReportFiles:
    """Where the user wants a verification to be written; None for what is not wanted.

    Attributes:
        json: all evidence.
        junit: one test case per contract.
        markdown: a summary.
        html: one page with everything.
        baseline: the verdicts, to hold later ones against.
        violations: a folder, for one file per violation.
        matrix: a kill matrix that the page shows.
    """

    json: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    baseline: Path | None = None
    violations: Path | None = None
    matrix: Mapping[str, Any] | None = None

    @property
    def named(self) -> list[Path]:
        """The files; not the folder."""
        files = (self.json, self.junit, self.markdown, self.html, self.baseline)
        return [file for file in files if file is not None]

    def require_writable(self) -> None:
        """Before long work: can all of it be written?

        Raises:
            OutputError: a folder does not exist, or a file is one; two are the same.
        """
        require_all_writable(self.named)
        if self.violations is not None:
            if self.violations == STANDARD_OUTPUT:
                raise OutputError("standard output (-) is no directory for the violations; name one")
            if self.violations.exists() and not self.violations.is_dir():
                raise OutputError(f"{self.violations} is a file; name a directory for the violations")
            if not self.violations.parent.is_dir():
                raise OutputError(
                    f"cannot write {self.violations}: there is no directory {self.violations.parent}"
                )

    def write(self, verification: Verification, violations: Mapping[str, dict[str, Any]]) -> None:
        """Writes what is wanted; ``violations`` are documents by file name.

        Raises:
            OutputError: the system refuses.
        """
        from proof_lm.verify import baseline
        from proof_lm.verify.report import to_dict, to_html, to_junit, to_markdown

        if self.json is not None:
            write_json(self.json, to_dict(verification))
        if self.junit is not None:
            write_text(self.junit, to_junit(verification))
        if self.markdown is not None:
            write_text(self.markdown, to_markdown(verification))
        if self.html is not None:
            command = shlex.join(["proof-lm", *sys.argv[1:]])
            write_text(self.html, to_html(verification, command=command, matrix=self.matrix))
        if self.baseline is not None:
            write_json(self.baseline, baseline.save(verification))
        if self.violations is not None and violations:
            self._write_violations(self.violations, violations)

    def _write_violations(self, folder: Path, violations: Mapping[str, dict[str, Any]]) -> None:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make {folder}: {error.strerror}") from error
        for name, document in violations.items():
            write_json(folder / name, document)
