"""A compiled parse of plain CSV text, by numba (extra ``fast``): correctly rounded, or not at all.

A decimal with an integer mantissa up to 2**53 and a power of ten up to 10**22
is one exact integer times or divided by an exact power, so the one rounding
of that operation is the right one (Clinger 1990). Other decimals of up to 19
digits are multiplied by a power of five to 128 bits, which suffices to round
correctly (Eisel and Lemire: Lemire 2021, Mushtak and Lemire 2023). Everything
else is left to the other parsers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca.linalg.compiled import compile_ahead
from streampca.linalg.types import FloatArray, IntArray

_POWERS = np.array([float(10**k) for k in range(23)])
_EXACT = np.uint64(2**53)
_MOST_DIGITS = 19  # a uint64 holds them
_LEAST, _MOST = -330, 300  # powers of ten, of 1 to 19 digits
_SMALL = (-27, 55)  # powers of ten for which the 128 bits give exact quotients and products
_SIGNATURE = "int64(Array(uint8, 1, 'C', readonly=True), uint8, int64[::1], float64[:, ::1])"


def _fives() -> Any:
    """The 128 leading bits of 5**q as two words each: rounded down, but up where they divide by less than 2**63."""
    words = np.empty((_MOST - _LEAST + 1, 2), dtype=np.uint64)
    for q in range(_LEAST, _MOST + 1):
        power = 5 ** abs(q)
        shift = 128 - power.bit_length()
        if q < 0:
            bits = (1 << (255 - shift)) // power + (q >= _SMALL[0])
        else:
            bits = power << shift if shift > 0 else power >> -shift
        words[q - _LEAST] = bits >> 64, bits & (2**64 - 1)
    return words


_FIVES = _fives()


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """The two words of a 64 x 64 bit product."""
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    cross = (a & low) * (b >> half)
    middle = (a >> half) * (b & low) + (((a & low) * (b & low)) >> half) + (cross & low)
    return (a >> half) * (b >> half) + (cross >> half) + (middle >> half), a * b


def _rounded(mantissa: Any, power: int) -> Any:
    """The bits of mantissa * 10**power, correctly rounded; 0 if that is not sure. The mantissa is not 0.

    The product with the first word is short of the true one by less than a
    unit of ``high``, which no carry takes past nine bits that are not all
    ones. Then with both words it is exact for small powers, and short by less than two units of
    ``low`` otherwise. So ``bits`` is the true product, rounded down. What was dropped is
    not zero unless the power is between -4 and 23, so a half is to be rounded up, but for ties there.
    """
    one = np.uint64(1)
    if power < _LEAST or power > _MOST:
        return np.uint64(0)
    zeros = 0
    for step in (32, 16, 8, 4, 2, 1):
        if mantissa >> np.uint64(64 - step) == 0:
            mantissa <<= np.uint64(step)
            zeros += step
    high, low = product(mantissa, _FIVES[power - _LEAST, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        more = product(mantissa, _FIVES[power - _LEAST, 1])[0]
        low += more
        if more > low:
            high += one
        if low >= np.uint64(2**64 - 2) and (power < _SMALL[0] or power > _SMALL[1]):
            return np.uint64(0)
    top = high >> np.uint64(63)
    shift = top + np.uint64(9)
    bits = high >> shift
    exponent = ((217706 * power) >> 16) + 63 + np.int64(top) - zeros + 1023
    if exponent <= 0 or exponent >= 2046:
        return np.uint64(0)
    if low <= one and -4 <= power <= 23 and bits & np.uint64(3) == one and bits << shift == high:
        bits -= one
    bits = (bits + (bits & one)) >> one
    if bits == np.uint64(2**53):
        bits = np.uint64(2**52)
        exponent += 1
    return (bits - np.uint64(2**52)) | (np.uint64(exponent) << np.uint64(52))


def _parse(text: Any, delimiter: Any, slots: IntArray, out: FloatArray) -> int:
    """Fill rows with the cells of text that ends with a line end; return how many, or -1 if anything is unusual.

    Cells are ``-1.25`` or ``3e-7``. ``slots`` holds the place of every column
    in a row of ``out``, -1 for those that are not wanted.
    """
    at, row, width = 0, 0, slots.size
    words = out.view(np.uint64)
    while at < text.size:
        if row == out.shape[0]:
            return -1
        for column in range(width):
            end = np.uint8(10) if column == width - 1 else delimiter
            slot = slots[column]
            if slot < 0:
                while text[at] != delimiter and text[at] != 10:
                    at += 1
            else:
                negative = text[at] == 45
                if negative:
                    at += 1
                mantissa, start = np.uint64(0), at
                digit = np.uint8(text[at] - np.uint8(48))
                while digit <= 9:
                    mantissa = mantissa * np.uint64(10) + np.uint64(digit)
                    at += 1
                    digit = np.uint8(text[at] - np.uint8(48))
                digits = at - start
                power: Any = 0
                if text[at] == 46:
                    at += 1
                    first = at
                    digit = np.uint8(text[at] - np.uint8(48))
                    while digit <= 9:
                        mantissa = mantissa * np.uint64(10) + np.uint64(digit)
                        at += 1
                        digit = np.uint8(text[at] - np.uint8(48))
                    power = first - at
                    digits -= power
                if digits == 0:
                    return -1
                if digits > _MOST_DIGITS:  # zeros in front do not count
                    while text[start] == 48 or text[start] == 46:
                        digits -= text[start] == 48
                        start += 1
                    if digits > _MOST_DIGITS:
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
                if mantissa <= _EXACT and -22 <= power <= 22:
                    value = np.float64(np.int64(mantissa))
                    value = value / _POWERS[-power] if power < 0 else value * _POWERS[power]
                    out[row, slot] = -value if negative else value
                elif mantissa == 0:
                    out[row, slot] = -0.0 if negative else 0.0
                else:
                    bits = rounded(mantissa, power)
                    if bits == 0:
                        return -1
                    words[row, slot] = bits | (np.uint64(negative) << np.uint64(63))
                if end == 10 and text[at] == 13:
                    at += 1
            if text[at] != end:
                return -1
            at += 1
        row += 1
    return row


product = compile_ahead("UniTuple(uint64, 2)(uint64, uint64)", nogil=True)(_product)
rounded = compile_ahead("uint64(uint64, int64)", nogil=True)(_rounded)
parse = compile_ahead(_SIGNATURE, nogil=True)(_parse)
