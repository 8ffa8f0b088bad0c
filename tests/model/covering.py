"""A small sample of a product in which every pair of values occurs."""

import itertools
import random
from typing import Any


def pairs(row: dict[str, Any]) -> set[tuple[str, Any, str, Any]]:
    """Every two fields of a row with their values."""
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(row, 2)}


def covering_sample(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Rows, one value a field, such that any two values of two fields meet in a row; greedy, always the same.

    It chooses from 500 rows drawn at random, among which every pair is met many times.
    """
    rows = itertools.product(*values.values())
    product = [dict(zip(values, row, strict=True)) for row in random.Random(0).sample(list(rows), 500)]
    pairs_of = [pairs(row) for row in product]
    missing = set().union(*pairs_of)
    sample = []
    while missing:
        gains = [len(found & missing) for found in pairs_of]
        best = gains.index(max(gains))
        sample.append(product[best])
        missing -= pairs_of[best]
    return sample
