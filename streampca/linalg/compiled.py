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
# Inputs may be read-only.
_IN, _IN2 = (types.Array(float64, n, "C", readonly=True) for n in (1, 2))
_WORDS, _IN_INTS = (types.Array(kind, 1, "C", readonly=True) for kind in (types.uint64, int64))
_OUT2 = float64[:, ::1]


def compile_ahead(signature: Any, *, any_order: bool = False, nogil: bool = False) -> Callable[[F], F]:
    """Compile ahead of the first call; keep the result on disk where that is possible.

    ``any_order`` lets sums be taken in any order: for exact sums.
    ``nogil`` lets other threads run meanwhile: for long computations.
    """
    how: dict[str, Any] = {"nogil": nogil, "error_model": "numpy"}  # no check for a division by zero
    if any_order:
        how["fastmath"] = {"reassoc"}

    def wrap(function: F) -> F:
        try:
            made: F = njit(signature, cache=True, **how)(function)
        except RuntimeError:  # nowhere to write
            made = njit(signature, **how)(function)
        return made

    return wrap


@compile_ahead(void(_WORDS, int64, types.uint64[:, ::1]))
def named_blocks(pair: IntArray, first: int, out: IntArray) -> None:
    """Block numbers as pairs of words (0, i), from this one on, xor the two words of a vector's name."""
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1] = pair[0], pair[1] ^ np.uint64(first + i)


@compile_ahead(int64(_WORDS, _IN, _IN_INTS, float64[::1], int64[::1]))
def ziggurat(words: IntArray, scale: FloatArray, inside: IntArray, values: FloatArray, outside: IntArray) -> int:
    """Turn 64-bit words into normals; list the places of those outside their rectangle, and return how many."""
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
def finish_normals(
    words: IntArray,
    outside: IntArray,
    more: IntArray,
    density: FloatArray,
    scale: FloatArray,
    inside: IntArray,
    tail: float,
    values: FloatArray,
) -> int:
    """The first attempt of `randomness._finished` for draws outside their rectangle, two words of ``more`` each.

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
    """Whole units, a part and noise rounded to the lattice, rounded once: `GramSum.noisy`.

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
        one, others, end = row[i], row[i:], at + row.size - i
        units, rests, new, left = parts[0, at:end], parts[1, at:end], out[0, at:end], out[1, at:end]
        for j in range(others.size):
            rest = rests[j] + one * others[j]
            whole = np.floor(rest)
            new[j], left[j] = units[j] + whole, rest - whole
        at = end


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


@compile_ahead(float64(_IN, float64, float64[:, ::1]), any_order=True)
def admit(row: FloatArray, factor: float, out: FloatArray) -> float:
    """Scale a row and truncate it to the lattice; return its squared norm then. `snap` of one row."""
    square = 0.0
    for j in range(row.size):
        value = np.trunc(row[j] * factor * 1048576.0) * (1.0 / 1048576.0) + 0.0
        out[0, j] = value
        square += value * value
    return square


@compile_ahead(float64(_IN, _IN, _IN, float64[:, ::1]))
def admit_bounded(row: FloatArray, middle: FloatArray, factor: FloatArray, out: FloatArray) -> float:
    """`admit` for a row within its bounds; nan if a value is outside them by more than rounding, or not finite."""
    share, square = 1.0 / math.sqrt(row.size), 0.0
    for j in range(row.size):
        value = (row[j] - middle[j]) * factor[j]
        if not abs(value) <= 1.0:
            return np.nan
        value = np.trunc(value * share * 1048576.0) * (1.0 / 1048576.0) + 0.0
        out[0, j] = value
        square += value * value
    return square


@compile_ahead(int64(_IN2, float64[:, ::1], float64[::1], int64[::1]), any_order=True)
def snap(rows: FloatArray, out: FloatArray, squares: FloatArray, long: IntArray) -> int:
    """Truncate rows to the lattice; list those that are outside the ball even then, and return how many."""
    count = 0
    for i in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            value = np.trunc(rows[i, j] * 1048576.0) * (1.0 / 1048576.0) + 0.0
            out[i, j] = value
            square += value * value  # exact up to 2**13, and larger sums stay above 1
        long[count], squares[i] = i, square
        count += not square <= 1.0  # nan, too
    return count


