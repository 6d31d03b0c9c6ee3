"""The exact sampler: its law, its integers, and the comparison that makes it exact.

Chi-square thresholds are upper 1e-5 quantiles, per test; seeds are fixed.
"""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, kstest

from streampca.privacy.discrete_gaussian import DiscreteGaussian, _envelope, exp_bounds, is_below
from streampca.privacy.randomness import Randomness

DRAWS = 100_000


def alike(sigma, count=1):
    return DiscreteGaussian([sigma], np.zeros(count, dtype=np.int64))


def stream(seed=0):
    return Randomness.from_seed(seed).stream("test")


def chi_square(draws, sigma, claimed):
    """Chi-square of the draws against the exact law of ``claimed``, and its 1e-5 quantile."""
    support = np.arange(-int(12 * sigma) - 3, int(12 * sigma) + 4)
    law = np.exp(-(support.astype(float) ** 2) / (2 * float(claimed) ** 2))
    law *= draws.size / law.sum()
    cell = np.floor_divide(support, max(1, int(sigma / 12)))
    names, place = np.unique(cell, return_inverse=True)
    expected = np.bincount(place, law)
    seen = np.bincount(np.searchsorted(names, np.floor_divide(draws, max(1, int(sigma / 12)))), minlength=names.size)
    rare = expected < 10
    expected = np.append(expected[~rare], expected[rare].sum() + 1e-9)
    seen = np.append(seen[~rare], seen[rare].sum())
    if expected[-1] < 1:
        expected, seen = expected[:-1], seen[:-1]
    return ((seen - expected) ** 2 / expected).sum(), chi2.isf(1e-5, expected.size - 1)


@pytest.mark.parametrize("sigma", [Fraction(1, 2), 1, Fraction(422, 100), 50, 3000, 100_003])
def test_law_over_the_lattice(sigma):
    draws = alike(sigma, DRAWS).draw(stream().draws(0))
    found, limit = chi_square(draws, float(sigma), sigma)
    assert found < limit
    for wrong in (0.97, 1.03):  # the test bites
        found, limit = chi_square(draws, float(sigma), Fraction(sigma) * Fraction(wrong))
        assert found > limit


@pytest.mark.parametrize("sigma", [2**42, 13 * 2**41 + 7])
def test_large_sigma_is_normal_and_fills_the_low_bits(sigma):
    draws = alike(sigma, DRAWS).draw(stream().draws(0))
    assert draws.dtype == np.int64
    assert kstest(draws / sigma, "norm").pvalue > 1e-5
    low = np.bincount(draws & 255, minlength=256)
    assert ((low - DRAWS / 256) ** 2 / (DRAWS / 256)).sum() < chi2.isf(1e-5, 255)


def test_the_tail_beyond_the_bins_is_right():
    # Reached once in 2**44 draws, so it is called by itself: its law is that of |x| given |x| >= start.
    sampler = alike(40)
    made, start, word = sampler._envelopes[0], len(sampler._envelopes[0].inside) - 2, stream().draws(0).more(0).__next__
    draws = np.array([sampler._from_tail(made, start, word) for _ in range(12_000)])
    draws = draws[draws > 0]
    assert draws.size > 2000
    support = np.arange(start, start + 400)
    law = np.exp((start**2 - support.astype(float) ** 2) / (2 * 40.0**2))
    expected = law / law.sum() * draws.size
    seen = np.bincount(draws - start, minlength=400)
    common = expected >= 10
    cells = np.append(expected[common], expected[~common].sum()), np.append(seen[common], seen[~common].sum())
    assert ((cells[1] - cells[0]) ** 2 / cells[0]).sum() < chi2.isf(1e-5, common.sum())
    assert seen.sum() == draws.size


def test_a_height_above_the_tail_is_drawn_again():
    sampler = alike(40)
    made, start = sampler._envelopes[0], len(sampler._envelopes[0].inside) - 2
    end = start + (1 << made.tail_bits) - 1
    # The first block, its last number, a height of all ones, which is too large, and one of zeros, below the curve.
    words = iter([0, 2**64 - 1, 2**64 - 1, 0, 0])
    assert sampler._from_tail(made, start, words.__next__) == end
    assert sampler._from_tail(made, start, iter([0, 2**64 - 1, made.tail_height << 61, 0, 0]).__next__) == end
    assert sampler._from_tail(made, start, iter([0, 2**64 - 1, (made.tail_height - 1) << 61, 0]).__next__) == 0
    assert sampler._from_tail(made, start, iter([0, 0, 2**64 - 1, (made.tail_height - 1) << 61, 0]).__next__) == 0
    # At the start of the tail too, the curve is below the last of the heights that are drawn.
    assert sampler._from_tail(made, start, iter([0, 0, (made.tail_height - 2) << 61, 0]).__next__) == start
    assert sampler._from_tail(made, start, iter([0, 0, (made.tail_height - 1) << 61, 0]).__next__) == 0


