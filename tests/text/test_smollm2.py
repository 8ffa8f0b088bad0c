"""SmolLM2's tokenizer: from its tokenizer.json and rebuilt from GGUF, against ids that others computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proof_lm.errors import TextError
from proof_lm.text import StreamDecoder, Tokenizer

CORPUS = [
    "",
    " ",
    "x =  5",
    "3.14159 and 2024-01-31, 1,000,000; 0x1F; v1.2.3",
    "\t\n\r\n   \n\n  indented\n    twice",
    "def f(x):\n    return x**2 + 10  # ok\n",
    "Don't stop, they've said; I'll go. He'd know: we're 'S 's",
    "naïve café, Ærøskøbing, Ελληνικά, русский, עברית, हिन्दी, ไทย",
    "日本語と中文字符混在 12 テスト",
    "👩‍👩‍👧‍👦 🏳️‍🌈 and 😀😀",
    "Ⅷ ½ ² ٣ 五 digits that are not ASCII",
    "e\u0301 decomposed, \u200b zero width, \u00a0 no-break",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
    "<|im_start |> not special",
    "https://example.org/a?b=c&d=e#f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 5,
]


@pytest.fixture(params=["json", pytest.param("gguf", marks=pytest.mark.real)])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(f"smollm2_{request.param}")


def test_reference_texts_have_the_reference_ids(tokenizer: Tokenizer, smollm2_data: Path) -> None:
    for text, ids in (("hamlet_6000.txt", "hamlet_ids.json"), ("LICENSE", "apache-licence_ids.json")):
        expected = json.loads((smollm2_data / ids).read_text())
        assert tokenizer.encode((smollm2_data / text).read_text())[:1024] == expected


def test_prompts_have_the_reference_ids(tokenizer: Tokenizer, smollm2_data: Path) -> None:
    prompts = json.loads((smollm2_data / "smollm2_refs.json").read_text())["prompts"]
    assert [tokenizer.encode(prompt["text"]) for prompt in prompts] == [prompt["ids"] for prompt in prompts]


def test_digits_are_split_one_by_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("x =  5") == [104, 446, 256, 37]


def test_size_and_ends(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (2,))
    assert tokenizer.encode("<|im_end|>") == [2]


@pytest.mark.parametrize("text", CORPUS, ids=range(len(CORPUS)))
def test_round_trip_whole_and_streamed(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token_id) for token_id in ids]
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + stream.finish() == text


@pytest.mark.real
def test_gguf_and_json_agree(smollm2_gguf: Tokenizer, smollm2_json: Tokenizer, smollm2_data: Path) -> None:
    texts = [*CORPUS, "".join(CORPUS), (smollm2_data / "smollm2_refs.json").read_text()]
    texts += [Path(__file__).read_text()]
    for text in texts:
        assert smollm2_gguf.encode(text) == smollm2_json.encode(text)


def test_every_token_streams_like_it_decodes(smollm2_json: Tokenizer) -> None:
    """Random ids: broken characters, special tokens and all."""
    ids = [(7 + 7919 * step) % 49152 for step in range(3000)]
    stream = StreamDecoder(smollm2_json)
    assert "".join(map(stream.push, ids)) + stream.finish() == smollm2_json.decode(ids)


@pytest.mark.parametrize("text", ["a\x04b", "\U00050000"])
def test_bytes_without_a_token_are_refused_where_the_library_drops_them(
    text: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(TextError, match="no token for byte 0x"):
        tokenizer.encode(text)


def test_ids_and_texts_out_of_range(tokenizer: Tokenizer) -> None:
    for token_id in (-1, 49152):
        with pytest.raises(TextError, match=rf"token id {token_id} at position 1 is not in 0\.\.49151"):
            tokenizer.decode([3, token_id])
    with pytest.raises(TextError, match=r"character 1 of the text is the lone surrogate U\+D800"):
        tokenizer.encode("a\ud800")
