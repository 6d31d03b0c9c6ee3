"""The private mean of the adaptive mechanisms, the rows about it, and what their releases state of themselves."""

import math
import pickle

import numpy as np
import pytest
from scipy import stats

import streampca as sp
from streampca.errors import NoReleaseError, UsageError
from streampca.linalg.centering import CONSTANT, with_constant
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.recentering import SENSITIVITY, Recentering, ball_noise, sum_and_count
from streampca.privacy.randomness import Randomness
from streampca.release.estimates import Estimates

GIVEN = {"n_components": 2, "epsilon": 1.0}
BOTH = pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
KINDS = pytest.mark.parametrize("kind", [sp.AdaptiveCovariance, sp.AdaptiveLaplaceCovariance])


def moved(n, d, mean=0.6, width=0.15, seed=0):
    """Rows that vary most in two directions about a mean across them."""
    rows = np.random.default_rng(seed).normal(size=(n, d)) * np.where(np.arange(d) < 2, 1.0, 0.3)
    rows = width * rows / math.sqrt(2.0)
    rows[:, -1] += mean
    return rows


def captured(release, rows):
    rows = rows - rows.mean(axis=0)
    gram = rows.T @ rows
    return release.subspace.captured(gram) / np.linalg.eigvalsh(gram)[-release.n_components :].sum()


# -- the map --------------------------------------------------------------------------


@BOTH
def test_an_absent_row_is_mapped_to_zero_and_a_zero_row_where_it_is_a_neighbor(adjacency):
    mean = np.array([0.6, 0.0, 0.3])
    about = Recentering(mean, float(np.linalg.norm(mean)), 5.0, 5.0, 5, adjacency)
    rows = np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0], -mean / about.length, mean])
    longer = with_constant(onto_ball(rows), np.array([False, False, True, False, False]))
    mapped = about.mapped(longer)
    assert not mapped[2].any()
    assert mapped[0].any() == (adjacency == "replace")
    np.testing.assert_allclose(mapped[1], (onto_ball(rows)[1] - mean) / (1.0 + about.length))
    assert np.linalg.norm(mapped, axis=1).max() <= 1.0 + 1e-12
    assert np.linalg.norm(mapped[3]) == pytest.approx(1.0, abs=1e-5)  # the row opposite to the mean is the longest
    counted = 4.0 if adjacency == "replace" else 3.0
    assert sum_and_count(longer, adjacency).values[-1] == counted * CONSTANT


@BOTH
def test_no_pair_of_rows_moves_sum_and_count_further_than_stated(adjacency):
    source = np.random.default_rng(0)
    rows = onto_ball(source.normal(size=(300, 3)) * source.choice([0.2, 1.0, 5.0], size=(300, 1)))
    longer = np.concatenate(
        [with_constant(np.concatenate([rows, np.eye(3), -np.eye(3), np.zeros((1, 3))])), np.zeros((1, 4))]
    )
    sums = np.array([sum_and_count(row[None], adjacency).values for row in longer])
    firsts = sums if adjacency == "replace" else sums[-2:]  # a zero and an absent row
    apart = np.linalg.norm(firsts[:, None] - sums, axis=2)
    assert apart.max() <= SENSITIVITY[adjacency] * (1.0 + 1e-12)
    assert apart.max() == pytest.approx(SENSITIVITY[adjacency], rel=1e-6)


def test_the_noise_of_the_pure_mean_has_the_density_of_its_proof():
    # Length Gamma(size) and a uniform direction; each test has a false alarm of 1e-4.
    stream, size, n = Randomness.from_seed(3).stream("ball"), 4, 4000
    noise = np.array([ball_noise(size, stream.draws(i)) for i in range(n)])
    lengths = np.linalg.norm(noise, axis=1)
    assert stats.kstest(lengths, stats.gamma(size).cdf).pvalue > 1e-4
    assert stats.kstest(lengths, stats.gamma(size + 1).cdf).pvalue < 1e-4
    # A coordinate of a uniform direction in four dimensions, squared, is Beta(1/2, 3/2).
    assert stats.kstest((noise[:, 0] / lengths) ** 2, stats.beta(0.5, 1.5).cdf).pvalue > 1e-4
    assert (noise**2).mean() == pytest.approx(size + 1.0, rel=0.1)
    assert abs(np.corrcoef(lengths, noise[:, 0] / lengths)[0, 1]) < 4.0 / math.sqrt(n)


