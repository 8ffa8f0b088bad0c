"""Real weights: Hugging Face directories and GGUF files in, Hugging Face and ProofLM directories out.

Importing this is cheap, and :func:`read_config` needs no torch: the other names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proof_lm.weights.configs import read_config as read_config
    from proof_lm.weights.directory import require_free as require_free
    from proof_lm.weights.gguf import load_gguf as load_gguf
    from proof_lm.weights.hf import load_hf as load_hf
    from proof_lm.weights.hf import save_hf as save_hf
    from proof_lm.weights.load import find_smollm2 as find_smollm2
    from proof_lm.weights.load import load_model as load_model
    from proof_lm.weights.native import load_proof_lm as load_proof_lm
    from proof_lm.weights.native import save_proof_lm as save_proof_lm

_HOMES = {
    "find_smollm2": "load",
    "load_gguf": "gguf",
    "load_hf": "hf",
    "load_model": "load",
    "load_proof_lm": "native",
    "read_config": "configs",
    "require_free": "directory",
    "save_hf": "hf",
    "save_proof_lm": "native",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'proof_lm.weights' has no attribute {name!r}")
    value = getattr(import_module(f"proof_lm.weights.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
