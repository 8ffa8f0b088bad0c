"""The random state that the subject's code begins from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

NOISE = 20261130  # of every call, so that dropout draws the same


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch's random state from this seed, on every device, and afterwards as it was.

    ``torch.manual_seed`` notes the stack for every device that may yet come, which takes longer than a small model:
    it is asked only where there are others than the CPU.
    """
    with torch.random.fork_rng():
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
        yield
