"""Finds out, from a module's signature and from what it does, how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from proof_lm.dims import Tensor
from proof_lm.errors import TargetError
from proof_lm.verify.subjects import calls
from proof_lm.verify.subjects.caches import ForeignCache
from proof_lm.verify.subjects.discovered import Discovered

LENGTHS = (64, 32, 19, 13, 7, 4, 2, 1)  # tried where no context length is declared
CLOSE = 1e-4  # relative; two conventions of masks or labels differ by far more
IGNORED = (-100, -1)  # label values that mean "do not count", as projects have them


@torch.no_grad()
def discover(module: nn.Module) -> Discovered:
    """How the module is called; it is run on small inputs, in the mode and dtype that it is in.

    Raises:
        TargetError: it cannot be called with token ids, or returns no logits.
    """
    found = Discovered(module)
    with torch.random.fork_rng():
        _find_logits(found)
        _find_sizes(found)
        probe = _Probe(found)
        _find_positions(found, probe)
        _find_padding(found, probe)
        _find_loss(found, probe)
        _find_cache(found, probe)
        _find_generation(found)
    return found


class _Probe:
    """Small inputs for the questions: two rows of five tokens, or as many as fit."""

    def __init__(self, found: Discovered) -> None:
        generator = torch.Generator().manual_seed(5)
        size = (2, min(5, found.context_length))
        self.ids = torch.randint(found.vocab_size, size, generator=generator)
        self.others = (self.ids + 1) % found.vocab_size
        self.logits = found.call(found.module, self.ids).logits.double()
        self.scale = float(self.logits.abs().max()) or 1.0

    def agree(self, logits: Tensor, expected: Tensor) -> bool:
        return bool((logits.double() - expected).abs().max() <= CLOSE * self.scale)


def _attempt(action: Callable[[], Any]) -> tuple[Any, str]:
    """What the action gives, or None and what it raised."""
    try:
        return action(), ""
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a foreign module raises is an answer
        return None, f"{type(error).__name__}: {error}"


def _named(found: Discovered, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in found.names[1:]), None)


def _find_logits(found: Discovered) -> None:
    two = torch.zeros(1, 2, dtype=torch.int64)
    found.labels = _named(found, calls.LABELS)
    try:
        returned = found.call(found.module, two)
        if returned.logits.shape[1] == 1 and found.labels is not None:
            found.needs_labels = True  # as nanoGPT does, which computes the last position only
            returned = found.call(found.module, two)
    except TargetError:
        raise
    except Exception as error:
        raise TargetError(
            f"calling the model with token ids of shape (1, 2) raised {type(error).__name__}: {error}"
        ) from error
    if returned.logits.shape[:2] != (1, 2):
        raise TargetError(
            f"the model gave logits of shape {tuple(returned.logits.shape)} for (1, 2) token ids"
        )
    found.note("token ids", found.names[0] if found.names else "first argument", "signature")
    if found.needs_labels:
        found.note("logits", f"of all positions only with {found.labels}", "behaviour")
    found.vocab_size = returned.logits.shape[-1]
    found.note("vocabulary", found.vocab_size, "last dimension of the logits")


def _find_sizes(found: Discovered) -> None:
    context = calls.declared(found.module, "context_length")
    if context is not None:
        found.context_length = context[0]
        found.note("context", *context)
    else:
        for length in LENGTHS:
            ids = torch.zeros(1, length, dtype=torch.int64)
            returned, _ = _attempt(partial(found.call, found.module, ids))
            if returned is not None:
                break
        found.context_length = length
        found.note("context", f"at least {length}", "behaviour: no attribute declares it")
    heads = calls.declared(found.module, "n_heads")
    if heads is not None:
        found.n_heads = heads[0]
        found.note("query heads", *heads)
    window = calls.declared(found.module, "window")
    config = getattr(found.module, "config", None)
    if window is not None and getattr(config, "use_sliding_window", True):
        found.window = window[0]
        found.note("sliding window", *window)


def _find_positions(found: Discovered, probe: _Probe) -> None:
    name = _named(found, calls.POSITIONS)
    if name is None:
        found.absent["position ids"] = f"forward takes none of {', '.join(calls.POSITIONS)}"
        return
    found.positions = name
    places = torch.arange(probe.ids.shape[1]).expand_as(probe.ids)
    logits, error = _attempt(lambda: found.logits(found.module, probe.ids, position_ids=places))
    if logits is None:
        found.positions = None
        found.absent["position ids"] = f"{name} of shape (batch, time) raised {error}"
    elif not probe.agree(logits, probe.logits):
        found.note("position ids", name, "signature; 0, 1, ... are not what it uses by default")
    else:
        found.note("position ids", name, "signature, confirmed by behaviour")


def _find_padding(found: Discovered, probe: _Probe) -> None:
    clear, unclear = _named(found, calls.PADDING), _named(found, calls.MASK)
    name = clear or unclear
    if name is None or probe.ids.shape[1] < 3:
        found.absent["padding mask"] = (
            f"forward takes none of {', '.join(calls.PADDING)}"
            if name is None
            else "the context is too short"
        )
        return
    found.padding = name
    real = torch.ones_like(probe.ids, dtype=torch.bool)
    real[1, :2] = False
    ran: list[str] = []
    errors: list[str] = []
    for form in calls.FORMS:
        found.mask_form = form
        hides, error = _attempt(lambda: _hides(found, probe, real))
        if hides:
            found.note("padding mask", f"{name}: {form}", "behaviour: it hides left padding")
            return
        (errors if hides is None else ran).append(error if hides is None else form)
    if clear is None or not ran:
        found.padding = None
        why = f"raised {errors[0]}" if errors and not ran else "hides no padding in any known convention"
        found.absent["padding mask"] = f"{name} of shape (batch, time) {why}"
        return
    found.mask_form = ran[0]
    found.note("padding mask", f"{name}: {ran[0]}", "assumed: no known convention hides left padding")


def _hides(found: Discovered, probe: _Probe, real: Tensor) -> bool:
    """Whether the mask makes padding invisible, and nothing else."""
    base, moved, other = (
        found.logits(found.module, ids, padding_mask=real)
        for ids in (
            probe.ids,
            torch.where(real, probe.ids, probe.others),
            torch.where(torch.arange(real.shape[1]) == 2, probe.others, probe.ids),
        )
    )
    unmasked = probe.agree(base[0], probe.logits[0])
    hidden = bool(((moved - base)[real] == 0.0).all())
    return unmasked and hidden and bool((other[1, -1] != base[1, -1]).any())


def _find_loss(found: Discovered, probe: _Probe) -> None:
    if found.labels is None:
        found.absent["loss"] = found.absent["loss mask"] = f"forward takes none of {', '.join(calls.LABELS)}"
        return
    labels = {found.labels: probe.others.clone()}  # some edit them
    loss, error = _attempt(lambda: found.call(found.module, probe.ids, **labels).loss)
    if not isinstance(loss, Tensor):
        why = f"raised {error}" if error else "gave no loss"
        found.absent["loss"] = found.absent["loss mask"] = f"{found.labels} of shape (batch, time) {why}"
        return
    terms = probe.logits.log_softmax(-1)
    aligned = -terms.gather(-1, probe.others[..., None])[..., 0]
    shifted = -terms[:, :-1].gather(-1, probe.others[:, 1:, None])[..., 0]
    how = "behaviour"
    if _near(loss, shifted.mean()):
        found.shifts_labels = True
    elif not _near(loss, aligned.mean()):
        how = "assumed from the name: the loss is neither the aligned nor the shifted mean"
        found.shifts_labels = found.labels == "labels"
    convention = "shifted inside" if found.shifts_labels else "aligned with the logits"
    found.note("loss", f"{found.labels}, {convention}", how)
    _find_loss_mask(found, probe)


def _near(value: Tensor, expected: Tensor) -> bool:
    return bool((value.double() - expected).abs() <= CLOSE * expected.abs().clamp(min=1.0))


def _find_loss_mask(found: Discovered, probe: _Probe) -> None:
    name = _named(found, calls.LOSS_MASK)
    if name is not None:
        found.loss_mask = name
        found.note("loss mask", name, "signature")
        return
    counted = torch.ones_like(probe.ids, dtype=torch.bool)
    counted[:, -1] = counted[0, 0] = False
    terms = -probe.logits.log_softmax(-1).gather(-1, probe.others[..., None])[..., 0]
    for value in IGNORED:
        found.ignored = value
        loss, _ = _attempt(lambda: found.loss(found.module, probe.ids, probe.others, counted))
        if loss is not None and _near(loss, terms[counted].mean()):
            found.note("loss mask", f"{found.labels} = {value} do not count", "behaviour")
            return
    found.ignored = None
    found.absent["loss mask"] = f"no label value of {', '.join(map(str, IGNORED))} is left out of the mean"


def _find_cache(found: Discovered, probe: _Probe) -> None:
    name = _named(found, calls.CACHE)
    if name is None or probe.ids.shape[1] < 3:
        found.absent["cache"] = (
            f"forward takes none of {', '.join(calls.CACHE)}" if name is None else "the context is too short"
        )
        return
    found.cache = name

    def two_steps() -> ForeignCache:
        cache = found.new_cache(found.module, len(probe.ids), probe.ids.shape[1])
        found.logits(found.module, probe.ids[:, :2], cache=cache)
        found.logits(found.module, probe.ids[:, 2:], cache=cache)
        return cache

    cache, error = _attempt(two_steps)
    if cache is None or cache.state is None:
        found.cache = None
        found.absent["cache"] = (
            f"{name}: {'two calls in a row raised ' + error if error else 'none came back'}"
        )
        return
    if found.padding is not None:
        _find_mask_beside_cache(found, probe)
    found.can_crop = bool(_attempt(lambda: cache.crop(2) is None)[0])
    found.note("cache", f"{name}, a {type(cache.state).__name__}", "behaviour: two calls in a row")


def _find_mask_beside_cache(found: Discovered, probe: _Probe) -> None:
    """Whether the mask is of all tokens, as in transformers, or of the call's own, as in ProofLM."""
    real = torch.ones_like(probe.ids, dtype=torch.bool)
    real[:, 0] = False

    def two_steps() -> ForeignCache:
        cache = found.new_cache(found.module, len(probe.ids), probe.ids.shape[1])
        found.logits(found.module, probe.ids[:, :2], padding_mask=real[:, :2], cache=cache)
        found.logits(found.module, probe.ids[:, 2:], padding_mask=real[:, 2:], cache=cache)
        return cache

    if _attempt(two_steps)[0] is not None:
        return
    found.mask_spans_cache = False
    if _attempt(two_steps)[0] is None:
        found.mask_spans_cache = True
        return
    found.note(f"{found.padding} beside a cache", "of the call's own tokens", "behaviour: of all it raises")


def _find_generation(found: Discovered) -> None:
    method = getattr(found.module, "generate", None)
    if method is None:
        found.absent["generation"] = "it has no method generate"
        return
    names = set(inspect.signature(method).parameters)
    if hasattr(found.module, "generation_config"):
        found.note("generation", "generate, called as transformers' is", "it has a generation_config")
        return
    needed = {"max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop_ids"}
    if not needed <= names:
        lacking = ", ".join(sorted(needed - names))
        found.absent["generation"] = f"generate takes no {lacking}; a proof_lm.verify.Adapter can say how"
        return
    found.note("generation", "generate", "signature")
