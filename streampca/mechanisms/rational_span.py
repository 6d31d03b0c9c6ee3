"""Spans of rows in exact arithmetic: integers only, no tolerance.

Every finite float is a dyadic rational, so scaling each row by a power of two makes it a vector of integers on the same
line. A span is identified by its reduced row echelon form over the rationals, each row cleared of denominators: one
form for one subspace, whatever rows it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import BadRowError
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import checked_rows

#: A vector of integers without a common factor, its first non-zero entry positive; zero stays zero.
Line = tuple[int, ...]
#: A subspace: its reduced row echelon form with primitive rows, by ascending pivot.
Span = tuple[Line, ...]

_EXACT = 2**53


def exact_rows(rows: npt.ArrayLike | Sequence[Sequence[Any]]) -> FloatArray:
    """Rows of integers, fractions or floats as floats that lie on exactly the same lines.

    Floats are taken at their exact binary value. Rows of integers or fractions are cleared of denominators and common
    factors. A row of fractions that needs integers beyond 2**53, or is not rational, raises `BadRowError`.
    """
    try:
        given = np.asarray(rows)
    except ValueError as problem:
        raise BadRowError(f"rows are not one table ({problem}); give an (n, d) array of finite numbers") from problem
    if (
        given.dtype.kind in "fb"
        or given.size == 0
        or (given.dtype.kind in "iu" and given.min() >= -_EXACT and given.max() <= _EXACT)
    ):
        return given.astype(np.float64)
    if given.ndim != 2 or given.dtype.kind not in "iuO":
        return checked_rows(rows)  # raises with the reason
    made = np.empty(given.shape)
    for i, row in enumerate(given.tolist()):
        try:
            fractions = [Fraction(entry) for entry in row]
        except (TypeError, ValueError, OverflowError) as problem:
            raise BadRowError(
                f"row {i} is not a row of rational numbers ({problem}); give integers or fractions"
            ) from problem
        scale = math.lcm(*(f.denominator for f in fractions))
        line = primitive([int(f * scale) for f in fractions])
        if max(map(abs, line)) > _EXACT:
            raise BadRowError(f"row {i} needs integers beyond 2**53 to be exact; round its entries to a coarser grid")
        made[i] = line
    return made


def lines_of(rows: FloatArray) -> list[Line]:
    """The line through each row, exactly; zero rows give zero tuples."""
    mantissas, exponents = np.frexp(rows)
    whole = (mantissas * 2.0**53).astype(np.int64)
    exponents = np.where(whole == 0, exponents.max(initial=0), exponents)
    shifts = exponents - exponents.min(axis=1, keepdims=True, initial=2**31 - 1)
    return [
        primitive([m << s if m else 0 for m, s in zip(ms, ss, strict=True)])
        for ms, ss in zip(whole.tolist(), shifts.tolist(), strict=True)
    ]


def primitive(vector: Iterable[int]) -> Line:
    """Divide by the common factor and make the first non-zero entry positive."""
    entries = list(vector)
    factor = math.gcd(*entries)
    if factor == 0:
        return tuple(entries)
    if next(e for e in entries if e) < 0:
        factor = -factor
    return tuple(e // factor for e in entries)


def span_of(lines: Iterable[Line], stop_above: int | None = None) -> Span:
    """The span of some lines, or of the first of them that exceed the rank ``stop_above``."""
    echelon: dict[int, Line] = {}
    for line in lines:
        left = list(line)
        for pivot in sorted(echelon):
            if left[pivot]:
                left = _eliminate(left, echelon[pivot], pivot)
        if not any(left):
            continue
        new = primitive(left)
        lead = next(i for i, e in enumerate(new) if e)
        for pivot, row in echelon.items():
            if row[lead]:
                echelon[pivot] = primitive(_eliminate(list(row), new, lead))
        echelon[lead] = new
        if stop_above is not None and len(echelon) > stop_above:
            break
    return tuple(echelon[pivot] for pivot in sorted(echelon))


def orthonormal_basis(span: Span, n_features: int) -> FloatArray:
    """Orthonormal basis (d, k) of a span: Gram-Schmidt in exact integers, rounded once at the end."""
    done: list[Line] = []
    for row in span:
        left = list(row)
        for other in done:
            dot, square = _dot(left, other), _dot(other, other)
            left = list(primitive(square * a - dot * b for a, b in zip(left, other, strict=True)))
        done.append(tuple(left))
    basis = np.zeros((n_features, len(done)))
    for i, line in enumerate(done):
        peak = max(map(abs, line))
        column = np.array([float(Fraction(e, peak)) for e in line])
        basis[:, i] = column / np.linalg.norm(column)
    return fix_signs(basis) if done else basis


def _eliminate(row: list[int], by: Line, pivot: int) -> list[int]:
    a, b = by[pivot], row[pivot]
    factor = math.gcd(a, b)
    a, b = a // factor, b // factor
    return [a * x - b * y for x, y in zip(row, by, strict=True)]


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
