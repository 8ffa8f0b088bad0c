"""The subject: what is judged, and what it can do."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.functional import AttentionBackend
from proof_lm.model import KVCache, ProofLM

Capability = Literal[
    "logits", "weights", "padding mask", "position ids", "cache", "loss", "parts", "rope", "storage"
]
PATHS: tuple[AttentionBackend, ...] = get_args(AttentionBackend)


class SubjectError(Exception):
    """The subject's own code raised; the message says what."""


@contextmanager
def subject_runs() -> Iterator[None]:
    """Marks the subject's code: what it raises becomes a :class:`SubjectError`, except for want of memory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, SubjectError):
        raise
    except Exception as error:
        raise SubjectError(f"raised {type(error).__name__}: {error}") from error


class Subject:
    """A decoder under judgement, as the contracts see it.

    Contracts call these methods and nothing else, so that another kind of decoder needs another subject
    only. Measurements run on ``module``, a copy in float64 and eval mode; ``native`` is the model as it was
    given, which is not changed.

    Attributes:
        name: what reports call it.
        native: the model as it was given.
        config: its definition.
        module: the float64 copy.
        absent: capabilities that it lacks, with the reason.
    """

    def __init__(self, name: str, model: ProofLM) -> None:
        self.name = name
        self.native = model
        self.config: DecoderConfig = model.config
        self.module: ProofLM = copy.deepcopy(model).double().eval()
        self.absent: dict[Capability, str] = {}
        if self.config.position != "rope":
            self.absent["rope"] = f"position is {self.config.position!r}: nothing is rotated"

    @property
    def paths(self) -> tuple[AttentionBackend, ...]:
        """The ways through the subject: every contract runs on each, wherever attention takes part."""
        return PATHS

    @property
    def parameter_count(self) -> int:
        """Elements of all registered parameters, each tensor once."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @contextmanager
    def on(self, path: AttentionBackend) -> Iterator[ProofLM]:
        """The float64 module, switched to one path for the time being."""
        before = self.module.attention_backend
        self.module.attention_backend = path
        try:
            with subject_runs():
                yield self.module
        finally:
            self.module.attention_backend = before

    @contextmanager
    def native_in_eval(self) -> Iterator[ProofLM]:
        """The model as it was given, in eval mode for the time being; each module's own mode comes back."""
        modes = {module: module.training for module in self.native.modules()}
        self.native.eval()
        try:
            yield self.native
        finally:
            for module, training in modes.items():
                module.training = training

    @torch.no_grad()
    def logits(
        self,
        ids: Int[Tensor, "B T"],
        path: AttentionBackend,
        *,
        padding_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """The logits in float64, without gradients."""
        with self.on(path) as module:
            return module(ids, padding_mask=padding_mask, position_ids=position_ids, cache=cache)[0]

    def loss(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
        path: AttentionBackend,
        *,
        padding_mask: Tensor | None = None,
    ) -> Scalar:
        """The loss, with its graph."""
        with self.on(path) as module:
            loss = module(ids, labels, loss_mask, padding_mask=padding_mask)[1]
        assert loss is not None
        return loss

    def gradients(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
        path: AttentionBackend,
        *,
        padding_mask: Tensor | None = None,
    ) -> dict[str, Tensor | None]:
        """The gradient of the loss for every parameter by name; None where no graph leads to one."""
        parameters = dict(self.module.named_parameters())
        loss = self.loss(ids, labels, loss_mask, path, padding_mask=padding_mask)
        with subject_runs():
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        return dict(zip(parameters, found, strict=True))

    def weights(self) -> dict[str, NDArray[np.float64]]:
        """The parameters by the oracle's names, sharing memory with the module."""
        return {name: parameter.detach().numpy() for name, parameter in self.module.named_parameters()}

    def new_cache(self, n_rows: int, capacity: int) -> KVCache:
        """An empty cache whose free slots hold NaN, so that reading one shows."""
        cache = self.module.new_cache(n_rows, capacity)
        cache.keys.fill_(torch.nan)
        cache.values.fill_(torch.nan)
        return cache

    @contextmanager
    def edited(self, name: str, rows: int | slice, value: float | Tensor) -> Iterator[None]:
        """Rows of one parameter set to a value for the time being, then put back to the bit."""
        parameter = self.module.get_parameter(name)
        with torch.no_grad():
            before = parameter[rows].clone()
            parameter[rows] = value
        try:
            yield
        finally:
            with torch.no_grad():
                parameter[rows] = before

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
        path: AttentionBackend,
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
