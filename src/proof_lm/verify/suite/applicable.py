"""Which faults a decoder can show at all: what nothing could notice is not held against a suite."""

from __future__ import annotations

from collections.abc import Mapping

from proof_lm.config import DecoderConfig
from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.mutants import BASE, Mutant
from proof_lm.verify.probe import Probe
from proof_lm.verify.randomize import randomized
from proof_lm.verify.subjects import ProofSubject
from proof_lm.verify.verdict import Verdict

SEED = 1  # of the weights; the probe's is the next
LARGE = 300_000  # parameters; a decoder with more is judged in the sizes of the mutants' own base
SIZES = ("vocab_size", "context_length", "n_layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "head_dim")
OUTSIDE = frozenset({"tying", "parameter-count", "save-load", "materialization", "compiled"})
"""Contracts on what the class has or does outside of an eager call, where a stand-in answers for nothing."""
UNREACHABLE = {
    "labels-overwritten": "labels are converted before the reference gets them",
    "additive-mask-taken-for-boolean": "masks are converted before the reference gets them",
}
"""Faults that a stand-in cannot show, although a contract on the reference alone does."""


def why_not_shown(
    mutant: Mutant, config: DecoderConfig, absent: Mapping[str, str], *, stands_in: bool
) -> str:
    """Why no test could notice the fault in a decoder of this config; empty where one could.

    The fault is planted in a decoder of the config with random weights. It shows if a contract that rejects it finds a
    violation there.

    Args:
        mutant: the fault.
        config: of the decoder that the suite tests.
        absent: what calls of that decoder cannot show, with the reason.
        stands_in: whether the decoder is somebody else's, answered for by the reference.
    """
    if stands_in and mutant.name in UNREACHABLE:
        return UNREACHABLE[mutant.name]
    model = randomized(_judged(config), SEED)
    names = {name for name, _ in model.named_parameters()}
    needs = _needs(mutant, config)
    try:
        mutant.plant(model)
    except Exception:  # noqa: BLE001 - a fault of another kind of decoder fits in its own ways
        return needs or "it does not fit a decoder of this config"
    if hasattr(model, "accounting"):
        return "it is a fault of the sheet, and no decoder computes otherwise by it"
    if stands_in and names != {name for name, _ in model.named_parameters()}:
        return "it changes which parameters there are, and the class has its own"
    subject = ProofSubject(mutant.name, model)
    subject.absent.update(absent)  # type: ignore[arg-type]  # capabilities by name
    if stands_in:
        subject.paths = ("fused",)
    reasons = []
    contracts = [contract for contract in CONTRACTS if contract.name in mutant.rejected_by]
    for contract in contracts:
        lacking = [subject.absent[need] for need in sorted(contract.needs) if need in subject.absent]
        if stands_in and contract.name in OUTSIDE:
            reasons.append("the class's own code does that, outside of its forward")
        elif lacking:
            reasons.append(lacking[0])
        elif _rejects(contract, subject, is_home=_is_home(mutant, config)):
            return ""
    return needs or (reasons[0] if reasons else "it changes nothing in a decoder of this config")


def _rejects(contract: Contract, subject: ProofSubject, *, is_home: bool) -> bool:
    """Whether the contract finds a violation; taken for granted of the one that needs half a minute to look.

    A decoder that raises before anything is measured speaks for the fault only in the kind of decoder that the fault
    was written for; in another it does not fit.
    """
    if contract.name == "compiled":
        return True
    verdict, violating = contract.first_violation(subject, Probe(subject, SEED + 1))
    return verdict is Verdict.VIOLATED and (is_home or violating is not None)


def _is_home(mutant: Mutant, config: DecoderConfig) -> bool:
    """Whether the config differs from the one that the fault was written for in sizes only."""
    home = BASE.with_(**mutant.changes).to_dict()
    return all(home[name] == value for name, value in config.to_dict().items() if name not in SIZES)


def _judged(config: DecoderConfig) -> DecoderConfig:
    """The config, or for a large decoder the same kind of decoder in small."""
    weights = config.vocab_size * config.d_model + config.n_layers * config.d_model * (
        3 * config.d_ff + 4 * config.n_heads * config.head_width
    )
    if weights <= LARGE:
        return config
    sizes = {name: getattr(BASE, name) for name in SIZES}
    if config.kv_heads in (1, config.n_heads):
        sizes["n_kv_heads"] = 1 if config.kv_heads == 1 else BASE.n_heads
    window = None if config.sliding_window is None else min(config.sliding_window, 3)
    return config.with_(**sizes, sliding_window=window)


def _needs(mutant: Mutant, config: DecoderConfig) -> str:
    """Which fields the fault needs that the config has otherwise."""
    other = [f"{name} = {value}" for name, value in mutant.changes.items() if getattr(config, name) != value]
    return f"it needs {', '.join(other)}" if other else ""
