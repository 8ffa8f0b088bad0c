"""FLOPs and visible pairs, against brute force and against PyTorch's counter on transformers' models."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from proof_lm.config import DecoderConfig
from proof_lm.presets import preset
from proof_lm.sheet import Sheet, dimensions, forward_flops, recomputation_flops, step_flops, visible_pairs

LLAMA = LlamaConfig(
    vocab_size=31,
    hidden_size=24,
    intermediate_size=37,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=10,
    tie_word_embeddings=False,
    attn_implementation="eager",
)
GPT2 = GPT2Config(
    vocab_size=31, n_positions=29, n_embd=24, n_inner=37, n_layer=3, n_head=6, attn_implementation="eager"
)
OURS = {
    "llama": DecoderConfig(
        vocab_size=31,
        context_length=29,
        n_layers=3,
        d_model=24,
        n_heads=6,
        n_kv_heads=2,
        head_dim=10,
        d_ff=37,
        norm="rmsnorm",
        feed_forward="gated",
        activation="silu",
        tie_embeddings=False,
    ),
    "gpt2": DecoderConfig(
        vocab_size=31, context_length=29, n_layers=3, d_model=24, n_heads=6, d_ff=37, position="learned"
    ),
}


@pytest.mark.parametrize("window", [None, 1, 3, 7, 11, 20])
@pytest.mark.parametrize(("n_tokens", "n_keys"), [(1, 1), (1, 11), (4, 11), (11, 11), (7, 7)])
def test_visible_pairs_are_those_that_a_loop_finds(n_tokens: int, n_keys: int, window: int | None) -> None:
    found = 0
    for t in range(n_tokens):
        place = t + n_keys - n_tokens
        found += sum(1 for s in range(n_keys) if s <= place and (window is None or s > place - window))
    assert visible_pairs(n_tokens, n_keys, window) == found


def theirs(name: str) -> PreTrainedModel:
    """transformers' decoder of the same sizes."""
    model: PreTrainedModel = LlamaForCausalLM(LLAMA) if name == "llama" else GPT2LMHeadModel(GPT2)
    return model.eval()


@pytest.mark.parametrize("name", OURS)
def test_products_of_a_step_are_those_that_pytorch_counts_in_transformers(name: str) -> None:
    ids = torch.arange(5 * 19).view(5, 19) % 31
    model = theirs(name)
    with FlopCounterMode(display=False) as forward:
        loss = model(ids, labels=ids).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    sheet = Sheet(name, OURS[name], 5, 19)
    assert forward.get_total_flops() == sheet.forward.products
    assert backward.get_total_flops() == 2 * sheet.forward.products


def test_conventions_of_gpt2_small_are_their_formulas() -> None:
    """124,439,808 parameters, 12 layers of width 768, 50,257 token ids: written out, without a letter of the code."""
    rows, products = 2 * 1024, 12 * (12 * 768**2) + 768 * 50257
    dense = 3 * 2 * rows * (products + 12 * 2 * 768 * 1024)
    known = {name: step_flops(preset("gpt2"), 2, 1024, name) for name in ("dense", "macs", "6n", "palm")}
    assert known == {
        "dense": dense,
        "macs": dense // 2,
        "6n": 6 * 124_439_808 * rows,
        "palm": (6 * 124_439_808 + 12 * 12 * 768 * 1024) * rows,
    }
    causal = 3 * 2 * 2 * (1024 * products + 12 * 2 * 768 * 1024 * 1025 // 2)
    assert step_flops(preset("gpt2"), 2, 1024, "causal") == causal
    halved = 3 * 2 * 2 * (1024 * products + 12 * 2 * 768 * 1024 * 1024 // 2)
    assert step_flops(preset("gpt2"), 2, 1024, "halved") == halved


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(KeyError):
        step_flops(preset("gpt2"), 1, 1024, "nine")


def test_a_window_makes_the_causal_count_linear_in_the_length() -> None:
    config = preset("smollm2-135m").with_(sliding_window=64)
    short, long = (dimensions(config, 1, n_tokens, attention="causal")["P"] for n_tokens in (2048, 4096))
    assert long - short == 2048 * 64


def test_recomputing_costs_the_layers_alone() -> None:
    config = preset("gpt2")
    values = dimensions(config, 1, 1024)
    head = 2 * 1024 * 768 * 50257
    assert recomputation_flops(config, values).products == forward_flops(config, values).products - head
