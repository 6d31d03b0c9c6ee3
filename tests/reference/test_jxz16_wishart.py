"""Wishart noise as printed: the break, at its rate, and the mechanisms that mend it."""

import math

import numpy as np
import pytest
from printed_mechanisms import true_delta, wishart_gram

from streampca.mechanisms.covariance import MatrixLaplaceCovariance
from streampca.papers.covariance import WishartCovariance

WITHOUT = np.array([[0.0, 0.75, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
WITH = WITHOUT + np.array([[0.0], [0.0], [1.0]]) * np.array([1.0, 0.0, 0.0])


def schur(grams):
    """The attacker's statistic: how much of the unknown row's direction could be taken out and leave PSD noise."""
    return np.array([1.0 / np.linalg.inv(gram - WITHOUT.T @ WITHOUT)[0, 0] for gram in grams])


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_supports_differ_at_the_stated_rate(epsilon):
    draws, rng = 1500, np.random.default_rng(1)
    without, with_row = (schur(wishart_gram(rows, epsilon, rng) for _ in range(draws)) for rows in (WITHOUT, WITH))
    below = np.mean(without < 1.0)
    assert below == pytest.approx(true_delta(epsilon), abs=4.5 * math.sqrt(0.25 / draws))  # false alarm 7e-6
    # What can never happen with the row happens without it: no epsilon helps, the claimed delta is 0.
    assert (with_row >= 1.0 - 1e-5).all()
    if epsilon == 1.0:
        assert true_delta(1.0) == pytest.approx(0.28, abs=0.005)
        assert below > 0.22


@pytest.mark.ci
def test_the_mended_mechanisms_pass_the_same_attack():
    draws = 1500
    for mechanism in (
        MatrixLaplaceCovariance(n_components=1, epsilon=1.0),
        WishartCovariance(n_components=1, epsilon=1.0, delta=1e-6),
    ):
        with_row, without = (
            np.mean(schur(mechanism.release(rows, seed=i, row_norm=1.0).gram for i in range(draws)) < 1.0)
            for rows in (WITH, WITHOUT)
        )
        slack = 4.5 * math.sqrt(0.25 / draws)
        assert without - slack <= math.e * (with_row + slack) + mechanism.guarantee.delta
        assert with_row - slack <= math.e * (without + slack) + mechanism.guarantee.delta
