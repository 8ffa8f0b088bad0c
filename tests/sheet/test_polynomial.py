"""Sums of products of letters, against sympy."""

from fractions import Fraction

import pytest
import sympy

from proof_lm.sheet.polynomial import LETTERS, Polynomial


def symbolic(polynomial: Polynomial) -> sympy.Expr:
    """What is written, read by sympy."""
    text = str(polynomial)
    terms = [term.split(" ") for term in text.split(" + ")]
    return sympy.sympify(" + ".join("*".join(term) for term in terms), {x: sympy.Symbol(x) for x in LETTERS})


A = Polynomial.of("B T D", 2) + Polynomial.of("T", Fraction(3, 2)) + Polynomial.of("")
B = Polynomial.of("N H") + Polynomial.of("T T", 5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (A + B, lambda a, b: a + b),
        (A * B, lambda a, b: a * b),
        (A * 6, lambda a, b: a * 6),
        (Fraction(1, 2) * B, lambda a, b: b / 2),
        (A + A * -1, lambda a, b: sympy.Integer(0)),
    ],
)
def test_arithmetic_is_sympys(ours: Polynomial, theirs: object) -> None:
    assert callable(theirs)
    assert sympy.expand(symbolic(ours) - theirs(symbolic(A), symbolic(B))) == 0


def test_equal_sums_are_equal_and_written_in_one_order() -> None:
    assert Polynomial.of("H N D T B") == Polynomial.of("B T D N H")
    assert str(Polynomial.of("H N D T B", 2)) == "2 B T D N H"
    assert hash(Polynomial.of("HN")) == hash(Polynomial.of("NH"))
    assert str(Polynomial({})) == "0"


def test_a_value_is_exact_beyond_what_a_float_holds() -> None:
    size = 10**9 + 7
    assert Polynomial.of("BTD", 3).at({"B": size, "T": size, "D": size}) == 3 * size**3


def test_a_count_that_is_not_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="is not whole"):
        Polynomial.of("T", Fraction(1, 2)).at({"T": 3})


def test_an_unknown_letter_is_refused() -> None:
    with pytest.raises(ValueError, match="no dimension is called X"):
        Polynomial.of("B X")
