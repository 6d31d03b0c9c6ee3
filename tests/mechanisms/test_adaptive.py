"""AdaptiveCovariance and AdaptiveLaplaceCovariance: what one row moves, what they gain, where they do not adapt."""

import math
from functools import partial

import numpy as np
import pytest

import streampca as sp
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import entry_weights
from streampca.mechanisms.norm_maps import energy_outside
from streampca.privacy.outlet import LatticeSum, Outlet

BUDGET = {"epsilon": 0.3, "delta": 1e-6}
PURE = {"n_components": 2, "epsilon": 1.0}
about_zero = partial(sp.AdaptiveCovariance, center=False)
pure_about_zero = partial(sp.AdaptiveLaplaceCovariance, center=False)


def spikes(n, d, k, seed=0, height=30.0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.sqrt(np.where(np.arange(d) < k, height, 1.0))
    return rows / np.quantile(np.linalg.norm(rows, axis=1), 0.95)


def outliers(n, d, k, share=0.05, body=0.2, seed=0):
    """Rows that are short and vary alike in all directions, but for a few long ones in a subspace."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * (body / math.sqrt(d))
    count = int(share * n)
    rows[:count] = 0.0
    long = rng.normal(size=(count, k))
    rows[:count, :k] = long / np.linalg.norm(long, axis=1, keepdims=True)
    return rows


def missed(mechanism, rows, seeds):
    """Share of the best subspace's variance that releases miss: mean and standard error."""
    rows = onto_ball(rows)
    gram = rows.T @ rows
    best = np.linalg.eigvalsh(gram)[-mechanism.n_components :].sum()
    losses = [
        1.0 - mechanism.release(rows, seed=seed, row_norm=1.0).subspace.captured(gram) / best for seed in range(seeds)
    ]
    return float(np.mean(losses)), float(np.std(losses, ddof=1) / math.sqrt(seeds))


@pytest.fixture
def transcript(monkeypatch):
    """Each vector that meets noise (kind, exact, sd), and what was released of it; the latter may be prescribed."""

    def listed(mechanism, rows, outputs=None):
        hidden, released, release = [], [], Outlet.release

        def noted(self, kind, exact, draw, std=0.0):
            value = release(self, kind, exact, draw, std) if outputs is None else outputs[len(hidden)].copy()
            hidden.append((kind, exact, std))
            released.append(value.copy())
            return value

        with monkeypatch.context() as patch:
            patch.setattr(Outlet, "release", noted)
            return hidden, released, mechanism.release(rows, seed=0, row_norm=1.0)

    return listed


def entries(exact):
    """What an outlet hides as a vector whose Euclidean norm is that of the sensitivity."""
    if isinstance(exact, LatticeSum):
        return exact.values
    assert isinstance(exact, GramSum)
    return exact.packed() / entry_weights(exact.n_features)


def neighbours(rows, adjacency):
    """The rows with one of them changed: long, short, zero and outside the ball."""
    rng = np.random.default_rng(1)
    for place, scale in ((0, 1.0), (1, 0.3), (2, 0.05), (3, 50.0)):
        before, after = rows.copy(), rows.copy()
        before[place] = scale * rng.normal(size=rows.shape[1]) / math.sqrt(rows.shape[1])
        after[place] = 0.0 if adjacency == "zero-out" else np.roll(before[place], 1) * rng.choice([0.2, 1.0, 5.0])
        yield before, after
    long = np.zeros_like(rows[0])
    long[0] = 1.0
    before, after = rows.copy(), rows.copy()
    before[0], after[0] = long, 0.0 if adjacency == "zero-out" else np.roll(long, 1) * 0.9
    yield before, after

    if adjacency == "zero-out":  # the row opposite to the mean is the longest about it, and a zero row is no row there
        before, after = rows.copy(), rows.copy()
        before[0], after[0] = -rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0)), 0.0
        yield before, after


