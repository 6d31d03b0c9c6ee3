"""Spans of rows in exact arithmetic: integers only, no tolerance.

Finite floats are dyadic rationals, so a row times a power of two is a vector of integers on the same line. A span is
identified by its reduced row echelon form over the rationals, each row cleared of denominators.
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
    """Return rows of integers, fractions or floats as floats on exactly the same lines.

    Integers and fractions are cleared of denominators and common factors; a row that is not rational, or needs integers
    beyond 2**53, raises `BadRowError`.
    """
    try:
        table = np.asarray(rows)
    except ValueError as problem:
        raise BadRowError(f"rows are not one table ({problem}). Pass an (n, d) array of finite numbers.") from problem
    whole = table.dtype.kind in "iu" and table.size and table.min() >= -_EXACT and table.max() <= _EXACT
    if table.dtype.kind in "fb" or table.size == 0 or whole:
        return table.astype(np.float64)
    if table.ndim != 2 or table.dtype.kind not in "iuO":
        return checked_rows(rows)  # raises with the reason
    lines = np.empty(table.shape)
    for i, row in enumerate(table.tolist()):
        try:
            fractions = [Fraction(entry) for entry in row]
        except (TypeError, ValueError, OverflowError) as problem:
            raise BadRowError(f"row {i} is not rational ({problem}). Pass integers or fractions.") from problem
        scale = math.lcm(*(f.denominator for f in fractions))
        line = primitive([int(f * scale) for f in fractions])
        if max(map(abs, line)) > _EXACT:
            raise BadRowError(f"row {i} needs integers beyond 2**53 to be exact. Round its entries to a coarser grid.")
        lines[i] = line
    return lines


def lines_of(rows: FloatArray) -> list[Line]:
    """Return the line through each row, exactly; zero rows give zero tuples."""
    mantissas, exponents = np.frexp(rows)
    # A mantissa times 2**53 is a whole number; shifts by the least exponent of the row make the entries integers.
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
    """Return the span of some lines, or of the first of them that exceed the rank ``stop_above``."""
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
    """Return an orthonormal basis (d, k) of a span: Gram-Schmidt in exact integers, rounded once at the end."""
    done: list[Line] = []
    for row in span:
        left = list(row)
        for other in done:
            dot = sum(a * b for a, b in zip(left, other, strict=True))
            square = sum(b * b for b in other)
            left = list(primitive(square * a - dot * b for a, b in zip(left, other, strict=True)))
        done.append(tuple(left))
    basis = np.zeros((n_features, len(done)))
    for i, line in enumerate(done):
        peak = max(map(abs, line))
        column = np.array([float(Fraction(e, peak)) for e in line])
        basis[:, i] = column / np.linalg.norm(column)
    return fix_signs(basis) if done else basis


def _eliminate(row: list[int], by: Line, pivot: int) -> list[int]:
    """Subtract a multiple of another line so that the entry at the pivot vanishes, without fractions."""
    a, b = by[pivot], row[pivot]
    factor = math.gcd(a, b)
    a, b = a // factor, b // factor
    return [a * x - b * y for x, y in zip(row, by, strict=True)]
