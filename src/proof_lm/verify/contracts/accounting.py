"""The sheet's numbers, which follow from the config alone, against the decoder as it is and as it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from proof_lm.model import ProofLM
from proof_lm.sheet import Sheet
from proof_lm.verify.accounting import (
    compare_activations,
    compare_cache,
    compare_count,
    compare_flops,
    compare_parameters,
    compare_recomputation,
    compare_shapes,
    untellable,
)
from proof_lm.verify.contract import Contract
from proof_lm.verify.meter import read_step
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import ProofSubject, Subject, subject_runs
from proof_lm.verify.verdict import EXACT, Measurement


def check_parameter_count(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The closed formula against the elements of the unique registered parameters; what the model reports
    of itself against the same; and each tensor's name and shape against the sheet's table."""
    sheet = _sheet(subject, 1, 1)
    yield compare_count(sheet, subject.native)
    reported = getattr(subject.native, "parameter_count", None)
    if isinstance(reported, int):
        elements = sum(parameter.numel() for parameter in subject.native.parameters())
        off = float(abs(reported - elements))
        yield Measurement("-", "|reported - registered|", off, EXACT, f"{elements:,}")
    if subject.can("parts"):
        yield from compare_parameters(sheet, subject.native)


def check_tensor_shapes(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Runs a forward pass with its loss, and notes the output of each operation in the module that it runs in.

    Each tensor of the sheet must be among them with its shape, and each activation must have the size of one of the
    sheet's tensors there: none is missing, and none is missing from the sheet.
    """
    sheet = _tellable(subject, probe)
    with _running(subject, probe) as model:
        reading = read_step(model, *_sizes(probe))
    yield from compare_shapes(sheet, reading)


def check_flops(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Counts every operation of a training step as it runs, on explicit attention.

    Matrix products of the forward pass must be the sheet's by module and sizes, those of the backward pass by their
    FLOPs; all other operations of the forward pass are compared by module, and scores that are not hidden with the
    visible pairs. Recomputing the layers must cost what the sheet says.
    """
    sheet = _tellable(subject, probe)
    with _running(subject, probe) as model:
        yield from compare_flops(sheet, read_step(model, *_sizes(probe)))
        yield from compare_recomputation(sheet, model)


def check_activation_memory(subject: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Catches every tensor that autograd saves in a training step, by its storage, and compares the bytes of each.

    On explicit attention, and on the fused kernel where there is no dropout and the decoder is small and on a CPU:
    other kernels keep other things. The cache's storage must have the bytes that the sheet derives.
    """
    sheet = _tellable(subject, probe)
    with _running(subject, probe) as model:
        yield from compare_activations(sheet, model, "explicit")
        yield from compare_cache(sheet, model)
        is_on_cpu = model.embedding.weight.device.type == "cpu"
    if is_on_cpu and not sheet.config.dropout:
        with subject.on("fused") as model:
            yield from compare_activations(sheet, model, "fused")


@contextmanager
def _running(subject: ProofSubject, probe: Probe) -> Iterator[ProofLM]:
    """The decoder with explicit attention: of a large one a copy without numbers, on the meta device."""
    if not probe.is_large:
        with subject.on("explicit") as model:
            yield model
        return
    with torch.device("meta"), subject_runs():
        yield type(subject.native)(subject.config, attention_backend="explicit").to(
            subject.module.embedding.weight.dtype
        )


def _sheet(subject: Subject, batch: int, n_tokens: int) -> Sheet:
    kind = subject.accounting if isinstance(subject, ProofSubject) else Sheet
    dtype = next(subject.module.parameters()).dtype
    return kind(subject.name, subject.config, batch, n_tokens, str(dtype).removeprefix("torch."))


def _tellable(subject: ProofSubject, probe: Probe) -> Sheet:
    sheet = _sheet(subject, *_sizes(probe))
    reason = untellable(sheet)
    if reason:
        raise Inapplicable(reason)
    return sheet


def _sizes(probe: Probe) -> tuple[int, int]:
    return probe.n_rows, probe.n_tokens


PARAMETER_COUNT = Contract(
    "parameter-count",
    "The closed formula's parameter count equals the unique registered parameters.",
    frozenset({"config"}),
    check_parameter_count,
    level="quick",
    once=True,
)

TENSOR_SHAPES = Contract(
    "tensor-shapes",
    "Every tensor of a forward pass has the shape that the sheet derives, and the sheet has them all.",
    frozenset({"config", "accounting"}),
    check_tensor_shapes,
    grows=False,
    once=True,
)

FLOPS = Contract(
    "flops",
    "Every operation of a training step is counted as the sheet counts it.",
    frozenset({"config", "accounting"}),
    check_flops,
    grows=False,
    once=True,
)

ACTIVATION_MEMORY = Contract(
    "activation-memory",
    "The bytes that a training step keeps, and those of a cache, are the sheet's.",
    frozenset({"config", "accounting"}),
    check_activation_memory,
    grows=False,
    once=True,
)
