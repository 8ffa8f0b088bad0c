"""Plants a fault in the decoders of the running process: in every ProofLM, or in every instance of a class."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError, TargetError
from proof_lm.functional import AttentionBackend
from proof_lm.model import ProofLM
from proof_lm.verify.mutants import MUTANTS, Mutant
from proof_lm.verify.suite.events import Events
from proof_lm.verify.suite.stand_in import StandIn


def plant(module: ModuleType) -> None:
    """Plants what the environment names in the decoder that ``module`` holds.

    ``PROOF_LM_MUTANT`` names the fault, and is empty for none; ``PROOF_LM_SUITE_IN`` is ``package.module:Class``, and
    empty for ProofLM; ``PROOF_LM_SUITE_MAP`` is a map file for that class, or empty; ``PROOF_LM_SUITE_EVENTS`` is where
    it is told what was met.

    Raises:
        TargetError: the module has no such class.
    """
    name = os.environ.get("PROOF_LM_MUTANT", "")
    mutant = next((mutant for mutant in MUTANTS if mutant.name == name), None)
    events = Events(Path(os.environ["PROOF_LM_SUITE_EVENTS"]))
    place = os.environ.get("PROOF_LM_SUITE_IN", "")
    if not place:
        plant_in_each(ProofLM, mutant, events)
        return
    found: Any = module
    for part in place.partition(":")[2].split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise TargetError(f"--in {place}: the module has no such subclass of torch.nn.Module")
    map_file = os.environ.get("PROOF_LM_SUITE_MAP", "")
    answer_for(found, mutant, Path(map_file) if map_file else None, events)


def plant_in_each(decoder: type[ProofLM], mutant: Mutant | None, events: Events) -> None:
    """From now on every new decoder of that class has the fault; without one it is told which were made.

    A fault of construction runs its own constructor. Random numbers drawn later are those of the sound run. A
    subclass stays as it is.
    """
    sound = decoder.__init__

    @functools.wraps(sound)
    def init(self: ProofLM, config: DecoderConfig, *, attention_backend: AttentionBackend = "fused") -> None:
        before = torch.get_rng_state()
        sound(self, config, attention_backend=attention_backend)
        if type(self) is not decoder:  # a faulty class builds on this constructor too
            return
        events.tell("made", config=config.to_dict())
        if mutant is None:
            return
        after = torch.get_rng_state()
        try:
            mutant.plant(self)
            if type(self).__init__ is not init:
                torch.set_rng_state(before)
                type(self).__init__(self, config)
                self.attention_backend = attention_backend
        except Exception as error:  # noqa: BLE001 - a fault of another kind of decoder fits in its own ways
            events.tell("refused", why=f"{type(error).__name__}: {error}")
            self.__class__ = decoder
            torch.set_rng_state(before)
            sound(self, config, attention_backend=attention_backend)
        else:
            events.tell("planted")
        torch.set_rng_state(after)

    decoder.__init__ = init  # type: ignore[method-assign]


def answer_for(
    decoder: type[nn.Module], mutant: Mutant | None, map_file: Path | None, events: Events
) -> None:
    """From now on calls of that class are answered by the reference, with the instance's live parameters and the
    fault, if there is one; what cannot be answered so the class answers itself."""
    own: Callable[..., Any] = decoder.forward
    stand_ins: WeakKeyDictionary[nn.Module, StandIn | str] = WeakKeyDictionary()
    is_building = False

    @contextmanager
    def building() -> Iterator[None]:
        nonlocal is_building
        is_building = True
        try:
            yield
        finally:
            is_building = False

    @functools.wraps(own)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_building or torch.compiler.is_compiling():
            return own(self, *args, **kwargs)
        if self not in stand_ins:
            with building():
                stand_ins[self] = _stand_in(self, own, mutant, map_file, events)
        stand_in = stand_ins[self]
        if isinstance(stand_in, str):
            return own(self, *args, **kwargs)
        return stand_in.answer(self, args, kwargs)

    decoder.forward = forward


def _stand_in(
    module: nn.Module, own: Callable[..., Any], mutant: Mutant | None, map_file: Path | None, events: Events
) -> StandIn | str:
    """The stand-in, or why there is none."""
    try:
        stand_in = StandIn(module, own, map_file, events)
    except (MapError, TargetError) as error:
        events.tell("unmapped", why=str(error))
        return str(error)
    events.tell("mapped", config=stand_in.config.to_dict(), absent=stand_in.absent)
    if mutant is None:
        return stand_in
    try:
        stand_in.plant(mutant)
    except Exception as error:  # noqa: BLE001 - a fault of another kind of decoder fits in its own ways
        why = f"{type(error).__name__}: {error}"
        events.tell("refused", why=why)
        return why
    events.tell("planted")
    return stand_in
