"""Rows on an integer lattice inside the unit ball, and exact sums of their squares.

Rows are clipped onto the unit ball and truncated toward zero to multiples of 2**-20. Every product of two entries is
then a multiple of 2**-40, and sums of up to 2**13 of them are exact in float64 in any order: a Gram matrix has the same
bits for every block size, thread count and machine. Truncation and the last step of `onto_ball` never let a norm exceed
1, so sensitivities hold exactly, not up to rounding.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.blas import dspr

from streampca import _native
from streampca.errors import BadRowError, UsageError
from streampca.linalg.memory import available_memory
from streampca.linalg.svec import entry_weights, mirror, svec_size, upper
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray, IntArray
from streampca.state import State

BITS = 20
STEP = 2.0**-BITS
#: Rows whose Gram matrix is exact in float64, with room for a fraction of a unit beside them.
EXACT_ROWS = 2**13 - 2
#: Exact sums are integers: units of 1 ("high"), and units of 2**-UNIT_BITS in [0, UNIT) ("low").
UNIT_BITS = 2 * BITS
UNIT = 2.0**UNIT_BITS
LOW = (1 << UNIT_BITS) - 1
# Features up to which the error of a computed norm is below 2**-41.
_SURE = 1024
#: Numbers in a chunk, which fits the cache.
CHUNK = 2**15
#: Adding and subtracting this rounds numbers of [0, 1] to multiples of 2**-40.
TO_LATTICE = 1.5 * 2.0 ** (52 - 2 * BITS)
# The same for numbers of [-1, 1] and multiples of 2**-20.
_TO_ROWS = 1.5 * 2.0 ** (52 - BITS)
# Inverse step of the grid of a scoring basis.
_SCORING = 2.0**30


def onto_ball(rows: FloatArray) -> FloatArray:
    """Truncate rows to the lattice; those still longer than 1 are first scaled onto the unit ball."""
    # ``rows`` is an (n, d) array of finite floats; another number raises `BadRowError`. The result is a C-contiguous
    # array of multiples of 2**-20, of norms at most 1 exactly. A row depends on itself only; admitted ones stay.
    return admitted_rows(rows)[0]


def admitted_rows(rows: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return `onto_ball`, the squared norms of its rows, (n,), and the indices of the rows that it scaled."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    out, squares, kernels = np.empty_like(rows), np.empty(rows.shape[0]), _native.compiled
    if kernels is not None and rows.shape[1] <= _SURE:
        long = np.empty(rows.shape[0], dtype=np.int64)
        long = long[: kernels.snap(rows, out, squares, long)]
    else:
        step = max(1, CHUNK // max(1, rows.shape[1]))
        with np.errstate(over="ignore"):  # rows beyond 1e302 become infinite, and are shortened
            for start in range(0, rows.shape[0], step):
                part = out[start : start + step]
                _truncate(rows[start : start + step], part)
                # Exact up to 2**13, and larger sums stay above 1.
                np.vecdot(part, part, out=squares[start : start + step])
        long = np.flatnonzero(~(squares <= 1.0))  # nan, too
    if long.size:
        out[long] = shorter = _shortened(rows[long])
        squares[long] = np.vecdot(shorter, shorter)
    return out, squares, long


def _truncate(rows: FloatArray, out: FloatArray) -> None:
    np.multiply(rows, 2.0**BITS, out=out)
    np.trunc(out, out=out)
    out *= STEP
    out += 0.0  # -0.0 becomes 0.0, so equal rows have equal bits


def _shortened(rows: FloatArray) -> FloatArray:
    """Scale a copy of some rows to norm 1, up to rounding, and truncate it; raise if a number is not finite."""
    if not np.isfinite(rows).all():
        raise BadRowError(None, "a row is not all finite numbers. Pass rows through Stream")
    # An exact power of two brings each near 1 first, so that no square overflows.
    rows *= np.exp2(-np.frexp(np.abs(rows).max(axis=1))[1].astype(np.float64))[:, None]
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    _truncate(rows, rows)
    # Squared norms are multiples of 2**-40 now, and truncation only shrinks: what rounding left above 1 is gone, unless
    # a row is so long that its norm was off by that much.
    if rows.shape[1] > _SURE:
        _trim(rows)
    return rows


def _trim(rows: FloatArray) -> None:
    """Bring lattice rows whose exact squared norm is above 1 back inside, a step at a time."""
    for i in np.flatnonzero(np.einsum("ij,ij->i", rows, rows) > 1.0):
        while rows[i] @ rows[i] > 1.0:
            j = int(np.argmax(np.abs(rows[i])))
            rows[i, j] -= np.copysign(STEP, rows[i, j])


def is_admitted(rows: FloatArray) -> bool:
    """Return whether every row is on the lattice and inside the unit ball."""
    kernels = _native.compiled
    if kernels is not None and rows.flags.c_contiguous:
        return bool(kernels.is_admitted(rows))
    norms = np.einsum("ij,ij->i", rows, rows)
    return bool((norms <= 1.0).all()) and bool(((rows + _TO_ROWS) - _TO_ROWS == rows).all())


def grid_bits(scale: float) -> int:
    """Return the b for which noise of this standard deviation is released on multiples of 2**b, at the finest."""
    mantissa, exponent = math.frexp(scale)
    return max(exponent - (mantissa == 0.5) - BITS, -2 * BITS)


def grid_step(scale: float) -> float:
    """``2.0 ** grid_bits(scale)``."""
    return math.ldexp(1.0, grid_bits(scale))


def coarsen(values: FloatArray, scale: float) -> FloatArray:
    """Round released numbers, in place, to a power of two near ``2**-20 * scale``, no finer than the Gram lattice."""
    # Noise in float64 has holes in its low bits that move with the number it is added to (Mironov 2012). A cell of this
    # grid holds about 2**33 of the values that the samplers can produce, so the remaining effect is below 2**-30.
    # Post-processing.
    step = grid_step(scale)
    values *= 1.0 / step
    np.rint(values, out=values)
    values *= step
    values += 0.0
    return values


def scoring_basis(basis: FloatArray) -> FloatArray:
    """Round a basis to multiples of 2**-30, so that its products with lattice rows are exact for every block size."""
    return np.rint(np.ascontiguousarray(basis) * _SCORING) * (1.0 / _SCORING)


def _carried(whole: FloatArray, rest: FloatArray) -> FloatArray:
    """Return whole units and a rest below 2**13 as whole units and a rest below 1, (2, size)."""
    parts = np.empty((2, rest.size))
    units = np.floor(rest)
    np.add(whole, units, out=parts[0])
    np.subtract(rest, units, out=parts[1])
    return parts


#: Features from which memory is checked, and the bytes of a sum at its peak, over d**2 (measured).
_LARGE, _PEAK = 4000, 44.0


def check_memory(n_features: int, square_bytes: float = _PEAK) -> None:
    """Raise `UsageError` if (d, d) matrices of ``square_bytes * d**2`` bytes exceed the available memory."""
    if n_features <= _LARGE:
        return
    needed, free = square_bytes * n_features**2, available_memory()
    if needed > free:
        raise UsageError(
            f"{n_features} features: their Gram matrix takes at least {needed / 1e9:.3g} GB of memory, and "
            f"{free / 1e9:.3g} GB are available; choose fewer columns, or PrivateSketch, which has none"
        )


class GramSum(State):
    """The exact Gram matrix of admitted rows: an immutable value. Curator only: it is raw data."""

    # ``parts``, (2, d (d + 1) / 2 + further) and not to be written to, has of each packed entry whole units and the
    # rest, a multiple of 2**-40 in [0, 1). Equal sums have equal bytes, for all blocks of the rows. With ``further``,
    # rows end with that many weights of their cells, whose sums follow the matrix (`linalg.completion`).

    __slots__ = ("hidden", "n_features", "parts")
    fixed = ("n_features",)
    kept = ("parts",)

    def __init__(self, n_features: int, parts: FloatArray | None = None, *, further: int = 0) -> None:
        self.n_features = n_features
        if parts is None:
            check_memory(n_features)
        self.parts = np.zeros((2, svec_size(n_features) + further)) if parts is None else parts
        #: The exact values, for the outlet.
        self.hidden = (self.parts,)

    @property
    def further(self) -> int:
        """Number of sums after those of the matrix."""
        return len(self.parts[0]) - svec_size(self.n_features)

    def matrix(self) -> GramSum:
        """Return the sum without those after the matrix."""
        if not self.further:
            return self
        return GramSum(self.n_features, np.ascontiguousarray(self.parts[:, : svec_size(self.n_features)]))

    @classmethod
    def of(cls, rows: FloatArray) -> GramSum:
        return cls(rows.shape[1]).add(rows)

    def add(self, rows: FloatArray) -> GramSum:
        """Return the sum with the outer products of admitted rows, (n, d), added."""
        count, parts, d = rows.shape[0], self.parts, self.n_features
        if rows.shape[1] > d:  # multiples of 2**-20 up to 1, so that their sums are exact
            size = svec_size(d)
            counts = _carried(parts[0, size:], parts[1, size:] + rows[:, d:].sum(axis=0))
            gram = self.matrix().add(np.ascontiguousarray(rows[:, :d]))
            return GramSum(d, np.hstack([gram.parts, counts]))
        kernels = _native.compiled
        if count == 1 and kernels is not None and rows.flags.c_contiguous:
            out = np.empty(parts.shape)
            kernels.add_outer(parts, rows[0], out)
            sum_ = GramSum.__new__(GramSum)  # this runs once a row: no call of __init__
            sum_.n_features, sum_.parts, sum_.hidden = self.n_features, out, (out,)
            return sum_
        if count == 1:
            with OneThread(self.n_features):  # column-major lower in memory order is row-major upper
                rest = dspr(self.n_features, 1.0, rows[0], parts[1].copy(), lower=1, overwrite_ap=1)
            return GramSum(self.n_features, _carried(parts[0], rest))
        for start in range(0, count, EXACT_ROWS):
            some = rows[start : start + EXACT_ROWS]
            rest = (some.T @ some).take(upper(self.n_features))  # BLAS makes one triangle and copies it
            rest += parts[1]
            # The carry after at most 2**13 - 2 rows keeps the rest exact: a multiple of 2**-40 below 2**13 has 53 bits.
            parts = _carried(parts[0], rest)
        return GramSum(self.n_features, parts)

    def add_high_low(self, high: IntArray, low: IntArray) -> GramSum:
        """Return the sum with an exact packed one added, in the form of `high_low`."""
        return GramSum(self.n_features, _carried(self.parts[0] + high, self.parts[1] + low * (1.0 / UNIT)))

    def high_low(self) -> tuple[IntArray, IntArray]:
        """Return the exact packed sum as integers: (high, low), units of 1 and of 2**-40, low in [0, 2**40)."""
        return self.parts[0].astype(np.int64), (self.parts[1] * UNIT).astype(np.int64)

    def packed(self) -> FloatArray:
        """Return packed entries (unscaled upper triangle), each rounded once."""
        entries: FloatArray = self.parts[0] + self.parts[1]
        return entries

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        """Return packed entries plus svec noise of this standard deviation, rounded by `coarsen`: may be released."""
        # The noise is rounded to the lattice of the Gram matrix and added exactly, so the result is a function of
        # (exact Gram matrix + rounded noise) only: post-processing of the continuous mechanism, without a trace of the
        # rows in its low bits.
        weights = entry_weights(self.n_features, self.further)
        kernels = _native.compiled
        if kernels is not None and noise.flags.c_contiguous:
            out = np.empty(noise.size)
            kernels.plus(self.parts[1], self.parts[0], noise, weights, TO_LATTICE, grid_step(std), out)
            return out
        entries = noise * weights
        whole = np.floor(entries)
        entries -= whole
        entries += TO_LATTICE
        entries -= TO_LATTICE
        entries += self.parts[1]  # exact: multiples of 2**-40, at most 2
        whole += self.parts[0]  # exact: whole numbers
        entries += whole  # the one rounding
        return coarsen(entries, std)


#: Largest memory, in leaves and in rows, whose sums fit 64-bit integers.
LONGEST = 2**22
#: Bound on what rounding adds to the sensitivity. The fading sum is kept in units of 2**-80 and rounded down at each
#: leaf, so neighboring streams may drift apart by one unit more an entry and leaf: by n_features * 2**-40 over 2**40
#: leaves, which this covers a thousandfold.
ROUNDING = 2.0**-20


class FadingSum(State):
    """A sum that decays by a fixed factor at each addition: an immutable value. Curator only."""

    # ``parts`` are (2, d (d + 1) / 2) integers, not to be written to: of each packed entry, units of 2**-40 and units
    # of 2**-80 in [0, 2**40). Integers give the same bits for every block size, and the rounding is bounded
    # (`ROUNDING`).

    __slots__ = ("hidden", "n_features", "parts")
    fixed = ("n_features",)
    kept = ("parts",)

    def __init__(self, n_features: int, parts: IntArray | None = None, *, further: int = 0) -> None:
        self.n_features = n_features
        self.parts = np.zeros((2, svec_size(n_features) + further), dtype=np.int64) if parts is None else parts
        self.hidden = (self.parts,)

    def after(self, leaf: GramSum, memory: int) -> FadingSum:
        """Return the sum less a ``memory``-th of it, rounded down to a unit of 2**-80, plus the matrix of a leaf."""
        high, low = self.parts
        # Both parts lose a memory-th. The remainder of the high part goes into the low one, so one rounding remains.
        share, rest = np.divmod(high, memory)
        low = low - ((rest << UNIT_BITS) + low) // memory
        units, rests = leaf.high_low()
        high = high - share + (low >> UNIT_BITS) + (units << UNIT_BITS) + rests
        return FadingSum(self.n_features, np.stack([high, low & LOW]))

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        # Sum and noise are rounded to 2**-40 together, once: post-processing of exact sum plus noise.
        high, low = self.parts
        entries = noise * entry_weights(self.n_features, self.parts.shape[1] - svec_size(self.n_features))
        whole = np.floor(entries)
        fraction = np.rint((entries - whole) * UNIT + low * (1.0 / UNIT)).astype(np.int64)
        return coarsen((whole + (high >> UNIT_BITS)) + ((high & LOW) + fraction) * (1.0 / UNIT), std)


def is_plausible(sums: tuple[IntArray, IntArray], count: int, n_features: int, constant: float = 0.0) -> bool:
    """Return whether trace and diagonal of a sum, (high, low), are possible for ``count`` rows of the unit ball."""
    # ``constant`` is the last entry of each row that is present, which its norm does not count; 0 if rows have none.
    # The others are zero vectors.
    high, low = sums
    at = mirror(n_features).diagonal()
    # Python integers: the trace of 2**40 rows in units of 2**-40 exceeds 64 bits.
    trace = (int(high[at].sum()) << UNIT_BITS) + int(low[at].sum())
    if constant:
        corner = (int(high[-1]) << UNIT_BITS) + int(low[-1])
        present, rest = divmod(corner, round(constant / STEP) ** 2)
        if rest or not 0 <= present <= count:
            return False
        trace, count = trace - corner, present
    return bool(trace <= count << UNIT_BITS and high[at].min() >= 0 and low.min() >= 0 and low.max() <= LOW)


class GramInParts:
    """An exact Gram matrix whose noisy form stays in two parts, as `GramSum.parts` are."""

    __slots__ = ("gram", "hidden")

    def __init__(self, gram: GramSum) -> None:
        self.gram, self.hidden = gram, gram.hidden

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        """Return the sum plus svec noise of this standard deviation, (2, d (d + 1) / 2): may be released."""
        # The noise is rounded to 2**-40 and added exactly; the rest is rounded to the grid of `lattice.coarsen`, but to
        # no more than whole units. Post-processing of the sum plus noise.
        exact, step = self.gram.parts, min(grid_step(std), 1.0)
        entries = noise * entry_weights(self.gram.n_features, self.gram.further)
        whole = np.floor(entries)
        rest = np.rint((entries - whole) * UNIT) * (1.0 / UNIT) + exact[1]
        rest = np.rint(rest * (1.0 / step)) * step
        units = np.floor(rest)
        return np.array([exact[0] + whole + units, rest - units])


def difference(later: FloatArray, earlier: FloatArray) -> FloatArray:
    """Return packed entries of later - earlier, exact before the one rounding, however large both are."""
    entries: FloatArray = (later[0] - earlier[0]) + (later[1] - earlier[1])
    return entries


def sum_of_rows(rows: FloatArray) -> FloatArray:
    """Return the sum of the rows of an array, added in their order: the bits of a compiled loop."""
    # `add.reduce` over rows adds in order, except for rows of one number.
    total: FloatArray = np.add.reduce(rows) if rows.shape[1] > 1 else np.add.accumulate(rows)[-1]
    return total
