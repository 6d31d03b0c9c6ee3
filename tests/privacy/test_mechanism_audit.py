"""Audits of the one-shot mechanisms: what an attacker who knows all other rows can measure.

Each audit releases two neighbours many times, and bounds from below, with Clopper-Pearson intervals of confidence 1 -
1e-4 a side, the epsilon or the delta that the best known event shows. An audit of a sound mechanism raises a false
alarm with probability at most 2e-4 over seeds; seeds are fixed. Each has planted bugs that it must catch: most of them
with ``pytest -m long``, since `streampca.auditing` plants bugs of these kinds in every run of the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from printed_mechanisms import PrintedSubspacePerturbation, PrintedWishart
from scipy.stats import beta

from streampca.linalg.svec import svec
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.papers.laplace import LaplaceCovariance
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.papers.wishart import WishartCovariance, profile, wishart
from streampca.privacy.gaussian import delta_at
from streampca.privacy.randomness import Randomness
from streampca.processors.tumbling import Tumbling, TumblingProcessor

pytestmark = pytest.mark.ci

ALARM = 1e-4
later = partial(pytest.param, marks=pytest.mark.long)


def interval(hits, draws):
    low = beta.ppf(ALARM, hits, draws - hits + 1) if hits else 0.0
    high = beta.ppf(1.0 - ALARM, hits + 1, draws - hits) if hits < draws else 1.0
    return float(low), float(high)


def least_delta(event, first, second, epsilon):
    """Lower bound on P(event | first) - e**epsilon P(event | second)."""
    low = interval(int(event(first).sum()), len(first))[0]
    high = interval(int(event(second).sum()), len(second))[1]
    return low - math.exp(epsilon) * high


def least_epsilon(event, first, second):
    """Lower bound on ln(P(event | first) / P(event | second)), for pure mechanisms."""
    low = interval(int(event(first).sum()), len(first))[0]
    high = interval(int(event(second).sum()), len(second))[1]
    return math.log(low / high) if low > 0.0 else -math.inf


def grams(mechanism, rows, draws, seed=1):
    rows, randomness = np.asarray(rows, dtype=float), Randomness.from_seed(seed)
    return np.array([mechanism.release(rows, randomness, t=len(rows) + i).gram for i in range(draws)])


# -- pure mechanisms ----------------------------------------------------------------

ONE = ([[1.0]], [[0.0]])  # the worst pair for one feature, in both adjacencies


class ThinLaplace(LaplaceCovariance):
    """Bug: two thirds of the noise."""

    def noise(self, n_features, draws):
        return super().noise(n_features, draws) * (2.0 / 3.0)


class ThinMatrixLaplace(MatrixLaplaceCovariance):
    """Bug: two thirds of the noise."""

    def noise(self, n_features, draws):
        return super().noise(n_features, draws) * (2.0 / 3.0)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("kind", "sound"),
    [(LaplaceCovariance, True), (MatrixLaplaceCovariance, True), later(ThinLaplace, False), (ThinMatrixLaplace, False)],
)
def test_pure_mechanisms_on_one_feature(kind, sound, adjacency):
    epsilon, draws = 1.0, 3000
    mechanism = kind(n_components=1, epsilon=epsilon, adjacency=adjacency)
    first, second = (grams(mechanism, rows, draws, seed)[:, 0, 0] for seed, rows in enumerate(ONE))
    # Above 1 the ratio of the densities is e**epsilon: the whole of it shows.
    measured = least_epsilon(lambda x: x > 1.0, first, second)
    assert (measured <= epsilon) == sound
    assert measured > 0.7 * epsilon


class HalfLaplace(LaplaceCovariance):
    """Bug: the sensitivity of the diagonal alone."""

    def sensitivity(self, n_features):
        return 1.0


@pytest.mark.parametrize(("kind", "sound"), [(LaplaceCovariance, True), later(HalfLaplace, False)])
def test_laplace_on_its_worst_row(kind, sound):
    # (1, 1, 1) / sqrt(3), the row of largest l1 norm. The loss is epsilon where all six entries are above the
    # row's own, which is rare; a large epsilon shows more of it.
    epsilon, draws = 3.0, 4000
    row = np.full((1, 3), math.sqrt(1.0 / 3.0))
    mechanism = kind(n_components=1, epsilon=epsilon)
    first, second = grams(mechanism, row, draws, 1), grams(mechanism, 0.0 * row, draws, 2)
    upper = np.triu_indices(3)

    def loss(gram):  # log-likelihood ratio under the claimed scale, up to a factor
        entries = gram[:, upper[0], upper[1]]
        return (np.abs(entries) - np.abs(entries - 1.0 / 3.0)).sum(axis=1)

    measured = max(least_epsilon(lambda g, c=c: loss(g) > c, first, second) for c in (0.5, 1.0, 1.5))
    assert (measured <= epsilon) == sound
    assert measured > 0.45 * epsilon


def matrix_laplace_noise(scale, draws, seed):
    """The law of the mechanism's noise at two features, drawn all at once."""
    normals = np.random.default_rng(seed).normal(size=(2, draws, 2, 3))
    squares = normals @ normals.swapaxes(-1, -2)
    return scale * (squares[0] - squares[1])


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_matrix_laplace_on_two_features(adjacency):
    # The loss approaches epsilon only in the tail, so the law is drawn in bulk; that it is the mechanism's is
    # tested in tests/mechanisms. The event is that the difference of the neighbours stands out.
    epsilon, draws = 1.0, 400_000
    sound = MatrixLaplaceCovariance(n_components=1, epsilon=epsilon, adjacency=adjacency).scale(2)
    moved = np.diag([1.0, 0.0 if adjacency == "zero-out" else -1.0])

    def measure(scale):
        first = matrix_laplace_noise(scale, draws, 1) + moved
        second = matrix_laplace_noise(scale, draws, 2)
        # distance along the change, in units of what is claimed to be safe
        along = [np.einsum("nij,ij->n", x, moved) for x in (first, second)]
        return max(least_epsilon(lambda x, c=c: x > c, *along) for c in (2.0, 4.0, 6.0, 8.0))

    measured = measure(sound)
    assert 0.55 * epsilon < measured <= epsilon
    assert measure(sound / 2.0) > epsilon  # the zero-out scale under replace; half the noise under zero-out


