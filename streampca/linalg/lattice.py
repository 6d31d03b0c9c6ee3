"""Rows on an integer lattice inside the unit ball, and exact sums of their squares.

Rows are clipped onto the unit ball and truncated toward zero to multiples of
2**-20. Every product of two entries is then a multiple of 2**-40, and sums of
up to 2**13 of them are exact in float64 whatever the order: a Gram matrix has
the same bits for every block size, thread count and machine. Truncation and
the last step of `onto_ball` never let a norm exceed 1, so sensitivities hold
exactly, not up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.linalg.blas import dspr, dsyrk

from streampca.errors import BadRow
from streampca.linalg import fast
from streampca.linalg.svec import entry_weights, svec_size, upper
from streampca.linalg.types import FloatArray, IntArray

BITS = 20
STEP = 2.0**-BITS
#: Rows whose Gram matrix is exact in float64, with room for a fraction of a unit beside them.
EXACT_ROWS = 2**13 - 2
_UNIT = 2.0 ** (-2 * BITS)
# Features up to which a computed norm is surely off by less than 2**-41.
_SURE = 1024
#: Numbers in pieces that fit the cache.
PIECE = 2**15
# Adding and subtracting this rounds numbers of [0, 1] to multiples of 2**-40.
_TO_LATTICE = 1.5 * 2.0 ** (52 - 2 * BITS)
# The same for numbers of [-1, 1] and multiples of 2**-20.
_TO_ROWS = 1.5 * 2.0 ** (52 - BITS)


def onto_ball(rows: FloatArray) -> FloatArray:
    """Truncate rows to the lattice, and scale those that are longer than 1 even then onto the unit ball first.

    Parameters
    ----------
    rows : (n, d) array of finite floats.

    Returns
    -------
    (n, d) C-contiguous array of multiples of 2**-20 whose row norms are at
    most 1 exactly. Each row depends on itself only; rows that are already
    admitted come back unchanged.

    Raises
    ------
    BadRow
        If a number is not finite.
    """
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    out = np.empty_like(rows)
    kernels = fast.kernels
    if kernels is not None and rows.shape[1] <= _SURE:
        long = np.empty(rows.shape[0], dtype=np.int64)
        count = kernels.snap(rows, out, long)
        if count:
            out[long[:count]] = _shortened(rows[long[:count]])
        return out
    step = max(1, PIECE // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        _snapped(rows[start : start + step], out[start : start + step])
    return out


def _snapped(rows: FloatArray, out: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):  # rows beyond 1e302 become infinite, and are shortened
        _truncate(rows, out)
        squares = np.vecdot(out, out)  # exact up to 2**13, and beyond it more than 1 all the same
    if not squares.max(initial=0.0) <= 1.0:
        long = ~(squares <= 1.0)  # nan, too
        out[long] = _shortened(rows[long])
    return out


def _truncate(rows: FloatArray, out: FloatArray) -> None:
    np.multiply(rows, 2.0**BITS, out=out)
    np.trunc(out, out=out)
    out *= STEP
    out += 0.0  # -0.0 becomes 0.0, so equal rows have equal bits


def _shortened(rows: FloatArray) -> FloatArray:
    """Scale a copy of some rows to norm 1, up to rounding, and truncate it. Here ends what slipped past the gate."""
    if not np.isfinite(rows).all():
        raise BadRow("a row is not all finite numbers; pass rows through Stream")
    # An exact power of two brings each near 1 first, so that no square overflows.
    rows *= np.exp2(-np.frexp(np.abs(rows).max(axis=1))[1].astype(np.float64))[:, None]
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    _truncate(rows, rows)
    # Squared norms are multiples of 2**-40 now, and truncation only shrinks: what rounding left
    # above 1 is gone, unless a row is so long that its norm was off by that much.
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
    """True if every row is on the lattice and inside the unit ball."""
    kernels = fast.kernels
    if kernels is not None and rows.flags.c_contiguous:
        return bool(kernels.is_admitted(rows))
    if rows.shape[0] == 1:
        row = rows[0]
        return float(row @ row) <= 1.0 and bool(((row + _TO_ROWS) - _TO_ROWS == row).all())
    norms = np.einsum("ij,ij->i", rows, rows)
    return bool((norms <= 1.0).all()) and bool(((rows + _TO_ROWS) - _TO_ROWS == rows).all())


def grid_bits(scale: float) -> int:
    """The whole number b for which 2**b is the finest grid on which noise of this sd should be released."""
    mantissa, exponent = math.frexp(scale)
    return max(exponent - (mantissa == 0.5) - BITS, -2 * BITS)


def coarsen(values: FloatArray, scale: float) -> FloatArray:
    """Round released numbers, in place, to a power of two near ``2**-20 * scale``, and no finer than the Gram lattice.

    Noise in float64 has holes in its low bits that move with the number it is
    added to (Mironov 2012). A cell of this grid holds about 2**33 of the
    values that the samplers can produce, so what is left of them is below
    2**-30. Post-processing.
    """
    step = 2.0 ** grid_bits(scale)
    values *= 1.0 / step
    np.rint(values, out=values)
    values *= step
    values += 0.0
    return values


def _carried(whole: FloatArray, rest: FloatArray) -> FloatArray:
    """Whole units and a rest below 2**13 as whole units and a rest below 1, (2, size)."""
    parts = np.empty((2, rest.size))
    units = np.floor(rest)
    np.add(whole, units, out=parts[0])
    np.subtract(rest, units, out=parts[1])
    return parts


class GramSum:
    """The exact Gram matrix of admitted rows: an immutable value. Curator only: it is raw data.

    Attributes
    ----------
    n_features : d.
    parts : (2, d (d + 1) / 2) array, not to be written to: of each packed entry, whole units and
        the rest, a multiple of 2**-40 in [0, 1). Equal sums have equal bytes, whatever blocks
        the rows came in.
    """

    __slots__ = ("hidden", "n_features", "parts")

    def __init__(self, n_features: int, parts: FloatArray | None = None) -> None:
        self.n_features = n_features
        self.parts = np.zeros((2, svec_size(n_features))) if parts is None else parts
        #: What an outlet hides.
        self.hidden = (self.parts,)

    @classmethod
    def of(cls, rows: FloatArray) -> GramSum:
        """The Gram matrix of admitted rows, (n, d)."""
        return cls(rows.shape[1]).add(rows)

    def add(self, rows: FloatArray) -> GramSum:
        """The sum with the outer products of admitted rows, (n, d), added."""
        count, parts = rows.shape[0], self.parts
        if count == 1:
            kernels = fast.kernels
            if kernels is not None and rows.flags.c_contiguous:
                out = np.empty(parts.shape)
                kernels.add_outer(parts, rows[0], out)
                made = GramSum.__new__(GramSum)  # this runs once a row: no call of __init__
                made.n_features, made.parts, made.hidden = self.n_features, out, (out,)
                return made
            # Column-major lower in memory order is row-major upper.
            rest = dspr(self.n_features, 1.0, rows[0], parts[1].copy(), lower=1, overwrite_ap=1)
            return GramSum(self.n_features, _carried(parts[0], rest))
        for start in range(0, count, EXACT_ROWS):
            square = dsyrk(1.0, rows[start : start + EXACT_ROWS].T, lower=1)
            rest = square.reshape(-1, order="F").take(upper(self.n_features))
            rest += parts[1]
            parts = _carried(parts[0], rest)
        return GramSum(self.n_features, parts)

    def add_words(self, high: IntArray, low: IntArray) -> GramSum:
        """The sum with an exact packed one added, in the form that `words` returns."""
        return GramSum(self.n_features, _carried(self.parts[0] + high, self.parts[1] + low * _UNIT))

    def words(self) -> tuple[IntArray, IntArray]:
        """The exact packed sum as integers: (units of 1, units of 2**-40 in [0, 2**40))."""
        return self.parts[0].astype(np.int64), (self.parts[1] * (1.0 / _UNIT)).astype(np.int64)

    def packed(self) -> FloatArray:
        """Packed entries (unscaled upper triangle), each rounded once."""
        entries: FloatArray = self.parts[0] + self.parts[1]
        return entries

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        """Packed entries plus svec noise of this sd, made coarse as `coarsen` does: what may be released.

        The noise is rounded to the lattice of the Gram matrix and added
        exactly, so the result is a function of (exact Gram matrix + rounded
        noise) alone: post-processing of the continuous mechanism, with no
        trace of the rows in its low bits.
        """
        weights = entry_weights(self.n_features)
        kernels = fast.kernels
        if kernels is not None and noise.flags.c_contiguous:
            out = np.empty(noise.size)
            mantissa, exponent = math.frexp(std)  # `grid_bits`, without a call
            step = 2.0 ** max(exponent - (mantissa == 0.5) - BITS, -2 * BITS)
            kernels.plus(self.parts[1], self.parts[0], noise, weights, _TO_LATTICE, step, out)
            return out
        entries = noise * weights
        whole = np.floor(entries)
        entries -= whole
        entries += _TO_LATTICE
        entries -= _TO_LATTICE
        entries += self.parts[1]  # exact: multiples of 2**-40, at most 2
        whole += self.parts[0]  # exact: whole numbers
        entries += whole  # the one rounding
        return coarsen(entries, std)

    def snapshot(self) -> dict[str, IntArray]:
        """Arrays from which `restored` makes the same sum."""
        high, low = self.words()
        return {"high": high, "low": low}

    @classmethod
    def restored(cls, n_features: int, snapshot: Mapping[str, IntArray]) -> GramSum:
        """The sum of a snapshot."""
        parts = np.stack([snapshot["high"].astype(np.float64), snapshot["low"].astype(np.float64) * _UNIT])
        return cls(n_features, parts)
