"""GGUF files of the llama architecture, dequantised (llama.cpp; github.com/ggml-org/ggml docs/gguf.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.quants import dequantize
from torch import Tensor

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.gguf_reader import BoundedReader
from proof_lm.model import ProofLM
from proof_lm.weights.documents import first_few, make_config
from proof_lm.weights.mapping import interleaved_to_half, load_mapped
from proof_lm.weights.names import Source, rename

_ARCHITECTURE = "llama"
_TOP = {"embedding": "token_embd", "final_norm": "output_norm", "head": "output"}
_PARTS = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.out": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}
# Fields that would change the function unless they hold this value; every other unknown one is refused too.
_NEUTRAL: dict[str, object] = {
    "rope.scaling.type": "none",
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
    "use_parallel_residual": False,
}


def load_gguf(path: str | Path, *, dtype: torch.dtype | None = torch.float32) -> ProofLM:
    """The model in a GGUF file of the llama architecture, dequantised, on the CPU and in eval mode.

    GGUF stores query and key rows in adjacent rotary pairs; they are put back half a head apart, so that
    the model has ``rope_layout`` "half" like the Hugging Face original. No ``output.weight`` means a tied
    head. Tensors are dequantised to float32 one at a time.

    Args:
        path: the file.
        dtype: dtype of the parameters; None is float32.

    Raises:
        WeightsError: the file is cut off or damaged, is of another architecture, or its metadata describes a
            function that ``DecoderConfig`` cannot express; the message names the field or tensor.
    """
    store = _GgufStore(Path(path))
    config = _config(store)
    return load_mapped(config, store, _source_of, dtype=dtype, change=interleaved_to_half(config))


def read_gguf_config(path: Path) -> DecoderConfig:
    """The config that the metadata of a GGUF file of the llama architecture say.

    Raises:
        WeightsError: as of :func:`load_gguf`.
    """
    return _config(_GgufStore(path))


def _source_of(name: str) -> Source:
    return Source(rename(name, top=_TOP, block="blk.{}", parts=_PARTS))


def _config(store: _GgufStore) -> DecoderConfig:
    architecture = store.field("general.architecture")
    if architecture != _ARCHITECTURE:
        raise WeightsError(f"{store.where}: architecture is {architecture!r}; only {_ARCHITECTURE!r} is read")
    sizes = ("block_count", "context_length", "embedding_length", "feed_forward_length")
    n_layers, context_length, d_model, d_ff = (store.require(name) for name in sizes)
    n_heads = store.require("attention.head_count")
    if "token_embd.weight" not in store.shapes:
        raise WeightsError(f"{store.where} lacks the tensor token_embd.weight")
    has_bias = {part: f"blk.0.{part}.bias" in store.shapes for part in ("attn_q", "attn_output", "ffn_down")}
    config = {
        "vocab_size": store.metadata("vocab_size", store.shapes["token_embd.weight"][0]),
        "context_length": context_length,
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": d_ff,
        "n_kv_heads": store.metadata("attention.head_count_kv", n_heads),
        "head_dim": store.metadata("attention.key_length", None),
        "norm": "rmsnorm",
        "norm_eps": _shortest(store.require("attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(store.metadata("rope.freq_base", 10000.0)),
        "rope_layout": "half",
        "feed_forward": "gated",
        "activation": "silu",
        "attention_bias": has_bias["attn_q"],
        "attention_out_bias": has_bias["attn_output"],
        "feed_forward_bias": has_bias["ffn_down"],
        "tie_embeddings": "output.weight" not in store.shapes,
    }
    made = make_config(store.where, config)
    for name in ("attention.value_length", "rope.dimension_count"):
        store.must_be(name, made.head_width)
    for name, value in _NEUTRAL.items():
        store.must_be(name, value)
    store.refuse_unread()
    return made


def _shortest(value: object) -> object:
    """The shortest decimal of a float32, as the original config wrote it: 1e-05, not 9.99999974e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


class _GgufStore:
    """The metadata and tensors of a GGUF file.

    Raises:
        WeightsError: the file is missing, cut off or damaged, or of the other byte order, or one of several.
    """

    def __init__(self, path: Path) -> None:
        self.where = path
        try:
            self._reader = BoundedReader(path)
            self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
            self.shapes = {
                name: tuple(int(size) for size in reversed(tensor.shape.tolist()))
                for name, tensor in self._tensors.items()
            }
        except (OSError, ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise WeightsError(f"cannot read {path} as GGUF, is it cut off or damaged? ({error})") from error
        if self._reader.byte_order != "I":
            raise WeightsError(f"{path} is in the other byte order, which is not read")
        if (self.field("split.count") or 1) != 1:
            raise WeightsError(f"{path} is one of several files (split.count); merge them first")
        prefix = f"{_ARCHITECTURE}."
        self._unread = {name for name in self._reader.fields if name.startswith(prefix)}

    def field(self, name: str) -> Any:
        """The value of a metadata field, or None."""
        field = self._reader.fields.get(name)
        try:
            return None if field is None else field.contents()
        except (ValueError, IndexError) as error:
            raise WeightsError(f"{self.where}: cannot read {name}: {error}") from error

    def metadata(self, name: str, default: Any) -> Any:
        """The value of ``llama.<name>``, or the default that llama.cpp gives it."""
        self._unread.discard(f"{_ARCHITECTURE}.{name}")
        value = self.field(f"{_ARCHITECTURE}.{name}")
        return default if value is None else value

    def require(self, name: str) -> Any:
        """The value of ``llama.<name>``; a ``WeightsError`` where there is none."""
        value = self.metadata(name, None)
        if value is None:
            raise WeightsError(f"{self.where} lacks {_ARCHITECTURE}.{name}")
        return value

    def must_be(self, name: str, wanted: object) -> None:
        """A ``WeightsError`` where ``llama.<name>`` is given and is another value."""
        value = self.metadata(name, wanted)
        if value != wanted:
            raise WeightsError(
                f"{self.where}: {_ARCHITECTURE}.{name} is {value!r}; only {wanted!r} can be expressed"
            )

    def refuse_unread(self) -> None:
        """A ``WeightsError`` where a field of the architecture has not been understood."""
        if self._unread:
            raise WeightsError(
                f"{self.where} has fields that are not understood and may change the function: "
                f"{first_few(sorted(self._unread))}"
            )

    def read(self, name: str) -> Tensor:
        """The tensor of that name, as float32 in memory of its own."""
        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise WeightsError(f"{self.where}: cannot dequantise {name}: {error}") from error
        return torch.from_numpy(np.require(values, np.float32, ["C", "W"]))
