"""Tokenizers from tokenizer.json and GGUF that are small, odd, damaged or of an unknown kind."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from proof_lm.errors import TextError
from proof_lm.text import load_tokenizer

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["Ġ a", "1 2", "a b"]
TOKENS = ["<s>", "</s>", "<tool>", *ALPHABET, "Ġa", "12", "ab"]
TYPES = [3, 3, 4] + [1] * (len(TOKENS) - 3)


def their_tokenizer() -> tokenizers.Tokenizer:
    vocabulary = {token: token_id for token_id, token in enumerate(TOKENS)}
    merges = [tuple(line.split(" ")) for line in MERGES]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def write_gguf(path: Path, **changes: object) -> Path:
    fields = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": TOKENS,
        "token_type": TYPES,
        "merges": MERGES,
        "bos_token_id": 0,
        "eos_token_id": 1,
        **changes,
    }
    writer = gguf.GGUFWriter(path, "llama")
    adders = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
    for name, value in fields.items():
        if value is not None:
            adders[type(value)](f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gpt2_split_keeps_digits_together_and_smollm_does_not(tmp_path: Path) -> None:
    plain = load_tokenizer(write_gguf(tmp_path / "a.gguf", pre="gpt-2"))
    split = load_tokenizer(write_gguf(tmp_path / "b.gguf", pre="smollm"))
    assert [TOKENS[i] for i in plain.encode(" ab12")] == ["Ġa", "b", "12"]
    assert [TOKENS[i] for i in split.encode(" ab12")] == ["Ġa", "b", "1", "2"]
    assert plain.encode("any text <s> 12 ab") == their_tokenizer().encode("any text <s> 12 ab").ids


def test_special_and_user_defined_tokens_are_one_id(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "a.gguf"))
    assert tokenizer.encode("<s><tool>ab</s>") == [0, 2, TOKENS.index("ab"), 1]
    assert tokenizer.decode([0, 2, TOKENS.index("ab"), 1]) == "<s><tool>ab</s>"


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
def test_ends_are_added_where_the_file_wants_them(bos: bool, eos: bool, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "a.gguf", add_bos_token=bos, add_eos_token=eos))
    assert tokenizer.encode("ab") == [0] * bos + [TOKENS.index("ab")] + [1] * eos
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1,))


def test_an_end_of_turn_ends_too(tmp_path: Path) -> None:
    assert load_tokenizer(write_gguf(tmp_path / "a.gguf", eot_token_id=2)).eos_ids == (1, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "llama-bpe"}, "tokenizer.ggml.pre is 'llama-bpe'; the splits known here are smollm"),
        ({"pre": "default"}, "pre is 'default'"),
        ({"pre": None}, "pre is None"),
        ({"model": "llama"}, "model is 'llama'; only byte-level BPE"),
        ({"merges": None}, "has no tokenizer.ggml.merges"),
        ({"merges": ["a b c"]}, "'a b c', which is not two tokens"),
        ({"merges": ["a b", "ab zz"]}, "merges do not fit the tokens"),
        ({"tokens": [*TOKENS[:-1], "a"]}, "repeats 1 tokens"),
        ({"token_type": TYPES[1:]}, "262 tokens, but 261 token types"),
        ({"bos_token_id": 9999, "add_bos_token": True}, "bos_token_id is 9999"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_gguf_tokenizer_that_is_not_understood_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TextError, match=message):
        load_tokenizer(write_gguf(tmp_path / "a.gguf", **changes))


def test_a_gguf_cut_off_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    whole = path.read_bytes()
    for length in (0, 4, 30, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(TextError, match=r"cannot read .*a\.gguf as GGUF"):
            load_tokenizer(path)


def test_truncation_and_padding_of_the_file_do_not_shorten_a_text(tmp_path: Path) -> None:
    tokenizer = their_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(tmp_path).encode("abcdef")) == 5
    assert len(load_tokenizer(tmp_path).encode("c")) == 1


@pytest.mark.parametrize(
    ("files", "bos", "eos"),
    [
        ({}, None, ()),
        ({"config.json": {"bos_token_id": 0, "eos_token_id": 1}}, 0, (1,)),
        (
            {"config.json": {"eos_token_id": 1}, "generation_config.json": {"eos_token_id": [1, 2]}},
            None,
            (1, 2),
        ),
        ({"tokenizer_config.json": {"bos_token": "<s>", "eos_token": {"content": "</s>"}}}, 0, (1,)),
        ({"tokenizer_config.json": {"bos_token": None, "eos_token": "unheard of"}}, None, ()),
    ],
    ids=["none", "config", "generation config first", "by name", "unknown name"],
)
def test_ends_come_from_the_files_beside(
    files: dict[str, object], bos: int | None, eos: tuple[int, ...], tmp_path: Path
) -> None:
    their_tokenizer().save(str(tmp_path / "tokenizer.json"))
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (bos, eos)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"model": {"type": "BPE"}}', "\x00"])
def test_a_damaged_tokenizer_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TextError, match=r"tokenizer\.json is not a tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_damaged_files_beside_are_named(tmp_path: Path) -> None:
    their_tokenizer().save(str(tmp_path / "tokenizer.json"))
    for content, message in (("{", "cannot read"), ("[]", "must hold a JSON object")):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(TextError, match=message):
            load_tokenizer(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "tokenizer.json").write_bytes(b"\xff")
    with pytest.raises(TextError, match="cannot read"):
        load_tokenizer(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="nowhere does not exist"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(TextError, match=r"has no tokenizer\.json; ByteTokenizer"):
        load_tokenizer(tmp_path)
