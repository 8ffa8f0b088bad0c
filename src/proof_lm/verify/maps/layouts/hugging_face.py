"""Models of transformers, by their ``config``: the families that the weights readers know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError, WeightsError
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts.layout import Layout
from proof_lm.weights.families import FAMILIES, Family
from proof_lm.weights.families.family import ConfigFields

_DROPOUT = ("attention_dropout", "embd_pdrop", "attn_pdrop", "resid_pdrop")  # nothing in evaluation


def _layout(family: Family) -> Layout:
    def read_config(foreign: Foreign) -> DecoderConfig:
        config: Any = getattr(foreign.module, "config", None)
        fields = config.to_dict() if hasattr(config, "to_dict") else None
        if not isinstance(fields, dict):
            raise MapError("the module has no config with to_dict(), as models of transformers have")
        model_type = fields.get("model_type")
        if model_type not in family.model_types:
            raise MapError(f"model_type is {model_type!r}; those read are {', '.join(family.model_types)}")
        fields |= {name: 0.0 for name in _DROPOUT if name in fields}
        try:
            return family.read_config(ConfigFields(Path(type(config).__name__), fields))
        except WeightsError as error:
            raise MapError(str(error)) from error

    return Layout(f"Hugging Face {family.name}", family.source_of, read_config)


HUGGING_FACE: tuple[Layout, ...] = tuple(_layout(family) for family in FAMILIES)
