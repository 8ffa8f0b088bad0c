"""Exact sums of products of dimension letters, such as ``2 B T D F``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

LETTERS = "BTSPDNKHFVLC"
"""In the order in which a product is written."""


class Polynomial:
    """A sum of products of letters with rational coefficients, in one form: equal sums are equal objects.

    ``Polynomial.of("B T D", 2) + Polynomial.of("B T")`` is written ``2 B T D + B T``.
    """

    def __init__(self, terms: Mapping[str, Fraction]) -> None:
        self._terms = {letters: factor for letters, factor in terms.items() if factor}

    @classmethod
    def of(cls, letters: str, factor: int | Fraction = 1) -> Polynomial:
        """One product; the letters may be apart or not."""
        product = letters.replace(" ", "")
        unknown = set(product) - set(LETTERS)
        if unknown:
            raise ValueError(f"no dimension is called {', '.join(sorted(unknown))}")
        return cls({"".join(sorted(product, key=LETTERS.index)): Fraction(factor)})

    @classmethod
    def sum(cls, parts: Iterable[Polynomial]) -> Polynomial:
        """Of any number of them; without any, 0."""
        total = cls({})
        for part in parts:
            total += part
        return total

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self._terms)
        for letters, factor in other._terms.items():
            terms[letters] = terms.get(letters, Fraction(0)) + factor
        return Polynomial(terms)

    def __mul__(self, other: int | Fraction | Polynomial) -> Polynomial:
        if not isinstance(other, Polynomial):
            return Polynomial({letters: factor * other for letters, factor in self._terms.items()})
        return Polynomial.sum(
            Polynomial.of(mine + theirs, factor * other_factor)
            for mine, factor in self._terms.items()
            for theirs, other_factor in other._terms.items()
        )

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self._terms == other._terms

    def __hash__(self) -> int:
        return hash(frozenset(self._terms.items()))

    def __bool__(self) -> bool:
        return bool(self._terms)

    def at(self, values: Mapping[str, int]) -> int:
        """The value where each letter is a number: exact, and whole, as a count is."""
        total = sum(
            (
                factor * math.prod(values[letter] for letter in letters)
                for letters, factor in self._terms.items()
            ),
            start=Fraction(0),
        )
        if total.denominator != 1:
            raise ValueError(f"{self} is not whole: {total}")
        return total.numerator

    def __str__(self) -> str:
        return " + ".join(_written(*term) for term in self._terms.items()) or "0"

    def __repr__(self) -> str:
        return f"Polynomial({self})"


def _written(letters: str, factor: Fraction) -> str:
    if not letters:
        return str(factor)
    return " ".join(letters) if factor == 1 else f"{factor} {' '.join(letters)}"
