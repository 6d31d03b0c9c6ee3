"""Exact packed sums as two words, units of 1 and of 2**-40: what `GramSum.words` returns."""

from __future__ import annotations

from streampca.linalg.svec import mirror
from streampca.linalg.types import IntArray

UNIT_BITS = 40
UNIT = 2.0**UNIT_BITS
LOW = (1 << UNIT_BITS) - 1

Words = tuple[IntArray, IntArray]


def is_plausible(words: Words, count: int, n_features: int) -> bool:
    """False if a sum cannot be that of so many rows of the unit ball: its trace or a diagonal entry tells.

    True proves nothing: whether each row was admitted cannot be told from their sum.
    """
    high, low = words
    at = mirror(n_features).diagonal()
    trace = (int(high[at].sum()) << UNIT_BITS) + int(low[at].sum())
    return bool(trace <= count << UNIT_BITS and high[at].min() >= 0 and low.min() >= 0 and low.max() <= LOW)