class OneSided(MatrixLaplaceCovariance):
    """Bug: the second Wishart matrix is left out, as printed."""

    def noise(self, n_features, draws):
        return svec(self.scale(n_features) * wishart(draws, n_features, n_features + 1))


@pytest.mark.parametrize(
    ("kind", "sound"), [(MatrixLaplaceCovariance, True), (OneSided, False), later(PrintedWishart, False)]
)
def test_one_sided_noise_is_caught_by_its_support(kind, sound):
    epsilon, draws = 1.0, 1500
    mechanism = kind(n_components=1, epsilon=epsilon)
    row = np.array([[1.0, 0.0]])
    first, second = grams(mechanism, 0.0 * row, draws, 1), grams(mechanism, row, draws, 2)

    def impossible(gram):  # with the row, PSD noise leaves the Schur complement above 1
        return (np.linalg.det(gram) / gram[:, 1, 1] < 1.0) & (gram[:, 1, 1] > 0.0)

    measured = least_epsilon(impossible, first, second)
    assert (measured <= epsilon) == sound
    if not sound:
        assert measured > 3.0 * epsilon  # by a wide margin: truly infinite


# -- (epsilon, delta) mechanisms ----------------------------------------------------


class ThinGaussian(GaussianCovariance):
    """Bug: two thirds of the noise."""

    def noise(self, n_features, draws):
        return super().noise(n_features, draws) * (2.0 / 3.0)


class PrintedSensitivity(GaussianCovariance):
    """Bug of the paper: sensitivity 1 under replace."""

    def noise(self, n_features, draws):
        return super().noise(n_features, draws) / (math.sqrt(2.0) if self.adjacency == "replace" else 1.0)


