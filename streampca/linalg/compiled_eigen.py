"""Leading eigenpairs of packed symmetric matrices, direct and certified, and power steps, by numba (extra ``fast``).

Householder reduction to a tridiagonal matrix T, one pass over the matrix a reflector; brackets of the top eigenvalues
by Sturm counts; eigenvectors by twisted factorisations with Rayleigh corrections (Dhillon 1997; Parlett and Dhillon
2000); back-transformation. `certified` then proves that the pairs found are the top ones, or the caller takes LAPACK.
Import it through `streampca.linalg.fast` only.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64, types, void

from streampca.linalg.compiled import compile_ahead
from streampca.linalg.types import FloatArray

_PACKED = types.Array(float64, 1, "C", readonly=True)
_SPAN = types.Array(float64, 2, "C", readonly=True)
_ROW, _ROWS = float64[::1], float64[:, ::1]
#: Points a bracket at which eigenvalues are counted in one pass, passes, and corrections of an eigenpair.
_POINTS, _PASSES, _CORRECTIONS = 4, 5, 6
#: Largest residual, inner product of two vectors before they are made orthogonal, and least distance of two
#: eigenvalues that are told apart; the first and last relative to the norm of T.
_RESIDUAL, _INNER, _APART = 1e-12, 1e-5, 1e-9


@compile_ahead(void(_ROWS, _ROW, _ROW, _ROWS, _ROW), any_order=True)
def tridiagonalise(a: FloatArray, diagonal: FloatArray, beside: FloatArray, v: FloatArray, tau: FloatArray) -> None:
    """Reduce a symmetric matrix, given by its lower triangle, which is destroyed; last row first.

    Reflector j is ``I - tau_j v v^T`` with v the first j entries of row j. A pass over two rows at a time applies the
    reflector before and multiplies by the next one.
    """
    d = a.shape[0]
    p, w, old = np.zeros(d), np.zeros(d), np.zeros(d)
    for j in range(d - 1, -1, -1):
        row, ws, olds = a[j, : j + 1], w[: j + 1], old[: j + 1]
        x, y = old[j], w[j]  # zero at first
        for at in range(row.size):
            row[at] -= x * ws[at] + y * olds[at]
        diagonal[j] = row[j]
        if j == 0:
            break
        u, first, square = v[j, :j], row[j - 1], 0.0
        for at in range(j - 1):
            square += row[at] * row[at]
        if square == 0.0:
            beside[j - 1], tau[j] = first, 0.0
            u[:] = 0.0
        else:
            length = -np.copysign(np.sqrt(first * first + square), first)
            beside[j - 1], tau[j] = length, (length - first) / length
            scale = 1.0 / (first - length)
            for at in range(j - 1):
                u[at] = row[at] * scale
            u[j - 1] = 1.0
        p[:j] = 0.0
        for i in range(0, j - 1, 2):
            x, y, one, x2, y2, two = old[i], w[i], u[i], old[i + 1], w[i + 1], u[i + 1]
            e, f, ws, olds, us, ps = a[i, :i], a[i + 1, :i], w[:i], old[:i], u[:i], p[:i]
            total, total2 = 0.0, 0.0
            for at in range(e.size):
                value = e[at] - (x * ws[at] + y * olds[at])
                value2 = f[at] - (x2 * ws[at] + y2 * olds[at])
                e[at], f[at] = value, value2
                total += value * us[at]
                total2 += value2 * us[at]
                ps[at] += value * one + value2 * two
            a[i, i] -= 2.0 * x * y
            a[i + 1, i] -= x2 * y + y2 * x
            a[i + 1, i + 1] -= 2.0 * x2 * y2
            p[i] += total + a[i, i] * one + a[i + 1, i] * two
            p[i + 1] += total2 + a[i + 1, i + 1] * two + a[i + 1, i] * one
        if j % 2:
            i = j - 1
            x, y, one = old[i], w[i], u[i]
            e, ws, olds, us, ps = a[i, :i], w[:i], old[:i], u[:i], p[:i]
            total = 0.0
            for at in range(e.size):
                value = e[at] - (x * ws[at] + y * olds[at])
                e[at] = value
                total += value * us[at]
                ps[at] += value * one
            a[i, i] -= 2.0 * x * y
            p[i] += total + a[i, i] * one
        inner = 0.0
        for i in range(j):
            p[i] *= tau[j]
            inner += p[i] * u[i]
        inner *= 0.5 * tau[j]
        for i in range(j):
            w[i] = p[i] - inner * u[i]
            old[i] = u[i]


@compile_ahead(void(_ROW, _ROW, _ROW, _ROW))
def count_above(diagonal: FloatArray, squares: FloatArray, points: FloatArray, above: FloatArray) -> None:
    """How many eigenvalues of T are above each point; ``squares`` of the off-diagonal entries, from index 1 on."""
    pivot, positive = np.ones(points.size), np.zeros(points.size)
    for i in range(diagonal.size):
        entry, square = diagonal[i], squares[i]
        for j in range(points.size):
            value = (entry - points[j]) - square / pivot[j]
            value = value if abs(value) > 1e-280 else 1e-280
            pivot[j] = value
            positive[j] += 1.0 if value > 0.0 else 0.0
    above[:] = positive


@compile_ahead(types.UniTuple(float64, 2)(_ROW, _ROW, float64, _ROW, _ROW, _ROW))
def twisted(
    diagonal: FloatArray, beside: FloatArray, shift: float, down: FloatArray, up: FloatArray, z: FloatArray
) -> tuple[float, float]:
    """Solve ``(T - shift I) z = g e_r`` with ``z_r = 1`` for the r of least ``|g|``, and scale z to norm 1.

    Returns what its Rayleigh quotient exceeds the shift by, g / ||z||**2, and the norm of its residual, g / ||z||.
    """
    d = diagonal.size
    down[0], up[d - 1] = diagonal[0] - shift, diagonal[d - 1] - shift
    for i in range(1, d):
        if abs(down[i - 1]) < 1e-280:
            down[i - 1] = 1e-280
        down[i] = (diagonal[i] - shift) - beside[i - 1] * beside[i - 1] / down[i - 1]
        at = d - 1 - i
        if abs(up[at + 1]) < 1e-280:
            up[at + 1] = 1e-280
        up[at] = (diagonal[at] - shift) - beside[at] * beside[at] / up[at + 1]
    r, g = 0, np.inf
    for i in range(d):
        value = down[i] + up[i] - (diagonal[i] - shift)
        if abs(value) < abs(g):
            r, g = i, value
    z[r], square = 1.0, 1.0
    for i in range(r - 1, -1, -1):
        z[i] = -(beside[i] / down[i]) * z[i + 1]
        square += z[i] * z[i]
    for i in range(r + 1, d):
        z[i] = -(beside[i - 1] / up[i]) * z[i - 1]
        square += z[i] * z[i]
    scale = 1.0 / np.sqrt(square)
    for i in range(d):
        z[i] *= scale
    return g / square, abs(g) * scale


@compile_ahead(boolean(_ROW, _ROW, _ROW, _ROWS, float64))
def certified(diagonal: FloatArray, beside: FloatArray, values: FloatArray, vectors: FloatArray, norm: float) -> bool:
    """True if it is proved that orthonormal ``vectors``, by rows, and descending ``values`` are the top pairs of T.

    An eigenvalue lies within a residual of each value (1e-12 of the norm), the values are further apart than that,
    and by Sturm counts no more eigenvalues than these lie above the last one less 1e-9 of the norm.
    """
    k, d = vectors.shape
    squares, above, points = np.zeros(d), np.empty(1), np.empty(1)
    for i in range(d - 1):
        squares[i + 1] = beside[i] * beside[i]
    points[0] = values[k - 1] - _APART * norm
    count_above(diagonal, squares, points, above)
    if above[0] != k:
        return False
    for i in range(k):
        z, off = vectors[i], 0.0
        if i and not values[i - 1] - values[i] > _APART * norm:
            return False
        for j in range(d):
            rest = (diagonal[j] - values[i]) * z[j]
            if j:
                rest += beside[j - 1] * z[j - 1]
            if j < d - 1:
                rest += beside[j] * z[j + 1]
            off += rest * rest
        if not off <= (_RESIDUAL * norm) ** 2:
            return False
        for other in range(i + 1):
            inner = -1.0 if other == i else 0.0
            for j in range(d):
                inner += z[j] * vectors[other, j]
            if not abs(inner) <= _RESIDUAL:
                return False
    return True


@compile_ahead(boolean(_ROW, _ROW, _ROW, _ROWS))
def top_of_tridiagonal(diagonal: FloatArray, beside: FloatArray, values: FloatArray, vectors: FloatArray) -> bool:
    """The top eigenpairs of T, descending, vectors by rows; False if they are not `certified`."""
    k, d = vectors.shape
    squares = np.zeros(d)
    low, high = diagonal[0], diagonal[0]
    for i in range(d):
        radius = 0.0
        if i:
            squares[i] = beside[i - 1] * beside[i - 1]
            radius += abs(beside[i - 1])
        if i < d - 1:
            radius += abs(beside[i])
        low, high = min(low, diagonal[i] - radius), max(high, diagonal[i] + radius)
    norm = max(abs(low), abs(high))
    if not 1e-100 < norm < 1e100:
        return False
    lows, highs = np.full(k, low - 1e-12 * norm), np.full(k, high + 1e-12 * norm)
    points, above = np.empty(k * _POINTS), np.empty(k * _POINTS)
    for turn in range(_PASSES):
        for i in range(k):  # all brackets are the same at first
            count, offset = (_POINTS, 1) if turn else (points.size, i * _POINTS + 1)
            step = (highs[i] - lows[i]) / (count + 1)
            for j in range(_POINTS):
                points[i * _POINTS + j] = lows[i] + (j + offset) * step
        count_above(diagonal, squares, points, above)
        for i in range(k):
            for at in range(k * _POINTS):
                if above[at] > i:
                    lows[i] = max(lows[i], points[at])
                else:
                    highs[i] = min(highs[i], points[at])
    down, up = np.empty(d), np.empty(d)
    for i in range(k):
        value, z = 0.5 * (lows[i] + highs[i]), vectors[i]
        for _ in range(_CORRECTIONS):
            correction, residual = twisted(diagonal, beside, value, down, up, z)
            value += correction
            if residual <= 1e-14 * norm:
                break
        values[i] = value
        for other in range(i):
            inner, square = 0.0, 0.0
            for j in range(d):
                inner += z[j] * vectors[other, j]
            if not abs(inner) <= _INNER:
                return False
            for j in range(d):
                z[j] -= inner * vectors[other, j]
                square += z[j] * z[j]
            scale = 1.0 / np.sqrt(square)
            for j in range(d):
                z[j] *= scale
    return certified(diagonal, beside, values, vectors, norm)


@compile_ahead(void(_ROW, _ROWS, int64))
def signed_column(z: FloatArray, basis: FloatArray, column: int) -> None:
    """Copy a vector into a column, with the sign of `eigen.fix_signs`."""
    peak = 0
    for j in range(z.size):
        if abs(z[j]) > abs(z[peak]):
            peak = j
    sign = np.copysign(1.0, z[peak])
    for j in range(z.size):
        basis[j, column] = z[j] * sign


@compile_ahead(boolean(_PACKED, _ROW, _ROWS), any_order=True)
def top_pairs(packed: FloatArray, values: FloatArray, basis: FloatArray) -> bool:
    """The top eigenvalues, descending, and eigenvectors, by columns with `eigen.fix_signs`; False if not certified."""
    d, k = basis.shape
    a, v = np.empty((d, d)), np.empty((d, d))
    at = 0
    for i in range(d):
        for j in range(i, d):
            a[j, i] = packed[at]
            at += 1
    diagonal, beside, tau = np.empty(d), np.empty(d), np.empty(d)
    tridiagonalise(a, diagonal, beside, v, tau)
    vectors = np.empty((k, d))
    if not top_of_tridiagonal(diagonal, beside, values, vectors):
        return False
    for j in range(1, d):
        u = v[j, :j]
        for i in range(k):
            z, inner = vectors[i, :j], 0.0
            for at in range(u.size):
                inner += u[at] * z[at]
            inner *= tau[j]
            for at in range(u.size):
                z[at] -= inner * u[at]
    for i in range(k):
        signed_column(vectors[i], basis, i)
    return True


@compile_ahead(void(_PACKED, _SPAN, _ROWS), any_order=True)
def multiply_packed(packed: FloatArray, span: FloatArray, product: FloatArray) -> None:
    """Add a packed matrix times a span to ``product``, both by rows, (k, d)."""
    k, d = span.shape
    at = 0
    for i in range(d):
        entries = packed[at : at + d - i]
        at += d - i
        for c in range(k):
            x, y, total = span[c, i:], product[c, i:], 0.0
            one = x[0]
            y[0] += entries[0] * one
            for j in range(1, entries.size):
                total += entries[j] * x[j]
                y[j] += entries[j] * one
            y[0] += total


@compile_ahead(void(float64[::1], float64, float64[::1]), any_order=True)
def reflect(v: FloatArray, tau: float, x: FloatArray) -> None:
    """Multiply x by ``I - tau v v^T``."""
    inner = 0.0
    for j in range(v.size):
        inner += v[j] * x[j]
    inner *= tau
    for j in range(v.size):
        x[j] -= inner * v[j]


@compile_ahead(void(_PACKED, _SPAN, float64, _ROWS), any_order=True)
def power_step(packed: FloatArray, span: FloatArray, shift: float, basis: FloatArray) -> None:
    """`eigen.power_step` by Householder reflectors with the signs of LAPACK; spans and bases by rows, (k, d)."""
    k = span.shape[0]
    product, tau = shift * span, np.zeros(k)
    multiply_packed(packed, span, product)
    for c in range(k):
        v, square = product[c, c:], 0.0
        for j in range(1, v.size):
            square += v[j] * v[j]
        if square > 0.0:
            first = v[0]
            length = -np.copysign(np.sqrt(first * first + square), first)
            tau[c], scale = (length - first) / length, 1.0 / (first - length)
            for j in range(1, v.size):
                v[j] *= scale
        v[0] = 1.0
        for i in range(c + 1, k):
            reflect(v, tau[c], product[i, c:])
    basis[:] = 0.0
    for i in range(k):
        basis[i, i] = 1.0
        for c in range(i, -1, -1):
            reflect(product[c, c:], tau[c], basis[i, c:])


@compile_ahead(void(_PACKED, _SPAN, _ROW, _ROWS), any_order=True)
def ritz_pairs(packed: FloatArray, span: FloatArray, values: FloatArray, basis: FloatArray) -> None:
    """`eigen.ritz` of a packed matrix and a span by rows, (k, d), by cyclic Jacobi rotations of the compressed one."""
    k, d = span.shape
    product = np.zeros((k, d))
    multiply_packed(packed, span, product)
    small, turned = np.empty((k, k)), np.copy(span)
    largest = 0.0
    for i in range(k):
        for j in range(i, k):
            total = 0.0
            for at in range(d):
                total += span[i, at] * product[j, at]
            small[i, j], small[j, i] = total, total
            largest = max(largest, abs(total))
    for _ in range(60):
        off = 0.0
        for i in range(k):
            for j in range(i + 1, k):
                entry = small[i, j]
                off = max(off, abs(entry))
                if abs(entry) <= 1e-17 * largest:
                    continue
                ratio = 0.5 * (small[j, j] - small[i, i]) / entry
                t = np.copysign(1.0, ratio) / (abs(ratio) + np.sqrt(ratio * ratio + 1.0))
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                for at in range(k):
                    x, y = small[i, at], small[j, at]
                    small[i, at], small[j, at] = c * x - s * y, s * x + c * y
                for at in range(k):
                    x, y = small[at, i], small[at, j]
                    small[at, i], small[at, j] = c * x - s * y, s * x + c * y
                for at in range(d):
                    x, y = turned[i, at], turned[j, at]
                    turned[i, at], turned[j, at] = c * x - s * y, s * x + c * y
        if off <= 1e-15 * largest:
            break
    for place in range(k):
        best = 0
        for i in range(k):
            if small[i, i] > small[best, best]:
                best = i
        values[place] = small[best, best]
        small[best, best] = -np.inf
        signed_column(turned[best], basis, place)
