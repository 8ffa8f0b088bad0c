"""Work in several processes that inherit what they work on."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Result = TypeVar("Result")

_inherited: Callable[[int], object] | None = None  # children take it from memory: faults do not pickle


def can_fork() -> bool:
    """Whether processes can be forked safely here."""
    return "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"


def kill_group(leader: int) -> None:
    """Kills the process, and whatever it has started in the group that it leads; where systems know groups."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def forked(
    work: Callable[[int], Result], items: Sequence[object], jobs: int, deadline: float | None = None
) -> Iterator[Result]:
    """``work(index)`` for the index of each item, in order, ``jobs`` at a time, each in a child process.

    Ends early at the deadline (of ``time.monotonic``), and where a child was killed. Only results are pickled.
    """
    global _inherited
    _inherited = work
    executor = ProcessPoolExecutor(min(jobs, len(items)), multiprocessing.get_context("fork"))
    try:
        for pending in [executor.submit(_call, index) for index in range(len(items))]:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            yield pending.result(left)  # type: ignore[misc]  # what work gives
    except (TimeoutError, BrokenProcessPool):
        return
    finally:
        _inherited = None
        for process in list((executor._processes or {}).values()):
            process.terminate()  # what is not done by now is not wanted
        executor.shutdown(cancel_futures=True)


def _call(index: int) -> object:
    assert _inherited is not None
    return _inherited(index)