@pytest.mark.parametrize(
    ("kind", "adjacency", "sound"),
    [
        (GaussianCovariance, "zero-out", True),
        (GaussianCovariance, "replace", True),
        later(ThinGaussian, "zero-out", False),
        later(ThinGaussian, "replace", False),
        (PrintedSensitivity, "replace", False),
    ],
)
def test_gaussian(kind, adjacency, sound):
    draws = 3000
    mechanism = kind(n_components=1, epsilon=1.0, delta=0.1, adjacency=adjacency)
    a, b = np.array([[0.6, 0.8, 0.0]]), np.array([[-0.8, 0.6, 0.0]]) * (adjacency == "replace")
    moved = a.T @ a - b.T @ b
    first, second = (
        np.einsum("nij,ij->n", grams(mechanism, row, draws, seed), moved) / np.linalg.norm(moved)
        for seed, row in enumerate((a, b))
    )
    center = float(np.vdot(b.T @ b, moved) / np.linalg.norm(moved))
    shift, sigma = float(np.linalg.norm(moved)), mechanism.sigma
    worst = -math.inf
    for epsilon in (0.0, 0.25, 0.5, 1.0):
        threshold = center + epsilon * sigma**2 / shift + shift / 2.0
        measured = least_delta(lambda x, c=threshold: x > c, first, second, epsilon)
        worst = max(worst, measured - delta_at(mechanism.mu, epsilon))
        assert measured > 0.5 * delta_at(mechanism.mu, epsilon) or epsilon > 0.3
    assert (worst <= 0.0) == sound


class ThinWishart(WishartCovariance):
    """Bug: two thirds of the scale (0.4 under replace, where the claim is a bound and has room)."""

    def scale(self, n_features):
        return super().scale(n_features) * (2.0 / 3.0 if self.adjacency == "zero-out" else 0.4)


