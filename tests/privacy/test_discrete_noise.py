"""Releases without floating point, and what floating point gives away."""

from fractions import Fraction

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.privacy.discrete_gaussian import UNIT_BITS, LatticeGram, gram_noise, lattice_sigma

UNIT = 2.0**-UNIT_BITS


def rows(n, d, seed=0):
    return onto_ball(np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(d))


def exact_fpl(**options):
    given = {"n_components": 1, "epsilon": 1.0, "release_every": 1, "horizon": 37, "noise": sp.Tree(discrete=True)}
    return sp.PrivateFPL(**{"center": False, **given, **options})


def releases(algorithm, X, seed=3):
    processor, out = algorithm.start(X.shape[1], sp.Randomness.from_seed(seed)), []
    for row in X:
        processor, release = processor.absorb(row[None])
        out.append(release)
    return out


def test_the_sum_is_exact_in_integers():
    X = rows(300, 4)
    gram = GramSum.of(X)
    whole = [[int(v) for v in row] for row in X * 2.0**20]
    true = [sum(row[i] * row[j] for row in whole) for i in range(4) for j in range(i, 4)]
    noise = gram_noise(4.22, 4).draw(sp.Randomness.from_seed(0).stream("test").draws(0))
    released = LatticeGram(gram).noisy(noise, 4.22)
    assert [Fraction(v) for v in released] == [
        Fraction(float(t + int(z))) / 2**UNIT_BITS for t, z in zip(true, noise, strict=True)
    ]


def test_noise_level_is_that_of_the_float_tree():
    exact, plain = exact_fpl(), exact_fpl(noise="tree")
    for t in (1, 7, 32, 37):
        assert exact.noise_std(t) == pytest.approx(plain.noise_std(t), rel=2e-9)
        assert exact.noise_std(t) >= plain.noise_std(t)


def test_sigma_covers_what_discreteness_costs():
    for std in (1e-6, 0.5, 4.22, 16_000.0):
        sigma = lattice_sigma(std)
        # Room for the randomised rounding of variance 25 (see privacy.discrete_gaussian).
        assert sigma**2 - 25 > (Fraction(std) * 2**UNIT_BITS) ** 2
        assert sigma >= Fraction(std) * 2**UNIT_BITS * (1 + Fraction(1, 10**9))  # and for many coordinates
        assert sigma * UNIT < std * (1 + 1.01e-9) + UNIT


SIGMA, TRIES = 4.22, 4000


def gives_away(released):
    """A float in (0, 1/4) with finer bits than 2**-53: cannot be 1 + noise, since that was rounded to this grid."""
    return (released > 0) & (released < 0.25) & (released % 2.0**-53 != 0)


def one_entry(value):
    return np.array([[float(value)]])


def test_low_bits_of_naive_float_noise_tell_0_from_1():
    noise = SIGMA * sp.Randomness.from_seed(0).stream("naive").normal(0, 2 * TRIES)
    zero, one = 0.0 + noise[:TRIES], 1.0 + noise[TRIES:]
    assert gives_away(one).sum() == 0
    assert gives_away(zero).mean() > 0.01  # a release that is proof of the row's absence, at any epsilon


@pytest.mark.parametrize("exact", [False, True])
def test_low_bits_of_releases_tell_nothing(exact):
    mechanism = sp.GaussianCovariance(n_components=1, epsilon=1.0, center=False, discrete_noise=exact)
    assert mechanism.sigma == pytest.approx(SIGMA, abs=0.01)
    for value in (0, 1):
        made = [mechanism.release(one_entry(value), sp.Randomness.from_seed(i), row_norm=1.0) for i in range(600)]
        out = np.array([release.gram[0, 0] for release in made])
        assert ((out > 0) & (out < 0.25)).sum() > 0
        assert gives_away(out).sum() == 0
        assert (out % UNIT == 0).all()  # one grid for all, fixed before any row


@pytest.mark.parametrize("options", [{"noise": "blt"}, {}])
def test_low_bits_of_streams_tell_nothing(options):
    for value in (0, 1):
        rows, algorithm = np.full((4, 1), float(value)), exact_fpl(horizon=4, **options)
        out = np.array([release.gram[0, 0] for i in range(150) for release in releases(algorithm, rows, i)])
        assert gives_away(out).sum() == 0
        assert (out % UNIT == 0).all()


def test_noise_that_does_not_fit_the_integers():
    with pytest.raises(BadParameterError, match="integer lattice"):
        sp.GaussianCovariance(n_components=1, epsilon=1e-5, delta=1e-9, discrete_noise=True, center=False)
    with pytest.raises(BadParameterError, match="integer lattice"):
        exact_fpl(epsilon=1e-5, delta=1e-9)


def test_the_range_of_noise_includes_its_ends():
    assert lattice_sigma(2.0**14) > lattice_sigma(1e-6) > 0
    for std in (np.nextafter(2.0**14, np.inf), np.nextafter(1e-6, 0.0)):
        with pytest.raises(BadParameterError, match="integer lattice"):
            lattice_sigma(float(std))
