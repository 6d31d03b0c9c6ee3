"""Sums in two parts: noise on their lattice, differences without loss."""

from __future__ import annotations

import numpy as np

from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.parts import GramInParts, difference


def test_noisy_parts_are_what_a_gram_matrix_releases():
    rng = np.random.default_rng(0)
    exact = GramSum.of(onto_ball(rng.normal(size=(100, 5))))
    gram, nothing = GramInParts(exact), np.zeros((2, 15))
    assert gram.hidden[0] is exact.parts
    before = exact.parts.copy()
    for scale in (1e-6, 1.0, 1e6):
        noise = rng.normal(size=15) * scale
        fine = gram.noisy(noise, 1e-9)  # a grid as fine as the lattice
        np.testing.assert_array_equal(difference(fine, nothing), exact.noisy(noise, 1e-9))
        for std, grid in ((4.0, 2.0**-18), (2.0**30, 1.0)):
            coarse = gram.noisy(noise, std)
            released = difference(coarse, nothing)
            np.testing.assert_array_equal(released, np.rint(released / grid) * grid)
            np.testing.assert_allclose(released, exact.noisy(noise, 1e-9), rtol=0, atol=0.5 * grid + 1e-16 * scale)
            for parts in (fine, coarse):
                np.testing.assert_array_equal(parts[0], np.rint(parts[0]))
                assert (parts[1] >= 0.0).all()
                assert (parts[1] < 1.0).all()
    assert exact.parts.tobytes() == before.tobytes()


def test_differences_of_huge_sums_lose_nothing():
    later, earlier = np.array([[2.0**52 + 3.0], [5 * 2.0**-40]]), np.array([[2.0**52], [7 * 2.0**-40]])
    assert difference(later, earlier)[0] == 3.0 - 2.0 * 2.0**-40
