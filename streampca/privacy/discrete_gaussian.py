"""The discrete Gaussian on the integers, sampled exactly, fast and in integers only.

``P(x)`` is proportional to ``exp(-x**2 / (2 sigma**2))`` over all integers x (Canonne, Kamath and Steinke 2020). |x| is
drawn from an envelope of equally wide bins with integer heights and accepted under the curve. All but one draw in a
thousand fall below the lowest point of the curve within their bin and cost two words and a table look-up; the others
are compared with the curve exactly (`is_below`). Beyond the bins the envelope continues in blocks, each of half the
height of the one before, without end. So there is no truncation, no floating point, and no approximation but AES.

*Privacy.* A sum of integers plus such noise is as private as with the continuous Gaussian. Let Z be continuous of
variance sigma**2 - r**2, and round it at random to an integer X with probability proportional to ``exp(-(x - Z)**2 / (2
r**2))``. By Poisson's summation formula the normalizing sums are within a factor 1 +- 2.01 exp(-2 pi**2 r**2) of a
constant, so X is discrete Gaussian of parameter sigma up to a factor 1 +- eta, eta < 5 exp(-2 pi**2 r**2), in every
probability (Peikert 2010, Theorem 3.1). The rounding commutes with integer shifts. Hence noise on any number of integer
coordinates, added to integers that may be chosen adaptively, is a post-processing of the continuous mechanism with
variances sigma_i**2 - r**2, up to a factor (1 + eta) per coordinate drawn. With r = 5, eta < 1e-213; `lattice_sigma`
enlarges sigma by a part in 1e9, which covers r and more coordinates than could ever be drawn.

*Gram matrices.* Admitted rows are multiples of 2**-20, so Gram matrices are multiples of 2**-40 and exact. Noise on the
same lattice (`gram_noise`) makes the release an exact sample of the mechanism; the integers become floats afterwards.
The default noise, a float64 Gaussian rounded to the lattice, misses values of a real normal because of its 52-bit
uniforms: an error of about 2**-52 per draw, which no theorem covers. No attack on it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError
from streampca.linalg.lattice import UNIT_BITS, GramSum
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.randomness import Draws

_FINE = 10  # bins are between 2**-11 and 2**-10 of sigma wide
_V_BITS = 52
_GUIDE_BITS = 14
_PRECISION = 160
_LAST_HEIGHT = 44  # bins end where the curve is below 2**-44
_GUARD = 24  # further bits in the calculation of exp

#: Factor of sigma that covers the whole difference between discrete and continuous noise.
INFLATION = 1 + Fraction(1, 10**9)
_LARGEST, _SMALLEST = 2.0**14, 1e-6

#: Returns the next of a sequence of independent uniform 64-bit words.
Word = Callable[[], int]


@dataclass(frozen=True)
class _Envelope:
    """Bins over |x| for one sigma.

    Bin i holds the 2**width_bits integers from i << width_bits on, and has height ``edges[i+1] - edges[i]`` >= scale *
    exp(...) there. After the last bin come the bin of the tail and an empty one that fills up to 2**52.
    """

    exponent: tuple[int, int]  # x**2 / (2 sigma**2) = x**2 * exponent[0] / exponent[1]
    scale: int
    edges: IntArray
    inside: IntArray  # accept below this height without comparing
    tail_height: int
    tail_bits: int


@lru_cache(maxsize=16)
def _envelope(variance: Fraction, width_bits: int) -> _Envelope:
    q, p = variance.denominator, 2 * variance.numerator
    # The curve exp(-i**2 n/p) at the bin edges, n = q 4**width_bits, in units of 2**-160, until it is below 2**-44.
    # Each value is the one before times a factor, which shrinks by a constant factor; errors stay far below 2**-100.
    numerator = q << 2 * width_bits
    # exp(-(i + 1)**2 x) = exp(-i**2 x) exp(-(2 i + 1) x): the factor of each step is the one before times exp(-2 x).
    factor = exp_bounds(numerator, p, _PRECISION)[0] + 1
    shrink = exp_bounds(2 * numerator, p, _PRECISION)[0] + 1
    curve, value = [], 1 << _PRECISION
    while value >> (_PRECISION - _LAST_HEIGHT):
        curve.append(value)
        value = value * factor >> _PRECISION
        factor = factor * shrink >> _PRECISION
    curve.append(value)
    bins = len(curve) - 1
    tail_bits = max(width_bits, (isqrt(int(variance)) + 1).bit_length() - 3)
    tail_widths = 2 << (tail_bits - width_bits)
    last = (1 << _PRECISION) >> _LAST_HEIGHT
    # The area of all bins and of the tail, whose blocks add up to twice the first one, must fit 52 bits.
    scale = ((1 << _V_BITS) - 4 * bins - 4 * tail_widths - 4) * (1 << _PRECISION) // (sum(curve) + tail_widths * last)
    # The error of the curve is far below a unit, so a margin of one unit gives bounds.
    heights = [(scale * value >> _PRECISION) + 2 for value in curve]
    lows = curve[:-1] if width_bits == 0 else curve[1:]
    inside = [max(0, (scale * value >> _PRECISION) - 1) for value in lows]
    edges = np.concatenate([[0], np.cumsum(np.array([*heights[:-1], heights[-1] * tail_widths], dtype=np.int64))])
    assert edges[-1] <= 1 << _V_BITS
    return _Envelope((q, p), scale, edges, np.array([*inside, 0, 0], dtype=np.int64), heights[-1], tail_bits)


class DiscreteGaussian:
    """Independent discrete Gaussians, coordinate i of parameter ``sigmas[kinds[i]]``.

    Sigmas are positive integers or fractions below 2**58, within a factor of 4 of each other. They are the standard
    deviations up to a relative 1e-8 from sigma = 1 on.
    """

    def __init__(self, sigmas: Sequence[int | Fraction], kinds: IntArray) -> None:
        # Kinds share the widths of their bins, and 64 bits hold 2**5 of the largest sigma.
        assert 0 < max(sigmas) <= 4 * min(sigmas) < 2**60
        self.sigmas = tuple(Fraction(sigma) for sigma in sigmas)
        self._width = max(0, int(min(self.sigmas)).bit_length() - 1 - _FINE)
        self._envelopes = [_envelope(sigma * sigma, self._width) for sigma in self.sigmas]
        self._kinds = kinds
        # All envelopes side by side: that of kind j is shifted by j << 52.
        count = len(self._envelopes)
        starts = np.cumsum([0, *(len(one.inside) for one in self._envelopes)])
        self._edges = np.concatenate([one.edges + (j << _V_BITS) for j, one in enumerate(self._envelopes)])
        self._next_edges = np.append(self._edges[1:], count << _V_BITS)
        self._inside = np.concatenate([one.inside for one in self._envelopes])
        cells = np.arange(count << _GUIDE_BITS, dtype=np.int64) << (_V_BITS - _GUIDE_BITS)
        self._guide = np.searchsorted(self._edges, cells, side="right") - 1
        self._shift, self._own_starts = kinds << _V_BITS, starts[:-1].take(kinds)
        # Below this place no cell of the guide holds more than one edge, so one step from the guide is enough.
        several = np.append(np.diff(self._guide) > 1, True).reshape(count, -1)
        several[:, -1] = True
        self._sparse = np.uint64(int(several.argmax(axis=1).min()) << (_V_BITS - _GUIDE_BITS))

    def draw(self, draws: Draws) -> IntArray:
        """Draw each coordinate once, as int64; one that needs more than two words has its own (`Draws.more`)."""
        count = self._kinds.size
        words = draws.words(2 * count)
        first, second = words[:count], words[count:].view(np.int64)
        raw = first >> np.uint64(64 - _V_BITS)
        # The first 52 bits choose a place under the envelope, hence a bin and a height in it; the last bit is the sign.
        place = raw.view(np.int64)
        far = (raw >= self._sparse).nonzero()[0]
        place += self._shift
        bins = self._guide.take(place >> (_V_BITS - _GUIDE_BITS))
        bins += place >= self._next_edges.take(bins)
        bins[far] = np.searchsorted(self._edges, place[far], side="right") - 1
        height = place - self._edges.take(bins)
        doubtful = height >= self._inside.take(bins)
        own = bins - self._own_starts
        values: IntArray = (own << self._width) + (second & ((1 << self._width) - 1))
        negative = (first & np.uint64(1)).view(np.int64)
        # Zero would have two signs. Half of its draws are made again, so that it has the weight of one integer.
        doubtful |= (values == 0) & (negative == 1)
        for i in doubtful.nonzero()[0].tolist():
            kind = int(self._kinds[i])
            drawn = int(own[i]), int(height[i]), int(values[i]), int(negative[i])
            values[i], negative[i] = self._decided(kind, *drawn, draws.more(i).__next__)
        values ^= -negative  # two's complement: -x is ~x + 1
        values += negative
        return values

    def _decided(self, kind: int, own: int, height: int, value: int, negative: int, word: Word) -> tuple[int, int]:
        """Return magnitude and sign of a draw that needs an exact comparison, redrawn until one is accepted."""
        envelope = self._envelopes[kind]
        last = len(envelope.inside) - 2
        while True:
            if own == last:
                value = self._from_tail(envelope, last << self._width, word)
                if value:
                    return value, negative
            elif (
                own < last
                and not (negative and value == 0)  # zero has no sign: half of its draws are void
                and self._below(envelope, own, height, value, word)
            ):
                return value, negative
            first, low = word(), word()
            negative = first & 1
            place = first >> (64 - _V_BITS)
            own = int(np.searchsorted(envelope.edges, place, side="right")) - 1
            height = place - int(envelope.edges[own])
            value = (own << self._width) + (low & ((1 << self._width) - 1))

    def _below(self, envelope: _Envelope, own: int, height: int, value: int, word: Word) -> bool:
        """Whether a draw in a bin is below the curve."""
        edges = envelope.edges
        top = int(edges[own + 1] - edges[own])
        after = int(edges[own + 2] - edges[own + 1]) if own + 3 < len(envelope.inside) else envelope.tail_height
        chord = top - ((top - after) * (value - (own << self._width)) >> self._width)
        # A bin is at most sigma / 2**_FINE wide and the curve's second derivative at most scale / sigma**2, so the
        # curve is within scale / 2**(2 _FINE + 3) of its chord. Most draws are decided by that, without exp.
        margin = (envelope.scale >> (2 * _FINE + 3)) + 8
        if height + 1 <= chord - margin:
            return True
        if height >= chord + margin:
            return False
        q, p = envelope.exponent
        return is_below(height, envelope.scale, value * value * q, p, word)

    def _from_tail(self, envelope: _Envelope, start: int, word: Word) -> int:
        """Draw from the tail, whose block n has height tail_height / 2**n; 0 if the draw is rejected."""
        block = 0
        while word() & 1:
            block += 1
        value = start + (block << envelope.tail_bits) + (word() & ((1 << envelope.tail_bits) - 1))
        # A uniform height below tail_height / 2**n, in units of 2**-n: first its whole part, without bias.
        whole = word() >> (64 - envelope.tail_height.bit_length())
        while whole >= envelope.tail_height:
            whole = word() >> (64 - envelope.tail_height.bit_length())
        q, p = envelope.exponent
        return value if is_below(whole, envelope.scale << block, value * value * q, p, word) else 0


@lru_cache(maxsize=16)
def _ln2(bits: int) -> int:
    """Return ln 2 = sum 1/(k 2**k) in units of 2**-bits, too small by less than 2**8 units."""
    total, power, k = 0, 1 << bits, 1
    while power:
        power >>= 1
        total += power // k
        k += 1
    return total


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Return integers ``low <= 2**bits * exp(-numerator/denominator) <= high`` with high - low = 2."""
    work = bits + _GUARD
    x = (numerator << work) // denominator
    ln2 = _ln2(work)
    halvings, x = divmod(x, ln2)
    if halvings > work + 2:
        return -1, 1
    # Taylor's series; all terms are rounded down, so the sum is off by at most one unit a term.
    one = 1 << work
    total, term, k = one, one, 0
    while term:
        k += 1
        term = (term * x >> work) // k
        total += -term if k & 1 else term
    # Rounding x and ln 2 costs below 2**8 (halvings + 1) units, the series below 2**7; all far below 2**24.
    middle = total >> (halvings + _GUARD)
    return middle - 1, middle + 1


