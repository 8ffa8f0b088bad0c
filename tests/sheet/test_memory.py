"""Memory and planning, against formulas that are written out, and cached bytes of a real cache."""

import math

import pytest

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError
from proof_lm.model import KVCache
from proof_lm.presets import preset
from proof_lm.sheet import (
    Machine,
    Sheet,
    activation_bytes,
    cache_bytes_per_token,
    device_memory,
    dimensions,
    plan_run,
)
from proof_lm.sheet.inference import decode, prefill
from proof_lm.sheet.memory import recipes
from proof_lm.sheet.scaling import growth

LLAMA = preset("llama-3.1-8b")
COUNT = 8_030_261_248


@pytest.mark.parametrize(
    ("dtype", "bytes_a_parameter"), [("float64", [32]), ("float32", [16]), ("bfloat16", [16, 8])]
)
def test_adamw_holds_the_usual_bytes_a_parameter(dtype: str, bytes_a_parameter: list[int]) -> None:
    assert [recipe.total for recipe in recipes(dtype)] == bytes_a_parameter


def test_the_cache_of_llama_8b_is_what_its_users_know() -> None:
    """128 KiB a token in half precision: 2 x 32 layers x 8 heads x 128 x 2 bytes (Grattafiori et al. 2024, table 3)."""
    assert cache_bytes_per_token(LLAMA, "bfloat16") == 128 * 1024
    assert cache_bytes_per_token(LLAMA, "bfloat16", n_kv_heads=32) == 512 * 1024


def test_the_cache_has_the_bytes_of_a_real_one() -> None:
    config = preset("modern")
    assert cache_bytes_per_token(config) * 3 * 17 == KVCache(config, 3, 17).n_bytes


def test_kept_activations_of_one_layer_of_llama_are_their_tensors() -> None:
    """A bfloat16 layer with fused attention, counted on paper: normalized, scale, gain and output of two norms;
    queries, keys, values, output twice, sums; gate and up in float32, and what goes down."""
    rows, d, f, kv, heads = 8192, 4096, 14336, 1024, 32
    norms = 2 * (4 * rows * d + 4 * rows + 4 * d + 2 * rows * d)
    attention = 2 * rows * (d + 2 * kv + 2 * d) + 4 * rows * heads
    feed_forward = rows * f * (4 + 4 + 2)
    layer = norms + attention + feed_forward
    with_more = LLAMA.with_(n_layers=33)
    sizes = dimensions(LLAMA, 1, rows)
    assert (
        activation_bytes(with_more, sizes, "bfloat16") - activation_bytes(LLAMA, sizes, "bfloat16") == layer
    )
    more = activation_bytes(with_more, sizes, "bfloat16", recomputed=True)
    assert more - activation_bytes(LLAMA, sizes, "bfloat16", recomputed=True) == 2 * rows * d


def test_fsdp_splits_whole_rows_and_gathers_the_largest_unit() -> None:
    config = DecoderConfig(vocab_size=10, context_length=8, n_layers=2, d_model=4, n_heads=2, d_ff=6)
    (recipe,) = recipes("float32")
    whole = device_memory(config, 1, 8, recipe, "float32", devices=3)
    split = device_memory(config, 1, 8, recipe, "float32", devices=3, parallel="fsdp")
    shapes = [(10, 4)]
    for _ in range(2):
        shapes += [(4, 1), (4, 1)]  # a norm's gain and bias
        shapes += 4 * [(4, 4), (4, 1)]
        shapes += [(4, 1), (4, 1), (6, 4), (6, 1), (4, 6), (4, 1)]
    shapes += [(4, 1), (4, 1)]
    assert whole.parameters == 4 * sum(a * b for a, b in shapes)
    assert split.parameters == 4 * sum(math.ceil(a / 3) * b for a, b in shapes)
    assert split.optimizer == 2 * split.parameters
    layer = 2 * 8 + 4 * 20 + 24 + 6 + 24 + 4
    assert split.gathered == 2 * 4 * layer
    assert whole.gathered == 0
    assert split.activations == whole.activations
    assert split.total == split.parameters * 4 + split.gathered + split.activations


def test_time_and_cost_are_work_by_speed() -> None:
    machine = Machine(devices=8, peak=1e15, utilization=0.5, price=2.0)
    run = plan_run(LLAMA, 4, 8192, machine, convention="6n", tokens=10**12)
    assert run.tokens_per_step == 8 * 4 * 8192
    assert run.flops == 6 * COUNT * run.tokens_per_step
    assert run.seconds == pytest.approx(6 * COUNT * 1e12 / (8 * 0.5e15), rel=1e-12)
    assert run.cost == pytest.approx(run.seconds / 3600 * 8 * 2.0, rel=1e-12)


def test_a_budget_buys_the_tokens_whose_cost_it_is() -> None:
    machine = Machine(devices=8, peak=1e15, utilization=0.5, price=2.0)
    bought = plan_run(LLAMA, 4, 8192, machine, budget=50_000.0).tokens
    assert plan_run(LLAMA, 4, 8192, machine, tokens=bought).cost == pytest.approx(50_000.0, rel=1e-6)


def test_recomputing_takes_longer_and_is_no_model_flops() -> None:
    machine = Machine(devices=1, peak=1e15, utilization=0.5)
    plain, again = (plan_run(LLAMA, 1, 8192, machine, recomputed=flag) for flag in (False, True))
    assert again.flops == plain.flops
    layers = 2 * 8192 * (COUNT - 2 * 128256 * 4096 - 65 * 4096) + 4 * 32 * 32 * 128 * 8192**2
    assert again.computed - plain.computed == layers
    assert again.cost is None


def test_decoding_reads_every_weight_and_the_whole_cache() -> None:
    call = decode(LLAMA, 1, 8192, "bfloat16")
    assert call.weight_bytes == 2 * (COUNT - 128255 * 4096)  # of the embedding one row
    assert call.cache_bytes == 128 * 1024 * 8193  # read with the new token, and the new token written
    assert call.flops == 2 * (COUNT - 128256 * 4096 - 65 * 4096) + 4 * 32 * 32 * 128 * 8192
    assert call.intensity == pytest.approx(19_304_284_160 / (15_009_857_536 + 1_073_872_896))


def test_prefill_makes_logits_of_the_last_token_alone() -> None:
    call = prefill(LLAMA, 2, 512, "bfloat16")
    products = COUNT - 2 * 128256 * 4096 - 65 * 4096
    assert call.flops == 2 * 2 * (512 * products + 128256 * 4096) + 4 * 2 * 32 * 32 * 128 * 512**2


def test_doubling_does_what_the_letters_say() -> None:
    found = {one.name: (one.tokens, one.batch, one.width) for one in growth(LLAMA, 1, 8192, "bfloat16")}
    assert found["FLOPs, projections"] == (2, 2, 4)
    assert found["FLOPs, scores and values"] == (4, 2, 2)
    assert found["FLOPs, feed-forward"] == (2, 2, 4)
    assert found["FLOPs, head"] == (2, 2, 2)
    assert found["cache bytes"] == (2, 2, 2)
    assert found["parameters"][:2] == (1, 1)


@pytest.mark.parametrize(
    ("batch", "n_tokens", "dtype", "message"),
    [
        (0, 8, "float32", "batch must be at least 1"),
        (1, 0, "float32", "sequence length must be at least 1"),
        (1, 17, "float32", "17 tokens exceeds context_length = 16"),
        (1, 8, "int8", "dtype must be one of float64"),
    ],
)
def test_what_is_no_size_is_refused(batch: int, n_tokens: int, dtype: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sheet("chapter", preset("chapter"), batch, n_tokens, dtype)
