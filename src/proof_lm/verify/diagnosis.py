"""Which planted fault behaves as the subject does, and where it first leaves the oracle."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from proof_lm import oracle
from proof_lm.dims import Tensor
from proof_lm.model import ProofLM
from proof_lm.verify.contracts import CONTRACTS
from proof_lm.verify.mutants import MUTANTS, Mutant
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import ForeignSubject, ProofSubject, Subject, SubjectError
from proof_lm.verify.threads import threads
from proof_lm.verify.verdict import ContractResult, Measurement, Verdict, Verification

SAME = 1e-6  # relative: two computations of one fault differ by rounding, two faults by far more
PATIENCE = 30.0  # seconds for trying faults
ORACLE = ("oracle-logits", "oracle-gradients")
COMPARED = ("causality", "batch-independence", "padding", "cache", "masked-loss")  # by what they measure


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a subject whose weights are known.

    Attributes:
        faults: the planted faults that reproduce everything that was compared, as "name: fault".
        component: where the subject first leaves the oracle, in words; empty where it does not, or its layers
            cannot be watched.
        n_untried: faults that there was no time for.
        assumed: the project whose layout its weights were recognised as; empty where it is ProofLM's or declared.
    """

    faults: tuple[str, ...]
    component: str
    n_untried: int = 0
    assumed: str = ""

    def __str__(self) -> str:
        if self.assumed:
            return f"{self._finding()} (read as {self.assumed}, by names and shapes: --map FILE says what else it is)"
        return self._finding()

    def _finding(self) -> str:
        if len(self.faults) == 1:
            return f"behaves as {self.faults[0]}"
        if self.faults:
            return "behaves as one of these, which were not told apart: " + " | ".join(self.faults)
        untried = f" ({self.n_untried} were not tried, for want of time)" if self.n_untried else ""
        found = f"no fault in the catalogue behaves so{untried}"
        return f"{found}; {self.component}" if self.component else found


def diagnose(subject: Subject, verification: Verification) -> Diagnosis | None:
    """Tries the catalogue on the reference with the subject's weights.

    A fault is named if the decoder in which it is planted gives, on one of its paths, the subject's logits and
    gradients, to rounding, and what the contracts about behaviour measured that the subject violates: the same
    verdicts, by the same numbers (to 1e-6; same seed, same inputs). Nothing is tried for longer than half a minute.

    Returns:
        None where nothing is violated that could be compared, or the subject's weights are not known.
    """
    violated = [result for result in verification.results if result.verdict is Verdict.VIOLATED]
    compared = [result for result in violated if result.measurements and result.name in (*ORACLE, *COMPARED)]
    if not compared or not subject.can("weights"):
        return None
    probe = Probe(subject, verification.seed)
    try:
        with threads(None if probe.is_large else 1):
            return _search(subject, probe, compared)
    except SubjectError:  # what it does cannot be compared, when it does nothing
        return None


def _search(subject: Subject, probe: Probe, violated: Sequence[ContractResult]) -> Diagnosis:
    evidence, sound = _Evidence(subject, probe, violated), _reference(subject)
    faults, n_untried = [], 0
    deadline = time.monotonic() + PATIENCE
    names = {result.name for result in violated}
    for mutant in MUTANTS:
        if not names & {*ORACLE, *mutant.rejected_by}:
            continue
        if time.monotonic() > deadline:
            n_untried += 1
            continue
        planted = _planted(mutant, sound)
        if planted is not None and evidence.speaks_for(planted):
            faults.append(f"{mutant.name}: {mutant.fault}")
    family = subject.recognised if isinstance(subject, ForeignSubject) else ""
    return Diagnosis(tuple(faults), first_difference(subject, probe), n_untried, family)


def _reference(subject: Subject) -> ProofLM:
    """The sound decoder of the subject's config, with its weights."""
    with torch.device("meta"):
        model = ProofLM(subject.config)
    weights = {name: torch.from_numpy(values) for name, values in subject.weights().items()}
    model.load_state_dict(weights, assign=True)
    return model


def _planted(mutant: Mutant, sound: ProofLM) -> ProofSubject | None:
    """A copy with the fault; None where the fault does not fit the config."""
    model = copy.deepcopy(sound)
    try:
        mutant.plant(model)
        return ProofSubject(mutant.name, model)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception:  # noqa: BLE001 - a fault of another kind of decoder fits in its own ways
        return None


