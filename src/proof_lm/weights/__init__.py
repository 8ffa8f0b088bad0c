"""Real weights: Hugging Face directories and GGUF files in, Hugging Face and ProofLM directories out."""

from proof_lm.weights.directory import require_free
from proof_lm.weights.gguf import load_gguf
from proof_lm.weights.hf import load_hf, save_hf
from proof_lm.weights.load import find_smollm2, load_model, read_config
from proof_lm.weights.native import load_proof_lm, save_proof_lm

__all__ = [
    "find_smollm2",
    "load_gguf",
    "load_hf",
    "load_model",
    "load_proof_lm",
    "read_config",
    "require_free",
    "save_hf",
    "save_proof_lm",
]
