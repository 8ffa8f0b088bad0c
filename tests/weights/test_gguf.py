"""GGUF files of tiny decoders, written with the gguf library in llama.cpp's row order."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.model import ProofLM
from proof_lm.weights import load_gguf, load_model
from weights.tiny import LLAMA, assert_same_bits, random_model

PARTS = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.out": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
    "embedding": "token_embd",
    "final_norm": "output_norm",
    "head": "output",
}
TINY = LLAMA.with_(norm_eps=1e-5)
WIDE = TINY.with_(d_model=64, head_dim=32, d_ff=96)  # widths that blocks of 32 quantised values divide


def permuted(weight: np.ndarray, n_head: int) -> np.ndarray:
    """``LlamaModel.permute`` of llama.cpp's convert_hf_to_gguf.py."""
    split = weight.reshape(n_head, 2, weight.shape[0] // n_head // 2, *weight.shape[1:])
    return split.swapaxes(1, 2).reshape(weight.shape)


def theirs(name: str) -> str:
    module, kind = name.rsplit(".", 1)
    if module.startswith("blocks."):
        _, index, part = module.split(".", 2)
        return f"blk.{index}.{PARTS[part]}.{kind}"
    return f"{PARTS[module]}.{kind}"


def metadata(config: DecoderConfig) -> dict[str, object]:
    return {
        "block_count": config.n_layers,
        "context_length": config.context_length,
        "embedding_length": config.d_model,
        "feed_forward_length": config.d_ff,
        "attention.head_count": config.n_heads,
        "attention.head_count_kv": config.n_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.freq_base": config.rope_theta,
        "rope.dimension_count": config.head_dim,
    }


def write(
    path: Path,
    model: ProofLM,
    *,
    arch: str = "llama",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    fields: dict[str, object] | None = None,
    drop: str = "",
    add: str = "",
) -> Path:
    """``model`` as a GGUF file; a field given as None is left out, a tensor may be dropped or added."""
    writer = gguf.GGUFWriter(path, arch)
    adders = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
    }
    for key, value in (metadata(model.config) | (fields or {})).items():
        if isinstance(value, list):
            writer.add_array(f"{arch}.{key}", value)
        elif value is not None:
            adders[type(value)](f"{arch}.{key}", value)
    heads = {".query.": model.config.n_heads, ".key.": model.config.n_kv_heads}
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        for part, n_heads in heads.items():
            values = permuted(values, n_heads) if part in name else values
        if theirs(name) == drop:
            continue
        if tensor.ndim == 2 and kind is not gguf.GGMLQuantizationType.F32:
            writer.add_tensor(theirs(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(theirs(name), np.ascontiguousarray(values))
    if add:
        writer.add_tensor(add, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        TINY.with_(tie_embeddings=True),
        TINY.with_(attention_bias=True),
        TINY.with_(attention_bias=True, attention_out_bias=True, feed_forward_bias=True),
        TINY.with_(n_kv_heads=6),
        TINY.with_(n_kv_heads=1),
    ],
    ids=["untied", "tied", "qkv biases", "biases", "mha", "mqa"],
)
def test_float32_comes_back_bit_by_bit_in_the_original_row_order(
    config: DecoderConfig, tmp_path: Path
) -> None:
    model = random_model(config, torch.float32)
    back = load_model(write(tmp_path / "m.gguf", model))
    assert back.config == config
    assert_same_bits(model, back)


def test_query_rows_do_move() -> None:
    rows = np.arange(60)
    assert not np.array_equal(permuted(rows, 6), rows)
    assert not np.array_equal(permuted(rows, 2), permuted(rows, 6))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1", "Q4_0", "Q5_1"])
def test_quantised_tensors_are_what_the_library_makes_of_them(kind: str, tmp_path: Path) -> None:
    """Quantise, dequantise: rows are quantised one by one, so their order does not matter to the values."""
    number = gguf.GGMLQuantizationType[kind]
    model = random_model(WIDE, torch.float32)
    back = load_gguf(write(tmp_path / "m.gguf", model, kind=number)).state_dict()
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if tensor.ndim == 2:
            values = gguf.quants.dequantize(gguf.quants.quantize(values, number), number)
            assert not np.array_equal(values, tensor.numpy())
        assert np.array_equal(back[name].numpy(), values), name


def test_the_dtype_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model(TINY, torch.float32))
    assert_same_bits(load_gguf(path, dtype=torch.float64), random_model(TINY, torch.float32).double())
    assert_same_bits(load_gguf(path, dtype=None), random_model(TINY, torch.float32))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rope.scaling.type": "linear"}, "rope.scaling.type is 'linear'"),
        (
            {"rope.scaling.factor": 2.0},
            "not understood and may change the function: llama.rope.scaling.factor",
        ),
        ({"expert_count": 4}, "expert_count is 4"),
        ({"attention.causal": False}, "attention.causal is False"),
        ({"attention.sliding_window": 16}, "not understood.*llama.attention.sliding_window"),
        ({"rope.dimension_count": 4}, "rope.dimension_count is 4; only 10"),
        ({"attention.value_length": 12}, "value_length is 12; only 10"),
        ({"attention.head_count": [6, 4]}, "n_heads must be a positive integer"),
        ({"attention.head_count_kv": 4}, "n_kv_heads must divide n_heads = 6"),
        ({"block_count": None}, "lacks llama.block_count"),
        ({"attention.layer_norm_rms_epsilon": None}, "lacks llama.attention.layer_norm_rms_epsilon"),
        (
            {"attention.key_length": 8, "attention.value_length": 8, "rope.dimension_count": 8},
            "expected .48, 24.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_metadata_that_changes_the_function_is_refused(
    fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=message):
        load_gguf(write(tmp_path / "m.gguf", random_model(TINY, torch.float32), fields=fields))


