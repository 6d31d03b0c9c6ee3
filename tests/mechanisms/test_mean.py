"""Private range and clipped mean of gradients: votes, sensitivity, noise and planted bugs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.mechanisms.histogram import StabilityHistogram
from streampca.mechanisms.mean import SUBSAMPLE, ClippedMean, PrivateRange
from streampca.privacy.outlet import Counts, NoiseSource, Outlet
from streampca.privacy.randomness import Randomness

RANGE = PrivateRange(1.0, 1e-6)


def outlet(seed: int) -> Outlet:
    source = NoiseSource(Randomness.from_seed(seed), "mean")
    return source.outlet(source.first)


# -- range ----------------------------------------------------------------------------


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


def test_votes_move_and_the_histogram_knows() -> None:
    """Planted bug: constants for votes that appear. Two equal bins, one vote moved: odds tell more than epsilon."""
    runs = 4000

    def told_apart(histogram: StabilityHistogram) -> float:
        """How much likelier one bin leads by 2 with the vote than without, as a log ratio."""
        wins, noise = [], outlet(7)
        for counts in ([61, 59], [60, 60]):
            made = [histogram.shown(Counts(np.array(counts)), noise, "votes") for _ in range(runs)]
            wins.append(np.mean([a - b > 6.0 for a, b in made]))
        return float(np.log(wins[0] / wins[1]))

    # One vote moved shifts the difference by 2. Claimed: odds at most e**1 (standard error of the log ratio 0.06).
    assert told_apart(RANGE) < 1.0
    assert told_apart(StabilityHistogram(2.0, 1e-6)) > 1.3


# -- mean -----------------------------------------------------------------------------


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


PLANTS = [("", 0.9, 1.1), ("half the noise", 1.8, 2.2), ("no clipping", 1.8, 2.2)]


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(("plant", "least", "most"), PLANTS)
def test_products_near_tight_and_planted_bugs(adjacency: str, plant: str, least: float, most: float) -> None:
    """Matched filter, 4000 runs a side, claimed mu 1: standard error 0.024 at most."""
    left = np.array([[0.6, 0.0, 0.8]])
    right = np.array([[0.9, 0.1]])
    scores: list[list[float]] = [[], []]
    mean, noise = ClippedMean(1.0, 6, 0.25, adjacency), outlet(0)  # type: ignore[arg-type]
    clip = ClippedMean(1.0, 6, 0.5, adjacency) if plant == "no clipping" else mean  # type: ignore[arg-type]
    for run in range(8000):
        sign = (1.0, 0.0 if adjacency == "zero-out" else -1.0)[run % 2]
        exact = clip.products(sign * left, right)
        released = mean.release(exact, 1, noise, "mean")
        if plant == "half the noise":
            released = exact + 0.5 * (released - exact)
        scores[run % 2].append(float(np.sum(released * (left.T @ right))))
    first, second = (np.array(s) for s in scores)
    measured = (first.mean() - second.mean()) / math.sqrt(0.5 * (first.var() + second.var()))
    assert least < measured < most


def test_the_noise_allows_for_the_lattice():
    mean = ClippedMean(0.5, 9, 1.0, "zero-out")
    assert mean.std == pytest.approx((1.0 + 1e-9 + 3.0 * 2.0**-26) / 0.5, rel=1e-12)
