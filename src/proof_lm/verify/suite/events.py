"""What the processes of a test run tell of the decoders that they met: one JSON object a line, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

Kind = Literal["made", "planted", "mapped", "unmapped", "refused", "passed"]
"""made: a ProofLM of this config. mapped: a decoder of somebody else's, with its config and what it lacks. unmapped:
one for which there is no stand-in. planted: with the fault. refused: the fault does not fit. passed: a call that the
decoder answered itself."""


class Events:
    """Appends to the file; the same thing is told once by each process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: set[str] = set()

    def tell(self, kind: Kind, **what: Any) -> None:
        """One event, with what belongs to it."""
        line = json.dumps({"kind": kind, **what}, sort_keys=True)
        if line in self.told:
            return
        self.told.add(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_events(path: Path) -> list[Mapping[str, Any]]:
    """What all processes told, in the order in which it came; a line that was cut off is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # its process was killed while it wrote
            continue
        if event not in events:
            events.append(event)
    return events