def test_a_draw_beyond_the_bins_is_of_the_tail_or_made_again():
    sampler = alike(40)
    made, last = sampler._envelopes[0], len(sampler._envelopes[0].inside) - 2
    # The first block of the tail, the third number in it, and a height of zero.
    assert sampler._decided(0, last, 0, 0, 1, iter([0, 2, 0, 0]).__next__) == (last + 2, 1)
    # Past the tail's area, and a zero with a sign: the next two words make a draw, of bin 10 at height zero.
    again = (int(made.edges[10]) << 12) | 1
    assert sampler._decided(0, last + 1, 0, 0, 0, iter([again, 0]).__next__) == (10, 1)
    assert sampler._decided(0, 0, 0, 0, 1, iter([again, 0]).__next__) == (10, 1)


def test_kinds_have_their_own_sigma():
    kinds = np.arange(4000) % 3
    sigmas = [2**40, 3 * 2**40, 2**41]
    noise, sampler = stream(), DiscreteGaussian(sigmas, kinds)
    draws = np.array([sampler.draw(noise.draws(i)) for i in range(10)])
    for kind, sigma in enumerate(sigmas):
        assert kstest(draws[:, kinds == kind].reshape(-1) / sigma, "norm").pvalue > 1e-5
    small = DiscreteGaussian([3, 5], np.arange(60_000) % 2).draw(noise.draws(0))
    for kind, sigma in enumerate((3.0, 5.0)):
        found, limit = chi_square(small[kind::2], sigma, Fraction(sigma))
        assert found < limit


def test_a_draw_is_a_function_of_the_vector_it_is_made_of():
    sampler = alike(2**41, 300)
    first = sampler.draw(stream().draws(5))
    noise = stream()
    sampler.draw(noise.draws(4))
    assert np.array_equal(sampler.draw(noise.draws(5)), first)
    assert not np.array_equal(sampler.draw(noise.draws(6)), first)


class OneChanged:
    """A vector of which the words of one coordinate are others."""

    def __init__(self, draws, other, coordinate):
        self.draws, self.other, self.coordinate = draws, other, coordinate

    def words(self, count):
        words = self.draws.words(count).copy()
        for i in (self.coordinate, count // 2 + self.coordinate):
            words[i] = self.other.words(count)[i]
        return words

    def more(self, coordinate):
        return (self.other if coordinate == self.coordinate else self.draws).more(coordinate)


def test_coordinates_do_not_depend_on_each_other():
    # A sigma of 1 has few and wide bins, so that many draws need words of their own.
    sampler, noise, asked = alike(1, 200), stream(), []
    draws = noise.draws(0)
    more = draws.more
    whole = sampler.draw(draws)
    for i in range(200):
        changed = sampler.draw(OneChanged(draws, noise.draws(1), i))
        asked.append(changed[i] != whole[i])
        assert np.array_equal(np.delete(changed, i), np.delete(whole, i))
    assert np.mean(asked) > 0.5
    assert next(more(3)) != next(more(4))


def test_a_coordinate_ends_however_many_attempts_it_takes():
    # Words of which every first pair is refused: zero with a minus sign, a hundred times.
    class Stubborn:
        def words(self, count):
            return np.full(count, 1, dtype=np.uint64)

        def more(self, coordinate):
            yield from [1] * 200
            yield from stream().draws(coordinate).more(0)

    draws = alike(1, 2000).draw(Stubborn())
    found, limit = chi_square(draws, 1.0, 1)
    assert found < limit


def test_exp_bounds_hold_and_are_tight():
    with mpmath.workprec(500):
        for numerator, denominator in ((0, 1), (1, 3), (5, 1), (1, 10**9), (29, 1), (10**20, 3 * 10**18)):
            for bits in (16, 64, 200):
                low, high = exp_bounds(numerator, denominator, bits)
                true = mpmath.exp(-mpmath.mpf(numerator) / denominator) * 2**bits
                assert low <= true <= high
                assert high - low == 2


def test_comparison_takes_more_digits_when_it_must():
    # 2**64 exp(-1) has these leading digits: a uniform number that starts with them is undecided at first.
    with mpmath.workprec(300):
        digits = int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 192))
    words = [digits >> 128, digits >> 64 & (2**64 - 1), digits & (2**64 - 1)]
    asked = []

    def word(then):
        def next_word():
            asked.append(1)
            return words[len(asked) - 1] if len(asked) <= 3 else then

        return next_word

    assert is_below(0, 1, 1, 1, word(0))
    assert len(asked) > 3
    asked.clear()
    assert not is_below(0, 1, 1, 1, word(2**64 - 1))


