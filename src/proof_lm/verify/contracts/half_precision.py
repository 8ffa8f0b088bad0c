"""What narrower dtypes may cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from proof_lm import oracle
from proof_lm.dims import Float, Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import ProofSubject, Subject, SubjectError
from proof_lm.verify.tolerance import CONFIDENCE
from proof_lm.verify.verdict import EXACT, Bound, Measurement

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_GAIN = 15.8
LARGE_SCORE = 5e4  # after scaling; before it, from a head of 2 dimensions on, beyond float16's 65504
SCALES = {"ordinary": 1.0, "small": 0.05, "with outliers": 1.0}
OUTLIER = 1000.0


def check_half_precision(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """float32, bfloat16 and float16 (for a large subject bfloat16, on one path), where it computes in them at all.

    The root mean square of the logits' error, against float64 with the same rounded weights, is at most ten times
    what one more rounding of every weight (or, if that is more, of the logits) changes in float64: activations are
    rounded about 20 times a block, weights 7 times. For subjects with parts: each norm's output lies within one
    rounding of the float64 formula, entry by entry, for small inputs, inputs with channels a thousand times larger,
    and gains of 15.8; and attention in float16 stays finite with scores of 5e4.
    """
    if subject.unit_roundoff > torch.finfo(torch.float64).eps:
        raise Inapplicable("not all of it computes in float64: there is nothing to compare with")
    ids = probe.tokens("half precision", 2, probe.n_short)
    for dtype in DTYPES[1:2] if probe.is_large else DTYPES:
        narrow = subject.in_dtype(dtype)
        for path in subject.paths[:1] if probe.is_large else subject.paths:
            try:
                found = narrow.logits(ids, path)
            except SubjectError:
                if subject.strict:
                    raise
                break  # it does not run in this dtype, and does not promise to
            yield _against_float64(subject, probe, path, ids, found, dtype)
        if isinstance(narrow, ProofSubject) and narrow.can("config"):
            yield from _norms(narrow, probe, dtype)
            if dtype == torch.float16 and narrow.config.head_width > 1:
                yield from _large_scores(narrow, probe)


def _against_float64(
    subject: Subject,
    probe: Probe,
    path: str,
    ids: Int[Tensor, "B T"],
    found: Float[Tensor, "B T V"],
    dtype: torch.dtype,
) -> Measurement:
    roundoff = torch.finfo(dtype).eps / 2
    with _weights_rounded(subject, probe, dtype, 0.0):
        exact = subject.logits(ids, path)
    with _weights_rounded(subject, probe, dtype, roundoff):
        unit = max(_rms(subject.logits(ids, path) - exact), roundoff * _rms(exact))
    rounding = CONFIDENCE * unit
    bound = Bound(
        rounding,
        max(rounding, roundoff**0.5 * _rms(exact)),
        f"{CONFIDENCE:g} times the change {unit:.3g} in float64 by weights off by a relative {roundoff:.2g}",
    )
    return Measurement(path, "rms |logit - float64|", _rms(found.double() - exact), bound, _name(dtype))


def _rms(values: Float[Tensor, "*n"]) -> float:
    return float(values.double().square().mean().sqrt())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def _weights_rounded(subject: Subject, probe: Probe, dtype: torch.dtype, noise: float) -> Iterator[None]:
    """The measured module with the given weights in that dtype, and a relative noise on them, for the time being."""
    generator = torch.Generator().manual_seed(probe.seed)
    given = dict(subject.native.named_parameters())
    measured = dict(subject.module.named_parameters())
    try:
        with torch.no_grad():
            for name, parameter in measured.items():
                parameter.copy_(given[name].to(dtype))
                if noise:
                    steps = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)
                    parameter.mul_(steps.mul_(2.0 * noise).add_(1.0 - noise))
        yield
    finally:
        with torch.no_grad():
            for name, parameter in measured.items():
                parameter.copy_(given[name])


def _norms(narrow: ProofSubject, probe: Probe, dtype: torch.dtype) -> Iterator[Measurement]:
    width = narrow.config.d_model
    for name in narrow.norms[:: max(1, len(narrow.norms) // 3)]:
        random = probe.random(f"narrow {name}")
        parameters = dict(narrow.module.get_submodule(name).named_parameters())
        edits = {key: torch.from_numpy(random.standard_normal(width)) for key in parameters}
        edits["weight"] += edits["weight"].sign()  # a gain near 0 would leave the bias's rounding alone
        edits["weight"][0] = LARGEST_GAIN
        edits = {key: value.to(dtype) for key, value in edits.items()}
        for case, scale in SCALES.items():
            inputs = torch.from_numpy(random.standard_normal((5, width))) * scale
            if case == "with outliers":
                inputs[:, :: max(2, width // 3)] *= OUTLIER
            inputs = inputs.to(dtype)
            with torch.no_grad():
                found = narrow.run_pointwise(name, inputs[None], edits)[0].double()
            share = float(
                ((found - _norm(narrow, inputs, edits)).abs() / _allowed(narrow, inputs, edits)).max()
            )
            where = f"{_name(dtype)}, {name}, {case}"
            yield Measurement("-", "max |norm - formula| by what rounding allows", share, _ALL_OF_IT, where)


_ALL_OF_IT = Bound(
    1.0, 1.0, "one rounding u |y| to the dtype, after 20 sqrt(2 D + 6) roundings of float32 of what is summed"
)


def _norm(
    narrow: ProofSubject, inputs: Float[Tensor, "T D"], edits: dict[str, Tensor], *, bias: bool = True
) -> Float[Tensor, "T D"]:
    """The formula in float64, of the rounded input, gain and bias."""
    config = narrow.config
    rows, weight = inputs.double().numpy(), edits["weight"].double().numpy()
    if config.norm == "rmsnorm":
        return torch.from_numpy(oracle.rms_norm_forward(rows, weight, eps=config.norm_eps)[0])
    shift = edits["bias"].double().numpy() if bias and "bias" in edits else None
    return torch.from_numpy(oracle.layer_norm_forward(rows, weight, shift, eps=config.norm_eps)[0])


def _allowed(
    narrow: ProofSubject, inputs: Float[Tensor, "T D"], edits: dict[str, Tensor]
) -> Float[Tensor, "T D"]:
    """How far each entry may lie from the formula: x - mean cancels, so it errs by the largest of its row."""
    roundoff = torch.finfo(inputs.dtype).eps / 2
    summed = _norm(narrow, inputs, edits, bias=False).abs()
    if narrow.config.norm == "layernorm":
        mean_share = inputs.double().abs().amax(-1, keepdim=True) / inputs.double().std(
            -1, correction=0, keepdim=True
        ).add(narrow.config.norm_eps**0.5)
        summed = torch.maximum(summed, mean_share * edits["weight"].double().abs())
        if "bias" in edits:
            summed = summed + edits["bias"].double().abs()
    chain = 2.0 * CONFIDENCE * (2 * narrow.config.d_model + 6) ** 0.5 * 2.0**-24 * summed
    subnormal = torch.finfo(inputs.dtype).smallest_normal * roundoff
    return _norm(narrow, inputs, edits).abs() * roundoff + chain + subnormal


def _large_scores(narrow: ProofSubject, probe: Probe) -> Iterator[Measurement]:
    """Queries equal to their keys, so large that a score is 5e4 after scaling: finite, but not before it."""
    config = narrow.config
    name, heads = "blocks.0.attention", (-1, config.head_width)
    hidden = torch.from_numpy(probe.random("large scores").standard_normal((2, 5, config.d_model))).half()
    key = dict(narrow.module.named_parameters())[f"{name}.key.weight"].detach().float()
    squares = (hidden.float() @ key.T).unflatten(-1, heads).square().sum(-1)
    key = (key * (LARGE_SCORE * config.head_width**0.5 / squares.max()).sqrt()).half()
    edits: dict[str, Tensor | float] = {
        "key.weight": key,
        "query.weight": key.unflatten(0, heads).repeat_interleave(config.group_size, 0).flatten(0, 1),
        "key.bias": 0.0,
        "query.bias": 0.0,
    }
    places = torch.arange(hidden.shape[1]).expand(hidden.shape[:2])
    for path in narrow.paths:
        with torch.no_grad():
            output = narrow.run_layer(name, hidden, places, path, edits)
        infinite = float((~output.isfinite()).sum())
        yield Measurement(path, "outputs not finite, scores of 5e4", infinite, EXACT, "float16")


HALF_PRECISION = Contract(
    "half-precision",
    "In float32, bfloat16 and float16 nothing is lost but the rounding of weights and activations.",
    frozenset({"logits"}),
    check_half_precision,
    grows=False,
)
