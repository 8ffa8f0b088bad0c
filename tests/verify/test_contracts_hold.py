"""Sound decoders are accepted: every contract, over every value of every enumerated config field."""

import itertools
import random

import pytest
import torch

from proof_lm.config import DecoderConfig
from proof_lm.model import ProofLM
from proof_lm.presets import CHAPTER
from proof_lm.presets import MODERN as MODERN_PRESET
from proof_lm.verify import CONTRACTS, ProofSubject, Verdict, at_level, randomized, verify
from sizes import LEARNED, MODERN, SMALL

pytestmark = pytest.mark.no_cover  # many runs of what other tests cover: measuring takes as long again
STANDARD = at_level("standard")  # what the thorough level adds takes long, and has a test of its own
CONFIGS = {
    "chapter": CHAPTER,
    "modern": MODERN_PRESET,
    "gqa, half layout, swiglu, untied": MODERN,
    "learned, gelu_tanh": LEARNED,
    "mqa, relu, no norm bias": SMALL.with_(n_kv_heads=1, activation="relu", norm_bias=False),
    "no positions, gated gelu, mixed biases": SMALL.with_(
        position="none", feed_forward="gated", attention_bias=False, dropout=0.3
    ),
    "rmsnorm, interleaved, out bias alone": SMALL.with_(
        norm="rmsnorm", attention_bias=False, feed_forward_bias=False, norm_eps=1e-3, rope_theta=500.0
    ),
    "heads wider than the model": SMALL.with_(d_model=10, n_heads=4, n_kv_heads=2, head_dim=14),
    "a window": SMALL.with_(sliding_window=3),
    "a window, learned positions": LEARNED.with_(sliding_window=5, dropout=0.1),
    "one head, one layer": SMALL.with_(n_layers=1, n_heads=1, n_kv_heads=1, head_dim=24, activation="silu"),
}


TINY = {
    "two tokens": SMALL.with_(vocab_size=2),
    "one token": SMALL.with_(vocab_size=1),
    "context of two": SMALL.with_(context_length=2),
    "context of one": SMALL.with_(context_length=1),
    "window of one": SMALL.with_(sliding_window=1),
    "window beyond the context": SMALL.with_(sliding_window=40),
    "width of two": SMALL.with_(d_model=2, n_heads=1, n_kv_heads=1, head_dim=2),
}


@pytest.mark.parametrize("name", TINY)
def test_a_decoder_too_small_for_a_question_is_not_accused(name: str) -> None:
    verification = verify(ProofSubject(name, randomized(TINY[name], 0)), STANDARD, level="quick")
    for result in verification.results:
        assert result.verdict in (Verdict.HOLDS, Verdict.NOT_APPLICABLE), (
            result.name,
            result.reason,
            result.worst,
        )
        assert result.reason or result.verdict is Verdict.HOLDS


def test_attention_so_sharp_that_weights_round_to_zero_is_not_accused() -> None:
    model = randomized(SMALL.with_(n_layers=1, n_heads=2, n_kv_heads=1), 0)
    with torch.no_grad():
        model.get_parameter("blocks.0.attention.query.weight").mul_(100.0)
    verification = verify(ProofSubject("sharp", model), [c for c in CONTRACTS if c.name == "causality"])
    assert verification.exit_status == 0, verification.results[0].worst


@pytest.mark.parametrize("seed", range(5))
def test_odd_sizes_come_back_from_a_file_with_identical_logits(seed: int) -> None:
    config = SMALL.with_(vocab_size=33, d_model=7, n_heads=2, n_kv_heads=2, head_dim=6, d_ff=13, n_layers=1)
    saved = [c for c in CONTRACTS if c.name == "save-load"]
    assert verify(ProofSubject("odd", randomized(config, seed).double()), saved).exit_status == 0


@pytest.mark.parametrize("name", CONFIGS)
def test_every_contract_holds_or_does_not_apply_to_a_sound_decoder(name: str) -> None:
    config = CONFIGS[name]
    verification = verify(ProofSubject(name, randomized(config, seed=7)), STANDARD, seed=11, level="quick")
    for result in verification.results:
        assert result.verdict is _expected(config, result.name), (result.name, result.reason, result.worst)
    assert verification.exit_status == 0


def test_every_contract_holds_at_the_thorough_level_too() -> None:
    verification = verify(ProofSubject("thorough", randomized(SMALL, 5)), seed=5, level="thorough")
    against = [r for r in verification.results if r.verdict is not _expected(SMALL, r.name)]
    assert [(r.name, r.reason, r.worst) for r in against] == []


VALUES = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("rope", "learned", "none"),
    "rope_layout": ("interleaved", "half"),
    "feed_forward": ("mlp", "gated"),
    "activation": ("gelu", "gelu_tanh", "silu", "relu"),
    "attention_bias": (True, False),
    "attention_out_bias": (True, False),
    "feed_forward_bias": (True, False),
    "tie_embeddings": (True, False),
    "n_kv_heads": (1, 3, 6),
    "sliding_window": (None, 4),
}
SAMPLE = random.Random(3).sample(list(itertools.product(*VALUES.values())), 16)


@pytest.mark.parametrize("values", SAMPLE, ids=lambda values: "-".join(map(str, values)))
def test_combinations_of_enumerated_values_are_accepted(values: tuple[object, ...]) -> None:
    config = SMALL.with_(**dict(zip(VALUES, values, strict=True)))
    verification = verify(ProofSubject("combination", randomized(config, seed=1)), seed=2, level="quick")
    for result in verification.results:
        assert result.verdict is _expected(config, result.name), (result.name, result.reason, result.worst)


def _expected(config: DecoderConfig, contract: str) -> Verdict:
    unrotated = contract in ("rope", "position-shift") and config.position != "rope"
    unlimited = contract == "window" and config.sliding_window is None
    return Verdict.NOT_APPLICABLE if unrotated or unlimited else Verdict.HOLDS


def test_a_contract_that_does_not_apply_says_why() -> None:
    rope = [contract for contract in CONTRACTS if contract.name == "rope"]
    (result,) = verify(ProofSubject("learned", randomized(LEARNED, 0)), rope).results
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "position is 'learned'" in result.reason


@pytest.mark.shapes_checked
def test_freshly_initialized_weights_hold_too() -> None:
    assert verify(ProofSubject("initial", ProofLM(SMALL)), seed=3, level="quick").exit_status == 0


def test_the_same_seed_measures_the_same() -> None:
    quick = [c for c in CONTRACTS if c.name in ("oracle-logits", "oracle-gradients", "rope", "masked-loss")]
    runs = [verify(ProofSubject("again", randomized(SMALL, 1)), quick, seed=5) for _ in range(2)]
    first, second = ([m.measured for r in run.results for m in r.measurements] for run in runs)
    assert first == second
