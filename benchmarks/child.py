"""Runs a command and prints its wall time, peak memory and exit status as JSON.

A process of its own, because Linux counts the memory of the process that started a command into the
command's peak: started from a benchmark that holds models, every peak would be the benchmark's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time


def main(command: list[str]) -> None:
    """Waits for the command; what it said last on standard error is kept for the message of a failure."""
    with tempfile.TemporaryFile(mode="w+") as errors:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    told = {
        "seconds": seconds,
        "peak_mib": usage.ru_maxrss / per_mib,
        "exit_status": os.waitstatus_to_exitcode(status),
        "last_words": lines[-1] if lines else "nothing on standard error",
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
