"""Exact sums in two words: noise on their lattice, differences without loss."""

from __future__ import annotations

import numpy as np

from streampca.linalg import words
from streampca.linalg.lattice import GramAccumulator, onto_ball


def test_noisy_words_are_what_the_accumulator_releases():
    rng = np.random.default_rng(0)
    gram = GramAccumulator(5)
    gram.add(onto_ball(rng.normal(size=(100, 5))))
    for scale in (1e-6, 1.0, 1e6):
        noise = rng.normal(size=15) * scale
        noisy = words.noisy(gram.words(), noise, 5, 1e-9)  # a grid as fine as the lattice
        np.testing.assert_array_equal(words.difference(noisy, words.zero(15)), gram.plus(noise))
        coarse = words.noisy(gram.words(), noise, 5, 4.0)
        released = words.difference(coarse, words.zero(15))
        np.testing.assert_array_equal(released, np.rint(released * 2.0**18) / 2.0**18)
        np.testing.assert_allclose(released, gram.plus(noise), rtol=0, atol=2.0**-19 + 1e-16 * scale)
        assert (coarse[1] >= 0).all()
        assert (coarse[1] <= words.LOW).all()
        assert (noisy[1] >= 0).all()
        assert (noisy[1] <= words.LOW).all()


def test_differences_of_huge_sums_lose_nothing():
    unit = words.UNIT
    later = (np.array([2**60 + 3]), np.array([5]))
    earlier = (np.array([2**60]), np.array([7]))
    assert words.difference(later, earlier)[0] == 3.0 - 2.0 / unit


def test_copies_are_copies():
    first = words.zero(2)
    second = words.copy(first)
    second[0][0] = 1
    assert first[0][0] == 0