@pytest.mark.parametrize(("sigma", "width"), [(Fraction(7, 2), 0), (Fraction(900), 0), (Fraction(2**14), 4)])
def test_bins_hold_the_curve_between_their_bounds(sigma, width):
    # Accepted at once only below the curve's least value in a bin; the bin reaches above its largest.
    made = _envelope(sigma * sigma, width)
    q, p = made.exponent
    heights, last = np.diff(made.edges).tolist(), len(made.inside) - 2
    with mpmath.workdps(60):
        for i in (*range(0, last, max(1, last // 300)), last - 1):
            first, end = i << width, ((i + 1) << width) - (width == 0)
            most, least = (made.scale * mpmath.exp(-mpmath.mpf(x * x * q) / p) for x in (first, end))
            assert made.inside[i] <= least
            assert most <= heights[i] <= most + 4
            assert made.inside[i] >= least - 4 or least < 4


class _AskedError(Exception):
    pass


@pytest.mark.parametrize("sigma", [Fraction(7, 2), 30, 900, 2**14 + 1])  # 30: blocks of the tail are narrowest
def test_what_is_decided_without_more_digits_is_right(sigma):
    sampler = alike(sigma)
    made, width = sampler._envelopes[0], sampler._width
    (q, p), last = made.exponent, len(made.inside) - 2

    def word():
        raise _AskedError

    asked = decided = 0
    with mpmath.workdps(60):
        for own in (0, 1, last // 3, last // 2, last - 2, last - 1):
            for value in {own << width, (own << width) + (1 << width) // 2, ((own + 1) << width) - 1}:
                curve, near = made.scale * mpmath.exp(-mpmath.mpf(value * value * q) / p), made.scale >> 20
                for height in {max(int(curve) + off, 0) for off in (-near, -9, -1, 0, 1, 9, near)}:
                    try:
                        below = sampler._below(made, own, height, value, word)
                    except _AskedError:
                        asked += 1
                        assert abs(height - curve) <= near / 4 + 20
                    else:
                        decided += 1
                        assert (height + 1 <= curve) if below else (height >= curve)
        # Beyond the bins: blocks of half the height each, above the curve at their start, whose area the edges hold.
        for block in range(30):
            value = (last << width) + (block << made.tail_bits)
            assert made.scale * mpmath.exp(-mpmath.mpf(value * value * q) / p) * 2**block <= made.tail_height
        assert made.edges[last + 1] - made.edges[last] == made.tail_height << (made.tail_bits - width + 1)
    assert made.edges[0] == 0
    assert not made.inside[last:].any()  # nothing there is accepted at once
    assert asked > 5
    assert decided > 5


@pytest.mark.parametrize("sigmas", [[Fraction(7, 2)], [40], [40, 57]])
def test_bins_are_found_at_every_edge(sigmas):
    kind = len(sigmas) - 1
    made = DiscreteGaussian(sigmas, np.arange(1))._envelopes[kind]
    cells = np.arange(2**14) << 38  # of the guide
    edges = np.concatenate([made.edges, cells])
    places = np.unique(np.concatenate([edges - 1, edges, edges + 1]))
    places = places[(places >= 0) & (places < 2**52)]
    bins = np.searchsorted(made.edges, places, side="right") - 1
    clear = (places - made.edges[bins] < made.inside[bins]) & (bins > 0)  # accepted without a comparison

    class Given:
        def words(self, count):
            return np.append(places[clear], np.zeros_like(places[clear])).astype(np.uint64) << np.uint64(12)

    drawn = DiscreteGaussian(sigmas, np.full(clear.sum(), kind)).draw(Given())
    assert clear.sum() > 10_000
    np.testing.assert_array_equal(drawn, bins[clear])