MOVED = 0.2 * spikes(3000, 6, 2) + 0.6 * np.eye(6)[2]


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("rows", "center"),
    [(spikes(3000, 6, 2), False), (0.2 * spikes(3000, 6, 2), False), (outliers(3000, 6, 2), False), (MOVED, True)],
)
def test_no_row_moves_all_vectors_together_by_more_than_mu(adjacency, rows, center, transcript):
    # Gaussian mechanisms compose adaptively: given equal outputs so far, the squared distances over sds add up.
    mechanism = sp.AdaptiveCovariance(n_components=2, epsilon=1.0, adjacency=adjacency, center=center)
    *mean, norms, lost, first, second, alone = mechanism.constants(6)
    grams, left, most = [first, second, alone], 0.9 if center else 1.0, 0.0
    for before, after in neighbours(rows, adjacency):
        hidden, released, _ = transcript(mechanism, before)
        other, _, _ = transcript(mechanism, after, released)
        asked = any(kind == "lost" for kind, _, _ in hidden)
        stds = [*mean, *([norms, lost, *grams[:2]] if asked else [norms, grams[0], grams[2]])]
        assert [std for _, _, std in hidden] == [std for _, _, std in other] == stds
        apart = [entries(one[1]) - entries(two[1]) for one, two in zip(hidden, other, strict=True)]
        parts = [np.linalg.norm(moved) / std for moved, std in zip(apart, stds, strict=True)]
        shares = (np.array(parts) / mechanism.mu) ** 2
        stated = left * np.array([0.02, 0.04, 0.30, 0.64] if asked else [0.02, 0.30, 0.68])
        assert (shares <= np.append([0.1] * center, stated) + 1e-9).all()
        most = max(most, float(shares.sum()))
    assert most > 0.5  # the noise is not much more than privacy needs


@pytest.mark.parametrize("mechanism", [
    about_zero(n_components=2, epsilon=1.0), sp.AdaptiveCovariance(n_components=2, epsilon=1.0),
    sp.AdaptiveLaplaceCovariance(n_components=2, epsilon=1.0),
])  # fmt: skip
def test_what_is_released_depends_on_rows_through_noisy_values_only(mechanism, transcript):
    _, released, first = transcript(mechanism, MOVED)
    assert transcript(mechanism, outliers(3000, 6, 2), released)[2].to_json() == first.to_json()


@pytest.mark.parametrize(
    ("rows", "k", "factor"),
    [(spikes(6000, 40, 3), 3, 0.8), (0.25 * spikes(6000, 40, 3), 3, 0.4), (outliers(10_000, 20, 1), 1, 0.7)],
    ids=["decaying spectrum", "short rows", "outliers"],
)
def test_it_misses_less_than_the_gaussian_mechanism(rows, k, factor):
    adaptive = missed(about_zero(n_components=k, **BUDGET), rows, 6)
    plain = missed(sp.GaussianCovariance(n_components=k, center=False, **BUDGET), rows, 6)
    assert adaptive[0] < factor * plain[0]


def test_outliers_that_the_histogram_cannot_show_are_not_clipped_away():
    # 500 of 10 000 rows hold the subspace; at epsilon = 0.1 they do not stand out of the noise of their bin.
    rows = outliers(10_000, 20, 1)
    given = {"n_components": 1, "epsilon": 0.1, "delta": 1e-6}
    adaptive, plain = (
        missed(about_zero(**given), rows, 10),
        missed(sp.GaussianCovariance(**given, center=False), rows, 10),
    )
    assert adaptive[0] <= plain[0] + 2.0 * math.hypot(adaptive[1], plain[1])
    assert adaptive[0] < 0.25


def test_noise_seldom_looks_like_hidden_energy():
    # All rows are in the histogram, so nothing is hidden: an alarm is false, and comes in 1 % of the releases. The
    # noise of the Gaussian mechanism, the least threshold, is half of the standard deviation of the lost energy.
    mechanism = about_zero(n_components=3, **BUDGET)
    rows = spikes(1000, 3, 3, height=1.0)
    rows *= np.where(np.arange(1000) < 100, 0.27, 0.06)[:, None] / np.linalg.norm(rows, axis=1)[:, None]
    found = [mechanism.release(rows, seed=seed, row_norm=1.0).details for seed in range(100)]
    asked = [details for details in found if "lost_energy_radius" in details]
    assert len(asked) > 90
    assert sum(details["clip_radius"] == 1.0 for details in asked) <= 5
    assert not any(details["clip_radius"] == 1.0 for details in asked if details["lost_energy"] < 100.0)


def test_it_does_not_adapt_to_what_it_cannot_see():
    rows = spikes(200, 6, 2)
    few = missed(about_zero(n_components=2, **BUDGET), rows, 12)
    plain = missed(sp.GaussianCovariance(n_components=2, center=False, **BUDGET), rows, 12)
    assert few[0] < plain[0] + 2.0 * math.hypot(few[1], plain[1])
    zero = about_zero(n_components=2, **BUDGET).release(np.zeros((5000, 6)), seed=0, row_norm=1.0)
    assert (zero.details["clip_radius"], zero.details["map"]) == (1.0, "radius 1")
    assert zero.details["predicted_loss"] is None  # no histogram, no model


