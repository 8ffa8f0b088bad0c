"""Sound decoders that misbehave: when they are given five rows, which one contract does, unless said otherwise."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from verify.foreign import cs336_style

HOARD: list[Tensor] = []


def _acting(act: Callable[[nn.Module, Tensor], Any]) -> nn.Module:
    """A decoder; what the action returns, unless it is None, is returned in place of the logits."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Any:
        return act(module, logits) if len(inputs[0]) == 5 else None

    model = cs336_style.build()
    model.register_forward_hook(hook)
    return model


def raises() -> nn.Module:
    def act(module: nn.Module, logits: Tensor) -> None:
        raise RuntimeError("five rows are too many")

    return _acting(act)


def hangs() -> nn.Module:
    return _acting(lambda module, logits: time.sleep(3600))


def gives_nan() -> nn.Module:
    return _acting(lambda module, logits: logits * torch.nan)


def gives_another_shape() -> nn.Module:
    return _acting(lambda module, logits: logits[:, :-1])


def gives_text() -> nn.Module:
    return _acting(lambda module, logits: "logits")


def exits() -> nn.Module:
    return _acting(lambda module, logits: sys.exit("enough"))


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Embedding(31, 8), nn.Linear(8, 31))


def vanishes() -> nn.Module:
    return _acting(lambda module, logits: os._exit(0))


def kills_itself() -> nn.Module:
    return _acting(lambda module, logits: os.kill(os.getpid(), signal.SIGKILL))


def allocates() -> nn.Module:
    def act(module: nn.Module, logits: Tensor) -> None:
        while True:
            HOARD.append(torch.zeros(2**25))

    return _acting(act)


def reads_input() -> nn.Module:
    """With a prompt."""
    return _acting(lambda module, logits: input("PRINTED "))


def forks() -> nn.Module:
    def act(module: nn.Module, logits: Tensor) -> None:
        os.fork()

    return _acting(act)


def spawns() -> nn.Module:
    """Leaves a process behind, with the number that it prints."""

    def act(module: nn.Module, logits: Tensor) -> None:
        child = subprocess.Popen(["sleep", "600"])
        print("spawned", child.pid, file=sys.stderr, flush=True)  # noqa: T201

    return _acting(act)


def prints() -> nn.Module:
    """At every call."""
    model = cs336_style.build()
    model.register_forward_hook(lambda module, inputs, logits: print("PRINTED", flush=True))  # noqa: T201
    return model


def changes_its_weights() -> nn.Module:
    """At every call."""

    def act(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        with torch.no_grad():
            next(module.parameters()).add_(1.0)

    model = cs336_style.build()
    model.register_forward_hook(act)
    return model


def raises_at_once() -> nn.Module:
    """While it is made."""
    raise RuntimeError("no weights")


def exits_at_once() -> nn.Module:
    """While it is made."""
    os._exit(7)


def hangs_at_once() -> nn.Module:
    """While it is made."""
    time.sleep(3600)
    raise AssertionError


def loads_once() -> nn.Module:
    """Ends its process at five rows, and cannot be made a second time: a file beside it remembers."""
    once = Path(os.environ["LOADED_ONCE"])
    if once.exists():
        raise RuntimeError("made already")
    once.touch()
    return vanishes()
