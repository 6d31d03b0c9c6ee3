"""ExactSubspace: exact arithmetic, votes of blocks, certain release and nulls, and the law of its noise."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.linalg import subspace_angles
from scipy.stats import kstest

from streampca.errors import BadParameterError, BadRowError, UsageError
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.exact_subspace import (
    ExactSubspace,
    TruncatedLaplace,
    lines_of,
    orthonormal_basis,
    primitive,
    span_of,
)
from streampca.privacy.randomness import Randomness
from streampca.release.terms import Terms

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def planted(seed, n, k, d=8, outliers=0, size=20):
    """Integer rows in general position in a k-dimensional subspace, then outliers."""
    rng = np.random.default_rng(seed)
    inside = rng.integers(-size, size + 1, (k, d))
    rows = rng.integers(-(10**6), 10**6, (n - outliers, k)) @ inside
    return np.vstack([rows, rng.integers(-size, size + 1, (outliers, d))]), span_of(map(primitive, inside.tolist()))


def basis_of(release):
    return tuple(map(tuple, release.details["integer_basis"]))


def test_floats_are_taken_at_their_exact_value():
    rows = np.array([[0.1, 0.2], [0.3, 0.6], [1e300, 0.0], [0.0, -5e-324], [0.0, 0.0], [3 * 2.0**-20, 2.0**-18]])
    lines = lines_of(rows)
    assert lines[0] == (1, 2)
    assert lines[1] == primitive([int(Fraction(v) * 2**60) for v in (0.3, 0.6)])
    assert lines[2:] == [(1, 0), (0, 1), (0, 0), (3, 4)]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(-2, 2), min_size=4, max_size=4), min_size=1, max_size=6), st.randoms())
def test_one_form_for_one_subspace_of_the_right_rank(rows, order):
    span = span_of(map(primitive, rows))
    # Rank by determinants of integers, which is exact.
    minors = [
        k for k in range(1, 5) for some in combinations(rows, k) for columns in combinations(range(4), k)
        if round(np.linalg.det(np.array(some)[:, columns])) != 0
    ]  # fmt: skip
    assert len(span) == max(minors, default=0)
    order.shuffle(rows)
    mixed = [primitive(3 * a - b for a, b in zip(row, rows[0], strict=True)) for row in rows[1:]]
    assert span_of([primitive(rows[0]), *mixed]) == span
    basis = orthonormal_basis(span, 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(len(span)), atol=1e-15)
    if span:
        across = np.linalg.qr(np.array(span, dtype=float).T)[0]
        assert subspace_angles(basis, across).max() < 1e-13


@pytest.mark.parametrize("outliers", [0, 1, 4])
@pytest.mark.parametrize(("k", "known", "adjacency"), [(1, True, "zero-out"), (2, False, "replace")])
def test_votes_are_certain_at_the_stated_number_of_rows(outliers, k, known, adjacency):
    mechanism = ExactSubspace(n_components=k if known else None, max_components=3, adjacency=adjacency, **BUDGET)
    n, size = mechanism.rows_needed(outliers), k if known else 3
    rows, span = planted(3, n, k, outliers=outliers)
    # Each outlier spoils a block of its own.
    rows[: outliers * size : size], rows[n - outliers :] = rows[n - outliers :].copy(), rows[: outliers * size : size]
    for seed in range(5):
        release = mechanism.release(rows, Randomness.from_seed(seed), row_norm=1.0)
        assert (basis_of(release), release.details["null"]) == (span, False)
    # For every noise, not only for these: what is left of the votes passes at the bound.
    assert n // size - outliers - mechanism.noise.bound > mechanism.threshold


@pytest.mark.parametrize(("count", "released"), [(1, False), (2, True)])
def test_the_largest_noise_never_releases_what_one_row_brought_in(count, released, monkeypatch):
    monkeypatch.setattr(TruncatedLaplace, "draw", lambda self, draws, count: np.full(count, self.bound))
    release = ExactSubspace(n_components=1, **BUDGET).release(np.eye(3)[[0] * count], seed=1, row_norm=1.0)
    assert release.details["null"] is not released


def test_zero_rows_and_equal_rows_span_nothing_new():
    mechanism = ExactSubspace(n_components=2, **BUDGET)
    assert mechanism.release(np.zeros((200, 3)), row_norm=1.0).details["null"]
    assert mechanism.release(np.tile([1, 2, 3], (200, 1)), row_norm=1.0).details["null"]
    assert ExactSubspace(n_components=1, **BUDGET).release(np.tile([1, 2, 3], (60, 1)), row_norm=1.0).n_components == 1


def test_rows_through_the_lattice_survive_a_power_of_two():
    span = ((1, 0, 2, -1), (0, 1, 3, 5))
    rows = np.array([[i, 1] for i in range(1, 81)]) @ np.array(span)
    norm = 2.0 ** np.ceil(np.log2(np.linalg.norm(rows, axis=1).max()))
    mechanism = ExactSubspace(n_components=2, epsilon=2.0, delta=1e-6)
    assert basis_of(mechanism.release(onto_ball(rows / norm), seed=1, row_norm=1.0)) == span
    # Any other scale moves the rows off the subspace, and then nothing is released.
    assert mechanism.release(onto_ball(rows / (0.7 * norm)), seed=1, row_norm=1.0).details["null"]


def test_every_full_block_votes():
    class Recorder:
        def release(self, kind, exact, draw):
            self.kind, self.counts = kind, exact.counts.tolist()
            return exact.counts.astype(float)

    rows = np.zeros((11, 4))
    rows[:6, :2] = [[1, 0], [0, 1], [1, 1], [1, 2], [1, 3], [1, 4]]  # three blocks in one plane
    rows[6:10, 2:] = [[1, 0], [0, 1], [1, 1], [1, 2]]  # two in another; the last row is no block
    outlet = Recorder()
    mechanism = ExactSubspace(n_components=2, **BUDGET)
    mechanism.released(rows, outlet, Terms(mechanism.guarantee), 11)
    assert (outlet.kind, outlet.counts) == ("votes", [3, 2])


def test_rows_needed():
    assert ExactSubspace(n_components=4, **BUDGET).rows_needed(1) == 4 * (55 + 1)
    passing = int(1.0 + 2.0 * ExactSubspace(n_components=2, **BUDGET).noise.bound) + 1
    assert ExactSubspace(n_components=2, block_rows=5, **BUDGET).rows_needed() == 5 * passing


@pytest.mark.parametrize(
    ("arguments", "rows", "error", "names"),
    [
        ({"max_components": 0}, None, BadParameterError, "max_components=0"),
        ({"n_components": 3, "block_rows": 2}, None, BadParameterError, "block_rows=2"),
        ({"n_components": 2}, [[1.0, 2.0], [1.0]], BadRowError, "row 2"),
        ({"n_components": 2}, [[1.0], [2.0]], UsageError, "n_components=2"),
    ],
)
def test_bad_parameters_and_rows_are_named(arguments, rows, error, names):
    with pytest.raises(error, match=names):
        ExactSubspace(**(BUDGET | arguments)).release(rows, row_norm=1.0)


def draws(noise, count=20000):
    return noise.draw(Randomness.from_seed(1).stream("test").draws(0), count)


def test_the_noise_is_for_two_votes_and_its_bound_is_the_papers_at_any_epsilon():
    mechanism = ExactSubspace(n_components=1, epsilon=0.5, delta=1e-6, adjacency="replace")
    assert mechanism.noise == TruncatedLaplace(0.25, 5e-7)
    for epsilon in (1.0, 29.0, 31.0, 300.0):
        bound = TruncatedLaplace(epsilon, 1e-6).bound
        assert bound == pytest.approx(math.log1p(math.expm1(epsilon) / 2e-6) / epsilon, rel=1e-12)
    # e**1000 is no float; (1000 - ln(2e-6)) / 1000, and next to nothing is drawn.
    noise = TruncatedLaplace(1e3, 1e-6)
    assert noise.bound == pytest.approx(1.0 - math.log(2e-6) / 1e3, rel=1e-12)
    assert np.abs(draws(noise)).max() < 0.02


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 1.5])
def test_draws_follow_the_law_and_stay_inside(epsilon):
    # KS at 20000 draws and p > 1e-4; the untruncated law and a scale of 1.1 are refused.
    noise = TruncatedLaplace(epsilon, 0.05)
    found = draws(noise)
    assert np.abs(found).max() <= noise.bound

    def cdf(x):
        return np.array([1.0 - noise.above(float(v)) for v in np.atleast_1d(x)])

    assert kstest(found, cdf).pvalue > 1e-4
    assert kstest(1.1 * found, cdf).pvalue < 1e-4
    assert epsilon > 1.0 or kstest(found * epsilon, "laplace").pvalue < 1e-4


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-6), (3.0, 0.01), (10.0, 0.1)])
def test_delta_is_tight_at_a_shift_of_one(epsilon, delta):
    noise = TruncatedLaplace(epsilon, delta)
    assert (noise.above(noise.bound), noise.above(-noise.bound)) == (0.0, 1.0)
    assert noise.above(noise.bound - 1.0) == pytest.approx(delta, rel=1e-6)
    grid = np.linspace(-noise.bound - 2, noise.bound + 2, 4001)
    excess = [noise.above(x - 1.0) - math.exp(epsilon) * noise.above(x) for x in grid]
    assert max(excess) <= delta * (1 + 1e-6)
