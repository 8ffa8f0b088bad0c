"""ProofLM: a decoder-only Transformer whose every claim can be checked.

``import proof_lm`` is cheap: the public names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proof_lm.config import DecoderConfig as DecoderConfig
    from proof_lm.model import KVCache as KVCache
    from proof_lm.model import ProofLM as ProofLM
    from proof_lm.presets import preset as preset

_HOMES = {
    "DecoderConfig": "proof_lm.config",
    "KVCache": "proof_lm.model",
    "ProofLM": "proof_lm.model",
    "preset": "proof_lm.presets",
}

__version__ = "0.1.0"
__all__ = ["DecoderConfig", "KVCache", "ProofLM", "__version__", "preset"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'proof_lm' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