@compile_ahead(void(_IN2, float64[:, ::1], float64[:, ::1]), any_order=True)
def multiply(rows: FloatArray, basis: FloatArray, out: FloatArray) -> None:
    """Rows on the lattice times a basis, (k, d), rounded by `lattice.scoring_basis`: exact."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for c in range(basis.shape[0]):
            column, total = basis[c], 0.0
            for j in range(row.size):
                total += row[j] * column[j]
            out[i, c] = total


@compile_ahead(void(_IN2, float64, float64[:, ::1]))
def rounded(columns: FloatArray, grid: float, out: FloatArray) -> None:
    """`lattice.scoring_basis` of a basis given by its columns, (k, d)."""
    for c in range(columns.shape[0]):
        for j in range(columns.shape[1]):
            out[j, c] = np.rint(columns[c, j] * grid) * (1.0 / grid)


@compile_ahead(float64(_IN2, _IN2, float64, float64[::1]))
def score(rows: FloatArray, basis: FloatArray, reward: float, rewards: FloatArray) -> float:
    """`scoring.rewarded` without a linear part."""
    products = np.empty((rows.shape[0], basis.shape[1]))
    multiply(rows, basis.T.copy(), products)
    for i in range(rows.shape[0]):
        square = 0.0
        for c in range(basis.shape[1]):
            square += products[i, c] * products[i, c]
        rewards[i] = square
        reward += square
    return reward


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
    for start in range(0, size, 512):  # chunks that fit the cache
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


@compile_ahead(void(_IN, _IN2, _IN, _IN, _IN, float64, float64, _IN2, _IN, float64, float64, _OUT2, _OUT2))
def buffered_release(
    fresh: FloatArray,
    buffers: FloatArray,
    total: FloatArray,
    mix: FloatArray,
    rate: FloatArray,
    scale: float,
    keep: float,
    parts: FloatArray,
    weights: FloatArray,
    magic: float,
    step: float,
    after: FloatArray,
    out: FloatArray,
) -> None:
    """`buffered_step`, and `plus` with a Gram matrix in parts; ``out`` gets the noise and what may be released."""
    buffered_step(fresh, buffers, total, mix, rate, scale, keep, after, out[0])
    plus(parts[1], parts[0], out[0], weights, magic, step, out[1])


@compile_ahead(float64(float64[::1]))
def numpy_sum(values: FloatArray) -> float:
    """The sum of up to 128 numbers in the order of `numpy.sum`."""
    count, done, total = values.size, 0, 0.0
    if count >= 8:
        part = values[:8].copy()
        done = count - count % 8
        for i in range(8, done, 8):
            for j in range(8):
                part[j] += values[i + j]
        total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
    for i in range(done, count):
        total += values[i]
    return total


@compile_ahead(void(float64[:, ::1], float64[:, ::1], _IN, _IN, float64, float64, float64, float64, float64[::1]))
def filter_gain(
    covariance: FloatArray,
    response: FloatArray,
    omega: FloatArray,
    theta: FloatArray,
    drift: float,
    scatter: float,
    scale: float,
    share: float,
    gain: FloatArray,
) -> None:
    """Advance both covariances of `matrix_factorization.smoothing`, in place; ``gain`` gets its gain."""
    count = covariance.shape[0]
    covariance[0, 0] += drift
    for matrix in (covariance, response):
        for i in range(count):
            matrix[1, i] = share * matrix[0, i]
        for i in range(count):
            matrix[i, 1] = share * matrix[i, 0]
        matrix[1, 1] = share**2 * matrix[0, 0]
    covariance[1, 1] = share**2 * covariance[0, 0] + share * scatter
    h, work, product = np.zeros(count), np.empty(count), np.empty(count)
    h[1] = 1.0 / scale
    h[2 : count - 1] = omega
    for i in range(count):
        for j in range(count):
            work[j] = covariance[i, j] * h[j]
        product[i] = numpy_sum(work)
    for j in range(count):
        work[j] = h[j] * product[j]
    variance = numpy_sum(work) + 1.0
    for i in range(count):
        gain[i] = product[i] / variance
        for j in range(count):
            covariance[i, j] -= product[i] * product[j] / variance
    across, left = h[0] * response[0], np.empty(count)
    for i in range(1, count):
        across += h[i] * response[i]
    for i in range(count):
        for j in range(count):
            left[j] = response[i, j] - gain[i] * across[j]
            work[j] = left[j] * h[j]
        total = numpy_sum(work)
        for j in range(count):
            response[i, j] = left[j] - total * gain[j] + gain[i] * gain[j]
    for matrix in (covariance, response):
        for j in range(count):
            for i in range(2, count - 1):
                matrix[i, j] = theta[i - 2] * matrix[i, j] + matrix[1, j] / scale
            matrix[count - 1, j] += matrix[1, j]
        for i in range(count):
            for j in range(2, count - 1):
                matrix[i, j] = theta[j - 2] * matrix[i, j] + matrix[i, 1] / scale
            matrix[i, count - 1] += matrix[i, 1]
    for i in range(2, count - 1):
        gain[i] = theta[i - 2] * gain[i] + gain[1] / scale
    gain[count - 1] += gain[1]


@compile_ahead(void(_IN, _IN, _IN, _IN, _IN2, _IN, _IN, _IN, float64, float64, _OUT2, _OUT2))
def smoothed_sums(
    released: FloatArray,
    before: FloatArray,
    mean: FloatArray,
    total: FloatArray,
    buffers: FloatArray,
    omega: FloatArray,
    theta: FloatArray,
    gain: FloatArray,
    scale: float,
    share: float,
    decayed: FloatArray,
    out: FloatArray,
) -> None:
    """The coordinates of `matrix_factorization.smoothing.SmoothedSum.after`: buffers, and mean and sum in ``out``."""
    last = gain.size - 1
    for start in range(0, released.size, 512):  # chunks that fit the cache
        end = min(start + 512, released.size)
        step, innovation = np.empty(end - start), np.empty(end - start)
        new, old, m, s = released[start:end], before[start:end], mean[start:end], total[start:end]
        for j in range(step.size):
            step[j] = (new[j] - old[j] - m[j] * share) / scale
        for i in range(omega.size):
            b, weight = buffers[i, start:end], omega[i]
            for j in range(step.size):
                innovation[j] = weight * b[j] if i == 0 else innovation[j] + weight * b[j]
        for j in range(step.size):
            innovation[j] += step[j]
        for i in range(omega.size):
            b, left, gone, share_of_it = buffers[i, start:end], decayed[i, start:end], theta[i], gain[i + 2]
            for j in range(step.size):
                left[j] = (gone * b[j] + step[j]) - share_of_it * innovation[j]
        next_mean, next_sum = out[0, start:end], out[1, start:end]
        for j in range(step.size):
            next_mean[j] = m[j] + gain[0] * innovation[j]
            next_sum[j] = s[j] + m[j] * share + gain[last] * innovation[j]
