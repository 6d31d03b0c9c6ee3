"""ExactSubspace: exact arithmetic, scores, certain release, and nulls."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.errors import BadParameterError, BadRowError
from streampca.linalg.eigen import principal_angles
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms import subspace_search
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.rational_span import exact_rows, lines_of, orthonormal_basis, primitive, span_of
from streampca.privacy.randomness import Randomness

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
small_rows = st.lists(st.lists(st.integers(-1, 2), min_size=3, max_size=3), min_size=1, max_size=8)


def planted(seed, n, k, d=8, outliers=0, size=20):
    """Integer rows in general position in a k-dimensional subspace, then outliers."""
    rng = np.random.default_rng(seed)
    inside = rng.integers(-size, size + 1, (k, d))
    rows = rng.integers(-(10**6), 10**6, (n - outliers, k)) @ inside
    return np.vstack([rows, rng.integers(-size, size + 1, (outliers, d))]), span_of(map(primitive, inside.tolist()))


def scores(rows, ranks):
    """All positive scores, by brute force over all subsets."""
    counts = Counter(line for line in lines_of(np.array(rows, dtype=float)) if any(line))
    spans = {
        span for size in range(max(ranks) + 1) for c in combinations(counts, size) if len(span := span_of(c)) == size
    }
    spans |= {()}

    def held(span):
        return sum(w for line, w in counts.items() if len(span_of([*span, line])) == len(span))

    def score(span):
        inside = (s for s in spans if len(s) < len(span) and len(span_of([*span, *s])) == len(span))
        return held(span) - max(held(s) for s in inside)

    return {span: score(span) for span in spans if len(span) in ranks}


def two_best(rows, ranks):
    counts = Counter(line for line in lines_of(np.array(rows, dtype=float)) if any(line))
    return subspace_search.two_best(list(counts), list(counts.values()), ranks)


@settings(deadline=None, max_examples=60)
@given(small_rows, st.sampled_from([[1], [2], [3], [1, 2], [1, 2, 3]]))
def test_the_search_agrees_with_brute_force(rows, ranks):
    exact = [*sorted(scores(rows, ranks).values(), reverse=True), 0, 0]
    best, second, span = two_best(rows, ranks)
    assert (best, second) == (exact[0], exact[1])
    if best > second:
        assert scores(rows, ranks)[span] == best


@settings(deadline=None, max_examples=60)
@given(small_rows, st.lists(st.integers(-1, 2), min_size=3, max_size=3), st.sampled_from([[1], [2], [1, 2, 3]]))
def test_the_gap_has_the_sensitivity_that_privacy_rests_on(rows, other, ranks):
    first = two_best(rows, ranks)
    for last, sensitivity in (([0, 0, 0], 1), (other, 2)):
        second = two_best([*rows[:-1], last], ranks)
        gaps = first[0] - first[1], second[0] - second[1]
        assert abs(gaps[0] - gaps[1]) <= sensitivity
        if min(gaps) > 0 and first[2] != second[2]:
            assert sum(gaps) <= sensitivity


def test_a_false_group_modulo_the_prime_is_found_out(monkeypatch):
    # (p, 1, 0) and (0, 1, 0) coincide modulo p, and (1, 0, p) falls into the span of the axes.
    p = subspace_search._prime(0)
    rows = [[p, 1, 0], [0, 1, 0], [1, 0, p], [1, 0, 0]]
    assert two_best(rows, [1])[:2] == (1, 1)
    assert two_best(rows, [2])[:2] == (2, 1)  # the first, second and fourth are coplanar; no other three are
    seen = []
    monkeypatch.setattr(subspace_search, "_prime", lambda i: seen.append(i) or [p, p, 2147483629][i])
    assert two_best(rows, [2])[:2] == (2, 1)
    assert seen == [0, 1, 2]


def test_floats_are_taken_at_their_exact_value():
    rows = np.array([[0.1, 0.2], [0.3, 0.6], [1e300, 0.0], [0.0, -5e-324], [0.0, 0.0], [3 * 2.0**-20, 2.0**-18]])
    lines = lines_of(rows)
    assert lines[0] == (1, 2)
    assert lines[1] == primitive([int(Fraction(v) * 2**60) for v in (0.3, 0.6)])
    assert lines[2:] == [(1, 0), (0, 1), (0, 0), (3, 4)]


def test_exact_rows_of_fractions_and_integers():
    made = exact_rows([[Fraction(1, 3), Fraction(-2, 7)], [2, 4]])
    assert made.tolist() == [[7.0, -6.0], [1.0, 2.0]]
    for row, line in (([2**60, 2**61], [1.0, 2.0]), ([2**53, -(2**53)], [2.0**53, -(2.0**53)])):
        np.testing.assert_array_equal(exact_rows(np.array([row])), [line])
    for row in ([2**53 + 1, 1], [-(2**53) - 1, 1]):
        with pytest.raises(BadRowError, match=r"beyond 2\*\*53"):
            exact_rows(np.array([row], dtype=np.int64))
    with pytest.raises(BadRowError, match="row 0 needs integers"):
        exact_rows([[Fraction(1, 3**40), 1]])
    with pytest.raises(BadRowError, match="row 1 is not rational"):
        exact_rows(np.array([[Fraction(1), 2], [1, "x"]], dtype=object))


def test_one_form_for_one_subspace():
    rows = [(1, 2, 3, 4), (0, 1, -1, 5), (2, 5, 5, 13)]
    span = span_of(rows)
    assert len(span) == 2
    assert span == span_of([(3, 7, 8, 17), (5, 10, 15, 20), (0, -7, 7, -35)])
    basis = orthonormal_basis(span, 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-15)
    assert principal_angles(basis, np.linalg.qr(np.array(rows[:2], dtype=float).T)[0]).max() < 1e-14


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(("k", "outliers", "known"), [(1, 2, True), (2, 0, True), (2, 3, False), (3, 2, True)])
def test_the_planted_subspace_is_certain_at_the_stated_number_of_rows(adjacency, k, outliers, known):
    mechanism = ExactSubspace(n_components=k if known else None, adjacency=adjacency, max_components=2, **BUDGET)
    n = mechanism.rows_needed(outliers)
    rows, span = planted(k, n, k, outliers=outliers)
    for seed in range(10 if k < 3 else 3):
        release = mechanism.release(rows, Randomness.from_seed(seed))
        assert release.n_components == k
        assert tuple(map(tuple, release.details["integer_basis"])) == span
    assert not release.details["null"]
    # The gap is at least n - 3 l, and certain from D + 2 A on: for every noise, not only for these.
    counts = Counter(lines_of(rows.astype(float)))
    best, second, _ = subspace_search.two_best(list(counts), list(counts.values()), mechanism._ranks(8))
    assert best - second - mechanism.gap_noise.bound > mechanism.gap_threshold


def test_blocks_vote_for_any_k():
    mechanism = ExactSubspace(n_components=5, **BUDGET)
    rows, span = planted(7, 5 * 62, 5, d=9, outliers=3)
    release = mechanism.release(rows, Randomness.from_seed(1))
    assert release.details["method"] == "blocks"
    assert tuple(map(tuple, release.details["integer_basis"])) == span


@pytest.mark.parametrize("outliers", [0, 1, 4])
def test_votes_are_certain_at_the_stated_number_of_rows(outliers):
    mechanism = ExactSubspace(max_components=3, method="blocks", **BUDGET)
    n = mechanism.rows_needed(outliers)
    rows, span = planted(3, n, 2, outliers=outliers)
    rows[: outliers * 3 : 3], rows[n - outliers :] = rows[n - outliers :].copy(), rows[: outliers * 3 : 3].copy()
    for seed in range(5):
        assert tuple(map(tuple, mechanism.release(rows, Randomness.from_seed(seed)).details["integer_basis"])) == span


@pytest.mark.parametrize("method", ["all", "blocks"])
def test_one_row_never_brings_its_span_in(method):
    # Two planes tie, and one odd row spans a third with each other row: null, or nothing new, whatever the noise.
    rows = np.array([[1, i, 0] for i in range(1, 31)] + [[0, i, 1] for i in range(1, 31)] + [[5, 1, 7]])
    mechanism = ExactSubspace(n_components=2, method=method, epsilon=1.0, delta=0.4)
    odd = rows[-1].astype(float)
    for seed in range(30):
        release = mechanism.release(rows, Randomness.from_seed(seed))
        if method == "all":
            assert release.details["null"]  # g = 0
        if release.n_components:
            assert np.linalg.norm(release.subspace.basis.T @ odd) < np.linalg.norm(odd) * (1 - 1e-9)


def test_zero_rows_and_equal_rows_span_nothing_new():
    mechanism = ExactSubspace(n_components=2, **BUDGET)
    assert mechanism.release(np.zeros((50, 3))).details["null"]
    assert mechanism.release(np.tile([1, 2, 3], (50, 1))).details["null"]
    assert ExactSubspace(n_components=1, **BUDGET).release(np.tile([1, 2, 3], (50, 1))).n_components == 1


def test_rows_through_the_lattice_survive_a_power_of_two():
    span = ((1, 0, 2, -1), (0, 1, 3, 5))
    rows = np.array([[i, 1] for i in range(1, 21)]) @ np.array(span)
    norm = 2.0 ** np.ceil(np.log2(np.linalg.norm(rows, axis=1).max()))
    mechanism = ExactSubspace(n_components=2, epsilon=2.0, delta=1e-6)
    release = mechanism.release(onto_ball(rows / norm), Randomness.from_seed(1))
    assert tuple(map(tuple, release.details["integer_basis"])) == span
    # Any other scale moves the rows off the subspace, and then nothing is said.
    assert mechanism.release(onto_ball(rows / (0.7 * norm)), Randomness.from_seed(1)).details["null"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"max_components": 0}, "max_components=0"),
        ({"n_components": 3, "block_rows": 2}, "block_rows=2"),
        ({"method": "some"}, "method='some'"),
        ({"delta": 0.0}, "delta=0.0"),
    ],
)
def test_bad_parameters_are_named(arguments, names):
    with pytest.raises(BadParameterError, match=names):
        ExactSubspace(**(BUDGET | arguments))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([[1.0, 2.0], [np.nan, 1.0]], BadRowError, "row 1"),
        ([[1.0], [2.0]], BadParameterError, "n_components=2"),
        ([[1, 2], [3]], BadRowError, "not one table"),
        ([["a", "b"]], BadRowError, "not all numbers"),
        ([], BadParameterError, "n >= 1"),
        (np.array([[Fraction(1), np.nan]], dtype=object), BadRowError, "row 0 is not rational"),
    ],
)
def test_bad_rows_are_refused(rows, error, message):
    with pytest.raises(error, match=message):
        ExactSubspace(n_components=2, **BUDGET).release(rows)


def test_a_row_in_the_kernel_of_the_projection_is_handled():
    # Found by lattice reduction: the first projection to three dimensions modulo the first prime takes it to zero.
    row = np.array([[356, -280, -1043, 233, 1378, 462, 1340, 392]])
    with pytest.raises(subspace_search._FalseGroupError):
        subspace_search._Search(lines_of(row.astype(float)), [1], 2, 0)
    for others, scores_of_two in ((np.zeros((19, 8)), (0, 0)), (np.repeat(np.eye(8)[:2], [10, 9], axis=0), (9, 1))):
        rows = np.vstack([others, row])
        assert two_best(rows, [2])[:2] == scores_of_two
        release = ExactSubspace(n_components=2, **BUDGET, method="all").release(rows, seed=1)
        assert release.details["null"]


def test_the_search_goes_through_the_largest_primes_below_two_to_the_31():
    assert [subspace_search._prime(i) for i in range(4)] == [2147483647, 2147483629, 2147483587, 2147483579]


def test_every_full_block_votes():
    class Recorder:
        def release(self, kind, exact, draw):
            self.kind, self.counts = kind, exact.counts.tolist()
            return exact.counts.astype(float)

    rows = np.zeros((11, 4))
    rows[:6, :2] = [[1, 0], [0, 1], [1, 1], [1, 2], [1, 3], [1, 4]]  # three blocks in one plane
    rows[6:10, 2:] = [[1, 0], [0, 1], [1, 1], [1, 2]]  # two in another; the last row is no block
    outlet = Recorder()
    ExactSubspace(n_components=2, epsilon=1.0, delta=1e-6, method="blocks")._most_voted(rows, outlet)
    assert (outlet.kind, outlet.counts) == ("votes", [3, 2])


def test_rows_needed_and_the_method():
    assert ExactSubspace(n_components=1, **BUDGET).rows_needed() == 29
    assert ExactSubspace(n_components=2, **BUDGET).rows_needed(5) == 29 + 15
    assert ExactSubspace(n_components=4, method="blocks", **BUDGET).rows_needed(1) == 4 * (55 + 1)
    votes = ExactSubspace(n_components=2, epsilon=1.0, delta=1e-6, method="blocks")
    alone = int(1.0 + 2.0 * votes.vote_noise.bound) + 1
    apart = 2 + int(2.0 * votes.vote_noise.bound) + 1
    assert votes.rows_needed() == 2 * alone
    assert votes.rows_needed(2) == 2 * (2 + max(alone, apart))
    rows = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]])
    assert votes.release(rows, seed=0).details["method"] == "blocks"
    one = ExactSubspace(n_components=2, epsilon=1.0, delta=1e-6, method="all")
    assert one.release(rows, seed=0).details["method"] == "all"
