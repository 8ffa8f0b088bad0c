"""Hugging Face directories: ``config.json`` and safetensors, of the Llama and GPT-2 families."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights.configs import family_of, read_hf_config
from proof_lm.weights.directory import new_directory, write_tensors, write_texts
from proof_lm.weights.documents import read_json_object
from proof_lm.weights.families import FAMILIES, Family
from proof_lm.weights.mapping import interleaved_to_half, load_mapped, to_foreign
from proof_lm.weights.names import Source, SourceOf
from proof_lm.weights.store import SafetensorsStore


def load_hf(directory: str | Path, *, dtype: torch.dtype | None = torch.float32) -> ProofLM:
    """The model in a Hugging Face directory, on the CPU and in eval mode.

    Args:
        directory: with ``config.json`` and ``model.safetensors``, or shards and their index.
        dtype: dtype of the parameters. float16 and bfloat16 files become float32 by default, which is
            exact and faster on a CPU; None keeps each tensor as it is stored.

    Raises:
        WeightsError: the model is of another family, a field of its config would change the function in a
            way that ``DecoderConfig`` cannot express, or its tensors are missing, unexpected, misshapen or
            damaged. Nothing is half loaded.
    """
    directory = Path(directory)
    path = directory / "config.json"
    fields = read_json_object(path)
    family = family_of(path, fields.get("model_type"))
    config = read_hf_config(path, fields)
    store = SafetensorsStore(directory)
    source_of = _stored_names(family, store)
    ignored = {name for name in store.shapes if family.not_parameters.fullmatch(name)}
    head = source_of("head.weight").name
    if config.tie_embeddings and head in store.shapes:
        _require_same(store, head, source_of("embedding.weight").name)
        ignored.add(head)
    return load_mapped(config, store, source_of, dtype=dtype, ignored=frozenset(ignored))


def save_hf(
    model: ProofLM, directory: str | Path, *, extra_files: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write ``model`` so that transformers computes the same function.

    Query and key rows of a model with ``rope_layout`` "interleaved" are reordered to Llama's "half". Of the
    config, ``initialization`` is not kept: it says how training began, not what the model computes.

    Args:
        model: a decoder that the Llama or the GPT-2 family can express.
        directory: a new or empty directory; it appears whole or not at all.
        extra_files: texts to put beside the weights by file name, such as a tokenizer's.

    Raises:
        WeightsError: neither family can express the config (the message names the fields), or the directory
            holds files already or cannot be written.
    """
    family = _family_that_expresses(model.config)
    state = model.state_dict()
    if model.config.position == "rope" and model.config.rope_layout == "interleaved":
        change = interleaved_to_half(model.config)
        state = {name: change(name, tensor) for name, tensor in state.items()}
    config = dataclasses.replace(model.config, rope_layout="half")
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    document = {**family.write_config(config), "dtype": dtype}
    with new_directory(directory) as draft:
        (draft / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        write_tensors(draft, to_foreign(state, family.source_of))
        write_texts(draft, extra_files)


def _family_that_expresses(config: DecoderConfig) -> Family:
    obstacles = {family.name: family.obstacles(config) for family in FAMILIES}
    for family in FAMILIES:
        if not obstacles[family.name]:
            return family
    reasons = "; ".join(f"{name} not {', '.join(found)}" for name, found in obstacles.items())
    raise WeightsError(f"no Hugging Face family here can express this config: {reasons}")


def _stored_names(family: Family, store: SafetensorsStore) -> SourceOf:
    """The family's names, without its prefix where the checkpoint is of the bare base model."""
    if any(name.startswith(family.prefix) for name in store.shapes):
        return family.source_of

    def source_of(name: str) -> Source:
        source = family.source_of(name)
        return dataclasses.replace(source, name=source.name.removeprefix(family.prefix))

    return source_of


def _require_same(store: SafetensorsStore, head: str, embedding: str) -> None:
    """A tied checkpoint may store the head as well, but not another one."""
    if embedding in store.shapes and not torch.equal(store.read(head), store.read(embedding)):
        raise WeightsError(
            f"{store.where}: tie_word_embeddings is true, but {head} is not {embedding}: "
            "which of the two the head should be is unclear"
        )
