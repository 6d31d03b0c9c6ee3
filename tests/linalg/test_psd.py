"""The Loewner order, its witnesses, and the nearest matrix inside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.linalg.psd import is_positive, loewner_below, nearest_psd, negative_direction, spectral_norm


def symmetric(seed, d, shift):
    a = np.random.default_rng(seed).normal(size=(d, d))
    return a + a.T + shift * np.eye(d)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 90), shift=st.floats(-5.0, 40.0))
def test_a_matrix_is_positive_or_has_a_negative_direction(seed, d, shift):
    matrix = symmetric(seed, d, shift)
    smallest = np.linalg.eigvalsh(matrix)[0]
    x = negative_direction(matrix)
    if abs(smallest) > 1e-9:
        assert is_positive(matrix) == (smallest > 0.0) == (x is None)
    if x is not None:
        assert np.linalg.norm(x) == pytest.approx(1.0)
        assert x @ matrix @ x <= 1e-9


def test_order_with_slack():
    a, b = np.diag([2.0, 1.0]), np.diag([1.5, 3.0])
    assert not loewner_below(a, b)
    assert loewner_below(a, b, slack=0.51)
    assert not loewner_below(a, b, slack=0.49)


def test_the_order_is_not_that_of_the_diagonals():
    assert not loewner_below(np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([0.5, 0.5]))


def test_nearest_psd_keeps_what_is_psd_and_cuts_the_rest():
    matrix = symmetric(3, 6, 0.0)
    nearest = nearest_psd(matrix)
    assert np.linalg.eigvalsh(nearest)[0] > -1e-12
    np.testing.assert_allclose(nearest_psd(nearest), nearest, atol=1e-12)
    negative = np.minimum(np.linalg.eigvalsh(matrix), 0.0)
    assert np.linalg.norm(nearest - matrix) == pytest.approx(np.linalg.norm(negative))


def test_spectral_norm_sees_both_ends():
    assert spectral_norm(np.diag([1.0, -3.0])) == pytest.approx(3.0)
