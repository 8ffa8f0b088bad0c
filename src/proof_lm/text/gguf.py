"""The tokenizer inside a GGUF file: byte-level BPE rebuilt from its metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from proof_lm.errors import TextError
from proof_lm.gguf_reader import BoundedReader
from proof_lm.text.subword import SubwordTokenizer

# Splits before BPE, by the name in tokenizer.ggml.pre (llama.cpp, src/llama-vocab.cpp). Other names are
# refused: the wrong split gives other ids for the same text, and nothing downstream would notice.
_SPLITS_DIGITS = {"smollm": True, "gpt-2": False, "gpt2": False}
_CONTROL, _USER_DEFINED = 3, 4  # gguf.TokenType


def from_gguf(path: Path) -> SubwordTokenizer:
    """The byte-level BPE tokenizer of a GGUF file.

    "smollm" splits digits one by one and then by GPT-2's expression; "gpt-2" does only the latter. "default"
    names no known split (llama.cpp warns that it degrades) and is refused like every unknown name.

    Raises:
        TextError: the file is missing or damaged, or its kind of tokenizer is not one of these.
    """
    metadata = _Metadata(path)
    kind = metadata.get("model")
    if kind != "gpt2":
        raise TextError(f"{path}: tokenizer.ggml.model is {kind!r}; only byte-level BPE, 'gpt2', is read")
    pre = metadata.get("pre")
    if pre not in _SPLITS_DIGITS:
        raise TextError(
            f"{path}: tokenizer.ggml.pre is {pre!r}; the splits known here are {', '.join(_SPLITS_DIGITS)}"
        )
    tokenizer = _byte_level_bpe(metadata, split_digits=_SPLITS_DIGITS[pre])
    ends = [metadata.get(name) for name in ("eos_token_id", "eot_token_id")]
    eos_ids = tuple(dict.fromkeys(token_id for token_id in ends if token_id is not None))
    return SubwordTokenizer(tokenizer, bos_id=metadata.get("bos_token_id"), eos_ids=eos_ids)


def _byte_level_bpe(metadata: _Metadata, *, split_digits: bool) -> tokenizers.Tokenizer:
    tokens: list[str] = metadata.require("tokens")
    merges = [_merge(metadata.path, line) for line in metadata.require("merges")]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise TextError(
            f"{metadata.path}: tokenizer.ggml.tokens repeats {len(tokens) - len(vocabulary)} tokens"
        )
    try:
        model = models.BPE(vocab=vocabulary, merges=merges)
    except Exception as error:  # the library raises bare Exception
        raise TextError(f"{metadata.path}: tokenizer.ggml.merges do not fit the tokens: {error}") from error
    tokenizer = tokenizers.Tokenizer(model)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if split_digits else []
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=bool(metadata.get("add_space_prefix")))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    _add_special_tokens(tokenizer, tokens, metadata)
    return tokenizer


def _merge(path: Path, line: str) -> tuple[str, str]:
    """The two halves of a merge, "Ġ t": byte-level tokens hold no blank."""
    halves = line.split(" ")
    if len(halves) != 2:
        raise TextError(f"{path}: tokenizer.ggml.merges holds {line!r}, which is not two tokens and a blank")
    return halves[0], halves[1]


def _add_special_tokens(tokenizer: tokenizers.Tokenizer, tokens: list[str], metadata: _Metadata) -> None:
    """Register control and user-defined tokens, and the bos/eos that the file wants around every text."""
    types = metadata.require("token_type")
    if len(types) != len(tokens):
        raise TextError(f"{metadata.path}: {len(tokens)} tokens, but {len(types)} token types")
    for token, kind in zip(tokens, types, strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            added = tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
            tokenizer.add_special_tokens([added]) if kind == _CONTROL else tokenizer.add_tokens([added])
    ends = {
        role: metadata.token_id(f"{role}_token_id")
        for role in ("bos", "eos")
        if metadata.get(f"add_{role}_token")
    }
    if ends:
        tokenizer.post_processor = _ends_around_text({role: (tokens[i], i) for role, i in ends.items()})


def _ends_around_text(ends: dict[str, tuple[str, int]]) -> processors.TemplateProcessing:
    """What puts the bos and eos tokens, those that are given, around a text."""
    before = [ends["bos"][0]] if "bos" in ends else []
    after = [ends["eos"][0]] if "eos" in ends else []
    return processors.TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=sorted(set(ends.values()))
    )


class _Metadata:
    """The ``tokenizer.ggml.*`` fields of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fields = BoundedReader(path).fields
        except (OSError, ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise TextError(f"cannot read {path} as GGUF, is it cut off or damaged? ({error})") from error

    def get(self, name: str) -> Any:
        """The value of ``tokenizer.ggml.<name>``, or None."""
        field = self._fields.get(f"tokenizer.ggml.{name}")
        return None if field is None else field.contents()

    def require(self, name: str) -> Any:
        """The value of ``tokenizer.ggml.<name>``.

        Raises:
            TextError: there is none.
        """
        value = self.get(name)
        if value is None:
            raise TextError(f"{self.path} has no tokenizer.ggml.{name}")
        return value

    def token_id(self, name: str) -> int:
        """The token id in ``tokenizer.ggml.<name>``.

        Raises:
            TextError: there is none, or it is not in the vocabulary.
        """
        token_id: int = self.require(name)
        n_tokens = len(self.require("tokens"))
        if not 0 <= token_id < n_tokens:
            raise TextError(f"{self.path}: tokenizer.ggml.{name} is {token_id}, with {n_tokens} tokens")
        return token_id
