"""Stability histograms: thresholds checked by exact hockey-stick sums, and the constants that leak."""

import itertools
import math

import numpy as np
import pytest

from streampca.errors import BadParameterError
from streampca.linalg.lattice import grid_step
from streampca.linalg.types import FloatArray
from streampca.mechanisms.histogram import GRID, StabilityHistogram, _above
from streampca.privacy.outlet import Counts, NoiseSource, Outlet
from streampca.privacy.randomness import Randomness

EDGES = np.arange(-40.0, 200.0, 0.125)  # a vote is a whole number of cells: shifted densities keep their breakpoints


def outlet(seed: int) -> Outlet:
    source = NoiseSource(Randomness.from_seed(seed), "histogram")
    return Outlet(source, source.first)


def noisy_counts(histogram: StabilityHistogram, counts: object, noise: Outlet) -> FloatArray:
    return histogram.shown(Counts(np.asarray(counts)), noise, "votes")


def laplace_cdf(x: np.ndarray, scale: float) -> np.ndarray:
    half = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x < 0.0, half, 1.0 - half)


def seen(count: int, cdf, threshold: float) -> np.ndarray:
    """Law of what is seen of one bin: probability of nothing, then of each cell above the threshold."""
    if count == 0:
        return np.concatenate([[1.0], np.zeros(EDGES.size)])
    edges = np.concatenate([[threshold], EDGES[threshold < EDGES], [np.inf]])
    masses = np.diff(cdf(edges - count))
    out = np.zeros(EDGES.size + 1)
    out[0] = cdf(np.array([threshold - count]))[0]
    out[-masses.size :] = masses
    return out


def hockey_stick(left: tuple[int, ...], right: tuple[int, ...], epsilon: float, cdf, threshold: float) -> float:
    """Exact (to the cell) divergence between two tuples of counts of the bins that changed."""
    p = q = np.ones(1)
    for a, b in zip(left, right, strict=True):
        p = np.multiply.outer(p, seen(a, cdf, threshold)).reshape(-1)
        q = np.multiply.outer(q, seen(b, cdf, threshold)).reshape(-1)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def worst_delta(epsilon: float, scale: float, threshold: float) -> float:
    """Largest divergence over all moves of a vote between small and large counts."""
    pairs = [((a, b - 1), (a - 1, b)) for a, b in itertools.product((1, 2, 40), (1, 2, 40))]
    return max(hockey_stick(p, q, epsilon, lambda x: laplace_cdf(x, scale), threshold) for p, q in pairs)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.5, 1e-3), (2.0, 0.01)])
def test_delta_is_exactly_the_claimed_one(epsilon: float, delta: float) -> None:
    histogram = StabilityHistogram(epsilon, delta)
    assert worst_delta(epsilon, histogram.scale, histogram.threshold) == pytest.approx(delta, rel=1e-9)


def test_constants() -> None:
    moves = StabilityHistogram(1.0, 1e-6)
    assert moves.scale == 2.0
    assert moves.threshold == pytest.approx(1.0 + 2.0 * math.log(5e5))
    assert math.ceil(2.0 * moves.count_needed(0.01)) == 71
    assert moves.guarantee.unit == "one vote"


def test_release_orders_bins_and_hides_rare_ones() -> None:
    histogram = StabilityHistogram(1.0, 1e-6)
    labels = ["rare", *["a"] * 200, *[("b", 1)] * 500]
    shown = histogram.release(labels, outlet(3), "votes")
    assert [label for label, _ in shown] == [("b", 1), "a"]
    assert histogram.release(labels, outlet(3), "votes")[0][0] == ("b", 1)
    assert histogram.release(["x"] * 3, outlet(3), "votes") == histogram.release([], outlet(3), "votes") == []
    assert (noisy_counts(histogram, [0, 0], outlet(3)) == -np.inf).all()


def test_what_is_hidden_is_the_votes_and_not_their_order() -> None:
    """Equal votes, equal noise, in whatever order they came; other counts or labels, other noise."""
    histogram = StabilityHistogram(1.0, 1e-6)
    labels = [*[7] * 300, *[-3] * 200, *[(1, b"x")] * 100]
    shown = histogram.release(labels, outlet(4), "votes")
    assert histogram.release(labels[::-1], outlet(4), "votes") == shown
    for other in ([*labels, 7], [8 if label == 7 else label for label in labels]):
        noise = [noisy for _, noisy in histogram.release(other, outlet(4), "votes")]
        assert not {round(noisy % 1.0, 6) for noisy in noise} & {round(noisy % 1.0, 6) for _, noisy in shown}
    counts = np.array([300, 200])
    first, second = (noisy_counts(histogram, c, outlet(4)) - c for c in (counts, counts + np.array([0, 1])))
    assert not np.isclose(first, second).any()
    table = np.array([[300, 200], [100, 500]])
    one, other = (noisy_counts(histogram, t, outlet(4)) for t in (table, np.asfortranarray(table)))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 0.5}])
def test_bad_parameters(bad: dict[str, object]) -> None:
    with pytest.raises(BadParameterError, match=next(iter(bad))):
        StabilityHistogram(**{"epsilon": 1.0, "delta": 1e-6, **bad})  # type: ignore[arg-type]


def test_what_is_within_a_rounding_of_the_threshold_is_not_shown():
    noisy = 7.0 + GRID * np.array([0.4, 0.6, 0.6])
    shown = _above(np.array([3, 3, 0]), noisy, 7.0)
    assert shown.tolist() == [-math.inf, noisy[1], -math.inf]


@pytest.mark.parametrize("epsilon", [1e-3, 0.03, 1.0])
def test_low_digits_of_a_released_count_do_not_tell_the_exact_one(epsilon: float) -> None:
    """Far out, the sampler's floats are further apart than the lattice of the noise, and the gaps move with the count.

    A count released in a gap of its neighbour has an infinite likelihood ratio. On the lattice alone that is a delta of
    5e-7 at a scale of 2400, which 12 histograms have at epsilon = .01; at delta = 1e-6 each claims 8e-8.
    """
    histogram = StabilityHistogram(epsilon, 1e-6)
    step = grid_step(histogram.scale)
    shown = noisy_counts(histogram, np.full(50, int(2.0 * histogram.threshold)), outlet(3))
    assert (shown > -np.inf).sum() > 40
    assert (shown[shown > -np.inf] % step == 0.0).all()
    # All floats of the sampler between 15 and 15.001 scales: every multiple of the step has several.
    first, last = (2.0**53 * math.exp(-at) for at in (15.001, 15.0))
    noise = -histogram.scale * np.log((np.arange(math.ceil(first), last) + 0.5) * 2.0**-53)
    _, fallen = np.unique(np.rint(noise / step), return_counts=True)
    assert fallen[1:-1].min() > 100
