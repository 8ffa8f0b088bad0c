"""What must hold in bfloat16 and float16 as well."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.interventions import intervene
from proof_lm.verify.contracts.position_shift import FAR, accepted_positions
from proof_lm.verify.probe import Probe
from proof_lm.verify.subjects import Subject, SubjectError, copied
from proof_lm.verify.verdict import EXACT, Bound, Measurement

GROWTH = 8.0  # times the error near position 0: what is rounded once does not grow with positions
STRETCH = 300  # distance between neighbours: far enough for a rounded frequency to show


def check_narrow_dtypes(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """The weights cast to float16 and to bfloat16, where it can compute in them at all.

    With matrices at an eighth, so that activations do not overflow, all logits are finite, with and without
    padding: a stand-in for -inf that the dtype lacks would show. No token moves an earlier logit. With rotary
    positions, the error against float64 at position 3000 is at most 8 times that at position 0. And a model that
    is cast to bfloat16 and back is the one whose parameters alone were rounded, at distances of 300 as well as of
    1: no buffer must hold what a cast spoils (asked of strict subjects, as many keep rotary frequencies in a buffer).
    """
    ids = probe.tokens("narrow dtypes", n_tokens=probe.n_short)
    others = probe.other_tokens(ids, "narrow dtypes interventions")
    for dtype in (torch.float16, torch.bfloat16):
        half = subject.in_dtype(dtype)
        name = str(dtype).split(".")[-1]
        for path in subject.paths[-1:] if probe.is_large else subject.paths:
            try:
                half.logits(ids[:, :1], path)
            except SubjectError:
                continue
            yield from _masked(half, probe, path, ids, others, name)
            if dtype is torch.bfloat16 and _rotates(subject):
                yield from _far(subject, half, probe, path, ids)
        del half
    yield from _cast_back(subject, probe, ids)


def _rotates(subject: Subject) -> bool:
    rotary = subject.declared is not None and subject.declared.position == "rope"
    return rotary and subject.can("position ids")


def _masked(
    half: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    others: Int[Tensor, "B T"],
    name: str,
) -> Iterator[Measurement]:
    n_tokens = ids.shape[1]
    places = sorted({n_tokens // 2, n_tokens - 1} if probe.is_large else range(n_tokens))
    with half.scaled(0.125):
        infinite = int((~half.logits(ids, path).isfinite()).sum())
        yield Measurement(path, f"logits not finite, {name}", float(infinite), EXACT)
        if half.can("padding mask") and n_tokens > 1:
            real = probe.ragged_mask(*ids.shape, left=True)
            infinite = int((~half.logits(ids, path, padding_mask=real)[real].isfinite()).sum())
            yield Measurement(path, f"real logits not finite, left padding, {name}", float(infinite), EXACT)
        leak = intervene(lambda tokens: half.logits(tokens, path), ids[0], others[0], places).leak()
    yield Measurement(path, f"max |change before the token|, {name}", leak.value, EXACT, leak.where)


def _far(
    subject: Subject, half: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"]
) -> Iterator[Measurement]:
    errors = []
    places = torch.arange(ids.shape[1])
    for start in (0, FAR):
        exact = accepted_positions(subject, ids, path, places + start)
        rounded = accepted_positions(half, ids, path, places + start)
        if exact is None or rounded is None:
            return
        errors.append(_rms(rounded.double() - exact))
    quantity = f"rms of bfloat16 - float64, from position {FAR}"
    yield Measurement(path, quantity, errors[1], _grown(errors[0], "position 0"))


def _cast_back(subject: Subject, probe: Probe, ids: Int[Tensor, "B T"]) -> Iterator[Measurement]:
    dtype = next(subject.module.parameters()).dtype
    places = torch.arange(ids.shape[1])
    steps: dict[str, Tensor | None] = {"default positions": None}
    if _rotates(subject) and subject.strict:
        steps |= {"distances of 1": places, f"distances of {STRETCH}": STRETCH * places}
    path = subject.paths[-1]
    found: list[dict[str, Tensor | None]] = []
    for cast in (_through_bfloat16, _parameters_rounded):
        other = subject.swapped(cast(subject.native, dtype))
        found.append(
            {
                step: other.logits(ids, path) if at is None else accepted_positions(other, ids, path, at)
                for step, at in steps.items()
            }
        )
        del other
    near: float | None = None
    for step in steps:
        back, rounded = (each[step] for each in found)
        if back is None or rounded is None:
            continue
        error = _rms(back.double() - rounded.double())
        bound = _grown(near, "distances of 1") if step.endswith(str(STRETCH)) and near is not None else None
        near = error
        if bound is not None:
            yield Measurement(path, f"rms of cast and back - parameters rounded, {step}", error, bound)
        elif step == "default positions":
            yield Measurement(
                path, "rms of cast and back - parameters rounded", error, _rounded_once(rounded), step
            )


def _through_bfloat16(native: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copied(native).to(torch.bfloat16).to(dtype).eval()


def _parameters_rounded(native: nn.Module, dtype: torch.dtype) -> nn.Module:
    module = copied(native).to(dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return module


def _rms(error: Float[Tensor, "B T V"]) -> float:
    return float(error.double().square().mean().sqrt())


def _grown(near: float, where: str) -> Bound:
    return Bound(GROWTH * near, GROWTH * near, f"{GROWTH:g} times the error at {where}, {near:.3g}")


def _rounded_once(logits: Float[Tensor, "B T V"]) -> Bound:
    """Tables of cosines may be rounded with the model; more than that is a fault."""
    size = _rms(logits)
    rounding, fault = 16 * 2.0**-8 * size, size
    return Bound(rounding, fault, f"16 units of bfloat16, 2^-8, of the logits' rms {size:.3g}")


NARROW_DTYPES = Contract(
    "narrow-dtypes",
    "Masks and positions are as right in half precision as numbers there can be, and a cast spoils parameters only.",
    frozenset({"logits"}),
    check_narrow_dtypes,
)
