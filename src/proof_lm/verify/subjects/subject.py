"""The subject: what is judged, and what it can do."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.verify.maps.foreign import CONFIGS
from proof_lm.verify.noise import NOISE, seeded
from proof_lm.verify.subjects.copies import copied

Capability = Literal[
    "logits",
    "config",
    "weights",
    "padding mask",
    "position ids",
    "document ids",
    "cache",
    "loss",
    "loss mask",
    "generation",
    "construction",
    "dropout",
    "parts",
    "rope",
    "storage",
    "parameter groups",
    "accounting",
]


class SubjectError(Exception):
    """The subject's own code raised; the message says what."""


@contextmanager
def subject_runs() -> Iterator[None]:
    """Marks the subject's code: what it raises becomes a :class:`SubjectError`, except for want of memory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, SubjectError):
        raise
    except (Exception, SystemExit) as error:
        if "DefaultCPUAllocator" in str(error):  # PyTorch's own error for memory of the CPU is a RuntimeError
            raise MemoryError(str(error)) from error
        raise SubjectError(f"raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Finding:
    """One thing that is known of a subject: what, its value, and how it was found."""

    what: str
    value: str
    how: str


class Subject(ABC):
    """A decoder under judgement, as the contracts see it.

    Contracts call these methods and nothing else, so that another kind of decoder needs another subject
    only. Measurements run on ``module``, a copy in float64 (or the widest dtype that it runs in) and eval
    mode; ``native`` is the model as it was given, which is not changed.

    Attributes:
        name: what reports call it.
        native: the model as it was given.
        module: the copy that is measured.
        unit_roundoff: of the narrowest arithmetic inside ``module``: 2^-53 when all of it is float64.
        loss_roundoff: the same on the way from logits to its loss.
        absent: capabilities that it lacks, with the reason.
        paths: the ways through it: every contract runs on each, wherever attention takes part.
        vocab_size: token ids lie in [0, vocab_size).
        context_length: the most tokens of a row.
        n_heads: query heads; None where unknown.
        window: the sliding window that it declares; None where every query sees its whole past.
        declared: its definition, where that is known.
        untrained_id: a token id whose embedding takes no gradient (``padding_idx``), if there is one; it is not
            probed with.
        findings: what is known of it, and how it was found.
        strict: whether it promises what a decoder need not: that even NaN behind a mask reaches nothing, and that
            the loss of no labels is 0.
        build: makes a new module of the same kind, initialized as its author does it; None where nothing can.
        build_with: the same of another definition.
    """

    name: str
    native: nn.Module
    module: nn.Module
    unit_roundoff: float = 2.0**-53
    loss_roundoff: float = 2.0**-53
    paths: tuple[str, ...] = ("forward",)
    vocab_size: int
    context_length: int
    n_heads: int | None = None
    window: int | None = None
    untrained_id: int | None = None
    strict: bool = False
    declared: DecoderConfig | None = None
    build: Callable[[], nn.Module] | None = None
    build_with: Callable[[DecoderConfig], nn.Module] | None = None

    def __init__(self, name: str, native: nn.Module, module: nn.Module) -> None:
        self.name = name
        self.native = native
        self.module = module
        self.absent: dict[Capability, str] = {}
        self.findings: list[Finding] = []
        if not callable(getattr(native, "parameter_groups", None)):
            self.absent["parameter groups"] = "it has no parameter_groups(weight_decay)"

    def can(self, *capabilities: Capability) -> bool:
        """Whether it has all of these."""
        return not any(capability in self.absent for capability in capabilities)

    @property
    def config(self) -> DecoderConfig:
        """The declared definition; only for contracts that need "config" (or "weights")."""
        assert self.declared is not None, "the contract does not say that it needs a config"
        return self.declared

    @property
    def parameter_count(self) -> int:
        """Elements of all registered parameters, each tensor once."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @abstractmethod
    @contextmanager
    def on(self, path: str) -> Iterator[nn.Module]:
        """The module, switched to one path for the time being, its errors marked as the subject's."""

    @abstractmethod
    def run(self, module: nn.Module, ids: Int[Tensor, "B T"], **given: Any) -> Float[Tensor, "B T V"]:
        """Calls the module once; ``given`` are those of the keywords of :meth:`logits` that the caller gave."""

    def logits(
        self,
        ids: Int[Tensor, "B T"],
        path: str,
        *,
        padding_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: Any = None,
        noise: int = NOISE,
        with_graph: bool = False,
    ) -> Float[Tensor, "B T V"]:
        """The logits. Random numbers that the call draws begin from the state ``noise``, and none before or after
        it notices."""
        given = {
            "padding_mask": padding_mask,
            "position_ids": position_ids,
            "document_ids": document_ids,
            "cache": cache,
        }
        with self.on(path) as module, seeded(noise), torch.set_grad_enabled(with_graph):
            logits = self.run(module, ids, **{k: value for k, value in given.items() if value is not None})
        if logits.shape != (*ids.shape, self.vocab_size):
            raise SubjectError(
                f"gave logits of shape {tuple(logits.shape)} for {tuple(ids.shape)} token ids and "
                f"{self.vocab_size} of vocabulary"
            )
        return logits

    @abstractmethod
    def loss(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
        path: str,
        *,
        padding_mask: Tensor | None = None,
    ) -> Scalar:
        """The loss, with its graph; ``labels[b, t]`` is the target of position t."""

    def countable(self, ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Positions whose label can count: all, but the last of a row where the subject shifts labels itself."""
        return torch.ones_like(ids, dtype=torch.bool)

    def cross_entropy(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        counted: Bool[Tensor, "B T"],
        path: str,
        *,
        padding_mask: Tensor | None = None,
    ) -> Scalar:
        """The mean of -log p(label) over counted positions, computed here from the subject's logits, with its graph.

        So its gradient can be judged whether or not the subject has a loss.
        """
        logits = self.logits(ids, path, padding_mask=padding_mask, with_graph=True)
        return nn.functional.cross_entropy(logits[counted], labels[counted])

    @property
    def skips_padding(self) -> bool:
        """Whether positions are known to count real tokens alone, so that padding inside a row changes nothing."""
        return self.window is None

    @property
    def poison(self) -> float:
        """What is stored where nothing may look: NaN for a strict subject, else a huge number."""
        return math.nan if self.strict else 1e15

    def gradients_of(self, value: Scalar) -> dict[str, Tensor | None]:
        """The gradient of a value with a graph for every parameter by name."""
        parameters = dict(self.module.named_parameters())
        wanted = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        with subject_runs():
            found = torch.autograd.grad(value, list(wanted.values()), allow_unused=True)
        return dict.fromkeys(parameters) | dict(zip(wanted, found, strict=True))

    def to_oracle(self, tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
        """Parameters, or gradients, of the module under the oracle's names; needs "weights"."""
        return dict(tensors)

    def parameter_names(self) -> dict[str, str]:
        """The module's own name of the parameter in which each of the oracle's lies; needs "weights"."""
        return {name: name for name, _ in self.module.named_parameters()}

    def weights(self) -> dict[str, NDArray[np.float64]]:
        """The parameters by the oracle's names, in float64."""
        mapped = self.to_oracle(dict(self.module.named_parameters()))
        return {
            name: tensor.detach().double().numpy() for name, tensor in mapped.items() if tensor is not None
        }

    @abstractmethod
    def new_cache(self, n_rows: int, capacity: int) -> Any:
        """An empty cache, with ``truncate`` and ``reorder`` as in :class:`proof_lm.model.KVCache` where it can."""

    @abstractmethod
    def generate(
        self, ids: Int[Tensor, "B T"], max_new_tokens: int, path: str, **settings: Any
    ) -> Int[Tensor, "B U"]:
        """Prompts and continuation; settings are ``temperature``, ``top_k``, ``top_p``, ``seed``, ``stop_ids``,
        ``padding_mask``."""

    @property
    @abstractmethod
    def embedding(self) -> Tensor | None:
        """The embedding matrix of the measured module, (V, D); None where it is not known."""

    @abstractmethod
    def embedding_and_head(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        """The two matrices, which are one if tied, of this subject's module or of another of its kind."""

    @contextmanager
    def edited(self, parameter: Tensor, rows: int | slice, value: float | Tensor) -> Iterator[None]:
        """Rows of one parameter set to a value for the time being, then put back to the bit."""
        with torch.no_grad():
            before = parameter[rows].clone()
            parameter[rows] = value
        try:
            yield
        finally:
            with torch.no_grad():
                parameter[rows] = before

    @contextmanager
    def scaled(self, factor: float) -> Iterator[None]:
        """Every matrix (parameter of two or more dimensions) times a factor for the time being."""
        matrices = [parameter for parameter in self.module.parameters() if parameter.dim() > 1]
        before = [matrix.detach().clone() for matrix in matrices]
        with torch.no_grad():
            for matrix in matrices:
                matrix.mul_(factor)
        try:
            yield
        finally:
            with torch.no_grad():
                for matrix, values in zip(matrices, before, strict=True):
                    matrix.copy_(values)

    @contextmanager
    def training(self, dropout: float) -> Iterator[None]:
        """Train mode with every dropout at this probability, for the time being; needs "dropout" unless 0.

        What training counts in buffers is put back: a router's balance is no part of what is compared.
        """
        modes = {module: module.training for module in self.module.modules()}
        buffers = [(part, name, buffer, buffer.clone()) for part, name, buffer in _buffers(self.module)]
        changed = self.set_dropout(dropout)
        self.module.train()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode
            for holder, name, value in changed:
                object.__setattr__(holder, name, value)  # a frozen config's too
            with torch.no_grad():
                for part, name, buffer, before in buffers:
                    if not torch.equal(buffer, before):
                        buffer.copy_(before)
                    part._buffers[name] = buffer

    @contextmanager
    def with_dropout(self, dropout: float) -> Iterator[None]:
        """Eval mode still, but every dropout at this probability."""
        changed = self.set_dropout(dropout)
        try:
            yield
        finally:
            for holder, name, value in changed:
                object.__setattr__(holder, name, value)  # a frozen config's too

    def set_dropout(self, probability: float) -> list[tuple[Any, str, Any]]:
        """Sets every dropout of ``module``; returns what to set back, as (object, attribute, value).

        Dropouts are the ``p`` of layers whose class is called so, and numbers under a name with "drop" in it, of a
        module; and with "dropout" or "pdrop" in it, of the config that a module holds.
        """
        changed: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        for module in self.module.modules():
            names = [name for name, value in vars(module).items() if "drop" in name and _is_number(value)]
            if "drop" in type(module).__name__.lower() and _is_number(vars(module).get("p")):
                names.append("p")
            found: list[tuple[Any, str]] = [(module, name) for name in names]
            for config in (vars(module).get(name) for name in CONFIGS):
                if isinstance(config, DecoderConfig):  # ours is read while a model is made, and not later
                    continue
                fields = getattr(config, "__dict__", {})
                found += [
                    (config, name)
                    for name, value in fields.items()
                    if ("dropout" in name or "pdrop" in name) and _is_number(value)
                ]
            for holder, name in found:
                changed.setdefault((id(holder), name), (holder, name, getattr(holder, name)))
        for holder, name, _ in changed.values():
            object.__setattr__(holder, name, probability)
        return list(changed.values())

    def in_dtype(self, dtype: torch.dtype) -> Subject:
        """The same subject measured in another dtype: the given weights, cast."""
        other = copy.copy(self)
        other.module = copied(self.native).to(dtype).eval()
        other.unit_roundoff = torch.finfo(dtype).eps / 2
        return other

    def saved_and_loaded(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """(how, what came back) for each way to save a model and load it again."""
        scrambled = copied(model)
        with torch.no_grad():
            for parameter in scrambled.parameters():
                parameter.fill_(0.5)
        with subject_runs():
            scrambled.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
        yield "state dict", scrambled

    def swapped(self, module: nn.Module) -> Subject:
        """The same subject with another module of its kind in the place of the measured one."""
        other = copy.copy(self)
        other.module = module
        return other

    @contextmanager
    def native_in_eval(self) -> Iterator[nn.Module]:
        """The model as it was given, in eval mode for the time being; each module's own mode comes back."""
        modes = {module: module.training for module in self.native.modules()}
        self.native.eval()
        try:
            yield self.native
        finally:
            for module, training in modes.items():
                module.training = training


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _buffers(module: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                yield part, name, buffer
