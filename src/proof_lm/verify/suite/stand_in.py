"""The reference that answers in place of somebody else's decoder, with that decoder's live parameters."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from proof_lm.dims import Tensor
from proof_lm.errors import InputError, MapError, TargetError
from proof_lm.model import ProofLM
from proof_lm.verify.maps import WeightMap, find_map, read_map
from proof_lm.verify.mutants import Mutant
from proof_lm.verify.subjects import calls
from proof_lm.verify.subjects.discover import discover
from proof_lm.verify.subjects.discovered import Discovered
from proof_lm.verify.suite.events import Events

CLOSE = 1e-3  # relative: float32 is far nearer, another decoder far off
HARMLESS = ("return_dict", "use_cache", "output_attentions", "output_hidden_states")  # change no logit
OUTSIDE = "the class's own code does that, outside of its forward"


@dataclass(frozen=True)
class Call:
    """One call of somebody else's decoder, in our terms: what ``ProofLM.forward`` takes."""

    token_ids: Tensor
    labels: Tensor | None = None
    loss_mask: Tensor | None = None
    padding_mask: Tensor | None = None
    position_ids: Tensor | None = None


class StandIn:
    """Answers the calls of one module: logits and loss are the reference's, everything else is the module's own.

    The reference reads the module's parameters anew at each call, with their graph, so gradients and optimizer steps
    reach the module. Calls that are not understood, those with a cache among them, the module answers itself.

    Args:
        module: the decoder.
        own: its class's ``forward``.
        map_file: where its weights lie; by default as :func:`find_map` recognises.
        events: where it is told what was not answered.

    Attributes:
        config: of the reference; its dropout is that of the module's ``nn.Dropout`` layers.
        absent: what no call of the module can show, with the reason, by :data:`Capability`.

    Raises:
        MapError: its weights cannot be mapped, or the reference with its weights gives other logits.
        TargetError: it cannot be copied, or not be called.
    """

    def __init__(
        self, module: nn.Module, own: Callable[..., Any], map_file: Path | None, events: Events
    ) -> None:
        self.own, self.events = own, events
        self.signature = inspect.signature(own)
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            copied = _copied(module)
            self.map: WeightMap = find_map(module) if map_file is None else read_map(map_file, module)
            self.found: Discovered = discover(copied)
            self.config = self.map.config.with_(dropout=_dropout(module))
            self.absent: dict[str, str] = {
                **{str(name): why for name, why in self.found.absent.items()},
                **dict.fromkeys(
                    ("generation", "construction", "storage", "parameter groups", "document ids"), OUTSIDE
                ),
                "cache": self.found.absent.get(
                    "cache", "calls with a cache are answered by the class itself"
                ),
            }
            if not self.config.dropout:
                self.absent["dropout"] = "it has no dropout layer with a probability above 0"
            self.counts_by_mask = True
            self.reference = ProofLM(self.config)
            weights = self.map.to_oracle(dict(copied.named_parameters(remove_duplicate=False)))
            self.reference.load_state_dict({name: w.detach() for name, w in weights.items() if w is not None})
            self._compare(copied)

    def plant(self, mutant: Mutant) -> None:
        """Plants the fault in the reference; whatever the fault raises comes through."""
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False):
            mutant.plant(self.reference)

    def answer(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the module returns for these arguments, with the reference's logits and loss in it."""
        call = self._read(module, args, kwargs)
        if isinstance(call, str):
            self.events.tell("passed", why=call)
            return self.own(module, *args, **kwargs)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            theirs = self.own(module, *args, **kwargs)
        try:
            logits, loss = self.run(module, call)
        except InputError as error:  # what the class accepts is for the class to say
            self.events.tell("passed", why=str(error))
            return self.own(module, *args, **kwargs)
        return _like(theirs, logits, loss)

    def run(self, module: nn.Module, call: Call) -> tuple[Tensor, Tensor | None]:
        """The reference's logits and loss, with the module's parameters and mode."""
        parameters = self.map.to_oracle(dict(module.named_parameters(remove_duplicate=False)))
        live = {name: value for name, value in parameters.items() if value is not None}
        dtype = live["embedding.weight"].dtype
        if self.reference.embedding.weight.dtype != dtype:
            self.reference.to(dtype)
        self.reference.train(module.training)
        given = {"padding_mask": call.padding_mask, "position_ids": call.position_ids}
        if call.padding_mask is not None and call.position_ids is None and not self.counts_by_mask:
            given["position_ids"] = torch.arange(call.token_ids.shape[1], device=call.token_ids.device)
        arguments = (call.token_ids, call.labels, call.loss_mask)
        return functional_call(self.reference, live, arguments, given, tie_weights=False)

    def _read(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | str:
        """The call in our terms, or why it cannot be put so."""
        try:
            bound = self.signature.bind(module, *args, **kwargs)
        except TypeError as error:
            return str(error)
        given: dict[str, Any] = {}
        for name, value in list(bound.arguments.items())[1:]:
            parameter = self.signature.parameters[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= value
            elif value is not parameter.default:
                given[name] = value
        found = self.found
        known = {found.names[0] if found.names else "", found.padding, found.positions, found.labels}
        known |= {found.loss_mask, *HARMLESS}
        unknown = [name for name, value in given.items() if name not in known and value is not None]
        if unknown:
            return f"a call with {', '.join(sorted(unknown))}"
        ids = given.get(found.names[0]) if found.names else None
        if not isinstance(ids, Tensor) or ids.dim() != 2:
            return "a call without token ids of shape (batch, time)"
        of_tokens = {found.padding: "padding mask", found.labels: "loss", found.loss_mask: "loss mask"}
        for argument, capability in of_tokens.items():
            value = None if argument is None else given.get(argument)
            if value is not None and (value.shape != ids.shape or capability in self.absent):
                return f"a call with {argument}"
        call = Call(ids, position_ids=_get(given, found.positions))
        mask = _get(given, found.padding)
        if mask is not None:
            call = Call(ids, padding_mask=_decoded(mask, found.mask_form), position_ids=call.position_ids)
        labels = _get(given, found.labels)
        if labels is None:
            return call
        aligned, counted = self._aligned(labels, _get(given, found.loss_mask))
        return Call(ids, aligned, counted, call.padding_mask, call.position_ids)

    def _aligned(self, labels: Tensor, loss_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Labels aligned with the logits, and which of them count; None where all do."""
        counted = torch.ones_like(labels, dtype=torch.bool) if loss_mask is None else loss_mask.bool()
        if self.found.ignored is not None:
            counted = counted & (labels != self.found.ignored)
        if self.found.shifts_labels:
            labels = torch.cat([labels[:, 1:], labels[:, :1]], 1)
            counted = torch.cat([counted[:, 1:], torch.zeros_like(counted[:, :1])], 1)
        if bool(counted.all()):
            return labels, None
        return labels.masked_fill(~counted, 0), counted

    @torch.no_grad()
    def _compare(self, copied: nn.Module) -> None:
        """Logits, padding and loss on small inputs; what differs in padding or loss the module keeps to itself.

        Raises:
            MapError: the logits differ.
        """
        n_tokens = min(5, self.found.context_length)
        ids = torch.randint(self.found.vocab_size, (2, n_tokens), generator=torch.Generator().manual_seed(7))
        theirs, ours = self.found.logits(copied, ids), self.run(copied, Call(ids))[0]
        if not _near(ours, theirs):
            raise MapError(
                f"the reference with its weights gives other logits: {_difference(ours, theirs):.2g} off where the "
                f"largest is {float(theirs.abs().max()):.2g}; `proof-lm verify` says more"
            )
        if "padding mask" not in self.absent:
            self._compare_padding(copied, ids)
        if "loss" not in self.absent:
            self._compare_loss(copied, ids)

    def _compare_padding(self, copied: nn.Module, ids: Tensor) -> None:
        real = torch.ones_like(ids, dtype=torch.bool)
        real[1, :2] = False
        assert self.found.padding is not None
        mask = calls.encode_mask(real, self.found.mask_form)
        if self.found.mask_form == calls.ADDITIVE:
            mask = mask.to(next(copied.parameters()).dtype)
        theirs = self.found.call(copied, ids, **{self.found.padding: mask}).logits
        for self.counts_by_mask in (True, False):
            ours = self.run(copied, Call(ids, padding_mask=real))[0]
            if _near(ours[real], theirs[real]):
                break
        else:
            self.absent["padding mask"] = "its logits beside padding are not the reference's"
        if not self.counts_by_mask:
            self.absent.setdefault("padding mask", "it does not count positions by its mask")

    def _compare_loss(self, copied: nn.Module, ids: Tensor) -> None:
        labels = ids.flip(0)
        if self.found.ignored is not None:
            labels = labels.index_fill(1, torch.tensor([1]), self.found.ignored)
        assert self.found.labels is not None
        theirs = self.found.call(copied, ids, **{self.found.labels: labels}).loss
        ours = self.run(copied, Call(ids, *self._aligned(labels, None)))[1]
        if theirs is None or ours is None or not _near(ours, theirs):
            self.absent["loss"] = self.absent["loss mask"] = "its loss is not the mean over counted positions"


def _copied(module: nn.Module) -> nn.Module:
    try:
        copied = copy.deepcopy(module).eval()
    except Exception as error:
        raise TargetError(f"the model cannot be copied ({type(error).__name__}: {error})") from error
    is_narrow = any(p.dtype in (torch.float16, torch.bfloat16) for p in copied.parameters())
    return copied.float() if is_narrow else copied


def _dropout(module: nn.Module) -> float:
    return max((float(layer.p) for layer in module.modules() if isinstance(layer, nn.Dropout)), default=0.0)


def _get(given: Mapping[str, Any], name: str | None) -> Any:
    return None if name is None else given.get(name)


def _decoded(mask: Tensor, form: str) -> Tensor:
    """A module's padding mask as ours: True for real tokens."""
    if form == calls.ADDITIVE:
        return mask == 0
    return ~mask.bool() if form == calls.PADS else mask.bool()


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max())


def _near(ours: Tensor, theirs: Tensor) -> bool:
    return _difference(ours, theirs) <= CLOSE * max(float(theirs.abs().max()), 1e-6)


def _like(theirs: Any, logits: Tensor, loss: Tensor | None) -> Any:
    """What the module returned, with these logits and this loss in their places."""
    returned = calls.read(theirs)
    logits = logits[:, -returned.logits.shape[1] :].to(returned.logits.dtype)
    loss = None if loss is None or returned.loss is None else loss.to(returned.loss.dtype)
    if isinstance(theirs, Tensor):
        return logits
    if isinstance(theirs, tuple | list):
        items = [logits if item is returned.logits else item for item in theirs]
        items = [loss if loss is not None and item is returned.loss else item for item in items]
        is_named = hasattr(theirs, "_fields")
        return type(theirs)(*items) if is_named else type(theirs)(items)
    changed = copy.copy(theirs)
    for name, value in (("logits", logits), ("loss", loss)):
        if value is None:
            continue
        if isinstance(changed, Mapping):
            changed[name] = value  # type: ignore[index]
        else:
            setattr(changed, name, value)
    return changed
