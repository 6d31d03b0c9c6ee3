"""The rows between two releases of a run: `queries.between`."""

import json
import math
import pickle

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError, NoReleaseError, UsageError
from streampca.linalg.svec import svec
from streampca.papers import DoublingFPL
from streampca.queries import between

N, D, EVERY = 1024, 5, 64


def rows(n=N, d=D, mean=0.0, seed=0):
    made = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(1.0, 0.1, d) / 2.0
    return made / np.maximum(1.0, np.linalg.norm(made, axis=1))[:, None] * 0.5 + mean


def released(given=None, *, seed=1, **options):
    settings = {"n_components": 2, "epsilon": 1.0, "horizon": N, "release_every": EVERY, **options}
    stream = sp.Stream(sp.PrivateFPL(**settings), row_norm=1.0, seed=seed, regret=None)
    return {one.t: one for one in stream.push_many(rows() if given is None else given).releases}


def standardized(n, d, lags, runs, **options):
    """By lag, the noise of intervals in svec coordinates over its stated standard deviation."""
    given = rows(n, d)
    found = {lag: [] for lag in lags}
    for seed in range(runs):
        releases = released(given, seed=seed, horizon=n, center=False, **options)
        for lag in lags:
            for t in range(lag + EVERY, n + 1, lag):
                interval = between(releases[t - lag], releases[t])
                part = given[t - lag : t]
                found[lag].append(svec(interval.gram - part.T @ part) / interval.noise_std)
    return {lag: float(np.sqrt(np.mean(np.square(each)))) for lag, each in found.items()}


def test_the_noise_of_an_interval_has_the_stated_size():
    # 15 to 75 intervals of 55 coordinates: standard errors up to .018, and seven of them fail with chance 1e-11. As a
    # difference of independent releases the noise would be stated 17 % or more too large.
    for noise in (sp.BLT(), sp.Tree()):
        for lag, found in standardized(N, 10, (64, 256), 25, noise=noise).items():
            assert found == pytest.approx(1.0, abs=0.06), lag


@pytest.mark.ci
def test_the_noise_of_intervals_of_a_long_run():
    # At least 27 intervals of 210 coordinates in nine runs: standard errors of at most .0094, so that one of the three
    # lags fails with chance .002. The seeds are fixed.
    for lag, found in standardized(16384, 20, (64, 1024, 4096), 9).items():
        assert 0.97 < found < 1.03, lag


@pytest.mark.parametrize("center", [False, True])
def test_an_interval_is_a_release_of_its_rows(center):
    given = rows(mean=0.2)
    releases = released(given, epsilon=200.0, delta=0.5, center=center)
    interval = between(releases[256], releases[768])
    part = given[256:768]
    exact = part - part.mean(axis=0) if center else part
    np.testing.assert_allclose(interval.gram, exact.T @ exact, atol=6.0 * interval.noise_std)
    assert (interval.details["window"], interval.t, interval.guarantee) == ([257, 768], 768, releases[64].guarantee)
    assert interval.is_centered is center
    if center:
        assert interval.details["noisy_count"] == pytest.approx(512, abs=6 * 8 * interval.noise_law[0])
        np.testing.assert_allclose(interval.mapped_mean, part.mean(axis=0), atol=0.02)
    assert interval.n_clear == 2
    assert abs(interval.subspace.basis[0, 0]) > 0.5
    variances = ((exact @ interval.subspace.basis) ** 2).mean(axis=0)
    np.testing.assert_allclose(interval.explained_variance, variances, rtol=0.05)
    assert "rows 257 to 768 · 5 columns" in interval._repr_html_()
    again = sp.Release.from_json(interval.to_json())
    assert between.covariance(again, again) == pytest.approx(between.covariance(interval, interval), rel=1e-12)


def test_an_interval_of_bad_rows_divides_by_its_own_count():
    # Half of the second half is absent. The count of the whole run would halve the mean of the first.
    given = rows(mean=0.3)
    given[512::2] = np.nan
    releases = released(given, epsilon=200.0, delta=0.5)
    first, second = between(releases[64], releases[512]), between(releases[512], releases[1024])
    assert first.details["count"] == pytest.approx(448, rel=0.05)
    assert second.details["count"] == pytest.approx(256, rel=0.1)
    for interval in (first, second):
        np.testing.assert_allclose(interval.mapped_mean, given[~np.isnan(given).any(axis=1)].mean(axis=0), atol=0.03)


def test_intervals_of_a_file_are_those_of_the_run(tmp_path):
    releases = released(solver="smoothed", release_every=100, horizon=1000, given=rows(1000))
    path = tmp_path / "releases.jsonl"
    path.write_text("".join(one.to_json() + "\n" for one in releases.values()))
    back = {one.t: one for one in sp.read_releases(path)}
    one, other = between(releases[300], releases[1000]), between(back[300], back[1000])
    np.testing.assert_array_equal(other.gram, one.gram)
    assert (other.noise_std, other.details) == (one.noise_std, one.details)
    # Smoothed estimates are not additive.
    assert one.smoothed is None
    assert not np.allclose(one.gram, releases[1000].smoothed - releases[300].smoothed)


@pytest.mark.parametrize("every", [7, 100])
@pytest.mark.parametrize("options", [{"bounds": "private", "warmup": 120}, {"row_norm": 1.0}])
def test_the_short_last_block_and_a_warm_up(every, options):
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=450, release_every=every)
    given = rows(450)
    stream = sp.Stream(algorithm, seed=0, features=D, **options)
    releases = stream.push_many(given).releases
    interval = between(releases[0], releases[-1])
    numbers = [algorithm.leaves(one.t) for one in (releases[0], releases[-1])]
    assert interval.noise_law[0] >= algorithm.mechanism.difference_std(*numbers)
    assert interval.details["joint_noise_std"] == pytest.approx(algorithm.mechanism.difference_std(*numbers))


