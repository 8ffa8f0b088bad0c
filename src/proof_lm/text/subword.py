"""``SubwordTokenizer``: a ``tokenizers`` tokenizer that neither drops nor shortens a text in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from proof_lm.errors import TextError
from proof_lm.text.byte import require_ids, utf8


class SubwordTokenizer:
    """A tokenizer of the ``tokenizers`` library, with the ids at which a model begins and ends.

    Args:
        tokenizer: the library's tokenizer. Truncation and padding that its file may carry are switched off.
        bos_id: id that begins a text, where known.
        eos_ids: ids that end a text, where known.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, *, bos_id: int | None = None, eos_ids: tuple[int, ...] = ()
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._missing_bytes = _missing_bytes(tokenizer)
        self.bos_id = bos_id
        self.eos_ids = eos_ids

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included. A model's vocabulary may be padded beyond it."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, with the special tokens that the tokenizer puts around a text, if any.

        Special tokens written out in the text are recognised.

        Raises:
            TextError: the text holds a lone surrogate, or a byte for which a byte-level vocabulary has no
                token. (The library drops such bytes without a word.)
        """
        lost = self._missing_bytes.intersection(utf8(text))
        if lost:
            raise TextError(
                f"the vocabulary has no token for byte 0x{min(lost):02X} of the text's UTF-8; "
                "encoding would drop it silently"
            )
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens written out; incomplete characters become U+FFFD.

        Raises:
            TextError: an id is not in 0..V-1.
        """
        require_ids(ids, self.vocab_size)
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def to_files(self) -> dict[str, str]:
        """The files, by name, from which :func:`proof_lm.text.load_tokenizer` and transformers rebuild this."""
        special = {
            "bos_token": [self.bos_id] if self.bos_id is not None else [],
            "eos_token": list(self.eos_ids),
        }
        named = {role: self._tokenizer.id_to_token(ids[0]) for role, ids in special.items() if ids}
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
        return {
            "tokenizer.json": self._tokenizer.to_str(pretty=True),
            "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
        }


def from_json_file(path: Path) -> SubwordTokenizer:
    """The tokenizer of a ``tokenizer.json``, with the bos and eos ids that files beside it declare.

    Raises:
        TextError: the file is missing or damaged; the message names it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TextError(f"cannot read {path}: {error}") from error
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise TextError(f"{path} is not a tokenizer that the tokenizers library reads: {error}") from error
    bos_ids = _declared_ids(path.parent, "bos", tokenizer)
    return SubwordTokenizer(
        tokenizer,
        bos_id=bos_ids[0] if bos_ids else None,
        eos_ids=_declared_ids(path.parent, "eos", tokenizer),
    )


def _declared_ids(directory: Path, role: str, tokenizer: tokenizers.Tokenizer) -> tuple[int, ...]:
    """Ids of the bos or eos token: from generation_config.json, else config.json, else by its name."""
    for name in ("generation_config.json", "config.json"):
        value = _json_object(directory / name).get(f"{role}_token_id")
        if value is not None:
            return tuple(value) if isinstance(value, list) else (value,)
    token = _json_object(directory / "tokenizer_config.json").get(f"{role}_token")
    content = token.get("content") if isinstance(token, dict) else token
    token_id = tokenizer.token_to_id(content) if isinstance(content, str) else None
    return () if token_id is None else (token_id,)


def _json_object(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; empty where there is no such file."""
    if not path.exists():
        return {}
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TextError(f"cannot read {path}: {error}") from error
    if not isinstance(fields, dict):
        raise TextError(f"{path} must hold a JSON object, got {type(fields).__name__}")
    return fields


def _missing_bytes(tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
    """Bytes that a byte-level BPE without an unknown token cannot encode (SmolLM2 lacks 21 of the 256)."""
    is_byte_level = type(tokenizer.decoder).__name__ == "ByteLevel" and tokenizer.normalizer is None
    if not is_byte_level or getattr(tokenizer.model, "unk_token", None) is not None:
        return frozenset()
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    return frozenset(byte for byte, letter in _byte_letters().items() if letter not in vocabulary)


def _byte_letters() -> dict[int, str]:
    """The letter that stands for each byte (Radford et al. 2019, ``bytes_to_unicode`` of GPT-2's encoder.py).

    Printable Latin-1 bytes stand for themselves; the others follow in order from U+0100.
    """
    letters = {ord(letter): letter for letter in ByteLevel.alphabet() if ord(letter) < 256}
    others = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(256 + index) for index, byte in enumerate(others)}
