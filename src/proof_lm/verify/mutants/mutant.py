"""A mutant: a decoder with one named, planted fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.model import ProofLM
from proof_lm.verify.randomize import randomized

BASE = DecoderConfig(
    vocab_size=31, context_length=29, n_layers=2, d_model=24, n_heads=6, n_kv_heads=3, head_dim=4, d_ff=37
)


@dataclass(frozen=True)
class Mutant:
    """One fault, how to plant it, and the contracts that must reject it.

    Attributes:
        name: short, in words joined by hyphens.
        fault: what is wrong, in one sentence.
        rejected_by: names of the contracts that must find a violation.
        plant: changes a sound model into the faulty one, in place.
        changes: config fields that the fault needs, on top of ``BASE``.
        source: a public report of this fault, as owner/name#number; empty where there is none.
        ids: entries of the lists of public faults that it is, such as ``"O02"`` or ``"cs336:causal_none"``.
    """

    name: str
    fault: str
    rejected_by: tuple[str, ...]
    plant: Callable[[ProofLM], None]
    changes: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    ids: tuple[str, ...] = ()

    def build(self, seed: int = 0) -> ProofLM:
        """The faulty decoder, with random weights, gains and biases."""
        model = randomized(BASE.with_(**self.changes), seed)
        self.plant(model)
        return model


def become(modules: Iterable[nn.Module], kind: type[nn.Module]) -> None:
    """Turns modules into a faulty subclass of what they are, with the same parameters."""
    for module in modules:
        assert issubclass(kind, type(module)), f"{kind} does not extend {type(module)}"
        module.__class__ = kind


def mix_in(modules: Iterable[nn.Module], faulty: type) -> None:
    """Turns modules of any kind into that kind with the methods of ``faulty`` before its own."""
    for module in modules:
        module.__class__ = type(faulty.__name__, (faulty, type(module)), {})


def attentions(model: ProofLM) -> list[nn.Module]:
    """The attention layers."""
    return [block.get_submodule("attention") for block in model.blocks]


def norms(model: ProofLM) -> list[nn.Module]:
    """The normalization layers."""
    return [module for name, module in model.named_modules() if name.endswith("norm")]


def in_attention(kind: type[nn.Module]) -> Callable[[ProofLM], None]:
    """Plants a faulty attention layer in every block."""
    return lambda model: become(attentions(model), kind)


def in_decoder(kind: type[ProofLM]) -> Callable[[ProofLM], None]:
    """Plants a fault of the whole decoder."""
    return lambda model: become([model], kind)