class _Evidence:
    """What the subject does, to be found again in a planted decoder: cheap comparisons first."""

    def __init__(self, subject: Subject, probe: Probe, violated: Sequence[ContractResult]) -> None:
        self.subject, self.probe = subject, probe
        self.ids, self.labels = probe.tokens("oracle-logits"), probe.tokens("labels")
        against = (m.path for r in violated for m in r.measurements if m.verdict is Verdict.VIOLATED)
        self.path = next((path for path in against if path in subject.paths), subject.paths[0])
        self.logits = subject.logits(self.ids, self.path)
        self.gradients = self._gradients(subject, self.path)
        self.contracts = {contract.name: contract for contract in CONTRACTS}
        self.results = sorted((r for r in violated if r.name in COMPARED), key=lambda result: result.seconds)

    def speaks_for(self, planted: ProofSubject) -> bool:
        """Whether a path of the planted decoder gives the subject's numbers."""
        try:
            return any(
                self._agrees(planted, path)
                and all(self._reproduces(planted, path, result) for result in self.results)
                for path in planted.paths
            )
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:  # noqa: BLE001 - whatever breaks does not behave as the subject, which did not
            return False

    def _agrees(self, planted: ProofSubject, path: str) -> bool:
        difference = (planted.logits(self.ids, path) - self.logits).abs().max()
        if not difference <= self.probe.logit_bound.rounding:
            return False
        found = self._gradients(planted, path)
        largest = max(float(g.abs().max()) for g in self.gradients.values() if g is not None)
        allowed = max(math.sqrt(self.subject.unit_roundoff), SAME) * largest
        return all(_near(found.get(name), gradient, allowed) for name, gradient in self.gradients.items())

    def _gradients(self, subject: Subject, path: str) -> dict[str, Tensor | None]:
        counted = torch.ones_like(self.ids, dtype=torch.bool)
        loss = subject.cross_entropy(self.ids, self.labels, counted, path)
        return subject.to_oracle(subject.gradients_of(loss))

    def _reproduces(self, planted: ProofSubject, path: str, result: ContractResult) -> bool:
        """Whether the contract finds, on that path of the planted decoder, what it found of the subject."""
        like = Probe(planted, self.probe.seed, n_rows=self.probe.n_rows, n_tokens=self.probe.n_tokens)
        found = self.contracts[result.name].check(planted, like)
        return _same(_on(self.path, result.measurements), (m for m in found if m.path == path))


def _near(found: Tensor | None, expected: Tensor | None, allowed: float) -> bool:
    """Whether two gradients agree; none is as good as zero."""
    if found is None or expected is None:
        present = expected if found is None else found
        return present is None or float(present.abs().max()) <= allowed
    return bool((found - expected).abs().max() <= allowed)


def _on(path: str, measurements: Iterable[Measurement]) -> dict[str, Measurement]:
    """What was measured on a path, by quantity; of those measured more than once the first, of the first probe."""
    found: dict[str, Measurement] = {}
    for measurement in measurements:
        if measurement.path == path:
            found.setdefault(measurement.quantity, measurement)
    return found


def _same(own: dict[str, Measurement], found: Iterable[Measurement]) -> bool:
    """Whether verdicts are the same, some are violations, and these by the same numbers; ends at the first difference.

    Numbers are not compared where padding or dropout takes part, nor verdicts on what is stored under padding: a
    reference that sets padding to zero hides it even from a leak.
    """
    seen: set[str] = set()
    telling = False
    for measurement in found:
        quantity = measurement.quantity
        if quantity in seen or quantity not in own or "as padding" in quantity:
            continue
        seen.add(quantity)
        expected = own[quantity]
        if measurement.verdict is not expected.verdict:
            return False
        if expected.verdict is not Verdict.VIOLATED:
            continue
        telling = True
        by_number = "padd" not in quantity and "dropout" not in quantity
        if by_number and not math.isclose(expected.measured, measurement.measured, rel_tol=SAME):
            return False
    return telling


def first_difference(subject: Subject, probe: Probe) -> str:
    """The first component whose output differs from the oracle's by more than rounding, in words."""
    ids = probe.tokens("oracle-logits")
    trace = oracle.decoder_forward(subject.config, subject.weights(), ids.numpy())
    stages = trace.stages()
    with _watched(subject) as seen:
        seen["logits"] = subject.logits(ids, subject.paths[0])
    for name, expected in stages.items():
        output = seen.get(name)
        if output is None or tuple(output.shape) != expected.shape:
            continue
        difference = np.abs(output.detach().double().numpy() - expected)
        magnitude = float(np.abs(expected).max())
        allowed = probe.logit_bound.rounding * max(1.0, magnitude)
        if not difference.max() <= allowed:
            row, position, _ = (int(i) for i in np.unravel_index(int(difference.argmax()), difference.shape))
            return (
                f"first to differ from the oracle: {name}, by {difference.max():.2g} where the largest value is "
                f"{magnitude:.2g} (row {row}, position {position})"
            )
    return ""


WATCHED = {
    "attention_norm.weight": "attention_norm",
    "attention.out.weight": "attention",
    "feed_forward_norm.weight": "feed_forward_norm",
    "feed_forward.down.weight": "feed_forward",
}


@contextmanager
def _watched(subject: Subject) -> Iterator[dict[str, Tensor]]:
    """Outputs, by the oracle's stage, of the modules that hold the mapped parameters, as they come."""
    seen: dict[str, Tensor] = {}
    handles = []

    def watch(stage: str, module: nn.Module) -> None:
        def keep(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                seen.setdefault(stage, output)

        handles.append(module.register_forward_hook(keep))

    for ours, theirs in subject.parameter_names().items():
        stage = "final_norm" if ours == "final_norm.weight" else ""
        for ending, component in WATCHED.items():
            if ours.endswith(ending) and ours.startswith("blocks."):
                stage = f"blocks.{ours.split('.')[1]}.{component}"
        if stage:
            watch(stage, subject.module.get_submodule(theirs.rpartition(".")[0]))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
