"""exp(-x) for rational x in integers, with a bound on the error; and exact comparison with it.

Used where a sampler has to decide whether a uniform number, whose binary digits
are drawn as they are needed, is below a value of exp. No floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

_GUARD = 24


@lru_cache(maxsize=16)
def _ln2(bits: int) -> int:
    """The logarithm of 2 in units of 2**-bits, from sum 1/(k 2**k); below the truth by less than 2**8 units."""
    total, power, k = 0, 1 << bits, 1
    while power:
        power >>= 1
        total += power // k
        k += 1
    return total


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers ``low <= 2**bits * exp(-numerator/denominator) <= high`` with high - low = 2."""
    work = bits + _GUARD
    x = (numerator << work) // denominator
    ln2 = _ln2(work)
    halvings, x = divmod(x, ln2)
    if halvings > work + 2:
        return -1, 1
    # Taylor's series; all terms are rounded down, so the sum is off by at most one unit a term.
    one = 1 << work
    total, term, k = one, one, 0
    while term:
        k += 1
        term = (term * x >> work) // k
        total += -term if k & 1 else term
    # Rounding x and ln 2 costs below 2**8 (halvings + 1) units, the series below 2**7; all far below 2**24.
    middle = total >> (halvings + _GUARD)
    return middle - 1, middle + 1


def is_below(whole: int, scale: int, numerator: int, denominator: int, word: Callable[[], int]) -> bool:
    """Whether U < scale * exp(-numerator/denominator), for U uniform in [whole, whole + 1).

    Binary digits of U are taken from ``word`` (uniform 64-bit integers) until
    the answer is certain, so it is exact.
    """
    bits, fraction = 0, 0
    while True:
        bits += 64
        fraction = fraction << 64 | word()
        low, high = exp_bounds(numerator, denominator, bits + scale.bit_length())
        shift = scale.bit_length()
        uniform = (whole << bits | fraction) << shift
        if uniform + (1 << shift) <= scale * low:
            return True
        if uniform >= scale * high:
            return False
