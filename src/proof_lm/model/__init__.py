"""The decoder: modules that own parameters and call ``proof_lm.functional``."""

from proof_lm.config import DecoderConfig
from proof_lm.model.cache import KVCache
from proof_lm.model.decoder import ProofLM
from proof_lm.model.init import initialize

__all__ = ["DecoderConfig", "KVCache", "ProofLM", "initialize"]
