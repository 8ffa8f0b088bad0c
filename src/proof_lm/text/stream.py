"""``StreamDecoder``: text as it is generated, never half a character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

_INCOMPLETE = "�"  # what an unfinished UTF-8 sequence decodes to


@runtime_checkable  # the tests check annotations as they run
class Decodes(Protocol):
    """Anything with ``decode(ids) -> str``."""

    def decode(self, ids: Sequence[int]) -> str: ...


class StreamDecoder:
    """Decodes ids one by one; the pieces, with :meth:`finish`, join to ``decode`` of all the ids.

    A character may be spread over several tokens. Text is held back while it ends in U+FFFD, the mark of
    an unfinished character, and comes out once a later token completes it. Every piece is decoded together
    with the ids of the piece before, since some tokenizers treat the start of a text differently.

    Args:
        tokenizer: whose ids these are.
    """

    def __init__(self, tokenizer: Decodes) -> None:
        self._tokenizer = tokenizer
        self._given: list[int] = []  # the ids of the last piece handed out
        self._pending: list[int] = []  # the ids since

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` completes, often "" in the middle of a character.

        Raises:
            TextError: the id is not in the vocabulary.
        """
        self._pending.append(token_id)
        text = self._new_text()
        if text.endswith(_INCOMPLETE):
            return ""
        self._given, self._pending = self._pending, []
        return text

    def finish(self) -> str:
        """What is still held back, an unfinished character as U+FFFD; the decoder starts afresh."""
        text = self._new_text() if self._pending else ""
        self._given, self._pending = [], []
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._given)
        return self._tokenizer.decode(self._given + self._pending)[len(before) :]
