"""Where our tensors lie in a foreign format: names, and what is done to the whole that a name stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Where one of our tensors lies in a foreign format.

    Attributes:
        name: the foreign tensor.
        transposed: it is stored (in, out).
        part, n_parts: ours is this one of so many equal parts along the output dimension.
    """

    name: str
    transposed: bool = False
    part: int = 0
    n_parts: int = 1

    def shape(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the whole foreign tensor, from the shape of our tensor."""
        whole = (ours[0] * self.n_parts, *ours[1:])
        return whole[::-1] if self.transposed else whole


SourceOf = Callable[[str], Source]
"""From the name of one of our tensors."""


def rename(name: str, *, top: Mapping[str, str], block: str, parts: Mapping[str, str]) -> str:
    """A foreign tensor name from ours.

    Args:
        name: our name, such as ``blocks.3.attention.query.weight``.
        top: foreign names of the modules outside the blocks.
        block: the foreign name of a block, with ``{}`` for its number.
        parts: foreign names of the modules within a block.
    """
    module, kind = name.rsplit(".", 1)
    if module in top:
        return f"{top[module]}.{kind}"
    _, index, part = module.split(".", 2)
    return f"{block.format(index)}.{parts[part]}.{kind}"