@pytest.mark.parametrize(("kind", "sound"), [(WishartCovariance, True), later(ThinWishart, False)])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_wishart(kind, adjacency, sound):
    draws, d = 3000, 2
    mechanism = kind(n_components=1, epsilon=1.0, delta=0.1, adjacency=adjacency)
    m, c = mechanism.degrees(d), mechanism.scale(d)
    honest = WishartCovariance(n_components=1, epsilon=1.0, delta=0.1, adjacency=adjacency).scale(d)
    a, b = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]) * (adjacency == "replace")
    worst, shown = -math.inf, 0.0
    first, second = grams(mechanism, b, draws, 1), grams(mechanism, a, draws, 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        losses = [log_density(x - b.T @ b, m, c) - log_density(x - a.T @ a, m, c) for x in (first, second)]
    for sign, (one, other) in ((1.0, losses), (-1.0, losses[::-1])):
        for epsilon in (0.0, 0.25, 0.5, 1.0):
            claimed = profile(epsilon, m, honest, d, adjacency)
            measured = least_delta(lambda x, e=epsilon, s=sign: s * x > e, one, other, epsilon)
            worst, shown = max(worst, measured - claimed), max(shown, measured / claimed)
    assert (worst <= 0.0) == sound
    assert shown > 0.4


def log_density(noise, degrees, scale):
    """Log density of ``c * Wis_2(m, I)``, up to a constant; -inf where it cannot be."""
    det = np.linalg.det(noise)
    possible = (det > 0.0) & (noise[:, 0, 0] > 0.0)
    inside = 0.5 * (degrees - 3) * np.log(np.where(possible, det, 1.0))
    return np.where(possible, inside, -np.inf) - np.trace(noise, axis1=1, axis2=2) / (2.0 * scale)


# -- propose, test, release ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoRefusal(SubspacePerturbation):
    """Bug: the gap is taken to be 50 without a test."""

    def projector_loses_less(self, sigma, n_rows):
        return sigma < math.inf

    def _lower_bound(self, gap, gap_std, rounding):
        return 50.0


@dataclass(frozen=True, kw_only=True)
class NoMargin(NoRefusal):
    """Bug: the measured gap is trusted as it is, its noise forgotten."""

    def _lower_bound(self, gap, gap_std, rounding):
        return gap if gap > 2.0 else 2.001


def tied(larger):
    """Gram matrix diag(50.01, 50), or diag(50.01, 51) with the last row."""
    rows = np.zeros((102, 2))
    rows[:50, 0] = 1.0
    rows[50, 0] = 0.1
    rows[51:101, 1] = 1.0
    rows[101, 1] = float(larger)
    return rows


@pytest.mark.parametrize(
    ("kind", "sound"),
    [
        (SubspacePerturbation, True),
        later(NoRefusal, False),
        (NoMargin, False),
        later(PrintedSubspacePerturbation, False),
    ],
)
def test_subspace_perturbation_on_a_tie(kind, sound):
    draws = 1500
    mechanism = kind(n_components=1, epsilon=1.0, delta=1e-3)
    axis = []
    for seed, larger in enumerate((False, True)):
        randomness = Randomness.from_seed(seed)
        bases = [mechanism.release(tied(larger), randomness, t=102 + i).subspace.basis for i in range(draws)]
        axis.append(np.array([abs(basis[0, 0]) for basis in bases]))
    claim = SubspacePerturbation(n_components=1, epsilon=1.0, delta=1e-3).guarantee
    worst = max(
        least_delta(lambda x: x > math.sqrt(0.5), *axis, epsilon) - delta_at(claim.mu, epsilon) - claim.slack
        for epsilon in (0.0, 0.5, 1.0)
    )
    assert (worst <= 0.0) == sound
    if kind is PrintedSubspacePerturbation:
        assert worst > 0.5  # by a wide margin


@pytest.mark.parametrize(
    ("share", "sound"), [(1.0, True), later(0.3, False)], ids=["as calibrated", "a third of the noise"]
)
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_subspace_perturbation_on_a_gap(share, sound, adjacency, monkeypatch):
    # A row halfway between the two eigenvectors next to the gap turns them furthest; a replaced one turns them
    # twice as far, at twice the gap.
    moves = 1 if adjacency == "zero-out" else 2
    monkeypatch.setattr(
        "streampca.papers.subspace_perturbation.projector_shift",
        lambda bound, adjacency: share * -math.log1p(-moves / bound) / math.sqrt(2.0),
    )
    # The projector is to be released even where the Gram matrix is expected to lose less.
    monkeypatch.setattr(SubspacePerturbation, "projector_loses_less", lambda self, sigma, n_rows: sigma < math.inf)
    draws, gap = 1500, 30 * moves
    mechanism = SubspacePerturbation(n_components=1, epsilon=3.0, delta=0.1, adjacency=adjacency)
    rows = np.zeros((gap + 1, 2))
    rows[:gap, 0] = 1.0
    other = rows.copy()
    other[gap] = math.sqrt(0.5)
    if adjacency == "replace":
        rows[gap] = math.sqrt(0.5), -math.sqrt(0.5)
    slopes, branches = [], set()
    for seed, data in enumerate((rows, other)):
        randomness = Randomness.from_seed(seed)
        released = [mechanism.release(data, randomness, t=gap + 1 + i) for i in range(draws)]
        branches |= {r.details["released"] for r in released}
        slopes.append(np.array([r.subspace.basis[1, 0] * np.sign(r.subspace.basis[0, 0]) for r in released]))
    assert "projector" in branches
    threshold = 0.25 * math.atan2(1.0, gap) if adjacency == "zero-out" else 0.0
    claim = mechanism.guarantee
    worst = max(
        least_delta(lambda x: x > threshold, slopes[1], slopes[0], e) - delta_at(claim.mu, e) - claim.slack
        for e in (0.0, 0.5, 1.0)
    )
    assert (worst <= 0.0) == sound


# -- tumbling -----------------------------------------------------------------------


def overlapping(step):
    """Bug: each block keeps the last row of the one before, so blocks overlap."""

    def wrong(self, rows, outlet):
        after, release = step(self, rows, outlet)
        if release is not None:
            after.held = after.held.append(rows[-1:])
        return after, release

    return wrong


@pytest.mark.parametrize("sound", [True, False], ids=["as it is", "blocks share a row"])
def test_tumbling_spends_once(sound, monkeypatch):
    # The changed row is the second of four; the attacker adds up the first two releases.
    mechanism, draws = GaussianCovariance(n_components=1, epsilon=1.0, delta=0.1), 1500
    if not sound:
        monkeypatch.setattr(TumblingProcessor, "step", overlapping(TumblingProcessor.step))
    totals = []
    for seed, row in enumerate((1.0, 0.0)):
        data, found = np.array([[0.0], [row], [0.0], [0.0]]), np.zeros(draws)
        for i in range(draws):
            processor = Tumbling(mechanism, release_every=2).start(1, Randomness.from_seed(10_000 * seed + i))
            for _ in range(2):
                due = processor.rows_until_release
                processor, release = processor.absorb(data[processor.t : processor.t + due])
                found[i] += release.gram[0, 0]
        totals.append(found)
    # Sound: 1 against 0 under noise of sd sqrt(2) sigma. Shared: 2 against 0.
    threshold = 0.5 if sound else 1.0
    measured = least_delta(lambda x: x > threshold, *totals, 0.0)
    assert (measured <= delta_at(mechanism.mu, 0.0)) == sound
