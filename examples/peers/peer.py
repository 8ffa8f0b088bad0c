"""What every target of this folder needs: the peer's code from where the user has it, and telling weights."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from proof_lm.errors import TargetError

PEERS = "PROOF_LM_PEERS"  # a folder of checkouts, each under its repository's name
TABLES = ("emb", "wte", "wpe")  # in the names of parameters that tokens or positions are looked up in


def checkout(repository: str, path: str | None) -> Path | None:
    """The folder at ``path``; else the repository's in the folder that PROOF_LM_PEERS names; else None.

    Raises:
        TargetError: a folder is named and is not there.
    """
    if path is None and PEERS not in os.environ:
        return None
    folder = Path(path or Path(os.environ[PEERS]) / repository.split("/")[1]).expanduser()
    if not folder.is_dir():
        raise TargetError(f"there is no folder {folder}; {_advice(repository)}")
    return folder


def peer(place: str, repository: str, path: str | None, *, root: str = "") -> ModuleType:
    """A module of the peer, unmodified.

    Args:
        place: a dotted name; or a file such as ``model.py``, which is loaded alone, under a name of its own.
        repository: ``owner/name`` on GitHub.
        path: of the checkout; see :func:`checkout`. Without one, an installed package is imported.
        root: the folder inside the checkout that holds ``place``.

    Raises:
        TargetError: the peer, or a package that it imports, is not there.
    """
    folder = checkout(repository, path)
    try:
        if not place.endswith(".py"):
            _search(folder / root if folder is not None else None)
            return importlib.import_module(place)
        if folder is None:
            raise TargetError(f"where is {repository}? {_advice(repository)}")
        return _load(folder / root / place, "peer_" + repository.split("/")[1].replace("-", "_"))
    except (ImportError, FileNotFoundError) as error:
        raise TargetError(
            f"{place} of {repository} cannot be imported ({error}); {_advice(repository)}"
        ) from error


def _search(folder: Path | None) -> None:
    """Packages are looked for in this folder first; not beside this file, where targets bear the packages' names."""
    here = str(Path(__file__).parent)
    first = [] if folder is None else [str(folder)]
    sys.path[:] = [*first, *(place for place in sys.path if place not in (here, *first))]


def _load(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _advice(repository: str) -> str:
    return (
        f"git clone https://github.com/{repository}, give its folder with --arg path=DIR (or the folder of all "
        f"peers in {PEERS}), and install what it imports"
    )


@torch.no_grad()
def with_telling_weights(model: nn.Module) -> nn.Module:
    """The model with random weights on which faults show: initial ones (gains of 1, biases of 0) hide missing parts.

    Tables are N(0, 1), other matrices N(0, 1/d_in), and vectors their initial values + N(0, 0.3^2).
    """
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, dtype=torch.float64).to(parameter.dtype)
        if parameter.dim() < 2:
            parameter.add_(0.3 * noise)
        else:
            parameter.copy_(noise if any(t in name for t in TABLES) else noise / parameter.shape[-1] ** 0.5)
    return model
