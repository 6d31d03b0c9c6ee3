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


@compile_ahead("int64(uint64[::1], float64[::1], int64[::1], float64[::1], int64[::1])")
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


@compile_ahead(
    "int64(uint64[::1], int64[::1], uint64[::1], float64[::1], float64[::1], int64[::1], float64, float64[::1])"
)
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
    """Finish the draws that left their rectangle, as `randomness._settled` does one; return how many of ``more`` went.

    -1 if there were too few; ``values`` are to be made again then.
    """
    mask = scale.size - 1
    layers = scale.size // 2 - 1
    bits, low = np.uint64(13), np.uint64(11)
    used = 0
    for at in outside:
        field = np.int64(words[at] & np.uint64(mask))
        value = values[at]
        while True:
            layer = field & layers
            if used + 2 > more.size:
                return -1
            unit = (np.float64(more[used] >> low) + 0.5) * 2.0**-53
            used += 1
            if layer == 0:
                beyond = -math.log(unit) / tail
                unit = (np.float64(more[used] >> low) + 0.5) * 2.0**-53
                used += 1
                if -2.0 * math.log(unit) > beyond * beyond:
                    value = math.copysign(tail + beyond, value)
                    break
                continue
            bar = density[layer] + unit * (density[layer + 1] - density[layer])
            if bar < math.exp(-0.5 * value * value):
                break
            word = more[used]
            used += 1
            field = np.int64(word & np.uint64(mask))
            integer = np.int64(word >> bits)
            value = np.float64(integer) * scale[field]
            if integer < inside[field]:
                break
        values[at] = value
    return used


@compile_ahead(void(_IN, float64, float64[::1]))
def add_scaled(step: FloatArray, scale: float, total: FloatArray) -> None:
    """``total += step * scale``, both roundings kept apart."""
    for i in range(step.size):
        total[i] += step[i] * scale


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