def test_a_direction_that_the_combination_lacks_is_seen():
    first = np.diag([100.0, 90.0, 1.0, 0.0])
    assert energy_outside(np.diag([100.0, 90.0, 1.0, 0.0]), first, 2) == (1.0, 1.0)
    assert energy_outside(np.diag([50.0, 45.0, 1.0, 0.0]), first, 2) == (1.0, 2.0)
    found, expected = energy_outside(np.diag([100.0, 1.0, 2.0, 0.0]), first, 2)
    assert found == 90.0
    assert expected < 1.1


def test_the_release_says_what_was_done_and_claims_no_error_bar():
    rows = 0.25 * spikes(20_000, 10, 2)
    release = about_zero(n_components=2, epsilon=1.0, delta=1e-6).release(rows, seed=0, row_norm=1.0)
    details = release.details
    assert release.noise_std is None
    assert 0.1 < details["clip_radius"] < 0.5
    radius = details["clip_radius"]
    squares = np.vecdot(onto_ball(rows), onto_ball(rows))
    assert abs(details["lost_energy"] - np.maximum(squares - radius**2, 0.0).sum()) < 5.0 * details["lost_energy_std"]
    assert details["released"] in ("combination", "first stage")
    assert 0.0 < details["predicted_loss"] < 0.2
    assert sp.Release.from_json(release.to_json()).details == details
    gram = onto_ball(rows).T @ onto_ball(rows)
    assert np.linalg.norm(release.gram - gram) < 0.2 * np.linalg.norm(gram)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (4, 4)])
def test_the_whole_space(d, k):
    rows = 0.3 * spikes(20_000, d, 1)
    gram, radii = onto_ball(rows).T @ onto_ball(rows), []
    for seed in range(15):
        release = about_zero(n_components=k, epsilon=1.0, delta=1e-6).release(rows, seed=seed, row_norm=1.0)
        assert release.subspace.basis.shape == (d, k)
        assert np.linalg.norm(release.gram - gram) < 0.3 * np.linalg.norm(gram)
        radii.append(release.details["clip_radius"])
    # One radius in eight is .5 or more, of 200 seeds: the median is with probability 1e-4.
    assert np.median(radii) < 0.5


def short(n=3000, d=5, norm=0.3, seed=0):
    """Rows of one norm that vary most in two directions."""
    rows = np.random.default_rng(seed).normal(size=(n, d)) * np.where(np.arange(d) < 2, 3.0, 1.0)
    return norm * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def long_rows(n=5000, d=5):
    """Rows that are short and alike in all directions, but for some of norm 1 along two axes."""
    rows = short(n, d, 0.05)[:, ::-1].copy()
    rows[:70] = np.eye(d)[np.arange(70) % 2]
    return rows


def spent(mechanism, before, after):
    """Epsilon that two neighbors spend on each vector, given equal outputs."""
    for (kind, one, _), (_, other, _) in zip(before, after, strict=True):
        if isinstance(one, GramSum):
            d = one.n_features
            apart = np.zeros((d, d))
            apart[np.triu_indices(d)] = one.packed() - other.packed()
            apart += np.triu(apart, 1).T
            # The density of the noise changes by at most the trace norm over 2c.
            yield (
                kind,
                float(np.abs(np.linalg.eigvalsh(apart)).sum())
                / (2.0 * mechanism.on_gram(len(before) - 1 - mechanism.center).scale(d)),
            )
        elif kind == "mean":  # the density changes by at most the Euclidean distance over the scale
            yield kind, float(np.linalg.norm(one.values - other.values)) / mechanism.mean_scale
        else:
            scale = mechanism.norms_scale if kind == "norms" else mechanism.lost_scale
            yield kind, float(np.abs(one.values - other.values).sum()) / scale


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        (short(), {"norms": 0.03, "lost": 0.08, "gram": 0.89}),
        (short(norm=1.0), {"norms": 0.03, "gram": 0.97}),
        (short(499), {"gram": 1.0}),
        (short() + 0.6 * np.eye(5)[0], {"mean": 0.1, "norms": 0.027, "lost": 0.072, "gram": 0.801}),
        (short(499) + 0.6 * np.eye(5)[0], {"mean": 0.1, "gram": 0.9}),
    ],
)
def test_no_row_spends_more_than_epsilon_on_all_vectors_together(adjacency, rows, shares, transcript):
    mechanism = sp.AdaptiveLaplaceCovariance(adjacency=adjacency, center="mean" in shares, **PURE)
    most = 0.0
    for first in (np.eye(5)[0], 0.1 * np.eye(5)[1], 40.0 * np.ones(5), -np.eye(5)[0]):
        # The last one is far from the others about a mean along the first axis.
        others = (np.eye(5)[2], 0.6 * np.eye(5)[3], 0.6 * np.eye(5)[0] + 0.8 * np.eye(5)[1])
        for second in others if adjacency == "replace" else (np.zeros(5),):
            before, after = rows.copy(), rows.copy()
            before[7], after[7] = first, second
            hidden, released, _ = transcript(mechanism, before)
            other, _, _ = transcript(mechanism, after, released)
            parts = dict(spent(mechanism, hidden, other))
            assert list(parts) == list(shares)
            assert all(parts[kind] <= share * mechanism.epsilon * (1.0 + 1e-9) for kind, share in shares.items())
            most = max(most, sum(parts.values()))
    # The noise is not more than privacy needs. About a mean, without a radius, two orthogonal rows are not both long.
    unclipped = "mean" in shares and "norms" not in shares and adjacency == "replace"
    assert most > (0.6 if unclipped else 0.95) * mechanism.epsilon
    assert (mechanism.guarantee.epsilon, mechanism.guarantee.delta, mechanism.guarantee.mu) == (1.0, 0.0, None)


