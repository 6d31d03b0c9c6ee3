"""The chance to miss a planted bug that only statistics show: at most 1e-4, by the law of the statistic that shows it.

Other bugs are refuted by the leak check or by the loss, which are not up to chance, or have no noise at all somewhere:
then a sum of squares is 0, and its p-value too.
"""

import math

import numpy as np
import pytest
from planted.edge_bugs import BUGS
from planted.edges import CASES
from planted.lifecycles import TWO, continuations
from scipy import special, stats
from scipy.linalg import block_diag

from streampca.auditing.instrument import MISS
from streampca.auditing.laws import difference_tails
from streampca.privacy.randomness import NAME_BYTES

#: Significance of one test of one group of two, of one part, in the audit of bugs.
EACH = 0.5 * (1e-3 / len(BUGS)) / 3 / 9
CELLS = (np.arange(4000) + 0.5) / 4000


def planted(name, case):
    return next(bug for bug in BUGS if (bug.name, bug.case) == (name, case))


def runs(name, case, width):
    """Fewest runs of the audit of bugs."""
    return max(24, math.ceil(planted(name, case).numbers / CASES[case].cost / width))


# -- numbers that are independent, of another law ------------------------------------------------------


def by_variance(z, count):
    # Chernoff's bound on the chance that the sum of squares of `count` numbers, by their quantiles, is not refuted.
    low, high = (quantile(0.5 * EACH / 6, count) for quantile in (stats.chi2.ppf, stats.chi2.isf))
    small = np.mean(z**2) < 1.0
    limit, sign = (low, 1.0) if small else (high, -1.0)  # missed above it, or below it
    rates = sign * np.linspace(0.004, 0.4, 100)
    logs = special.logsumexp(rates[:, None] * z**2, axis=1) - math.log(z.size)
    return float(np.exp(np.min(count * logs - rates * limit)))


def laplace(factor):
    # Standard normals from Laplace noise of a part of its scale.
    return -special.ndtri(0.5 * np.exp(np.log(1.0 - CELLS) * factor))


def too_few_degrees():
    # Standard normals from the entries of a matrix Laplace of d degrees for d + 1, at d = 3.
    grid, tail = difference_tails(3)
    return -special.ndtri(np.interp(np.interp(0.5 * CELLS, tail[::-1], grid[::-1]), *difference_tails(4)))


def uniform(count):
    # By the shape: the empirical distribution is near its own law (Massart), which is far from the normal.
    x = np.linspace(-math.sqrt(3.0), math.sqrt(3.0), 10_001)
    far = float(np.max(np.abs((x / math.sqrt(3.0) + 1.0) / 2.0 - special.ndtr(x))))
    limit = math.sqrt(0.5 * math.log(2.0 / EACH) / count)
    return 2.0 * math.exp(-2.0 * count * max(0.0, far - limit) ** 2)


def zeros(count, events, probability, each_event):
    # By numbers near zero: of some events, each with a probability, that give a number of zeros each.
    k = np.arange(events + 1)
    seen = stats.binom.sf(k * each_event - 1, count, 1e-3 * math.sqrt(2.0 / math.pi)) < EACH
    return float(stats.binom.pmf(k, events, probability)[~seen].sum())


def pairs_of_one_byte(count, steps, width):
    # By runs that repeat: neighboring runs have one of 256 vectors each at each step.
    pairs = count // 2
    k = np.arange(pairs * steps + 1)
    seen = 2.0 * stats.binom.sf(k * width - 1, pairs * steps * width, 1e-3 / math.sqrt(math.pi)) < EACH
    return float(stats.binom.pmf(k, pairs * steps, 1.0 / 256.0)[~seen].sum())


