"""Private range and clipped mean of gradients: votes, sensitivity, noise and planted bugs."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness
from streampca.processors.dp_pca import SUBSAMPLE, ClippedMean, PrivateRange

RANGE = PrivateRange(1.0, 1e-6)


def outlet(seed: int) -> Outlet:
    source = NoiseSource(Randomness.from_seed(seed), "mean")
    return Outlet(source, source.first)


def test_range_is_the_upper_end_of_the_octave_or_nothing() -> None:
    cases = {
        0.125: np.full(RANGE.rows, 0.3),  # of 0.09
        0.5: np.full(RANGE.rows, 0.5),  # the bin of 0.25 begins at it
        0.0: np.zeros(RANGE.rows),
        None: np.repeat(4.0 ** -np.arange(RANGE.rows // SUBSAMPLE), SUBSAMPLE),  # no two agree
    }
    for expected, norms in cases.items():
        assert RANGE.decide(RANGE.cast(norms), outlet(1), "votes") == expected


def test_one_row_moves_at_most_one_vote() -> None:
    """The claim that the calibration rests on; a zeroed-out row does move one."""
    rng = np.random.default_rng(0)
    norms = np.abs(rng.normal(size=RANGE.rows))
    votes, moved = RANGE.cast(norms), 0
    for i in range(0, RANGE.rows, 7):
        for other in (0.0, 100.0):
            differ = np.flatnonzero(RANGE.cast(np.where(np.arange(norms.size) == i, other, norms)) != votes)
            assert differ.size <= 1
            moved += differ.size
    assert moved > 20


@given(seed=st.integers(0, 10**6), radius=st.floats(1e-3, 0.5), adjacency=st.sampled_from(["zero-out", "replace"]))
@settings(deadline=None, max_examples=60)
def test_no_pair_of_products_exceeds_the_sensitivity(seed: int, radius: float, adjacency: str) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(4, 5)), rng.normal(size=(4, 2)) * rng.exponential(size=(4, 1))
    sums = []
    for other in (False, True):
        if other:
            left[3] = 0.0 if adjacency == "zero-out" else rng.normal(size=5)
        mean = ClippedMean(1.0, 10, radius, adjacency)  # type: ignore[arg-type]
        sums.append(mean.products(left, right))
    assert float(np.linalg.norm(sums[0] - sums[1])) <= mean.std


def test_the_noise_allows_for_the_lattice():
    mean = ClippedMean(0.5, 9, 1.0, "zero-out")
    assert mean.std == pytest.approx((1.0 + 1e-9 + 3.0 * 2.0**-26) / 0.5, rel=1e-12)
