"""A call leaves nothing behind: neither on the model, nor in the caller's tensors, nor in global state."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from proof_lm.dims import Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.noise import NOISE, seeded
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.subjects.calls import CACHE
from proof_lm.verify.verdict import EXACT, Measurement


def check_side_effects(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Every kind of call, in eval mode: logits, with a padding mask and with a cache, loss and its gradient,
    generation (in train mode too), and a call that must fail.

    Before and after it, parameters, buffers, modes, gradients, the given tensors and the global state (random
    generators of PyTorch and NumPy, dtype and gradient mode) are compared; then a call from before is made
    again and must give the same bits. Calls are shorter and longer than that one, and of fewer and more rows. A
    large subject is compared once, after one call of every kind on one path.
    """
    ids = probe.tokens("side effects", 2, max(1, probe.n_short - 2))
    for path in subject.paths[:1] if probe.is_large else subject.paths:
        before = subject.logits(ids, path)
        for name, call in _calls(subject, probe, path).items():
            changes: list[str] = []
            mode = subject.training(0.0) if name.endswith("train mode") else nullcontext()
            with mode, subject.on(path) as module, _watched(module, changes) as given:
                call(given)
            where = f"{name}: {', '.join(changes[:3])}" if changes else name
            yield Measurement(path, "things changed by a call", float(len(changes)), EXACT, where)
            moved = float((subject.logits(ids, path) - before).abs().max())
            yield Measurement(
                path, "max |change of a call made before and after another|", moved, EXACT, name
            )


Given = Callable[[Tensor], Tensor]


def _calls(subject: Subject, probe: Probe, path: str) -> dict[str, Callable[[Given], None]]:
    long = probe.tokens("long", 3, probe.n_tokens)
    short = probe.tokens("short", 1, 1)

    def plain(ids: Tensor) -> Callable[[Given], None]:
        return lambda given: _run(subject, given(ids))

    def refused(given: Given) -> None:
        with suppress(Exception):  # the call is made to fail
            _run(subject, given(short + subject.vocab_size))

    def masked(given: Given) -> None:
        _run(subject, given(long), padding_mask=given(probe.ragged_mask(*long.shape, left=True)))

    def cached(given: Given) -> None:
        _run(subject, given(long), cache=subject.new_cache(len(long), long.shape[1]))

    def loss(given: Given) -> None:
        counted = torch.ones_like(long, dtype=torch.bool)
        counted[0, 0] = False
        mask = given(counted) if subject.can("loss mask") else None
        value = subject.loss(given(long), given(long.flip(0).contiguous()), mask, path)
        if not probe.is_large and value.requires_grad:
            subject.gradients_of(value)

    def generation(given: Given) -> None:
        subject.generate(given(long[:, :1].contiguous()), 2, path)

    calls = {"one token": plain(short), "a longer row": plain(long), "a refused token id": refused}
    if probe.n_tokens > 1 and subject.can("padding mask"):
        calls["a padding mask"] = masked
    if subject.can("cache"):
        calls["a cache"] = cached
    if subject.can("loss"):
        calls["a loss"] = loss
    if subject.context_length > 2 and subject.can("generation"):
        calls["generation"] = generation

    def each(given: Given) -> None:
        for call in calls.values():
            call(given)

    if probe.is_large:
        return {"a call of every kind": each}
    if "generation" in calls:
        calls["generation in train mode"] = generation
    return calls


def _run(subject: Subject, ids: Int[Tensor, "B T"], **options: Any) -> None:
    """A call that does not set the random state aside, as :meth:`Subject.logits` does."""
    with torch.no_grad():
        subject.run(subject.module, ids, **options)


@contextmanager
def _watched(module: nn.Module, changes: list[str]) -> Iterator[Given]:
    """Gives a function that notes tensors handed over; afterwards lists what changed, and puts it right."""
    handed: list[tuple[Tensor, Tensor]] = []

    def given(tensor: Tensor) -> Tensor:
        handed.append((tensor, tensor.clone()))
        return tensor

    def note(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """What an adapter makes of the caller's tensors, such as a mask in the module's form."""
        others = (value for name, value in named.items() if name not in CACHE)
        for value in (*arguments, *others):
            if isinstance(value, Tensor):
                given(value)

    modes = {part: part.training for part in module.modules()}
    numpy_state = np.random.get_state()  # noqa: NPY002 - what others draw from
    with seeded(NOISE):  # a state that no call can have left behind
        before = _state(module)
        handle = module.register_forward_pre_hook(note, with_kwargs=True)
        try:
            yield given
        finally:
            handle.remove()
            after = _state(module)
            changes += sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            if any(not torch.equal(tensor, copy) for tensor, copy in handed):
                changes.append("a given tensor")
    np.random.set_state(numpy_state)  # noqa: NPY002
    for part, mode in modes.items():
        part.training = mode


def _state(module: nn.Module) -> dict[str, object]:
    """Everything that must not change, by name; tensors as checksums, since a copy of a large model is large."""
    legacy: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    return {
        **{f"parameter {name}": _checksum(tensor) for name, tensor in module.named_parameters()},
        **{f"buffer {name}": _checksum(tensor) for name, tensor in module.named_buffers()},
        **{f"mode of {name or 'the model'}": part.training for name, part in module.named_modules()},
        **{f"gradient of {name}": p.grad is None for name, p in module.named_parameters()},
        "PyTorch's random state": _checksum(torch.get_rng_state()),
        "NumPy's random state": (legacy["state"]["pos"], zlib.crc32(legacy["state"]["key"].tobytes())),
        "default dtype": torch.get_default_dtype(),
        "gradient mode": torch.is_grad_enabled(),
        "number of threads": torch.get_num_threads(),
    }


def _checksum(tensor: Tensor) -> tuple[object, ...]:
    bits = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return tensor.dtype, tuple(tensor.shape), zlib.crc32(bits.numpy().data)


SIDE_EFFECTS = Contract(
    "no-side-effects",
    "A call changes nothing: neither the model, nor what it was given, nor global state, nor later calls.",
    frozenset({"logits"}),
    check_side_effects,
    grows=False,
)
