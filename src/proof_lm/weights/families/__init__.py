"""One module a family of Hugging Face models: what its config says, and where its tensors lie."""

from proof_lm.weights.families.family import Family
from proof_lm.weights.families.gpt2 import GPT2
from proof_lm.weights.families.llama import LLAMA

FAMILIES: tuple[Family, ...] = (LLAMA, GPT2)

__all__ = ["FAMILIES", "GPT2", "LLAMA", "Family"]
