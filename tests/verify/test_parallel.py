"""Work in child processes: in order, no longer than allowed, and without hanging when a child dies."""

import os
import signal
import time

import pytest

from proof_lm.verify.parallel import can_fork, forked

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes cannot be forked on this system")


def test_results_come_in_the_order_of_the_items_from_other_processes() -> None:
    def work(index: int) -> tuple[int, int]:
        time.sleep(0.2 if index == 0 else 0.0)
        return index, os.getpid()

    found = list(forked(work, range(5), jobs=2))
    assert [index for index, _ in found] == list(range(5))
    assert os.getpid() not in {process for _, process in found}


def test_nothing_is_waited_for_beyond_the_deadline() -> None:
    begun = time.monotonic()
    found = list(forked(lambda index: time.sleep(60.0 * index), range(3), jobs=3, deadline=begun + 1.0))
    assert found == [None]
    assert time.monotonic() - begun < 30.0


def test_a_child_that_is_killed_ends_the_results_and_not_the_caller() -> None:
    def work(index: int) -> int:
        if index == 1:
            time.sleep(0.5)  # let the first result out
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    assert list(forked(work, range(4), jobs=1)) == [0]
