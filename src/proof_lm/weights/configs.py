"""The config of a model on disk, without its weights and without torch."""

from __future__ import annotations

from pathlib import Path

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.weights.documents import make_config, read_json_object
from proof_lm.weights.families import FAMILIES, Family
from proof_lm.weights.families.family import ConfigFields

FORMAT, VERSION = "proof-lm", 1


def read_config(path: str | Path) -> DecoderConfig:
    """The config of the model at ``path``, for its shapes; its weights are not read, and need not be there.

    A scaling of rotary angles, with which :func:`load_model` refuses a Hugging Face directory, changes no shape and is
    left out.

    Args:
        path: a ProofLM directory, a Hugging Face directory, the ``config.json`` of one, what
            ``DecoderConfig.to_json`` wrote, or a .gguf file.

    Raises:
        WeightsError: there is no model at ``path``, it is damaged, or ProofLM cannot express it.
    """
    path = Path(path)
    if not path.exists():
        raise WeightsError(f"{path} does not exist")
    if path.suffix == ".gguf":
        from proof_lm.weights.gguf import read_gguf_config  # its reader needs torch

        return read_gguf_config(path)
    if not (path.is_dir() or path.suffix == ".json"):
        raise WeightsError(
            f"{path} is neither a directory with config.json, nor such a file, nor a .gguf file"
        )
    file = path / "config.json" if path.is_dir() else path
    document = read_json_object(file)
    if document.get("format") == FORMAT:
        return read_native_config(file, document)
    if "d_model" in document:
        return make_config(file, document)
    return read_hf_config(file, {name: _without_scaling(name, value) for name, value in document.items()})


def _without_scaling(name: str, value: object) -> object:
    if name not in ("rope_scaling", "rope_parameters") or not isinstance(value, dict):
        return value
    return {"rope_theta": value["rope_theta"]} if value.get("rope_theta") is not None else None


def read_hf_config(path: Path, fields: dict[str, object]) -> DecoderConfig:
    """The config that the fields of a ``config.json`` at ``path`` say.

    Raises:
        WeightsError: the model is of another family, or a field would change the function in a way that
            ``DecoderConfig`` cannot express.
    """
    return family_of(path, fields.get("model_type")).read_config(ConfigFields(path, fields))


def read_native_config(path: Path, document: dict[str, object]) -> DecoderConfig:
    """The config that the ``config.json`` at ``path`` says.

    Raises:
        WeightsError: it is not of a ProofLM directory, is of a later version, or is damaged.
    """
    if document.get("format") != FORMAT:
        raise WeightsError(f'{path} does not say "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise WeightsError(
            f"{path}: version {document.get('version')!r} is not {VERSION}, the one known here"
        )
    fields = document.get("config")
    if not isinstance(fields, dict):
        raise WeightsError(f"{path} has no config object")
    return make_config(path, fields)


def family_of(path: Path, model_type: object) -> Family:
    """The family that reads this ``model_type``.

    Raises:
        WeightsError: none does.
    """
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = [name for family in FAMILIES for name in family.model_types]
    raise WeightsError(f"{path}: model_type is {model_type!r}; those read are {', '.join(known)}")
