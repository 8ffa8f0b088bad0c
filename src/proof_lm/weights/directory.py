"""Directories that appear whole or not at all."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from proof_lm.errors import WeightsError


@contextmanager
def new_directory(target: str | Path) -> Iterator[Path]:
    """An empty directory beside ``target``, renamed to it at the end; removed if an error comes first.

    Raises:
        WeightsError: ``target`` exists and is not an empty directory, or cannot be written.
    """
    target = Path(target)
    require_free(target)
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        draft.mkdir(parents=True)
        yield draft
        if target.exists():
            target.rmdir()
        draft.rename(target)
    except OSError as error:
        raise WeightsError(f"cannot write {target}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_tensors(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``model.safetensors`` as transformers expects it.

    Raises:
        WeightsError: a tensor is on the meta device and so holds no values.
    """
    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise WeightsError(f"{name} is on the meta device and holds no values to save")
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(on_cpu, directory / "model.safetensors", metadata={"format": "pt"})


def write_texts(directory: Path, texts: Mapping[str, str]) -> None:
    """Write each text, in UTF-8, under its file name."""
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")


def require_free(target: Path) -> None:
    """Whether a directory may be written there: nothing is, or an empty directory.

    Raises:
        WeightsError: something else is there.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise WeightsError(f"{target} exists and is not a directory")
    if target.is_dir() and any(target.iterdir()):
        raise WeightsError(f"{target} already holds files; choose a new directory or remove them first")