def test_short_rows_get_less_noise_and_long_ones_hardly_more():
    plain, adaptive = sp.MatrixLaplaceCovariance(**PURE), pure_about_zero(**PURE)
    # .13 and .11 in the mean of 200 seeds; of 60, the standard deviation is .06.
    assert missed(adaptive, short(), 60)[0] < 0.5 * missed(plain, short(), 60)[0]
    assert missed(adaptive, short(20_000), 60)[0] < 0.5 * missed(plain, short(20_000), 60)[0]
    # .97 of epsilon: 1.06 times the variance, and the loss.
    assert missed(adaptive, short(norm=1.0), 60)[0] < 1.4 * missed(plain, short(norm=1.0), 60)[0]


def test_long_rows_that_hold_the_subspace_are_not_clipped_away():
    rows, mechanism = long_rows(), pure_about_zero(**PURE)
    found = [mechanism.release(rows, seed=i, row_norm=1.0).details for i in range(20)]
    # The histogram, whose noise has a standard deviation of 47, shows 70 rows in some of the releases only.
    unseen = [made for made in found if made.get("lost_energy_radius", 1.0) < 0.5]
    assert len(unseen) > 5
    assert sum(made["clip_radius"] == 1.0 for made in unseen) > 0.7 * len(unseen)
    others = [mechanism.release(0.05 * np.sign(rows), seed=i, row_norm=1.0).details["clip_radius"] for i in range(20)]
    assert sum(radius == 1.0 for radius in others) <= 2  # false alarms


def test_details_say_what_was_clipped():
    rows = short()
    rows[:300] *= 3.0
    details = pure_about_zero(**PURE).release(rows, seed=0, row_norm=1.0).details
    squares = np.vecdot(onto_ball(rows), onto_ball(rows))
    exact = np.maximum(squares - details["lost_energy_radius"] ** 2, 0.0).sum()
    assert abs(details["lost_energy"] - exact) < 6.0 * details["lost_energy_std"]
    assert details["clip_radius"] < 1.0


@pytest.mark.parametrize(("adjacency", "most"), [("zero-out", (7, 9, 10, 13)), ("replace", (3, 4, 4, 6))])
def test_the_rule_compares_variances_and_reads_no_row(adjacency, most):
    for epsilon, limit in zip((0.1, 0.3, 1.0, 3.0), most, strict=True):
        given = {"n_components": 1, "epsilon": epsilon, "adjacency": adjacency}
        for d in (1, limit, limit + 1, 100):
            for center in (True, False):  # a pure mean is too noisy at a small epsilon
                is_pure = d <= limit and (epsilon > 1.0 or not center)
                taken = sp.adaptive_mechanism(d, delta=1e-6, center=center, **given)
                assert isinstance(taken, sp.AdaptiveLaplaceCovariance if is_pure else sp.AdaptiveCovariance)
            laplace = sp.MatrixLaplaceCovariance(**given).noise_std(d)
            gaussian = sp.GaussianCovariance(center=False, **given).noise_std(d)
            assert (d <= limit) == (laplace < math.sqrt(2.0 / 3.0) * gaussian)
    for epsilon in (0.1, 3.0):
        pure = sp.adaptive_mechanism(100, n_components=1, epsilon=epsilon, delta=0.0, adjacency=adjacency)
        assert isinstance(pure, sp.AdaptiveLaplaceCovariance)
