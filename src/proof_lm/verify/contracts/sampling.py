"""Which tokens are drawn, how often, and when a row stops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from proof_lm.dims import Int, Tensor
from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import EXACT, Bound, Largest, Measurement

CHANCE = math.log(1e9)  # a sound sampler is accused once in 1e9 settings
N_DRAWS, N_DRAWS_OF_LARGE = 2000, 16

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """Temperature, k, and which share of the most probable tokens top-p is to keep: 0 none but the first, 1 all.

    p itself is put half-way between two cumulative masses, where rounding cannot move a token in or out.
    """

    temperature: float
    top_k: int | None = None
    share: float | None = None


SETTINGS = (
    Setting(1.0),
    Setting(0.4),
    Setting(2.5, share=0.5),
    Setting(1.0, top_k=1),
    Setting(1.0, top_k=2),
    Setting(1.7, top_k=5),
    Setting(1.0, share=0.0),
    Setting(0.8, share=0.3),
    Setting(1.0, top_k=4, share=0.5),
    Setting(3.0, top_k=6, share=0.6),
    Setting(1.0, top_k=10**6),
)


def check_sampling(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Many rows of one prompt, each of which draws one token, for a grid of temperature, k and p.

    The distribution follows from the subject's own logits: softmax(logits / temperature), of which top-k keeps the
    k most probable tokens, and then top-p the smallest set of these that holds p of their mass, the token that
    crosses p among them. Nothing outside may be drawn. For a small subject the counts must fit the distribution:
    n times their relative entropy, less what its degrees of freedom explain, stays below a limit that a sound
    sampler passes once in 1e9 (Agrawal 2020). The same seed draws the same tokens.
    """
    if subject.vocab_size < 2 or subject.context_length < 2:
        raise Inapplicable("there is no choice of tokens, or no room for one more")
    n_draws = N_DRAWS_OF_LARGE if probe.is_large else N_DRAWS
    paths = subject.paths[:1]  # the sampler is the same on each; what it samples from is judged elsewhere
    for index, setting in enumerate(SETTINGS[::3] if probe.is_large else SETTINGS):
        prompt = probe.tokens(f"prompt {index}", 1, 1)
        for path in paths:
            logits = subject.logits(prompt, path)[0, -1].double().numpy()
            expected, top_p = _distribution(logits, setting)
            given = {"temperature": setting.temperature, "top_k": setting.top_k, "top_p": top_p}
            seed = probe.seed + index
            drawn = subject.generate(prompt.expand(n_draws, -1), 1, path, seed=seed, **given)[:, -1]
            where = ", ".join(f"{name} {value:.4g}" for name, value in given.items() if value is not None)
            counts = np.bincount(drawn.numpy(), minlength=subject.vocab_size)
            stray = float(counts[expected == 0.0].sum())
            yield Measurement(path, "tokens drawn that cannot be", stray, EXACT, where)
            if probe.is_large:
                continue
            yield Measurement(path, "excess relative entropy", _excess(counts, expected), _LIMIT, where)
            if setting != SETTINGS[0]:
                continue
            again = subject.generate(prompt.expand(9, -1), 1, path, seed=seed, **given)
            twice = subject.generate(prompt.expand(9, -1), 1, path, seed=seed, **given)
            moved = float((again != twice).sum())
            yield Measurement(path, "tokens that differ with the same seed", moved, EXACT, where)


def _distribution(logits: FloatArray, setting: Setting) -> tuple[FloatArray, float | None]:
    """The probabilities under a setting, and p."""
    order = np.argsort(-logits, kind="stable")
    scaled = (logits[order] - logits.max()) / setting.temperature
    n_kept = min(len(order), setting.top_k or len(order))
    mass = np.exp(scaled[:n_kept])
    mass /= mass.sum()
    top_p = None
    if setting.share is not None:
        before = mass.cumsum() - mass
        n_nucleus = max(1, min(n_kept - 1, round(setting.share * n_kept)))
        after = 1.0 if n_nucleus >= n_kept else float(before[n_nucleus])
        top_p = (float(before[n_nucleus - 1]) + after) / 2.0
        mass = mass[:n_nucleus] / mass[:n_nucleus].sum()
    distribution = np.zeros_like(logits)
    distribution[order[: len(mass)]] = mass
    return distribution, top_p


def _excess(counts: NDArray[np.int64], expected: FloatArray) -> float:
    """n KL - d (1 + ln(n KL / d)) for d degrees of freedom, where it is positive; else 0."""
    possible = expected > 0.0
    observed, wanted = counts[possible], expected[possible]
    n, freedom = int(observed.sum()), int(possible.sum()) - 1
    seen = observed > 0
    if not n or not freedom:
        return 0.0
    entropy = float((observed[seen] * np.log(observed[seen] / (n * wanted[seen]))).sum())
    if entropy <= freedom:
        return 0.0
    return max(0.0, entropy - freedom * (1.0 + math.log(entropy / freedom)))


_LIMIT = Bound(
    CHANCE,
    CHANCE,
    "P(n KL > x) <= exp(-x) (e x / d)^d for x > d degrees of freedom (Agrawal 2020): below ln 1e9 but once in 1e9",
)


