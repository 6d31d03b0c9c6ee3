"""Error bars of queries cover the truth at their nominal rate, over 200 private releases."""

import numpy as np
import pytest
from scipy.stats import binom

from streampca import queries
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.covariance import GaussianCovariance

RUNS, LEVEL, D = 200, 0.9, 6
#: Two-sided acceptance for 200 runs at 90 %: each check false-alarms with probability below 2e-3.
LOW, HIGH = binom.ppf(1e-3, RUNS, LEVEL), binom.ppf(1 - 1e-3, RUNS, LEVEL)


def rows():
    rng = np.random.default_rng(21)
    a = rng.normal(size=(6000, D)) * 0.35 * np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    a[:, -1] += 0.5 * a[:, 0] - 0.25 * a[:, 1]
    a[:, 0] += 0.2
    return onto_ball(np.hstack([a * 0.9, np.full((6000, 1), 0.5)]))


@pytest.fixture(scope="module")
def releases():
    mechanism = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6)
    data = rows()
    return data.T @ data, [mechanism.release(data, seed=1000 + i) for i in range(RUNS)]


X = np.linspace(-1.0, 1.0, D + 1)
BASIS = np.linalg.qr(np.random.default_rng(4).normal(size=(D + 1, 3)))[0]
POINTWISE = {
    "directional variance": lambda r: queries.directional_variance(r, X),
    "captured variance": lambda r: queries.captured_variance(r, BASIS),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_intervals_cover_at_their_rate(releases, name):
    gram, made = releases
    query = POINTWISE[name]
    truth = query(queries_on(gram, made[0])).value
    answers = [query(each) for each in made]
    assert LOW <= covered(answers, truth) <= HIGH
    # The check has teeth: bars of 2/3 or 1.5 times the size are refused.
    assert covered(answers, truth, 2 / 3) < LOW
    assert covered(answers, truth, 1.5) > HIGH


def test_regression_intervals_cover_at_their_rate(releases):
    gram, made = releases
    truth = queries.regression(queries_on(gram, made[0]), [5], predictors=[0, 1, 2, 3, 4]).coefficients
    found = [queries.regression(each, [5], predictors=[0, 1, 2, 3, 4]) for each in made]
    assert min(each.signal_to_noise for each in found) > 2.0
    z = np.array([(each.coefficients - truth) / each.std for each in found])[:, :, 0]
    for scale, passes in ((1.0, True), (2 / 3, False), (1.5, False)):
        hits = (np.abs(z) <= 1.6448536 * scale).sum(axis=0)
        assert (((hits >= LOW) & (hits <= HIGH)).all()) == passes, (scale, hits)


def test_uniform_intervals_cover_at_least_at_their_rate(releases):
    gram, made = releases
    exact = np.linalg.eigvalsh(gram)[::-1]
    for query in (queries.pca, lambda r: queries.sparse_pca(r, 2)):
        hits = 0
        for each in made:
            found = query(each)
            low, high = found.interval(LEVEL)
            along = np.einsum("ik,ij,jk->k", found.components, gram, found.components)
            hits += bool(((low <= along) & (along <= high)).all())
        assert hits >= LOW
    pcas = [queries.pca(each) for each in made]
    assert sum(bool((np.abs(p.values - exact[:2]) <= p.bound(LEVEL)).all()) for p in pcas) >= LOW


def queries_on(gram, release):
    """The exact Gram matrix in the place of the private one, for the truth. Curator only."""
    return type(release).of_gram(
        gram, t=release.t, n_components=2, guarantee=release.guarantee, noise_std=0.0, details=release.details
    )


def covered(answers, truth, scale=1.0):
    return sum(abs(a.value - truth) <= scale * (a.interval(LEVEL)[1] - a.value) for a in answers)
