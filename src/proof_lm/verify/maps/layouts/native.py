"""ProofLM's own names, under a class of somebody else's."""

from __future__ import annotations

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts.layout import Layout
from proof_lm.weights.names import Source


def _read_config(foreign: Foreign) -> DecoderConfig:
    config = getattr(foreign.module, "config", None)
    if not isinstance(config, DecoderConfig):
        raise MapError("the module has no config attribute that is a DecoderConfig")
    return config


PROOF_LM = Layout("ProofLM", Source, _read_config)
