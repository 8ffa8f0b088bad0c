"""From the tensors of a foreign format to ours and back, by one table for both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights.documents import first_few
from proof_lm.weights.names import Source, SourceOf
from proof_lm.weights.store import TensorStore

Change = Callable[[str, Tensor], Tensor]


def take(source: Source, whole: Tensor) -> Tensor:
    """Our tensor, out of the foreign one."""
    rows = whole.T if source.transposed and whole.ndim > 1 else whole
    return rows.chunk(source.n_parts)[source.part]


def load_mapped(
    config: DecoderConfig,
    store: TensorStore,
    source_of: SourceOf,
    *,
    dtype: torch.dtype | None,
    change: Change | None = None,
    ignored: frozenset[str] = frozenset(),
) -> ProofLM:
    """The model of ``config`` with the tensors of ``store``, in eval mode.

    Names and shapes are compared before any tensor is read; one tensor is read at a time.

    Args:
        config: the decoder.
        store: its tensors, under foreign names.
        source_of: where the tensor with one of our names lies in the store.
        dtype: dtype of the parameters; None keeps each as it is stored.
        change: what to do to each of our tensors, by name, after it is read.
        ignored: names in the store that are no parameters.

    Raises:
        WeightsError: tensors are missing, unexpected or of the wrong shape (all of them are counted, the
            first few named), or damaged.
    """
    if dtype is not None and not dtype.is_floating_point:
        raise WeightsError(f"dtype must be a floating-point dtype, got {dtype}")
    if config.n_layers > len(store.shapes):  # a damaged number of layers would build blocks for hours
        raise WeightsError(
            f"{store.where} holds {len(store.shapes)} tensors for n_layers = {config.n_layers}"
        )
    with torch.device("meta"):
        model = ProofLM(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    sources = {name: source_of(name) for name in shapes}
    _compare(store, {source.name: source.shape(shapes[name]) for name, source in sources.items()}, ignored)
    state = {}
    for name, source in sources.items():
        tensor = take(source, store.read(source.name))
        if change is not None:
            tensor = change(name, tensor)
        state[name] = tensor.to(dtype or tensor.dtype).contiguous()
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval()


def to_foreign(state: Mapping[str, Tensor], source_of: SourceOf) -> dict[str, Tensor]:
    """The tensors of the foreign format, from ours: the inverse of what :func:`load_mapped` does."""
    parts: dict[str, list[tuple[Source, Tensor]]] = {}
    for name, tensor in state.items():
        source = source_of(name)
        parts.setdefault(source.name, []).append((source, tensor))
    foreign = {}
    for name, found in parts.items():
        found.sort(key=lambda pair: pair[0].part)
        whole = torch.cat([tensor for _, tensor in found]) if len(found) > 1 else found[0][1]
        is_turned = found[0][0].transposed and whole.ndim > 1
        foreign[name] = (whole.T if is_turned else whole).contiguous()
    return foreign


def interleaved_to_half(config: DecoderConfig) -> Change:
    """The reordering of query and key rows that turns adjacent rotary pairs into half-apart pairs.

    Within each head, row 2i goes to i and row 2i + 1 to i + H/2, weights and biases alike. Scores are sums
    over the rows of a head, so the same function is computed under the other ``rope_layout``.
    """
    heads = {"query": config.n_heads, "key": config.kv_heads}

    def change(name: str, tensor: Tensor) -> Tensor:
        n_heads = next((n for part, n in heads.items() if f".attention.{part}." in name), None)
        if n_heads is None:
            return tensor
        pairs = tensor.reshape(n_heads, config.head_width // 2, 2, *tensor.shape[1:])
        return pairs.transpose(1, 2).reshape(tensor.shape)

    return change


def _compare(store: TensorStore, expected: Mapping[str, tuple[int, ...]], ignored: frozenset[str]) -> None:
    """Refuse a store whose names or shapes are not the expected ones."""
    missing = sorted(expected.keys() - store.shapes.keys())
    unexpected = sorted(store.shapes.keys() - expected.keys() - ignored)
    misshapen = [
        f"{name} (expected {list(shape)}, found {list(store.shapes[name])})"
        for name, shape in expected.items()
        if name in store.shapes and tuple(store.shapes[name]) != shape
    ]
    groups = {"missing": missing, "unexpected": unexpected, "of the wrong shape": misshapen}
    problems = [f"{len(names)} {what}: {first_few(names)}" for what, names in groups.items() if names]
    if problems:
        raise WeightsError(f"{store.where} does not hold this decoder's tensors: {'; '.join(problems)}")