_GRID = 2 * special.ndtr(0.25) - 1
# fmt: off
INDEPENDENT = {
    ("half the noise", "LaplaceCovariance"): lambda r: by_variance(laplace(0.5), 21 * r(21)),
    ("half the noise", "StabilityHistogram-moves"): lambda r: by_variance(laplace(0.5), 3 * r(3)),
    ("noise cut at two sd", "PrivateFPL"): lambda r: by_variance(special.ndtri(CELLS).clip(-2, 2), 240 * r(20)),
    ("noise smaller by 4 percent", "PrivateFPL"): lambda r: by_variance(0.96 * special.ndtri(CELLS), 240 * r(20)),
    ("d degrees for d + 1", "MatrixLaplaceCovariance"): lambda r: by_variance(too_few_degrees(), r(1)),
    ("truncated Laplace at a quarter", "ExactSubspace"): lambda r: by_variance(laplace(0.25), 2 * r(2)),
    ("uniform noise of the right sd", "PrivateFPL"): lambda r: uniform(240 * r(20)),
    ("uniform noise of the right sd", "GaussianCovariance"): lambda r: uniform(190 * r(20)),
    ("noise of the right law on a grid of half an sd", "GaussianCovariance"):
        lambda r: zeros(20 * r(20), 20 * r(20), _GRID, 1),
    ("noise of the right law on a grid of half an sd", "PrivateOja"): lambda r: zeros(36 * r(36), 36 * r(36), _GRID, 1),
    ("no noise in one release of fifty", "PrivateOja"): lambda r: zeros(36 * r(36), 6 * r(36), 5 / 256, 6),
    ("noise of one byte of randomness", "PrivateFPL"): lambda r: pairs_of_one_byte(r(20), 12, 20),
    # Of whole runs that repeat there is at least one pair but with this probability.
    ("noise of one byte of randomness", "GaussianCovariance"):
        lambda r: abs(float(np.prod(1 - np.arange(r(20)) / 256))),
}
# fmt: on


@pytest.mark.parametrize(("name", "case"), INDEPENDENT)
def test_chance_to_miss_independent_numbers_of_another_law(name, case):
    assert INDEPENDENT[name, case](lambda width: runs(name, case, width)) <= MISS


# -- noise that is correlated otherwise ----------------------------------------------------------------


def by_correlation(lawful, actual, count):
    # The least chance that any sum of squares, or any correlation, of two times is not refuted. Noise is `actual @ z`
    # where `lawful @ z` is claimed, for `count` independent columns z.
    white = np.linalg.solve(np.linalg.cholesky(lawful @ lawful.T), actual)
    c, t = white @ white.T, len(white)
    low, high = (quantile(0.5 * EACH / 6 / t, count) for quantile in (stats.chi2.ppf, stats.chi2.isf))
    sizes = np.maximum(np.diag(c), 1e-300)
    chances = stats.chi2.cdf(high / sizes, count) - stats.chi2.cdf(low / sizes, count)
    # A product over the norm of w_j is slope |w_j| + a normal: |w_j| is at least this but for a chance of 1e-6.
    norms, limit = np.sqrt(sizes * stats.chi2.ppf(1e-6, count)), -special.ndtri(EACH / (t * (t - 1)))
    i, j = np.tril_indices(t, -1)
    rest = np.sqrt(np.maximum(sizes[i] - c[i, j] ** 2 / sizes[j], 1e-12))
    correlated = special.ndtr((limit - np.abs(c[i, j]) / sizes[j] * norms[j]) / rest) + 1e-6
    return min(float(chances.min()), float(correlated.min()))


class Impulse:
    """One column of the identity in place of random numbers: sums of noise are linear in it."""

    def __init__(self, column, count, n=0, name=b""):
        self.column, self.count, self.n, self.name = column, count, n, name

    def normal(self, count):
        return np.eye(self.count)[self.column]