def test_harmless_and_derived_metadata(tmp_path: Path) -> None:
    fields = {"rope.scaling.type": "none", "vocab_size": 37, "expert_count": 0}
    path = write(tmp_path / "m.gguf", random_model(TINY, torch.float32), fields=fields)
    assert load_gguf(path).config == TINY
    derived = TINY.with_(head_dim=4, n_kv_heads=6, rope_theta=10000.0)
    names = ("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base")
    path = write(tmp_path / "d.gguf", random_model(derived, torch.float32), fields=dict.fromkeys(names))
    assert load_gguf(path).config == derived


@pytest.mark.parametrize("arch", ["qwen2", "gemma", "gpt2"])
def test_another_architecture_is_refused_by_name(arch: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"architecture is '{arch}'; only 'llama'"):
        load_gguf(write(tmp_path / "m.gguf", random_model(TINY, torch.float32), arch=arch))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": "blk.1.ffn_up.weight"}, r"1 missing: blk\.1\.ffn_up\.weight"),
        ({"drop": "token_embd.weight"}, r"lacks the tensor token_embd\.weight"),
        ({"add": "rope_freqs.weight"}, r"1 unexpected: rope_freqs\.weight"),
    ],
    ids=["missing", "no embedding", "unexpected"],
)
def test_wrong_tensors_are_named(change: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=message):
        load_gguf(write(tmp_path / "m.gguf", random_model(TINY, torch.float32), **change))


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model(TINY, torch.float32))
    whole = path.read_bytes()
    for length in [0, 3, 4, 8, 23, 24, 40, *range(50, len(whole), 997), len(whole) - 33]:
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match=r"cannot read .*m\.gguf as GGUF, is it cut off"):
            load_gguf(path)


def test_changed_header_bytes_never_escape_as_other_errors(tmp_path: Path) -> None:
    """Nor do they loop for ever: the library alone reads on past the end of the file with empty arrays."""
    path = write(tmp_path / "m.gguf", random_model(TINY, torch.float32))
    whole = path.read_bytes()
    refused = 0
    for position in range(0, 1600, 5):
        damaged = bytearray(whole)
        damaged[position] ^= 0x81
        path.write_bytes(damaged)
        try:
            load_gguf(path)
        except WeightsError as error:
            assert str(path) in str(error)  # noqa: PT017 - either outcome is right
            refused += 1
    assert refused > 200


def test_a_huge_array_length_ends_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.gguf", random_model(TINY, torch.float32), fields={"flags": [True, False, True]}
    )
    whole = path.read_bytes()
    length = (3).to_bytes(8, "little") + bytes([True, False, True])
    assert whole.count(length) == 1
    path.write_bytes(whole.replace(length, (2**40).to_bytes(8, "little") + bytes([True, False, True])))
    with pytest.raises(WeightsError, match="the file ends before byte"):
        load_gguf(path)
