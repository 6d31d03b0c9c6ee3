"""A compiled parse of the plainest CSV text, by numba (extra ``fast``): correctly rounded, or not at all.

A decimal with an integer mantissa up to 2**53 and a power of ten up to 10**22
is one exact integer times or divided by an exact power, so the one rounding
of that operation is the right one (Clinger 1990). Everything else is left to
the other parsers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streampca.linalg.types import FloatArray, IntArray

_POWERS = np.array([float(10**k) for k in range(23)])
_EXACT = 2**53
_MOST_DIGITS = 18  # an int64 holds them
_SIGNATURE = "int64(Array(uint8, 1, 'C', readonly=True), uint8, int64[::1], float64[:, ::1])"


def _parse(text: Any, delimiter: Any, slots: IntArray, out: FloatArray) -> int:
    """Fill rows with the cells of text that ends with a line end; return how many, or -1 if anything is unusual.

    Cells are ``-1.25`` or ``3e-7``. ``slots`` holds the place of every column
    in a row of ``out``, -1 for those that are not wanted.
    """
    at, row, width = 0, 0, slots.size
    while at < text.size:
        if row == out.shape[0]:
            return -1
        for column in range(width):
            end = np.uint8(10) if column == width - 1 else delimiter
            if slots[column] < 0:
                while text[at] != delimiter and text[at] != 10:
                    at += 1
            else:
                negative = text[at] == 45
                if negative:
                    at += 1
                mantissa: Any = 0
                first = at
                digit = np.uint8(text[at] - np.uint8(48))
                while digit <= 9:
                    mantissa = mantissa * 10 + np.int64(digit)
                    at += 1
                    digit = np.uint8(text[at] - np.uint8(48))
                digits = at - first
                power: Any = 0
                if text[at] == 46:
                    at += 1
                    first = at
                    digit = np.uint8(text[at] - np.uint8(48))
                    while digit <= 9:
                        mantissa = mantissa * 10 + np.int64(digit)
                        at += 1
                        digit = np.uint8(text[at] - np.uint8(48))
                    power = first - at
                    digits -= power
                if digits == 0 or digits > _MOST_DIGITS or mantissa > _EXACT:
                    return -1
                if text[at] == 101 or text[at] == 69:
                    at += 1
                    down = text[at] == 45
                    if down or text[at] == 43:
                        at += 1
                    exponent: Any = 0
                    first = at
                    digit = np.uint8(text[at] - np.uint8(48))
                    while digit <= 9 and at - first < 4:
                        exponent = exponent * 10 + np.int64(digit)
                        at += 1
                        digit = np.uint8(text[at] - np.uint8(48))
                    if at == first:
                        return -1
                    power += -exponent if down else exponent
                if power < -22 or power > 22:
                    return -1
                value = np.float64(mantissa)
                value = value / _POWERS[-power] if power < 0 else value * _POWERS[power]
                out[row, slots[column]] = -value if negative else value
                if end == 10 and text[at] == 13:
                    at += 1
            if text[at] != end:
                return -1
            at += 1
        row += 1
    return row


try:
    parse = njit(_SIGNATURE, nogil=True, cache=True)(_parse)
except RuntimeError:  # nowhere to write
    parse = njit(_SIGNATURE, nogil=True)(_parse)
