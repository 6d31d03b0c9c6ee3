"""The fading sum: exact in integers, the same bits for equal sums, noise rounded once."""

from fractions import Fraction

import numpy as np

from streampca.linalg.lattice import LONGEST, LOW, ROUNDING, FadingSum, GramSum, coarsen, onto_ball

D = 3


def leaves(count, seed=0):
    x = onto_ball(np.random.default_rng(seed).normal(size=(count, 4, D)).reshape(-1, D))
    return [GramSum.of(x[4 * i : 4 * i + 4]) for i in range(count)]


def value(parts):
    return [Fraction(int(high), 2**40) + Fraction(int(low), 2**80) for high, low in parts.T]


def test_a_step_rounds_down_by_less_than_a_unit():
    for memory in (1, 2, 7, LONGEST):
        fading = FadingSum(D)
        for leaf in leaves(30):
            high, low = leaf.high_low()
            added = [Fraction(int(a)) + Fraction(int(b), 2**40) for a, b in zip(high, low, strict=True)]
            before = value(fading.parts)
            fading = fading.after(leaf, memory)
            assert (fading.parts[1] >= 0).all()
            assert (fading.parts[1] <= LOW).all()
            for now, then, more in zip(value(fading.parts), before, added, strict=True):
                exact = then * (1 - Fraction(1, memory)) + more
                assert 0 <= now - exact < Fraction(1, 2**80)  # what is lost is rounded down


def test_the_sensitivity_covers_what_rounding_adds_a_thousandfold():
    # Neighbouring streams of 1000 features drift apart by a unit of 2**-80 an entry and leaf, over 2**40 leaves.
    drift = 1000 * 2.0**-80 * 2.0**40
    assert 1000 * drift < ROUNDING


def test_the_largest_sum_fits():
    memory, rows = LONGEST, GramSum.of(np.eye(D)[:1])
    full = np.zeros((2, 6), dtype=np.int64)
    full[0, 0] = memory << 40  # the limit of a row a leaf
    full[1] = LOW
    after = FadingSum(D, full).after(rows, memory)
    assert abs(float(value(after.parts)[0]) - memory) < 1e-5
    assert (after.parts[0] >= 0).all()


def test_noise_is_added_and_made_coarse():
    fading = FadingSum(D)
    for leaf in leaves(9):
        fading = fading.after(leaf, 5)
    assert fading.hidden[0] is fading.parts
    exact = np.array([float(entry) for entry in value(fading.parts)])
    zeros = np.zeros(6)
    assert fading.noisy(zeros, 1.0).tobytes() == coarsen(exact.copy(), 1.0).tobytes()
    nearest = [float(Fraction(round(entry * 2**40), 2**40)) for entry in value(fading.parts)]
    assert fading.noisy(zeros, 1e-9).tolist() == nearest
    noise = 1e3 * np.random.default_rng(1).normal(size=6)
    weights = np.array([1.0, 0.5**0.5, 0.5**0.5, 1.0, 0.5**0.5, 1.0])
    np.testing.assert_allclose(fading.noisy(noise, 1e-9), exact + noise * weights, rtol=1e-15, atol=2.0**-39)
