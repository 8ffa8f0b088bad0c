"""The process in which a target is judged: ``python -m proof_lm.cli.child EVENTS REQUEST``, two files."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from proof_lm.cli.judging import Event, Request, judge
from proof_lm.errors import ProofLMError

SHARE = 0.9  # of the memory that is available


def main(events: str, request: str) -> None:
    """Judges as the JSON of a request says, and appends what happens to the file ``events``, one JSON object a line:
    ``ready`` first, before the target's code runs, and ``done`` last."""
    import proof_lm.verify  # noqa: F401 - takes seconds, which are not the target's

    own = os.getpid()
    _limit_memory()
    with Path(events).open("a", encoding="utf-8") as file:

        def emit(event: Event) -> None:
            if os.getpid() != own:  # the target forked itself: its copy tells nothing
                os._exit(0)
            file.write(json.dumps(event, allow_nan=False) + "\n")
            file.flush()

        emit({"event": "ready"})
        try:
            judge(Request.from_dict(json.loads(request)), emit)
        except ProofLMError as error:
            emit({"event": "failed", "message": str(error)})
        emit({"event": "done"})


def _limit_memory() -> None:
    """Lets a target that allocates without end fail alone, where the system can limit that."""
    try:
        import resource

        lines = Path("/proc/meminfo").read_text().splitlines()
    except (ImportError, OSError):
        return
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [int(SHARE * available), *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8"))