@pytest.mark.parametrize("d", [1, 2, 3, 8, 30])
def test_noise_is_taken_for_a_mean_in_at_most_five_percent(d):
    # 2000 releases of rows whose sum is 0: more than 7 % has a probability below 1e-4 at a rate of 5 %.
    noisy = np.random.default_rng(d).normal(size=(2000, d + 1)) * 10.0
    noisy[:, -1] += CONSTANT * 1000.0
    found = [Recentering.of(one, 1000, 10.0, "zero-out") for one in noisy]
    assert sum(one.length > 0.0 for one in found) <= 140
    assert all(one.mean.any() == (one.length > 0.0) for one in found)
    near = np.append(np.full(d, 10.0 * math.sqrt(max(2.01 * d, 16.0) / d)), CONSTANT * 1000.0)
    assert Recentering.of(near, 1000, 10.0, "zero-out").length > 0.0


@KINDS
def test_rows_without_a_mean_are_not_recentered(kind):
    half = moved(400, 9, mean=0.0)
    rows = np.concatenate([half, -half])
    found = [kind(**GIVEN).release(rows, row_norm=1.0, seed=seed).details for seed in range(30)]
    # At a rate of 5 % eight or more of 30 have a probability of 1e-4.
    assert sum(details["recentered"] for details in found) < 8
    assert all((details["center_norm"] > 0.0) == details["recentered"] for details in found)


@KINDS
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_bad_rows_do_not_move_the_mean_toward_zero(kind, share):
    rows = moved(6000, 6)
    bad = rows.copy()
    bad[np.random.default_rng(1).random(6000) < share] = np.nan
    present = bad[~np.isnan(bad[:, 0])]
    found = [kind(**GIVEN).release(bad, row_norm=1.0, seed=seed) for seed in range(9)]
    # By the public number of rows the mean would be .42: of 9 medians the error is below .02.
    assert np.median([release.mean[-1] for release in found]) == pytest.approx(0.6, abs=0.03)
    assert np.median([release.details["count"] for release in found]) == pytest.approx(len(present), rel=0.06)
    assert all(release.details["count"] <= 6000 and release.details["rows"] == 6000 for release in found)
    assert np.median([captured(release, present) for release in found]) > (
        0.99 if kind is sp.AdaptiveCovariance else 0.95
    )


# -- releases -------------------------------------------------------------------------


@BOTH
def test_components_are_about_the_mean(adjacency):
    # About zero the mean takes one of two components, of any budget.
    rows = moved(4000, 8)
    shares = {
        center: np.median([
            captured(sp.AdaptiveCovariance(**GIVEN, adjacency=adjacency, center=center).release(
                rows, row_norm=1.0, seed=seed), rows)
            for seed in range(5)
        ])
        for center in (False, True)
    }  # fmt: skip
    assert shares[True] > 0.97
    assert shares[False] < 0.7


@KINDS
@pytest.mark.parametrize(("n", "d", "k"), [(1, 3, 1), (40, 1, 1), (3000, 1, 1), (3000, 4, 4), (3000, 2, 1)])
@pytest.mark.parametrize("fill", ["moved", "zero", "bad", "alike"])
def test_every_shape_of_data_is_released(kind, n, d, k, fill):
    rows = {
        "moved": moved(n, d),
        "zero": np.zeros((n, d)),
        "bad": np.full((n, d), np.nan),
        "alike": np.full((n, d), 0.4),
    }
    release = kind(n_components=k, epsilon=1.0).release(rows[fill], row_norm=1.0, seed=0)
    assert release.subspace.basis.shape == (d, k)
    assert np.isfinite(release.estimates.std).all()
    assert sp.Release.from_json(release.to_json()).details == release.details
    assert release.details["center_norm"] <= 1.0
    assert sum(release.details["shares"].values()) == pytest.approx(1.0)


@KINDS
@pytest.mark.parametrize("row_norm", [1e-100, 3.0, 1e100])
def test_the_noise_of_entries_survives_a_file_and_a_copy_in_any_unit(kind, row_norm):
    release = kind(**GIVEN).release(moved(3000, 6) * row_norm, row_norm=row_norm, seed=1)
    plain = kind(**GIVEN).release(moved(3000, 6) * row_norm, row_norm=row_norm, seed=1).estimates
    assert (plain.std > 0.0).all()
    for again in (
        sp.Release.from_json(release.to_json()),
        pickle.loads(pickle.dumps(release)),
        release.replaced(t=4000),
    ):
        np.testing.assert_allclose(again.estimates.std, plain.std, rtol=1e-9)
    assert sp.Release.from_json(release.to_json(gram=False)).own_entry_std is None
    with pytest.raises(NoReleaseError, match="approximate_interval"):
        release.estimates.interval()
    assert {"error_1", "mean"} <= set(release.to_frame().columns)
    data = release.to_json().replace('"entry_std":[', '"entry_std":[1.0,')
    with pytest.raises(UsageError, match="not a release"):
        sp.Release.from_json(data)


