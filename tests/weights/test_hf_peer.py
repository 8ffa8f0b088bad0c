"""transformers is the peer: what it saves we load, what we save it loads, and the logits agree."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from proof_lm.config import DecoderConfig
from proof_lm.weights import load_hf, save_hf
from weights.tiny import CHAPTER, GPT2, LLAMA, assert_same_bits, logits_of, random_model, randomise, token_ids

transformers = pytest.importorskip(
    "transformers", reason="the peer, transformers (extra 'hf'), is not installed"
)

# float64 throughout, except that transformers rounds the rotary cosines and sines to float32: an error of up to
# 2^-24 * (1 + angle), angle < 19, in each, and O(1) logits after two layers. A misplaced weight moves them by 0.1.
LLAMA_BOUND = 5e-6
# The same sums in another order, without rotary positions: some hundred roundings of 2^-53.
GPT2_BOUND = 1e-12

LLAMA_CASES = {
    "untied": {},
    "tied": {"tie_word_embeddings": True},
    "attention biases": {"attention_bias": True},
    "mlp biases": {"mlp_bias": True},
    "gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "mha": {"num_key_value_heads": 6},
    "mqa": {"num_key_value_heads": 1},
    "derived head_dim": {"head_dim": 4},
}


def their_llama(**changes: object) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        **{
            "vocab_size": 37,
            "max_position_embeddings": 29,
            "num_hidden_layers": 2,
            "hidden_size": 24,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 10,
            "intermediate_size": 44,
            "rms_norm_eps": 3e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
            **changes,
        }
    )
    return randomise(transformers.LlamaForCausalLM(config).double())


def their_gpt2(**changes: object) -> torch.nn.Module:
    sizes = {"vocab_size": 37, "n_positions": 29, "n_layer": 2, "n_embd": 24, "n_head": 3}
    config = transformers.GPT2Config(**{**sizes, "layer_norm_epsilon": 3e-5, **changes})
    return randomise(transformers.GPT2LMHeadModel(config).double())


def their_logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(ids).logits


def assert_close(left: torch.Tensor, right: torch.Tensor, bound: float) -> None:
    assert right.std() > 0.1, "logits this flat could not tell a wrong model from a right one"
    assert left.shape == right.shape
    assert (left - right).abs().max() <= bound


@pytest.mark.parametrize("changes", LLAMA_CASES.values(), ids=LLAMA_CASES)
def test_their_llama_loads_with_their_logits(changes: dict[str, object], tmp_path: Path) -> None:
    theirs = their_llama(**changes)
    theirs.save_pretrained(tmp_path)
    ours = load_hf(tmp_path, dtype=None)
    assert not ours.training
    assert_close(logits_of(ours, token_ids()), their_logits(theirs, token_ids()), LLAMA_BOUND)


def test_their_shards_load_like_their_single_file(tmp_path: Path) -> None:
    theirs = their_llama()
    theirs.save_pretrained(tmp_path / "one")
    theirs.save_pretrained(tmp_path / "many", max_shard_size="20KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    assert_same_bits(load_hf(tmp_path / "one", dtype=None), load_hf(tmp_path / "many", dtype=None))


@pytest.mark.parametrize("theta", ["top level", "rope_scaling", "absent"])
def test_rope_theta_of_transformers_4_is_read(theta: str, tmp_path: Path) -> None:
    theirs = their_llama(
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0 if theta == "absent" else 500.0}
    )
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    table = fields.pop("rope_parameters")
    fields |= {
        "top level": {"rope_theta": 500.0, "rope_scaling": None},
        "rope_scaling": {"rope_scaling": table},
    }.get(theta, {})
    path.write_text(json.dumps(fields))
    assert_close(
        logits_of(load_hf(tmp_path, dtype=None), token_ids()), their_logits(theirs, token_ids()), LLAMA_BOUND
    )


def their_mistral(window: int | None, attention: str) -> torch.nn.Module:
    config = transformers.MistralConfig(
        **{**their_llama().config.to_dict(), "model_type": "mistral", "sliding_window": window},
        attn_implementation=attention,
    )
    return randomise(transformers.MistralForCausalLM(config).double())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("window", [None, 1, 5, 18, 19])
def test_their_mistral_loads_with_their_logits(window: int | None, attention: str, tmp_path: Path) -> None:
    """Excludes a window one token wider or narrower than theirs: 19 tokens, so that 18 hides one pair only."""
    theirs = their_mistral(window, attention)
    assert theirs.config._attn_implementation == attention
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    for name in (
        "attention_bias",
        "mlp_bias",
        "pretraining_tp",
    ):  # Llama's, which Mistral's config merely carries
        fields.pop(name, None)
    path.write_text(json.dumps(fields))
    ours, expected = load_hf(tmp_path, dtype=None), their_logits(theirs, token_ids())
    assert ours.config.sliding_window == window
    for backend in ("explicit", "fused"):
        ours.attention_backend = backend
        assert_close(logits_of(ours, token_ids()), expected, LLAMA_BOUND)
    if window not in (None, 19):
        for other in (window - 1, window + 1):
            wrong = random_model(ours.config.with_(sliding_window=other or None))
            wrong.load_state_dict(ours.state_dict())
            assert (logits_of(wrong, token_ids()) - expected).abs().max() > 1000 * LLAMA_BOUND


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_packed_documents_get_the_logits_of_their_llama(attention: str, tmp_path: Path) -> None:
    """transformers tells packed sequences by positions that restart."""
    theirs = their_llama(attn_implementation=attention)
    theirs.save_pretrained(tmp_path)
    ours, ids = load_hf(tmp_path, dtype=None), token_ids()
    documents = torch.tensor([[4] * 7 + [1] * 12, [0] * 18 + [1], [2] * 3 + [5] * 9 + [3] * 7])
    positions = torch.cat([torch.arange(n) for n in (7, 12, 18, 1, 3, 9, 7)]).view(3, 19)
    with torch.inference_mode():
        expected = theirs(ids, position_ids=positions, use_cache=False).logits
        for backend in ("explicit", "fused"):
            ours.attention_backend = backend
            assert_close(ours(ids, document_ids=documents)[0], expected, LLAMA_BOUND)
            assert (ours(ids, position_ids=positions)[0] - expected).abs().max() > 1000 * LLAMA_BOUND


@pytest.mark.parametrize(
    "changes",
    [{}, {"n_inner": 44}, {"tie_word_embeddings": False}, {"activation_function": "relu"}],
    ids=["derived width", "n_inner", "untied", "relu"],
)
def test_their_gpt2_loads_with_their_logits(changes: dict[str, object], tmp_path: Path) -> None:
    theirs = their_gpt2(**changes)
    theirs.save_pretrained(tmp_path)
    assert_close(
        logits_of(load_hf(tmp_path, dtype=None), token_ids()), their_logits(theirs, token_ids()), GPT2_BOUND
    )


def test_gpt2_base_checkpoint_without_prefix_loads(tmp_path: Path) -> None:
    theirs = their_gpt2()
    theirs.transformer.save_pretrained(tmp_path)  # GPT2Model: "h.0.…" and no head
    assert_close(
        logits_of(load_hf(tmp_path, dtype=None), token_ids()), their_logits(theirs, token_ids()), GPT2_BOUND
    )


OURS = {
    "llama": LLAMA,
    "llama tied": LLAMA.with_(tie_embeddings=True),
    "llama biases": LLAMA.with_(attention_bias=True, attention_out_bias=True, feed_forward_bias=True),
    "llama interleaved": LLAMA.with_(rope_layout="interleaved", attention_bias=True, attention_out_bias=True),
    "llama gelu_tanh": LLAMA.with_(activation="gelu_tanh"),
    "mistral": LLAMA.with_(sliding_window=5),
    "mistral interleaved tied": LLAMA.with_(
        sliding_window=7, rope_layout="interleaved", tie_embeddings=True, activation="gelu"
    ),
    "gpt2": GPT2,
    "gpt2 untied relu": GPT2.with_(tie_embeddings=False, activation="relu"),
    "gpt2 gelu": GPT2.with_(activation="gelu"),
}


@pytest.mark.parametrize("config", OURS.values(), ids=OURS)
def test_ours_loads_in_transformers_with_our_logits(config: DecoderConfig, tmp_path: Path) -> None:
    ours = random_model(config)
    save_hf(ours, tmp_path / "out")
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", dtype=torch.float64, output_loading_info=True
    )
    assert not any(report.values()), report
    bound = LLAMA_BOUND if config.position == "rope" else GPT2_BOUND
    assert_close(their_logits(theirs.eval(), token_ids()), logits_of(ours, token_ids()), bound)


@pytest.mark.parametrize("config", OURS.values(), ids=OURS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_ours_comes_back_bit_by_bit(config: DecoderConfig, dtype: torch.dtype, tmp_path: Path) -> None:
    ours = random_model(config, dtype)
    save_hf(ours, tmp_path / "out")
    back = load_hf(tmp_path / "out", dtype=None)
    assert dataclasses.replace(back.config, initialization="normal") == dataclasses.replace(
        config,
        initialization="normal",
        rope_layout="half" if config.position == "rope" else config.rope_layout,
    )
    if config.rope_layout == "half" or config.position == "learned":
        assert_same_bits(ours, back)
    else:
        save_hf(back, tmp_path / "again")  # already in half order: nothing moves any more
        assert_same_bits(back, load_hf(tmp_path / "again", dtype=None))


def test_what_transformers_saves_of_ours_comes_back_bit_by_bit(tmp_path: Path) -> None:
    ours = random_model(LLAMA)
    save_hf(ours, tmp_path / "ours")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float64)
    theirs.save_pretrained(tmp_path / "theirs")
    assert_same_bits(ours, load_hf(tmp_path / "theirs", dtype=None))


def test_the_interleaved_rows_really_need_the_reordering(tmp_path: Path) -> None:
    """The comparison above can fail: the same rows under the other layout are another function."""
    ours = random_model(LLAMA.with_(rope_layout="interleaved"))
    mislabelled = random_model(LLAMA)
    mislabelled.load_state_dict(ours.state_dict())
    assert (
        logits_of(ours, token_ids()) - logits_of(mislabelled, token_ids())
    ).abs().max() > 1000 * LLAMA_BOUND
    assert CHAPTER.rope_layout == "interleaved"
