"""ProofLM as a subject: beside what every subject can do, its layers can be run alone."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import torch
from torch import nn
from torch.func import functional_call

from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.model import KVCache, ProofLM
from proof_lm.sheet import Sheet
from proof_lm.verify.subjects.subject import Subject, subject_runs
from proof_lm.weights import load_proof_lm, save_proof_lm

PATHS: tuple[AttentionBackend, ...] = get_args(AttentionBackend)


class ProofSubject(Subject):
    """A :class:`ProofLM` under judgement, on both of its attention paths, in float64.

    Attributes:
        accounting: the kind of sheet that tells what it computes and keeps; a subclass of ProofLM may have its own.
    """

    module: ProofLM
    native: ProofLM
    paths = PATHS
    strict = True

    def __init__(self, name: str, model: ProofLM) -> None:
        super().__init__(name, model, copy.deepcopy(model).double().eval())
        self.declared = model.config
        self.vocab_size = model.config.vocab_size
        self.context_length = model.config.context_length
        self.n_heads = model.config.n_heads
        self.window = getattr(model.config, "sliding_window", None)
        self.build = lambda: type(model)(model.config)
        self.build_with = type(model)
        self.accounting: type[Sheet] = getattr(model, "accounting", Sheet)
        others = {type(module).__name__ for module in model.modules() if not _is_ours(module)}
        if others and not hasattr(model, "accounting"):
            found = ", ".join(sorted(others))
            self.absent["accounting"] = f"the sheet is of ProofLM itself, and {found} may compute otherwise"
        if model.config.position != "rope":
            self.absent["rope"] = f"position is {model.config.position!r}: nothing is rotated"

    @contextmanager
    def on(self, path: str) -> Iterator[ProofLM]:
        """The module, switched to one path for the time being."""
        before = self.module.attention_backend
        self.module.attention_backend = path  # type: ignore[assignment]  # one of PATHS
        try:
            with subject_runs():
                yield self.module
        finally:
            self.module.attention_backend = before

    def run(self, module: nn.Module, ids: Int[Tensor, "B T"], **given: Any) -> Float[Tensor, "B T V"]:
        """Calls the module once."""
        return module(ids, **given)[0]

    def loss(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
        path: str,
        *,
        padding_mask: Tensor | None = None,
    ) -> Scalar:
        """The loss, with its graph."""
        with self.on(path) as module:
            return module(ids, labels, loss_mask, padding_mask=padding_mask)[1]

    def cross_entropy(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        counted: Bool[Tensor, "B T"],
        path: str,
        *,
        padding_mask: Tensor | None = None,
    ) -> Scalar:
        """The model's own loss: its gradient is what training follows."""
        return self.loss(ids, labels, counted, path, padding_mask=padding_mask)

    def new_cache(self, n_rows: int, capacity: int) -> KVCache:
        """An empty cache whose free slots hold NaN, so that reading one shows."""
        cache = self.module.new_cache(n_rows, capacity)
        cache.keys.fill_(torch.nan)
        cache.values.fill_(torch.nan)
        return cache

    def generate(
        self, ids: Int[Tensor, "B T"], max_new_tokens: int, path: str, **settings: Any
    ) -> Int[Tensor, "B U"]:
        """Prompts and continuation."""
        with self.on(path) as module:
            return module.generate(ids, max_new_tokens, **settings)

    @property
    def embedding(self) -> Tensor:
        """The embedding matrix."""
        return self.module.embedding.weight

    def embedding_and_head(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        """The embedding and what makes the logits."""
        assert isinstance(module, ProofLM)
        return module.embedding.weight, module.head_weight

    def set_dropout(self, probability: float) -> list[tuple[Any, str, Any]]:
        """The layers' probabilities, and the config's, which the embedding reads."""
        before = self.module.config
        changed = super().set_dropout(probability)
        self.module.config = before.with_(dropout=probability)
        return [*changed, (self.module, "config", before)]

    def saved_and_loaded(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """Through a directory on disk, and through a state dict into a scrambled copy."""
        assert isinstance(model, ProofLM)
        with subject_runs(), tempfile.TemporaryDirectory() as folder:
            save_proof_lm(model, Path(folder) / "model")
            loaded = load_proof_lm(Path(folder) / "model")
        yield "directory", loaded
        del loaded
        yield from super().saved_and_loaded(model)

    @cached_property
    def norms(self) -> tuple[str, ...]:
        """The names of the normalization layers."""
        return tuple(
            name for name, _ in self.module.named_modules() if name.rsplit(".", 1)[-1].endswith("norm")
        )

    def run_layer(
        self,
        name: str,
        hidden: Float[Tensor, "B T D"],
        position_ids: Int[Tensor, "B T"],
        path: str,
        edits: Mapping[str, Tensor | float] = MappingProxyType({}),
    ) -> Float[Tensor, "B T D"]:
        """What a block, or an attention layer, makes of a hidden state at these positions.

        ``edits`` replaces some of its parameters, by their names inside the layer, for this call; those that
        the layer does not have (a missing bias) are skipped.
        """
        with self.on(path) as module:
            return self._call(name, edits, hidden, module.context(position_ids, None))

    def run_pointwise(
        self,
        name: str,
        hidden: Float[Tensor, "B T D"],
        edits: Mapping[str, Tensor | float] = MappingProxyType({}),
    ) -> Float[Tensor, "B T D"]:
        """What a norm, or a feed-forward layer, makes of a hidden state; ``edits`` as for :meth:`run_layer`."""
        return self._call(name, edits, hidden)

    def _call(self, name: str, edits: Mapping[str, Tensor | float], *inputs: object) -> Tensor:
        layer = self.module.get_submodule(name)
        parameters = dict(layer.named_parameters())
        replaced = {
            key: torch.as_tensor(value, dtype=parameters[key].dtype).expand_as(parameters[key])
            for key, value in edits.items()
            if key in parameters
        }
        with subject_runs():
            output: Tensor = functional_call(layer, replaced, inputs)
        return output


def _is_ours(module: nn.Module) -> bool:
    """Whether its class is one of the package's own model, or PyTorch's list of modules."""
    return isinstance(module, nn.ModuleList) or type(module).__module__.startswith("proof_lm.model.")