def test_covariances_of_intervals_of_one_run():
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=N, release_every=EVERY, center=False)
    decoder = algorithm.mechanism.reconstruction(N // EVERY)
    releases = released(center=False, n_components=1)
    x, y = between(releases[128], releases[512]), between(releases[512], releases[1024])
    exact = float((decoder[7] - decoder[1]) @ (decoder[15] - decoder[7]))
    assert between.covariance(x, y) == between.covariance(y, x) == pytest.approx(exact, rel=1e-12)
    assert between.covariance(x, x) == pytest.approx(x.noise_std**2, rel=1e-12)
    # The interval after a release, and the release: together they are the later one.
    assert between.covariance(releases[512], y) == pytest.approx(float(decoder[7] @ (decoder[15] - decoder[7])))
    with pytest.raises(UsageError, match="one run"):
        between.covariance(x, released(seed=2, center=False, n_components=1)[512])


def test_what_is_no_difference_of_two_sums_of_one_run_is_refused():
    releases = released()
    one, two = releases[256], releases[512]
    for pair, words in (((two, one), "512 and 256"), ((one, one), "256 and 256")):
        with pytest.raises(UsageError, match=f"{words} rows. Pass the one after fewer rows first"):
            between(*pair)
    with pytest.raises(UsageError, match="releases of two runs"):
        between(one, released(seed=2)[512])
    given = rows()
    others = [
        sp.SlidingWindowPCA(n_components=1, epsilon=1.0, window=256, release_every=EVERY),
        sp.Tumbling(sp.GaussianCovariance(n_components=1, epsilon=1.0), release_every=EVERY),
        DoublingFPL(n_components=1, epsilon=1.0, horizon=N, release_every=EVERY),
        sp.PrivateOja(n_components=1, epsilon=1.0, horizon=N, batch_size=EVERY),
    ]
    pairs = [
        sp.Stream(algorithm, row_norm=1.0, seed=1, regret=None).push_many(given).releases[1:3] for algorithm in others
    ]
    for name, pair in [*(("earlier", pair) for pair in pairs), ("later", (one, between(one, two)))]:
        with pytest.raises(BadParameterError, match=r"a block of Tumbling .* DoublingFPL") as problem:
            between(*pair)
        assert problem.value.parameter == name
    bare = sp.Release.from_json(two.to_json(gram=False))
    with pytest.raises(NoReleaseError, match="without its Gram matrix"):
        between(one, bare)


def test_what_is_no_release_is_refused_by_its_parameter():
    with pytest.raises(sp.errors.BadParameterError, match=r"^later: expected a release"):
        sp.queries.between(
            sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1), row_norm=1.0)
            .push([0.1, 0.2])
            .release,
            None,
        )
    whole = sp.pca(np.zeros((50, 3)), 1, epsilon=1.0, row_norm=1.0)
    with pytest.raises(sp.errors.BadParameterError, match=r"^present=\[0.9, 0.7\]: expected"):
        sp.queries.completed(whole, [0.9, 0.7])


def test_copies_are_other_runs_and_a_resumed_run_is_the_same(tmp_path):
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=N, release_every=EVERY)
    given = rows()
    stream = sp.Stream(algorithm, row_norm=1.0)
    first = stream.push_many(given[:128]).releases
    copy = pickle.loads(pickle.dumps(stream))
    second, third = stream.push_many(given[128:]).releases, copy.push_many(given[128:]).releases
    with pytest.raises(UsageError, match="a copy of a stream is another run"):
        between(first[0], third[0])
    assert between(first[0], second[0]).t == 192
    with sp.Store(tmp_path / "run.db") as store:
        one = sp.Stream(algorithm, row_norm=1.0, store=store).push_many(given[:128]).releases[0]
    later = []
    for moved, place in ((False, 256), (True, 384), (False, 512)):
        with sp.Store(tmp_path / "run.db") as store:
            resumed = sp.Stream.resume(store, moved=moved)
            later.append(resumed.push_many(given[resumed.t : place]).releases[-1])
    assert between(one, later[0]).details["window"] == [65, 256]
    with pytest.raises(UsageError, match="a copy of a stream is another run"):
        between(later[0], later[1])
    assert between(later[1], later[2]).details["window"] == [385, 512]


def test_a_changed_file_is_refused():
    one, two = released()[64], released()[512]
    line = json.loads(one.to_json())
    for run in ([1], "x", {"name": math.nan}, {"name": [math.inf]}):
        with pytest.raises(UsageError, match="not a release"):
            sp.Release.from_json(json.dumps(line | {"run": run}))
    for change, words in (
        ({"constants": {"horizon": 99, "mu": 0.2, "sensitivity": 1.0}}, "differs from that of its run"),
        ({"factorization": "Other"}, "do not describe its noise"),
        ({"release_every": 0}, "do not describe its noise"),
        ({"constants": {}}, "do not describe its noise"),
    ):
        lines = [json.loads(release.to_json()) for release in (one, two)]
        for line in lines:
            line["run"] |= change
        with pytest.raises(UsageError, match=words):
            between(*(sp.Release.from_json(json.dumps(line)) for line in lines))
    assert math.isfinite(between(one, two).noise_std)
