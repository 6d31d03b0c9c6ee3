"""Values that are computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.linalg.types import FloatArray, IntArray

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 replaces that of functools
        """`functools.cached_property` without its lock."""

        # Before Python 3.12, `functools.cached_property` holds one lock for all instances while a value is computed; in
        # the child of a fork, a lock that another thread held is never released.

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class Columns:
    """Products of the columns of a strategy with the latest of them, which ``products`` returns.

    They are public, and have the same bits by themselves and in the table that is made once many are asked for.
    """

    def __init__(self, products: Callable[[IntArray, int], FloatArray]) -> None:
        self._products = products
        self._latest: tuple[int, int, FloatArray | None] = 0, 0, None  # a column, how often it was asked for, the table

    def products(self, columns: IntArray, n: int) -> FloatArray:
        """Return the products of columns up to n with column n."""
        latest, count, table = self._latest
        if latest != n:
            count, table = 0, None
        if table is None and n <= 4 * count:
            table = self._products(np.arange(1, n + 1), n)
        self._latest = n, count + 1, table  # one assignment, for interrupts
        return self._products(columns, n) if table is None else table[columns - 1]
