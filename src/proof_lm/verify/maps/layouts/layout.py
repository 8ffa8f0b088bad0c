"""What a project's layout must tell, and what shapes tell of a config."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError, MapError
from proof_lm.sheet import TensorSpec, tensors
from proof_lm.verify.maps.foreign import Foreign, Shape
from proof_lm.verify.maps.weight_map import Place, WeightMap, fit
from proof_lm.weights.names import Source, SourceOf

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")  # of a block, or of a layer in a sequence
_ALL_TENSORS = tensors(
    DecoderConfig(
        vocab_size=1,
        context_length=1,
        n_layers=1,
        d_model=1,
        n_heads=1,
        d_ff=1,
        position="learned",
        feed_forward="gated",
        tie_embeddings=False,
    )
)


def _place_of(source: Source, config: DecoderConfig, spec: TensorSpec) -> Place:
    """By the source alone."""
    return Place.of(source, spec.shape)


@dataclass(frozen=True)
class Layout:
    """How one project names and stores a decoder's weights.

    Attributes:
        name: for messages and reports.
        source_of: where the tensor with one of our names lies; KeyError or ValueError for a name that the
            project has nothing for, which no config that it reads asks for.
        read_config: the decoder that a module is, from its config, attributes and shapes; MapError where they do
            not tell, or tell of something else.
        place_of: the place of a tensor, from its source, where the source alone does not say it.
    """

    name: str
    source_of: SourceOf
    read_config: Callable[[Foreign], DecoderConfig]
    place_of: Callable[[Source, DecoderConfig, TensorSpec], Place] = _place_of

    def lay_out(self, foreign: Foreign, config: DecoderConfig) -> WeightMap:
        """The map of the module as a decoder of this config.

        Raises:
            MapError: the module's parameters are others.
        """
        if config.n_layers > len(foreign.shapes):  # a damaged number of layers would name tensors for hours
            raise MapError(
                f"n_layers is {config.n_layers}, and the module has {len(foreign.shapes)} parameters"
            )
        places = {
            spec.name: self.place_of(self.source_of(spec.name), config, spec) for spec in tensors(config)
        }
        return fit(foreign, self.name, config, places)

    def count_known(self, foreign: Foreign) -> int:
        """How many of the module's parameters have a name of this layout."""
        return sum(_NUMBER.sub("0", name) in self._known for name in foreign.shapes)

    @cached_property
    def _known(self) -> frozenset[str]:
        known = set()
        for spec in _ALL_TENSORS:
            try:
                known.add(_NUMBER.sub("0", self.source_of(spec.name).name))
            except (KeyError, ValueError):
                continue
        return frozenset(known)


def make_config(fields: dict[str, Any]) -> DecoderConfig:
    """The config with these fields.

    Raises:
        MapError: they make no decoder.
    """
    try:
        return DecoderConfig.from_dict(fields)
    except ConfigError as error:
        raise MapError(str(error)) from error


def fields_from_shapes(
    foreign: Foreign, source_of: SourceOf, *, n_heads: int, default_eps: float
) -> dict[str, Any]:
    """Fields of the config that the parameters tell once the number of heads is known.

    Sizes, biases, whether head and embedding are one tensor; and the norms' ``eps``, which they may declare.

    Raises:
        MapError: a parameter that tells is missing, or the heads do not divide the queries.
    """

    def ours(name: str) -> Shape:
        source = source_of(name)
        shape = foreign.shape(source.name)
        rows, *rest = shape[::-1] if source.transposed else shape
        return rows // source.n_parts, *rest

    def has(name: str) -> bool:
        return source_of(name).name in foreign

    block = "blocks.0"
    vocab_size, d_model = _matrix(ours("embedding.weight"), "embedding")
    queries, keys = (ours(f"{block}.attention.{part}.weight")[0] for part in ("query", "key"))
    if not queries or n_heads < 1 or queries % n_heads or keys % (queries // n_heads):
        raise MapError(f"{queries} rows of queries and {keys} of keys are not those of {n_heads} heads")
    n_layers = 0
    while has(f"blocks.{n_layers}.attention_norm.weight"):
        n_layers += 1
    norms = [
        f"blocks.{i}.{norm}" for i in range(n_layers) for norm in ("attention_norm", "feed_forward_norm")
    ]
    modules = [source_of(f"{norm}.weight").name.rsplit(".", 1)[0] for norm in [*norms, "final_norm"]]
    embedding, head = (foreign.own_name(source_of(f"{name}.weight").name) for name in ("embedding", "head"))
    return {
        "vocab_size": vocab_size,
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "n_kv_heads": keys // (queries // n_heads),
        "head_dim": queries // n_heads,
        "d_ff": ours(f"{block}.feed_forward.up.weight")[0],
        "norm_eps": foreign.norm_eps(modules, default_eps),
        "norm_bias": has("final_norm.bias"),
        "attention_bias": has(f"{block}.attention.query.bias"),
        "attention_out_bias": has(f"{block}.attention.out.bias"),
        "feed_forward_bias": has(f"{block}.feed_forward.up.bias"),
        "tie_embeddings": head == embedding or head not in foreign,
    }


def _matrix(shape: Shape, what: str) -> tuple[int, int]:
    if len(shape) != 2:
        raise MapError(f"the {what} must be a matrix, got shape {list(shape)}")
    return shape[0], shape[1]
