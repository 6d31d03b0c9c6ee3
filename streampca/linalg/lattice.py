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

import numpy as np
from scipy.linalg.blas import dspr, dsyrk

from streampca.errors import BadRow
from streampca.linalg.fast import compiled
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
    kernels = compiled()
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
    kernels = compiled()
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


class GramAccumulator:
    """The exact Gram matrix of admitted rows. Curator only: it is raw data.

    Parts that are always exact: whole units, and two that hold multiples of
    2**-40 which together stay below 2**13 an entry: a packed one for single
    rows, and a square one for blocks. Their sum is rounded once, so it depends
    on the exact total alone, not on where blocks ended.
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self._part = np.zeros(svec_size(n_features))
        self._block: FloatArray | None = None  # lower triangle in column-major order; None if empty
        self._in_block = 0
        self._whole = np.zeros(svec_size(n_features))
        self._compiled = compiled()
        self._weights = entry_weights(n_features).copy()

    def add(self, rows: FloatArray) -> None:
        """Add the outer products of admitted rows, (n, d)."""
        start, count = 0, rows.shape[0]
        while start < count:
            take = 1 if count == 1 else min(count - start, EXACT_ROWS - self._in_block)
            if take == 1:
                # Column-major lower in memory order is row-major upper.
                self._part = dspr(self.n_features, 1.0, rows[start], self._part, lower=1, overwrite_ap=1)
            else:
                if self._block is None:
                    self._block = np.zeros((self.n_features, self.n_features), order="F")
                part = rows[start : start + take].T
                self._block = dsyrk(1.0, part, beta=1.0, c=self._block, overwrite_c=1, lower=1)
            self._in_block += take
            start += take
            if self._in_block == EXACT_ROWS:
                self._fold()

    def add_gram(self, high: IntArray, low: IntArray) -> None:
        """Add an exact packed sum in the form that `words` returns."""
        whole, part = self._fold()
        part += low * _UNIT
        self._whole = whole + high + np.floor(part)
        part -= np.floor(part)

    def subtract(self, rows: FloatArray) -> None:
        """Take admitted rows out again, exactly."""
        other = GramAccumulator(self.n_features)
        other.add(rows)
        high, low = other.words()
        self.add_gram(-high, -low)

    def words(self) -> tuple[IntArray, IntArray]:
        """The exact packed sum as integers: (units of 1, units of 2**-40 in [0, 2**40))."""
        whole, part = self._fold()
        return whole.astype(np.int64), (part / _UNIT).astype(np.int64)

    def plus(self, noise: FloatArray | None = None) -> FloatArray:
        """Packed entries (unscaled upper triangle) of the Gram matrix plus svec noise.

        The noise is rounded to the lattice of the Gram matrix and added
        exactly, so the result is a function of (exact Gram matrix + rounded
        noise) alone: post-processing of the continuous mechanism, with no
        trace of the rows in its low bits.
        """
        if noise is None:
            return self._total() + self._whole
        if self._compiled is not None and noise.flags.c_contiguous:
            return self._plus_compiled(noise, 0.0)
        entries = noise * self._weights
        whole = np.floor(entries)
        entries -= whole
        entries += _TO_LATTICE
        entries -= _TO_LATTICE
        entries += self._total()  # exact: multiples of 2**-40, at most 2**13
        whole += self._whole  # exact: whole numbers
        entries += whole  # the one rounding
        return entries

    def noisy(self, noise: FloatArray, scale: float) -> FloatArray:
        """`plus` of noise of this sd, made coarse as `coarsen` does: what may be released."""
        if self._compiled is not None and noise.flags.c_contiguous:
            return self._plus_compiled(noise, 2.0 ** grid_bits(scale))
        return coarsen(self.plus(noise), scale)

    def _plus_compiled(self, noise: FloatArray, step: float) -> FloatArray:
        assert self._compiled is not None
        out = np.empty_like(self._part)
        self._compiled.plus(self._total(), self._whole, noise, self._weights, _TO_LATTICE, step, out)
        return out

    def state(self) -> dict[str, IntArray]:
        """Arrays from which `restore` rebuilds the accumulator."""
        high, low = self.words()
        return {"high": high, "low": low}

    def restore(self, state: dict[str, IntArray]) -> None:
        """Replace the contents by those of `state`."""
        self._whole = state["high"].astype(np.float64)
        self._part = state["low"].astype(np.float64) * _UNIT
        self._block, self._in_block = None, 1

    def _total(self) -> FloatArray:
        """Both parts below a unit or so. Not to be written to."""
        if self._block is None:
            return self._part
        total: FloatArray = self._block.reshape(-1, order="F").take(upper(self.n_features))
        total += self._part
        return total

    def _fold(self) -> tuple[FloatArray, FloatArray]:
        """Move whole units out of the parts; return (whole units, the rest in [0, 1)), which counts as one row."""
        if self._block is not None:
            self._part = self._total()
            self._block = None
        whole = np.floor(self._part)
        self._whole += whole
        self._part -= whole
        self._in_block = 1
        return self._whole, self._part
