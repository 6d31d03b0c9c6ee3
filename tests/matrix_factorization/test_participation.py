"""What several rows of one user do to a mechanism, against all their positions by brute force."""

from itertools import combinations

import numpy as np
import pytest
from dense_forms import strategy

from streampca.errors import BadParameterError
from streampca.matrix_factorization import blt
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.buffers import Buffers
from streampca.matrix_factorization.participation import _products, user_factor
from streampca.matrix_factorization.tree import BinaryTree
from streampca.matrix_factorization.window import StationaryBLT

T = 12
KNOWN = [GeometricBLT(T, 0.5, 1.5), BinaryTree(T, 0.5, 1.5), AnytimeBLT(0.5, 1.5, restart_after=2**20)]


def worst(mechanism, m, b=1):
    columns = strategy(mechanism, T) * mechanism.sensitivity / mechanism.mu
    products = np.abs(columns.T @ columns)
    rows = np.repeat(np.arange(T), b)
    return max(
        np.sqrt(products[np.ix_(rows[list(some)], rows[list(some)])].sum()) for some in combinations(range(T * b), m)
    )


@pytest.mark.parametrize("mechanism", KNOWN, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_no_positions_do_more(mechanism, m):
    most = worst(mechanism, m)
    factor = user_factor(mechanism, m)
    assert most <= factor <= m
    # Close, where these 12 rows show all that is bounded: the anytime bound is for columns of 2**20 entries.
    if isinstance(mechanism, (GeometricBLT, BinaryTree)):
        assert factor <= 1.12 * most


@pytest.mark.parametrize("mechanism", KNOWN, ids=lambda one: type(one).__name__)
def test_no_positions_do_more_with_several_rows_an_input(mechanism):
    for m in (2, 3):
        assert worst(mechanism, m, b=2) <= user_factor(mechanism, m, rows_per_input=2) <= m


def test_products_of_columns_are_taken_a_millionth_larger():
    columns = strategy(KNOWN[0], T) / np.linalg.norm(strategy(KNOWN[0], T), axis=0)
    products = columns.T @ columns
    most = [np.diagonal(products, lag).max() for lag in range(1, T)]
    assert _products(KNOWN[0], T - 1)[1:] == pytest.approx(np.array(most) * (1.0 + 1e-6), rel=1e-12)


def test_it_beats_group_privacy_and_would_notice_being_too_bold():
    blt = GeometricBLT(2**10, 1.0)
    factors = {m: user_factor(blt, m) for m in (1, 2, 10, 100)}
    assert factors[1] == pytest.approx(1.0, abs=1e-5)
    assert factors[2] < 0.97 * 2
    assert factors[10] < 0.87 * 10
    assert factors[100] < 0.72 * 100
    small = GeometricBLT(T, 0.5, 1.5)
    assert worst(small, 3) > 0.95 * user_factor(small, 3)  # five percent less noise would be a bug


def test_a_user_with_all_rows_moves_the_whole_sum():
    tree = BinaryTree(8, 1.0)
    assert user_factor(tree, 100) == user_factor(tree, 8)
    assert user_factor(tree, 100, rows_per_input=3) == user_factor(tree, 24, rows_per_input=3) > user_factor(tree, 8)


def test_a_factorization_without_a_proved_bound_is_refused():
    with pytest.raises(BadParameterError, match="expected a BLT or a tree"):
        user_factor(StationaryBLT(8, 1.0), 2)


def test_the_bound_without_a_horizon_is_the_sum_over_full_columns(monkeypatch):
    # Coefficients that decay within the columns, so that a sum over them is the sum to infinity.
    buffers = Buffers(0.02, 3.0, 3)
    monkeypatch.setattr(blt, "ANYTIME", buffers)
    c = buffers.coefficients(5000)
    products = [float(c[: c.size - lag] @ c[lag:]) / float(c @ c) for lag in range(10)]
    mechanism = AnytimeBLT(1.0, restart_after=5000)
    for m in (1, 2, 7):
        square = m + 2.0 * sum((m - lag) * products[lag] for lag in range(1, m))
        assert user_factor(mechanism, m) == pytest.approx(np.sqrt(square), rel=1e-8)
    square = 4 + 2.0 * (3 * products[0] + 2 * products[1] + products[1])  # two rows an input: lags 0, 1, 1
    assert user_factor(mechanism, 4, rows_per_input=2) == pytest.approx(np.sqrt(square), rel=1e-8)
