"""``ByteTokenizer``: the UTF-8 bytes of the text are the ids, for models that come without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from proof_lm.errors import TextError


class ByteTokenizer:
    """Ids 0..255 are the bytes of the UTF-8 text; there is nothing to learn and no special token.

    Args:
        vocab_size: number of token ids of the model, V. Below 256, only bytes less than V can be encoded;
            above, the ids from 256 on stand for no text.

    Raises:
        TextError: ``vocab_size`` is not a positive integer.
    """

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def __init__(self, vocab_size: int = 256) -> None:
        if vocab_size < 1:
            raise TextError(f"vocab_size must be at least 1, got {vocab_size}")
        self._vocab_size = vocab_size

    @property
    def vocab_size(self) -> int:
        """Number of token ids, V."""
        return self._vocab_size

    def encode(self, text: str) -> list[int]:
        """The UTF-8 bytes of ``text``.

        Raises:
            TextError: a byte is not below ``vocab_size``, or the text holds a lone surrogate.
        """
        ids = list(utf8(text))
        for position, byte in enumerate(ids):
            if byte >= self._vocab_size:
                raise TextError(
                    f"byte {byte} at byte position {position} of the text does not fit a vocabulary of "
                    f"{self._vocab_size} ids: the UTF-8 bytes are the ids, and need {byte + 1} of them"
                )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text with these bytes; invalid UTF-8, and ids above 255, become U+FFFD.

        Raises:
            TextError: an id is not in 0..V-1.
        """
        require_ids(ids, self._vocab_size)
        # 0xFF occurs nowhere in UTF-8, so an id that is no byte cannot complete a neighbour's character
        return bytes(min(token_id, 0xFF) for token_id in ids).decode("utf-8", errors="replace")

    def to_files(self) -> dict[str, str]:
        """None: bytes need no file."""
        return {}


def utf8(text: str) -> bytes:
    """The UTF-8 bytes of ``text``.

    Raises:
        TextError: the text holds a lone surrogate, which UTF-8 cannot carry.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"character {error.start} of the text is the lone surrogate U+{ord(text[error.start]):04X}, "
            "which UTF-8 cannot carry"
        ) from error


def require_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Refuse ids that are not in 0..V-1.

    Raises:
        TextError: naming the first such id and its position.
    """
    for position, token_id in enumerate(ids):
        if not 0 <= token_id < vocab_size:
            raise TextError(f"token id {token_id} at position {position} is not in 0..{vocab_size - 1}")
