"""Compiled forms of the inner loops, by numba (extra ``fast``): the same bits as numpy, in one pass over memory.

Every kernel does the operations of the numpy code beside which it is called,
in an order that gives the same bits: exact sums, or one rounding an entry at a
time. Import it through `streampca.linalg.fast` only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import boolean, float64, int64, njit, types, void

from streampca.linalg.types import FloatArray, IntArray

F = TypeVar("F", bound=Callable[..., Any])
# Read-only arrays are welcome as inputs.
_IN, _IN2 = (types.Array(float64, n, "C", readonly=True) for n in (1, 2))
_WORDS, _IN_INTS = (types.Array(kind, 1, "C", readonly=True) for kind in (types.uint64, int64))
_SIDE = 32  # of the tiles in which a triangle is mirrored


def compile_ahead(signature: Any, *, any_order: bool = False, nogil: bool = False) -> Callable[[F], F]:
    """Compile ahead of the first call; keep the result on disk where that is possible.

    ``any_order`` lets sums be taken in any order: for those that are exact.
    ``nogil`` lets other threads run meanwhile: for what takes long.
    """
    how: dict[str, Any] = {"nogil": nogil}
    if any_order:
        how["fastmath"] = {"reassoc"}

    def wrap(function: F) -> F:
        try:
            made: F = njit(signature, cache=True, **how)(function)
        except RuntimeError:  # nowhere to write
            made = njit(signature, **how)(function)
        return made

    return wrap


@compile_ahead(int64(_WORDS, _IN, _IN_INTS, float64[::1], int64[::1]))
def ziggurat(words: IntArray, scale: FloatArray, inside: IntArray, values: FloatArray, outside: IntArray) -> int:
    """Turn words into normals; list the places of those that left their rectangle, and return how many."""
    mask = scale.size - 1
    bits = np.uint64(13)
    count = 0
    for i in range(words.size):
        word = words[i]
        field = np.int64(word & np.uint64(mask))
        integer = np.int64(word >> bits)
        values[i] = np.float64(integer) * scale[field]
        outside[count] = i
        count += integer >= inside[field]
    return count


@compile_ahead(int64(_WORDS, int64[::1], _WORDS, _IN, _IN, _IN_INTS, float64, float64[::1]))
def settle(
    words: IntArray,
    outside: IntArray,
    more: IntArray,
    density: FloatArray,
    scale: FloatArray,
    inside: IntArray,
    tail: float,
    values: FloatArray,
) -> int:
    """The first attempt of `randomness._settled` for draws that left their rectangle, two words of ``more`` each.

    Lists the places that need another attempt in ``outside``, and returns how many.
    """
    mask = scale.size - 1
    layers = scale.size // 2 - 1
    bits, low = np.uint64(13), np.uint64(11)
    count = 0
    for i in range(outside.size):
        at = outside[i]
        field = np.int64(words[at] & np.uint64(mask))
        layer = field & layers
        unit = (np.float64(more[2 * i] >> low) + 0.5) * 2.0**-53
        done = False
        if layer == 0:
            beyond = -math.log(unit) / tail
            unit = (np.float64(more[2 * i + 1] >> low) + 0.5) * 2.0**-53
            if -2.0 * math.log(unit) > beyond * beyond:
                values[at] = math.copysign(tail + beyond, values[at])
                done = True
        else:
            value = values[at]
            bar = density[layer] + unit * (density[layer + 1] - density[layer])
            done = bar < math.exp(-0.5 * value * value)
            if not done:
                word = more[2 * i + 1]
                field = np.int64(word & np.uint64(mask))
                integer = np.int64(word >> bits)
                if integer < inside[field]:
                    values[at] = np.float64(integer) * scale[field]
                    done = True
        if not done:
            outside[count] = at
            count += 1
    return count


@compile_ahead(void(_IN, _IN, _IN, _IN, float64, float64, float64[::1]))
def plus(
    part: FloatArray,
    whole: FloatArray,
    noise: FloatArray,
    weights: FloatArray,
    magic: float,
    step: float,
    out: FloatArray,
) -> None:
    """Whole units, a part and noise rounded to the lattice, rounded once: `GramAccumulator.plus`.

    With a ``step``, a power of two, then rounded to its multiples: `lattice.coarsen`.
    """
    steps = 1.0 / step if step > 0.0 else 0.0
    for i in range(part.size):
        entry = noise[i] * weights[i]
        floor = np.floor(entry)
        entry = (entry - floor) + magic
        entry -= magic
        entry = (part[i] + entry) + (floor + whole[i])
        out[i] = np.rint(entry * steps) * step + 0.0 if step > 0.0 else entry


@compile_ahead(void(_IN2, _IN, float64[:, ::1]))
def add_outer(parts: FloatArray, row: FloatArray, out: FloatArray) -> None:
    """Whole units and rests of a packed Gram matrix, with a row's outer product more: `GramSum.add` of one row."""
    at = 0
    for i in range(row.size):
        for j in range(i, row.size):
            rest = parts[1, at] + row[i] * row[j]
            whole = np.floor(rest)
            out[0, at] = parts[0, at] + whole
            out[1, at] = rest - whole
            at += 1


