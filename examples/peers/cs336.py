"""A submission to Stanford CS336, assignment 1, with the names of its handout: ``cs336_basics.model.TransformerLM``.

    proof-lm verify examples/peers/cs336.py:build --arg path=~/assignment1-basics

A submission with other names is given with ``--arg module=cs336_basics.transformer --arg name=Transformer``.
"""

import sys
from pathlib import Path
from types import ModuleType

from peer import checkout, peer, with_telling_weights
from torch import nn

REPOSITORY = "stanford-cs336/assignment1-basics"


def build(
    path: str | None = None, *, module: str = "cs336_basics.model", name: str = "TransformerLM"
) -> nn.Module:
    """The arguments of the constructor are those that the assignment's tests name."""
    folder = checkout(REPOSITORY, path)
    if folder is not None:
        _without_version(module.split(".")[0], folder)
    make = getattr(peer(module, REPOSITORY, path), name)
    return with_telling_weights(
        make(
            vocab_size=31,
            context_length=29,
            d_model=24,
            num_layers=2,
            num_heads=3,
            d_ff=37,
            rope_theta=10000.0,
        )
    )


def _without_version(package: str, folder: Path) -> None:
    """The package without its ``__init__``, which asks for the version of an installed one: a checkout has none."""
    bare = ModuleType(package)
    bare.__path__ = [str(folder / package)]
    sys.modules.setdefault(package, bare)