class Source:
    """Draws impulses by name: the same name draws the same impulse."""

    def __init__(self, count):
        self.count = count

    def draws(self, n, name):
        return Impulse(n - 1 if name == bytes(NAME_BYTES) else self.count // 2 + n - 1, self.count, n, name)


def advanced(noise, columns, count):
    rows = []
    for column in columns:
        noise = noise.advance(Impulse(column, count))
        rows.append(noise.noise)
    return noise, rows


@pytest.mark.parametrize(
    "name",
    [
        "noise repeated every second release",
        "noise gone from release 9 on",
        "the last release of a horizon without noise",
    ],
)
def test_chance_to_miss_noise_of_another_age(name):
    mechanism = CASES["PrivateFPL"].make().mechanism
    lawful = np.array(advanced(mechanism.start(12), range(12), 12)[1])
    np.testing.assert_allclose(lawful @ lawful.T, mechanism.reconstruction(12) @ mechanism.reconstruction(12).T)
    with planted(name, "PrivateFPL").planted():
        actual = np.array(advanced(mechanism.start(12), range(12), 12)[1])
    assert by_correlation(lawful, actual, 20 * runs(name, "PrivateFPL", 20)) <= MISS
    assert by_correlation(lawful, lawful, 20 * runs(name, "PrivateFPL", 20)) > 0.99


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.case.startswith("life-") and "interrupted" not in bug.name], ids=lambda b: b.case
)
def test_chance_to_miss_noise_that_continuations_share(bug):
    subject, count = CASES[bug.case].make(), 6 * runs(bug.name, bug.case, 6)
    one = None if bug.case == "life-mechanism-one-key" else subject.mechanism.reconstruction(4)
    if one is None:
        lawful, actual = np.eye(2), np.ones((2, 1))
    elif bug.case in ("life-one-key", "life-two-configurations"):
        two = one if bug.case == "life-one-key" else CASES["PrivateFPL"].make().mechanism.reconstruction(4)
        lawful, actual = block_diag(one, two), np.concatenate([one, two])
    elif bug.case == "life-fleet":
        lawful, actual = np.kron(one, np.eye(2)), np.kron(one, np.ones((2, 1)))
    else:  # by law, and where both continuations share all vectors
        lawful = continuations(one, TWO, 2)
        actual = lawful[[0, 1, 2, 3, 2, 3]]
        if bug.name == "noise drawn a leaf ahead":
            actual = continuations(one, TWO, 3)
        elif bug.name.startswith("an open tree node"):
            actual = lawful.copy()
            actual[5] = lawful[3]
        elif bug.name.startswith("noise of the past"):
            noise, first = advanced(subject.mechanism.start(6), (0, 1), 6)
            _, rest = advanced(noise, (2, 3), 6)
            with bug.planted():
                again = subject.mechanism.start(6).restored(noise.snapshot())
            actual = np.array([*first, *rest, *advanced(again, (4, 5), 6)[1]])
    assert by_correlation(lawful, actual, count) <= MISS


def resumed(mechanism, count, stops, bug=None):
    source, rows = Source(2 * count), []
    noise = mechanism.start(2 * count, source)
    for n in range(1, count + 1):
        noise = noise.advance(source.draws(n, bytes(NAME_BYTES)))
        rows.append(noise.noise)
        if n in stops and bug is not None:
            with bug.planted():
                noise = mechanism.start(2 * count, source).restored(noise.snapshot(), source)
    return np.array(rows)


@pytest.mark.parametrize(
    ("name", "case", "leaves", "stops"),
    [
        ("the leaving rows' noise lost by a resume", "resumed-SlidingWindowPCA-ring", 12, (5, 6)),
        ("nodes drawn anew by a resume", "resumed-PrivateFPL-tree", 12, (4, 9)),
        ("noise of the past forgotten by a resume", "life-state", 4, (2,)),
    ],
)
def test_chance_to_miss_noise_lost_by_a_resume(name, case, leaves, stops):
    subject, bug = CASES[case].make(), planted(name, case)
    mechanism = subject.mechanism
    lawful, actual = resumed(mechanism, leaves, stops), resumed(mechanism, leaves, stops, bug)
    reconstructed = mechanism.reconstruction(leaves)
    np.testing.assert_allclose(lawful @ lawful.T, reconstructed @ reconstructed.T)
    assert by_correlation(lawful, actual, CASES[case].d * runs(name, case, CASES[case].d)) <= MISS
