"""How many threads PyTorch computes with while small models are judged."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(wanted: int | None) -> Iterator[None]:
    """That many threads for the time being (None: as they are): matrices of a small model lose more by a second
    thread than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