def is_below(whole: int, scale: int, numerator: int, denominator: int, word: Word) -> bool:
    """Return whether U < scale * exp(-numerator/denominator), for U uniform in [whole, whole + 1). Exact."""
    bits, fraction, shift = 0, 0, scale.bit_length()
    # Binary digits of U are drawn until the answer is certain.
    while True:
        bits += 64
        fraction = fraction << 64 | word()
        # Bits beyond those of U: the bounds of the curve must be closer than a unit of its last digit.
        low, high = exp_bounds(numerator, denominator, bits + shift)
        uniform = (whole << bits | fraction) << shift
        if uniform + (1 << shift) <= scale * low:
            return True
        if uniform >= scale * high:
            return False


def lattice_sigma(std: float) -> int:
    """Return the sigma of diagonal entries, in units of 2**-40, as private as continuous noise of this ``std``.

    Noise that does not fit 64-bit integers, or is too fine for the lattice, raises `BadParameterError`.
    """
    if not _SMALLEST <= std <= _LARGEST:
        raise BadParameterError(
            "discrete_noise", True, f"a standard deviation of the noise in [{_SMALLEST:g}, {_LARGEST:g}], which fits "
            f"the integer lattice, not {std:.3g}", advice="Choose another epsilon"
        )  # fmt: skip
    exact: Fraction = Fraction(std) * 2**UNIT_BITS * INFLATION
    return -(-exact.numerator // exact.denominator)  # rounded up


@lru_cache(maxsize=16)
def gram_noise(std: float, n_features: int) -> DiscreteGaussian:
    """Return discrete noise for the packed upper triangle of a Gram matrix, in units of 2**-40.

    ``std`` is the standard deviation on the diagonal; off it, it is std / sqrt(2), as for svec-GOE noise. With sigma_i
    as drawn, a row that moves the matrix by D has ``sum over i <= j of D_ij**2 / sigma_ij**2 <= |D|_F**2 / std**2``, so
    that the noise is mu-GDP with mu = sensitivity / std. `INFLATION` covers the cost of discreteness.
    """
    diagonal = lattice_sigma(std)
    off = isqrt(diagonal * diagonal // 2) + 1  # rounded up, so that the inequality above holds
    rows, columns = np.triu_indices(n_features)
    return DiscreteGaussian([diagonal, off], (rows != columns).astype(np.int64))


class LatticeGram:
    """An exact Gram matrix that an outlet hides with integer noise (`outlet.Exact`)."""

    __slots__ = ("gram", "hidden")

    def __init__(self, gram: GramSum) -> None:
        self.gram, self.hidden = gram, gram.hidden

    def noisy(self, noise: npt.NDArray[Any], std: float) -> FloatArray:
        """Add integer noise in units of 2**-40 to the packed entries, and round to float64 once, at the end."""
        high, low = self.gram.high_low()
        low = low + noise
        high = high + (low >> UNIT_BITS)
        low &= (1 << UNIT_BITS) - 1
        return np.asarray(high + low * 2.0**-UNIT_BITS)
