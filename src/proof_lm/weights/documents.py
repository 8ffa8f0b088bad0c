"""JSON documents beside weights, and the configs in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError, WeightsError


def read_json_object(path: Path) -> dict[str, object]:
    """The JSON object in ``path``.

    Raises:
        WeightsError: the file is missing or unreadable, or holds something else; the message names it.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise WeightsError(f"{path} must hold a JSON object, got {type(fields).__name__}")
    return fields


def first_few(items: list[str], limit: int = 5) -> str:
    """The first items and the number of the others, for a message."""
    more = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {more} more" if more > 0 else "")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def make_config(where: Path, fields: dict[str, Any]) -> DecoderConfig:
    """The config with these fields.

    Raises:
        WeightsError: they make no decoder; the message begins with ``where``.
    """
    try:
        return DecoderConfig.from_dict(fields)
    except ConfigError as error:
        raise WeightsError(f"{where}: {error}") from error
