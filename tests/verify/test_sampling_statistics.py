"""The statistics by which draws and first weights are judged: they accept what is sound, and not much more."""

import math

import numpy as np
import pytest
import torch

from proof_lm.verify.contracts.initialization import _chi_square_bound, _cut_variance, _normal_bound
from proof_lm.verify.contracts.sampling import Setting, _distribution, _end, _excess, _telling_stops

LIMIT = math.log(1e9)


def test_counts_from_the_distribution_itself_stay_far_below_the_limit() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        expected = random.dirichlet(np.full(31, 0.3))
        assert _excess(random.multinomial(2000, expected), expected) < LIMIT / 2


def test_counts_from_a_slightly_different_distribution_pass_the_limit() -> None:
    random = np.random.default_rng(0)
    expected = np.full(8, 0.125)
    other = expected * np.array([1.5, 0.5, 1, 1, 1, 1, 1, 1])
    assert _excess(random.multinomial(2000, other), expected) > LIMIT


def test_a_choice_without_freedom_has_no_excess() -> None:
    assert _excess(np.array([0, 9, 0]), np.array([0.0, 1.0, 0.0])) == 0.0
    assert _excess(np.array([0, 0, 0]), np.array([0.5, 0.5, 0.0])) == 0.0


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        (Setting(1.0), [0.5, 0.3, 0.15, 0.05]),
        (Setting(1.0, top_k=2), [0.625, 0.375, 0.0, 0.0]),
        (Setting(1.0, top_k=99), [0.5, 0.3, 0.15, 0.05]),
        (Setting(1.0, share=0.0), [1.0, 0.0, 0.0, 0.0]),
        (Setting(1.0, share=0.5), [0.625, 0.375, 0.0, 0.0]),
        (Setting(1.0, top_k=3, share=0.6), [0.625, 0.375, 0.0, 0.0]),
    ],
)
def test_the_distribution_of_a_setting(setting: Setting, kept: list[float]) -> None:
    distribution, top_p = _distribution(np.log([0.5, 0.3, 0.15, 0.05]), setting)
    np.testing.assert_allclose(distribution, kept, atol=1e-15)
    assert (top_p is None) == (setting.share is None)


def test_p_lies_between_two_masses() -> None:
    _, top_p = _distribution(np.log([0.5, 0.3, 0.15, 0.05]), Setting(1.0, share=0.5))
    assert top_p == pytest.approx((0.5 + 0.8) / 2)


def test_a_telling_stop_leaves_unlike_tokens_behind_it() -> None:
    new = torch.tensor([[7, 7, 7, 7], [5, 1, 2, 3], [8, 8, 8, 8]])
    assert _telling_stops(new)[0] == 5
    assert (_end(new[1], 1), _end(new[1], 9)) == (2, 4)


def test_normal_draws_keep_the_bounds_and_others_do_not() -> None:
    random = np.random.default_rng(0)
    for n in (50, 500, 5000):
        for _ in range(200):
            drawn = random.standard_normal(n)
            assert abs(np.mean(drawn**2) - 1.0) < _chi_square_bound(n).rounding
            assert abs(drawn.mean()) < _normal_bound(n).rounding
    assert abs(np.mean((1.2 * random.standard_normal(5000)) ** 2) - 1.0) > _chi_square_bound(5000).rounding


def test_the_variance_of_a_cut_normal() -> None:
    drawn = np.random.default_rng(0).standard_normal(10**6)
    inside = drawn[abs(drawn) <= 3.0]
    assert inside.var() == pytest.approx(_cut_variance(), abs=5 * math.sqrt(2 / len(inside)))
