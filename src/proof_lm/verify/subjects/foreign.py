"""Any PyTorch decoder as a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from proof_lm.dims import Bool, Float, Int, Scalar, Tensor
from proof_lm.errors import MapError, TargetError
from proof_lm.verify.maps import WeightMap, find_map
from proof_lm.verify.subjects.adapter import Adapter
from proof_lm.verify.subjects.arithmetic import effective_roundoff
from proof_lm.verify.subjects.copies import copied
from proof_lm.verify.subjects.discover import discover
from proof_lm.verify.subjects.discovered import Discovered
from proof_lm.verify.subjects.subject import Capability, Finding, Subject, SubjectError, subject_runs

BACKENDS = ("eager", "sdpa")  # of transformers' models


class ForeignSubject(Subject):
    """A decoder that is not ours, called through an adapter.

    Args:
        name: what reports call it.
        model: the decoder, or an :class:`Adapter` around it.
        weight_map: where its weights lie in our terms; by default what :func:`find_map` recognises.
        build: makes a new one, if anything does.

    Raises:
        TargetError: it cannot be copied, or not be called.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module | Adapter,
        *,
        weight_map: WeightMap | None = None,
        build: Callable[[], nn.Module] | None = None,
    ) -> None:
        native = model.module if isinstance(model, Adapter) else model
        super().__init__(name, native, native)
        self._settle(model)
        self.build = build
        self.n_heads = self.adapter.n_heads
        self.window = self.adapter.window
        self.strict = self.adapter.strict
        self.weight_map = weight_map
        try:
            layer = self._embedding_layer()
        except SubjectError as error:
            raise TargetError(f"calling it {error}") from error
        self.untrained_id = None if layer is None else layer.padding_idx
        self._find_map()
        self._find_abilities()
        self.findings = [
            *self.adapter.findings,
            *self.findings,
            Finding(
                "paths", ", ".join(self.paths), "set_attn_implementation" if len(self.paths) > 1 else "one"
            ),
        ]
        if self.weight_map is not None:
            self.findings.append(Finding("map", self.weight_map.family, "every parameter has its place"))

    def _settle(self, model: nn.Module | Adapter) -> None:
        """The copy to measure, and how it is called: in float64 where all of it can be, else in float32.

        A module that computes part of the way in float32 gains nothing from float64 weights, and masks made for
        one dtype may overflow in the other.
        """
        refusal = why = ""
        for dtype in (torch.float64, torch.float32):
            self.module = _copied(self.native, dtype)
            try:
                self.adapter = model if isinstance(model, Adapter) else discover(self.module)
                self.vocab_size, self.context_length = self.adapter.vocab_size, self.adapter.context_length
                self._refuse_to_share()
                roundoff, why = effective_roundoff(self.native, self._run_on_every_path)
            except Exception as error:
                if dtype == torch.float32 and isinstance(error, TargetError):
                    raise
                if dtype == torch.float32:
                    raise TargetError(f"calling it raised {type(error).__name__}: {error}") from error
                refusal = f"it refuses float64: {type(error).__name__}: {error}"
                continue
            if roundoff <= torch.finfo(dtype).eps / 2:
                break
            refusal = f"not all of it computes in float64: {why}"
        self.unit_roundoff = max(roundoff, torch.finfo(dtype).eps / 2)
        self.loss_roundoff = self.unit_roundoff
        if self.adapter.overrides("loss") and isinstance(self.adapter, Discovered):
            self.loss_roundoff = max(roundoff, effective_roundoff(self.native, self._loss_once)[0])
        name = str(dtype).split(".")[-1]
        self.findings.append(Finding("arithmetic", name, refusal or "every operation is in float64"))

    def _refuse_to_share(self) -> None:
        """What runs must be the copy throughout: the original has another dtype and mode, and is not edited."""
        called: list[str] = []
        handles = [
            part.register_forward_pre_hook(lambda *_, name=name: called.append(name))
            for name, part in self.native.named_modules()
        ]
        try:
            self._run_once()
        finally:
            for handle in handles:
                handle.remove()
        if called:
            raise TargetError(
                f"a copy of the model still calls {called[0] or 'the model'} of the original, which something outside "
                "its modules holds on to; verification needs copies that stand alone"
            )

    def _loss_once(self) -> Tensor:
        ids = self._small_ids()
        with torch.no_grad():
            return self.adapter.loss(self.module, ids, ids, None)

    def _find_map(self) -> None:
        self.recognised = ""
        if self.weight_map is None:
            try:
                self.weight_map = find_map(self.native)
                self.recognised = self.weight_map.family
            except MapError as error:
                self.absent["weights"] = self.absent["config"] = f"no map: {error}"
        if self.weight_map is not None and self.weight_map.positions_follow_mask:
            self.adapter.positions_follow_mask = True
        self.declared = self.adapter.config if self.weight_map is None else self.weight_map.config
        if self.declared is not None:
            self.absent.pop("config", None)
            self.window = self.window or getattr(self.declared, "sliding_window", None)
            self.n_heads = self.n_heads or self.declared.n_heads

    def _find_abilities(self) -> None:
        adapter = self.adapter
        self.absent["parts"] = (
            "its layers cannot be run alone from outside; the oracle judges them where it is mapped"
        )
        self.absent["rope"] = self.absent["parts"]
        self.absent["accounting"] = "the sheet is of ProofLM's own computation"
        self.absent["document ids"] = "it takes no document ids"
        if isinstance(adapter, Discovered):
            self.absent |= adapter.absent
        else:
            keywords: dict[str, Capability] = {
                "padding_mask": "padding mask",
                "position_ids": "position ids",
                "cache": "cache",
            }
            methods: dict[str, Capability] = {"loss": "loss", "generate": "generation"}
            for keyword, capability in keywords.items():
                if not adapter.takes(keyword):
                    self.absent[capability] = f"the adapter's logits takes no {keyword}"
            for method, capability in methods.items():
                if not adapter.overrides(method):
                    self.absent[capability] = f"the adapter has no {method}"
            if "loss" in self.absent or not adapter.masks_loss:
                self.absent["loss mask"] = "the adapter's loss leaves nothing out"
        if self.build is None:
            self.absent["construction"] = "nothing says how to make a new one"
        self._find_dropout()

    def _find_dropout(self) -> None:
        ids = self._small_ids()
        scratch = self.swapped(copied(self.module))  # training may leave traces in it
        logits = []
        try:
            for noise in (1, 2):
                with scratch.training(0.5):
                    logits.append(scratch.logits(ids, self.paths[0], noise=noise))
        except SubjectError as error:
            self.absent["dropout"] = f"in train mode it {error}"
            return
        if torch.equal(*logits):
            self.absent["dropout"] = "no dropout was found in it, or it changes nothing"

    def _find_paths(self) -> None:
        module: Any = self.module
        if not hasattr(module, "set_attn_implementation"):
            return
        before = module.config._attn_implementation
        paths = []
        for backend in BACKENDS:
            try:
                module.set_attn_implementation(backend)
                self._run_once()
                paths.append(backend)
            except Exception:  # noqa: BLE001 - a backend that the architecture lacks is no path of it
                continue
        module.set_attn_implementation(before)
        self.paths = tuple(paths) or self.paths

    def _small_ids(self) -> Int[Tensor, "1 T"]:
        return torch.arange(min(5, self.context_length))[None] % self.vocab_size

    def _run_on_every_path(self) -> None:
        """Finds the paths: one may compute in a narrower dtype than another."""
        self._run_once()
        self._find_paths()

    def _run_once(self) -> Tensor:
        with torch.no_grad():
            return self.adapter.logits(self.module, self._small_ids())

    @contextmanager
    def on(self, path: str) -> Iterator[nn.Module]:
        """The module, switched to one of transformers' attention implementations for the time being."""
        if len(self.paths) == 1:
            with subject_runs():
                yield self.module
            return
        module: Any = self.module
        before = module.config._attn_implementation
        with subject_runs():
            module.set_attn_implementation(path)
            try:
                yield module
            finally:
                module.set_attn_implementation(before)

    def run(self, module: nn.Module, ids: Int[Tensor, "B T"], **given: Any) -> Float[Tensor, "B T V"]:
        """Calls the module once, through the adapter."""
        return self.adapter.logits(module, ids, **given)

    def loss(
        self,
        ids: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        loss_mask: Bool[Tensor, "B T"] | None,
        path: str,
        *,
        padding_mask: Tensor | None = None,
    ) -> Scalar:
        """Its own loss, with its graph."""
        assert padding_mask is None, "a foreign loss is asked for without padding"
        with self.on(path) as module:
            return self.adapter.loss(module, ids, labels, loss_mask)

    @property
    def skips_padding(self) -> bool:
        """Where it takes position ids, or is declared to count by the mask."""
        counts = self.can("position ids") or self.adapter.positions_follow_mask
        return super().skips_padding and counts

    def countable(self, ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """All positions, but the last where labels are shifted inside."""
        counted = super().countable(ids)
        if self.adapter.shifts_labels:
            counted[:, -1] = False
        return counted

    def to_oracle(self, tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
        """By the map."""
        assert self.weight_map is not None
        return self.weight_map.to_oracle(tensors)

    def parameter_names(self) -> dict[str, str]:
        """By the map."""
        assert self.weight_map is not None
        return {ours: place.name for ours, place in self.weight_map.places.items()}

    def new_cache(self, n_rows: int, capacity: int) -> Any:
        """An empty cache of the module's kind."""
        return self.adapter.new_cache(self.module, n_rows, capacity)

    def generate(
        self, ids: Int[Tensor, "B T"], max_new_tokens: int, path: str, **settings: Any
    ) -> Int[Tensor, "B U"]:
        """Prompts and continuation; the random state of the caller is left as it is."""
        with self.on(path) as module, torch.random.fork_rng(), torch.no_grad():
            return self.adapter.generate(module, ids, max_new_tokens, **settings)

    @property
    def embedding(self) -> Tensor | None:
        """By the map; else that of the embedding layer which looks up the token ids."""
        if self.weight_map is not None:
            return self.embedding_and_head(self.module)[0]
        layer = self._embedding_layer()
        return None if layer is None else layer.weight

    def _embedding_layer(self) -> nn.Embedding | None:
        """The first that is given the token ids; a table of positions may have as many rows."""
        ids = self._small_ids().flip(1)
        layers = [layer for layer in self.module.modules() if isinstance(layer, nn.Embedding)]
        found: list[nn.Embedding] = []

        def note(layer: nn.Module, given: tuple[Any, ...]) -> None:
            if given and isinstance(given[0], Tensor) and torch.equal(given[0].reshape(-1), ids.reshape(-1)):
                found.append(cast("nn.Embedding", layer))

        handles = [layer.register_forward_pre_hook(note) for layer in layers]
        try:
            with subject_runs(), torch.no_grad():
                self.adapter.logits(self.module, ids)
        finally:
            for handle in handles:
                handle.remove()
        return found[0] if found else None

    def embedding_and_head(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        """By the map."""
        assert self.weight_map is not None
        parameters = dict(module.named_parameters(remove_duplicate=False))
        places = self.weight_map.places
        embedding = parameters[places["embedding.weight"].name]
        head = places["head.weight"].name if "head.weight" in places else self.weight_map.second_head
        return embedding, embedding if head is None else parameters[head]


def _copied(native: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in eval mode and that dtype.

    Raises:
        TargetError: the module cannot be copied, or has no parameters.
    """
    if not any(True for _ in native.parameters()):
        raise TargetError("the model has no parameters: nothing of it can be verified")
    try:
        module = copied(native)
    except Exception as error:
        raise TargetError(f"the model cannot be copied ({type(error).__name__}: {error})") from error
    return module.to(dtype).eval()