def test_the_form_about_zero_states_what_it_did_before():
    release = sp.AdaptiveCovariance(**GIVEN, center=False).release(moved(3000, 6), row_norm=1.0, seed=1)
    assert not {"recentered", "mean", "shares", "predicted_captured"} & release.details.keys()
    assert (release.is_centered, release.own_entry_std) == (False, None)
    with pytest.raises(NoReleaseError):
        _ = release.estimates


def test_blocks_of_a_stream_and_a_resumed_store_are_centered(tmp_path):
    algorithm = sp.Tumbling(sp.AdaptiveCovariance(n_components=2, epsilon=3.0), release_every=1500)
    rows, path = moved(3000, 5), tmp_path / "run.db"
    with sp.Stream(algorithm, row_norm=1.0, seed=0, store=sp.Store(path), regret=None) as stream:
        first = stream.push_many(rows[:2000]).releases
    with sp.Stream.resume(sp.Store(path)) as stream:
        stored = stream.release
        second = stream.push_many(rows[2000:]).releases
    assert [release.details["rows"] for release in (*first, *second)] == [1500, 1500]
    np.testing.assert_array_equal(stored.own_entry_std, first[0].own_entry_std)
    assert all(captured(release, rows) > 0.95 and release.is_centered for release in (*first, *second))


# -- what a release predicts of itself ------------------------------------------------


def test_entries_of_equal_noise_are_those_of_one_number():
    source = np.random.default_rng(0)
    square = source.normal(size=(12, 12))
    gram = np.diag(np.linspace(60.0, 0.0, 12)) + square + square.T
    one = Estimates(gram=gram, noise_std=2.0, n_components=4, rows=100)
    other = Estimates(gram=gram, entry_std=np.full((12, 12), 2.0), n_components=4, rows=100)
    for name in ("variances", "std", "eigenvalues", "direction_quality", "loading_std", "explained_variance_ratio"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-12)
    assert other.share(3) == pytest.approx(one.share(3))
    assert other.predicted_captured == pytest.approx(one.predicted_captured)
    with pytest.raises(NoReleaseError):
        other.interval()


def test_error_bars_of_entries_of_unequal_noise_cover():
    # 400 matrices, 95 % intervals for the variances along released directions; below .91 has a probability of 1e-3 at
    # 95 %. The bars are not much wider than the noise along each direction.
    source, d, k, n = np.random.default_rng(1), 20, 3, 400
    exact = np.diag(np.concatenate([[90.0, 60.0, 40.0], np.linspace(8.0, 1.0, d - 3)]))
    roots = np.sqrt(np.where(np.arange(d) < k, 2.0, 0.7))
    std, inside, width = np.outer(roots, roots), np.zeros(k), np.zeros(k)
    for _ in range(n):
        square = source.normal(size=(d, d))
        gram = exact + std * 0.5 * (square + square.T)
        basis = np.linalg.eigh(gram)[1][:, ::-1]
        between = np.sqrt((basis**2).T @ std**2 @ basis**2)
        made = Estimates(gram=gram, entry_std=0.5 * (between + between.T), n_components=k, rows=1000)
        low, high = made.approximate_interval()
        truth = np.einsum("ij,ik,kj->j", basis[:, :k], exact, basis[:, :k])
        inside += (low <= truth) & (truth <= high)
        width += made.std / n
    assert (inside / n > 0.91).all()
    assert (width < 1.2 * np.diag(std)[:k]).all()


@pytest.mark.ci
def test_the_truth_lies_in_the_published_interval():
    # Where .9 or more is captured. At a rate of 95 % fewer than 50 of 60 have a probability of 1e-4.
    inside, tried = 0, 0
    for seed in range(60):
        rows = moved(3000 + 50 * seed, 12, width=0.2, seed=seed)
        release = sp.AdaptiveCovariance(n_components=3, epsilon=1.0).release(rows, row_norm=1.0, seed=seed)
        truth, (low, high) = captured(release, onto_ball(rows)), release.details["captured_interval"]
        if truth >= 0.9:
            tried, inside = tried + 1, inside + (low <= truth <= high)
    assert tried >= 50
    assert inside >= 0.9 * tried
