"""Bytes as ids, and the stream decoder over them."""

from __future__ import annotations

import pytest

from proof_lm import text as package
from proof_lm.errors import TextError
from proof_lm.text import ByteTokenizer, StreamDecoder

TEXT = "naïve 日本 👩‍👧 \ufffd\n"


def test_ids_are_the_utf8_bytes() -> None:
    tokenizer = ByteTokenizer(256)
    assert tokenizer.encode("hé") == [0x68, 0xC3, 0xA9]
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (256, None, ())


def test_a_byte_that_does_not_fit_is_refused_with_the_numbers() -> None:
    assert ByteTokenizer(120).encode("www") == [119, 119, 119]
    with pytest.raises(TextError, match=r"byte 119 at byte position 2 .* vocabulary of 119 ids.* need 120"):
        ByteTokenizer(119).encode("abw")


def test_ids_that_are_no_bytes() -> None:
    tokenizer = ByteTokenizer(300)
    assert tokenizer.decode([0x68, 299, 0x69]) == "h\ufffdi"
    assert tokenizer.decode([0xC3, 299, 0xA9]) == "\ufffd\ufffd\ufffd"
    for token_id in (-1, 300):
        with pytest.raises(TextError, match=rf"token id {token_id} at position 0 is not in 0\.\.299"):
            tokenizer.decode([token_id])


def test_a_lone_surrogate_and_an_empty_vocabulary_are_refused() -> None:
    with pytest.raises(TextError, match=r"lone surrogate U\+DC80"):
        ByteTokenizer(256).encode("\udc80")
    with pytest.raises(TextError, match="at least 1, got 0"):
        ByteTokenizer(0)


def test_a_character_comes_out_when_its_last_byte_is_in() -> None:
    stream = StreamDecoder(ByteTokenizer(256))
    assert [stream.push(byte) for byte in "é日a".encode()] == ["", "é", "", "", "日", "a"]
    assert stream.finish() == ""


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    stream = StreamDecoder(ByteTokenizer(256))
    assert [stream.push(byte) for byte in "a日".encode()[:3]] == ["a", "", ""]
    assert stream.finish() == "\ufffd"
    assert stream.push(ord("b")) == "b"


@pytest.mark.parametrize("ids", [list(TEXT.encode()), [0xE6, 0x41, 0xFF, 0xFF, 0x42], [0x80, 0xC3], []])
def test_the_pieces_join_to_the_whole(ids: list[int]) -> None:
    tokenizer = ByteTokenizer(256)
    stream = StreamDecoder(tokenizer)
    assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)


def test_the_public_names_are_the_ones_that_can_be_seen() -> None:
    modules = {"byte", "gguf", "stream", "subword", "tokenizer"}
    modules.add("jaxtyping")  # by the import hook of the tests
    assert {name for name in vars(package) if not name.startswith("_")} - modules == set(package.__all__)