def check_greedy(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Several prompts in one batch, continued greedily, without stop ids and with.

    Each token's logit, from a call without a cache on its own row alone, lies below the largest by no more than
    rounding; with prompts padded on the left too. Then a token becomes the stop: up to its first a row is as it was,
    afterwards it holds that token again, or one that fills all rows, whatever the others do; and each row is what it
    is alone.
    """
    n_new = min(3 if probe.is_large else 9, subject.context_length - 3)
    if n_new < 2 or subject.vocab_size < 2:
        raise Inapplicable("there is no room for a continuation, or no choice of one")
    ids = probe.tokens("greedy", 2 if probe.is_large else 6, 3)
    bound = probe.logit_bound
    for path in subject.paths:
        free = subject.generate(ids, n_new, path)
        wrong_prompt = float((free[:, :3] != ids).sum()) if free.shape[1] == 3 + n_new else math.inf
        yield Measurement(path, "prompt tokens changed", wrong_prompt, EXACT)
        if wrong_prompt:
            return
        worst = _regret(subject, path, free, torch.ones_like(ids, dtype=torch.bool))
        yield Measurement(path, "max |largest logit - the chosen one's|", worst.value, bound, worst.where)
        if subject.can("padding mask"):
            real = probe.ragged_mask(*ids.shape, left=True)
            padded = subject.generate(ids, n_new, path, padding_mask=real)
            worst = _regret(subject, path, padded, real)
            quantity = "max |largest logit - the chosen one's|, left padding"
            yield Measurement(path, quantity, worst.value, bound, worst.where)
        if path == subject.paths[0]:  # stopping is the same on each
            yield from _stop(subject, probe, path, ids, free)


def _regret(subject: Subject, path: str, whole: Int[Tensor, "B U"], real: Tensor) -> Largest:
    """How far a chosen token's logit lies below the largest, at worst."""
    worst = Largest()
    n_prompt = real.shape[1]
    for row, tokens in enumerate(whole):
        own = torch.cat([tokens[:n_prompt][real[row]], tokens[n_prompt:]])
        logits = subject.logits(own[None, :-1], path)[0, -(len(tokens) - n_prompt) :]
        below = logits.amax(-1) - logits.gather(-1, tokens[n_prompt:, None])[:, 0]
        worst.see(float(below.max()), f"row {row}, step {int(below.argmax())}")
    return worst


def _stop(
    subject: Subject, probe: Probe, path: str, ids: Int[Tensor, "B T"], free: Int[Tensor, "B U"]
) -> Iterator[Measurement]:
    new = free[:, ids.shape[1] :]
    early, late, apart = Largest(), Largest(), Largest()
    fills: dict[int, str] = {}
    for index, stop in enumerate(_telling_stops(new)[: 1 if probe.is_large else 3]):
        together = subject.generate(ids, new.shape[1], path, stop_ids=(stop,))[:, ids.shape[1] :]
        for row, tokens in enumerate(new):
            where = f"row {row}, stop id {stop}"
            end = _end(tokens, stop)
            early.see(_apart(together[row, :end], tokens[:end]), where)
            rest = set(together[row, end:].tolist())
            late.see(float(max(0, len(rest) - 1)), where)
            fills |= dict.fromkeys(rest - {stop}, where)
            if index:
                continue
            alone = subject.generate(ids[row : row + 1], new.shape[1], path, stop_ids=(stop,))
            apart.see(_apart(alone[0, ids.shape[1] :][:end], together[row, :end]), where)
    yield Measurement(path, "tokens changed up to the stop", early.value, EXACT, early.where)
    late.see(max(0.0, len(fills) - 1.0), ", ".join(list(fills.values())[:3]))
    yield Measurement(path, "tokens after a stop, beyond one that fills", late.value, EXACT, late.where)
    yield Measurement(path, "tokens unlike those of the row alone", apart.value, EXACT, apart.where)


def _telling_stops(new: Int[Tensor, "B U"]) -> list[int]:
    """Tokens that end a row before others, best first: where the free row would go on with unlike tokens, and rows
    stand on both sides of it."""
    found: dict[int, int] = {}
    for row, tokens in enumerate(new):
        for token in dict.fromkeys(tokens[:-2].tolist()):
            rest = tokens[_end(tokens, token) :]
            others = sum(_end(other, token) > len(tokens) - len(rest) for other in new)
            telling = others * (1 + 3 * int((rest != rest[:1]).any())) * (1 + int(0 < row < len(new) - 1))
            found[token] = max(found.get(token, 0), telling)
    return sorted(found, key=lambda token: -found[token])


def _end(tokens: Int[Tensor, " U"], stop: int) -> int:
    """How many tokens there are up to and with the first stop."""
    hits = (tokens == stop).nonzero()
    return int(hits[0]) + 1 if len(hits) else len(tokens)


def _apart(found: Int[Tensor, " U"], wanted: Int[Tensor, " W"]) -> float:
    """In how many places two rows differ; a missing token differs."""
    n_both = min(len(found), len(wanted))
    return float((found[:n_both] != wanted[:n_both]).sum() + abs(len(found) - len(wanted)))


SAMPLING = Contract(
    "sampling",
    "Tokens are drawn from exactly the declared distribution, and none from outside it.",
    frozenset({"generation"}),
    check_sampling,
    grows=False,
    once=True,
)
GREEDY = Contract(
    "greedy",
    "Greedy decoding takes the most probable token at each step, and a row stops by itself alone.",
    frozenset({"generation"}),
    check_greedy,
    grows=False,
)