@compile_ahead("float64[:, ::1](Array(float64, 1, 'C', readonly=True), Array(float64, 2, 'C', readonly=True), float64)")
def power_step(packed: FloatArray, span: FloatArray, shift: float) -> FloatArray:
    """`eigen.power_step` by the same BLAS and LAPACK calls; bases by rows, (k, d)."""
    k, d = span.shape
    square = np.empty((d, d))
    for top in range(0, d, _SIDE):
        bottom = min(top + _SIDE, d)
        for left in range(top, d, _SIDE):
            right = min(left + _SIDE, d)
            for i in range(top, bottom):
                start = i * d - i * (i - 1) // 2 - i
                for j in range(max(left, i), right):
                    value = packed[start + j]
                    square[i, j] = value
                    square[j, i] = value
    product = np.dot(span, square)
    for i in range(k):
        for j in range(d):
            product[i, j] += shift * span[i, j]
    basis = np.linalg.qr(product.T)[0]
    return np.ascontiguousarray(basis.T)


@compile_ahead(boolean(_IN2), any_order=True)
def is_admitted(rows: FloatArray) -> bool:
    """True if every row is on the lattice and inside the unit ball; sums of lattice squares are exact."""
    for i in range(rows.shape[0]):
        square, off = 0.0, 0
        for j in range(rows.shape[1]):
            value = rows[i, j]
            off += np.trunc(value * 1048576.0) * (1.0 / 1048576.0) != value
            square += value * value
        if off or not square <= 1.0:
            return False
    return True


@compile_ahead(boolean(_IN, float64, float64[:, ::1]), any_order=True)
def admit(row: FloatArray, factor: float, out: FloatArray) -> bool:
    """Scale a row and truncate it to the lattice; True if it is inside the unit ball then. `snap` of one row."""
    square = 0.0
    for j in range(row.size):
        value = np.trunc(row[j] * factor * 1048576.0) * (1.0 / 1048576.0) + 0.0
        out[0, j] = value
        square += value * value
    return square <= 1.0


@compile_ahead(int64(_IN2, float64[:, ::1], int64[::1]), any_order=True)
def snap(rows: FloatArray, out: FloatArray, long: IntArray) -> int:
    """Truncate rows to the lattice; list those that are outside the ball even then, and return how many."""
    count = 0
    for i in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            value = np.trunc(rows[i, j] * 1048576.0) * (1.0 / 1048576.0) + 0.0
            out[i, j] = value
            square += value * value  # exact up to 2**13, and beyond it more than 1 all the same
        long[count] = i
        count += not square <= 1.0  # nan, too
    return count


@compile_ahead(void(_IN, _IN2, _IN, _IN, _IN, float64, float64, float64[:, ::1], float64[::1]))
def buffered_step(
    fresh: FloatArray,
    buffers: FloatArray,
    total: FloatArray,
    mix: FloatArray,
    rate: FloatArray,
    scale: float,
    keep: float,
    after: FloatArray,
    out: FloatArray,
) -> None:
    """A step of buffered noise, as `matrix_factorization.buffered_noise.Recurrence.step` makes it."""
    count, size = buffers.shape
    for start in range(0, size, 512):  # pieces that fit the cache
        end = min(start + 512, size)
        z, before, y = fresh[start:end], total[start:end], out[start:end]
        for i in range(count):
            r, left, m, gone = buffers[i, start:end], after[i, start:end], mix[i], rate[i]
            if i == 0:
                for j in range(z.size):
                    y[j] = m * r[j]
            else:
                for j in range(z.size):
                    y[j] += m * r[j]
            for j in range(z.size):
                left[j] = (r[j] - gone * r[j]) + z[j]
        for j in range(z.size):
            y[j] = before[j] * keep + (y[j] + z[j]) * scale
