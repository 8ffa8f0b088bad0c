"""What a tokenizer is, and which one a path holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from proof_lm.errors import TextError
from proof_lm.text.gguf import from_gguf
from proof_lm.text.subword import from_json_file


@runtime_checkable  # the tests check annotations as they run
class Tokenizer(Protocol):
    """Text to ids and back.

    Attributes:
        bos_id: id that begins a text, where known.
        eos_ids: ids that end a text, where known.
    """

    bos_id: int | None
    eos_ids: tuple[int, ...]

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``."""
        ...

    def to_files(self) -> dict[str, str]:
        """The files, by name, from which :func:`load_tokenizer` rebuilds this tokenizer."""
        ...


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a directory with a tokenizer.json, of a tokenizer.json, or of a .gguf file.

    Raises:
        TextError: there is none at ``path``, it is damaged, or it is of a kind that is not read.
    """
    path = Path(path)
    if not path.exists():
        raise TextError(f"{path} does not exist")
    if path.suffix == ".gguf":
        return from_gguf(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.exists():
        raise TextError(
            f"{path} has no tokenizer.json; ByteTokenizer(vocab_size) reads text as bytes instead"
        )
    return from_json_file(file)
