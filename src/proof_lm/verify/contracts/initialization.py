"""First weights: their spread, their shape, and what the untrained model predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import nn

from proof_lm import sheet
from proof_lm.config import DecoderConfig
from proof_lm.verify.contract import Contract
from proof_lm.verify.noise import seeded
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject, subject_runs
from proof_lm.verify.verdict import EXACT, Bound, Largest, Measurement, Smallest

N_LAYERS = 8  # deep enough that a factor of sqrt(2 L) is far from 1
CHANCE = math.log(1e9)  # a sound model is accused once in 1e9 statistics
DEVIATIONS = math.sqrt(2.0 * CHANCE)  # a normal variable lies further out once in 1e9
ENOUGH = 2000  # entries from which a fourth moment tells a uniform distribution (-1.2) from a normal one
CUT = 3.0  # of the truncated scheme, in standard deviations
STD = 0.02

FloatArray = NDArray[np.float64]


def check_initialization(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """A new model of the same config with 8 layers, and its matrices by role, each alone and all layers together.

    By the declared scheme: mean square and mean within what chance leaves of the declared standard deviation and
    of 0; kurtosis, for normal draws; no entry beyond the cut, for truncated ones, and some beyond two thirds of it
    (reach). Layers differ from one another (reach), gains are 1 and biases 0. Where weights are N(0, 0.02^2), the
    loss of random labels is near ln V.
    """
    if subject.build_with is None:
        raise Inapplicable("nothing says how to make one of another config")
    config = subject.config.with_(n_layers=N_LAYERS)
    with seeded(probe.seed), subject_runs():
        model = subject.build_with(config)
    weights = subject.swapped(model).to_oracle(dict(model.named_parameters()))
    values = {name: t.detach().double().numpy() for name, t in weights.items() if t is not None}
    yield from _vectors(values)
    for role, matrices in _by_role(config, values).items():
        yield from _spread(config, role, matrices)
    if config.initialization != "truncated_normal" and config.vocab_size > 2 and not probe.is_large:
        yield _first_loss(subject, probe, model, config)


def _vectors(values: dict[str, FloatArray]) -> Iterator[Measurement]:
    wrong = Largest()
    for name, value in values.items():
        if value.ndim == 1:
            start = 0.0 if name.endswith("bias") else 1.0
            wrong.see(float(np.abs(value - start).max()), name)
    yield Measurement("-", "max |gain - 1| and |bias|", wrong.value, EXACT, wrong.where)


def _by_role(config: DecoderConfig, values: dict[str, FloatArray]) -> dict[str, dict[str, FloatArray]]:
    """Matrices with the same place in their block together."""
    roles: dict[str, dict[str, FloatArray]] = {}
    for spec in sheet.tensors(config):
        if len(spec.shape) == 2:
            role = spec.name.split(".", 2)[2] if spec.name.startswith("blocks.") else spec.name
            roles.setdefault(role.removesuffix(".weight"), {})[spec.name] = values[spec.name]
    return roles


def _std(config: DecoderConfig, role: str, shape: tuple[int, ...]) -> float:
    """The declared standard deviation; of the normal before it is cut, if it is."""
    if config.initialization == "truncated_normal":
        is_table = role == "position_embedding" or (role == "embedding" and not config.tie_embeddings)
        return 1.0 if is_table else math.sqrt(2.0 / sum(shape))
    scaled = config.initialization == "gpt2" and role in ("attention.out", "feed_forward.down")
    return STD / math.sqrt(2 * config.n_layers) if scaled else STD


def _spread(config: DecoderConfig, role: str, matrices: dict[str, FloatArray]) -> Iterator[Measurement]:
    shape = next(iter(matrices.values())).shape
    is_cut = config.initialization == "truncated_normal"
    std = _std(config, role, shape)
    variance = _cut_variance() if is_cut else 1.0
    for name, values in {
        **matrices,
        f"all {role}": np.concatenate([m.ravel() for m in matrices.values()]),
    }.items():
        drawn = values.ravel() / std
        off = abs(float(np.mean(drawn**2)) / variance - 1.0)
        yield Measurement("-", "|mean square / declared - 1|", off, _chi_square_bound(drawn.size), name)
        yield Measurement("-", "|mean / std|", abs(float(drawn.mean())), _normal_bound(drawn.size), name)
        if is_cut:
            slack = Bound(CUT * (1 + 1e-6), CUT * (1 + 1e-6), "cut at 3 std; float32 rounds")
            yield Measurement("-", "max |weight / std|", float(np.abs(drawn).max()), slack, name)
        if drawn.size >= ENOUGH:
            yield from _shape(drawn, name, is_cut=is_cut)
    layers = list(matrices.values())
    alike = Smallest()
    for layer, other in pairwise(layers):
        alike.see(float(np.abs(layer - other).max()))
    if len(layers) > 1:
        yield Measurement("-", "min |difference between layers|", alike.value, None, role)


def _shape(drawn: FloatArray, name: str, *, is_cut: bool) -> Iterator[Measurement]:
    if is_cut:
        yield Measurement("-", "entries beyond 2 std", float((np.abs(drawn) > 2.0).sum()), None, name)
        return
    excess = float(np.mean(drawn**4) / np.mean(drawn**2) ** 2 - 3.0)
    width = DEVIATIONS * math.sqrt(24.0 / drawn.size)
    bound = Bound(
        width, width, f"{DEVIATIONS:.2g} standard errors sqrt(24 / {drawn.size}) of a normal's kurtosis"
    )
    yield Measurement("-", "|excess kurtosis|", abs(excess), bound, name)


def _chi_square_bound(n: int) -> Bound:
    """Of |chi^2_n / n - 1|: 2 sqrt(t / n) + 2 t / n is exceeded with a probability of exp(-t) at most
    (Laurent & Massart 2000, lemma 1); a cut distribution has less spread."""
    width = 2.0 * math.sqrt(CHANCE / n) + 2.0 * CHANCE / n
    return Bound(width, width, f"2 sqrt(t/n) + 2 t/n, n = {n} draws, t = ln 1e9 (Laurent & Massart 2000)")


def _normal_bound(n: int) -> Bound:
    width = DEVIATIONS / math.sqrt(n)
    return Bound(width, width, f"{DEVIATIONS:.2g} / sqrt({n} draws)")


def _cut_variance() -> float:
    """Of the standard normal cut at 3: 1 - 6 phi(3) / (2 Phi(3) - 1)."""
    density = math.exp(-(CUT**2) / 2.0) / math.sqrt(2.0 * math.pi)
    return 1.0 - 2.0 * CUT * density / math.erf(CUT / math.sqrt(2.0))


def _first_loss(subject: Subject, probe: Probe, model: nn.Module, config: DecoderConfig) -> Measurement:
    """The mean loss of labels that are not their inputs, against ln V.

    The head reads vectors of length sqrt(D), so a logit is N(0, 0.02^2 D); only the logit of the input token
    itself, where tied, can reach 0.02 D, and adds to the normalizer.
    """
    ids = probe.tokens("first loss", 3, probe.n_short)
    labels = probe.other_tokens(ids, "first labels")
    first = subject.swapped(model.eval())
    logits = first.logits(ids, subject.paths[0]).double()
    loss = float(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    spread = STD * math.sqrt(config.d_model)
    longest = 1.0 + DEVIATIONS / math.sqrt(
        2.0 * config.d_model
    )  # of a row of the embedding, over its usual length
    own = STD * config.d_model * longest if config.tie_embeddings else 0.0
    width = math.log1p(math.expm1(own) / config.vocab_size) + spread**2 / 2.0 + DEVIATIONS * spread
    bound = Bound(
        width,
        width,
        f"ln(1 + (exp({own:.3g}) - 1) / V) of the input's own logit + {spread:.3g}^2 / 2 + "
        f"{DEVIATIONS:.2g} * {spread:.3g}, 0.02 sqrt(D) being a logit's spread",
    )
    return Measurement("-", "|loss - ln V|, untrained", abs(loss - math.log(config.vocab_size)), bound)


INITIALIZATION = Contract(
    "initialization",
    "A new model's weights have the declared spread and shape, matrix by matrix.",
    frozenset({"config", "weights", "construction"}),
    check_initialization,
    grows=False,
    once=True,
)
