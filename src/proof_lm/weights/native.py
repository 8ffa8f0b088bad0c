"""A ProofLM directory: ``config.json`` with every field, and ``model.safetensors`` under our own names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from proof_lm.model import ProofLM
from proof_lm.weights.configs import FORMAT, VERSION, read_native_config
from proof_lm.weights.directory import new_directory, write_tensors, write_texts
from proof_lm.weights.documents import read_json_object
from proof_lm.weights.mapping import load_mapped
from proof_lm.weights.names import Source
from proof_lm.weights.store import SafetensorsStore


def save_proof_lm(
    model: ProofLM, directory: str | Path, *, extra_files: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write ``model`` so that :func:`load_proof_lm` gives the same config and the same bits back.

    Args:
        model: any decoder; each parameter keeps its dtype.
        directory: a new or empty directory; it appears whole or not at all.
        extra_files: texts to put beside the weights by file name, such as a tokenizer's.

    Raises:
        WeightsError: the directory holds files already or cannot be written, or the model has no values.
    """
    document = {"format": FORMAT, "version": VERSION, "config": model.config.to_dict()}
    with new_directory(directory) as draft:
        (draft / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        write_tensors(draft, model.state_dict())
        write_texts(draft, extra_files)


def load_proof_lm(directory: str | Path, *, dtype: torch.dtype | None = None) -> ProofLM:
    """The model that :func:`save_proof_lm` wrote, on the CPU and in eval mode.

    Args:
        directory: where.
        dtype: dtype of the parameters; None keeps each as it is stored, bit by bit.

    Raises:
        WeightsError: the directory is no ProofLM directory, is of a later version, or is damaged.
    """
    directory = Path(directory)
    path = directory / "config.json"
    config = read_native_config(path, read_json_object(path))
    return load_mapped(config, SafetensorsStore(directory), Source, dtype=dtype)
