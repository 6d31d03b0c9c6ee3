"""BLAS in one thread: for small matrices, and in processes that streampca starts.

Handing a small matrix to several threads takes longer than the arithmetic. Where the cores are busy it takes many times
as long, and numpy and scipy each bring a BLAS with threads of its own, which wait for each other's cores.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController, threadpool_limits

# Columns from which BLAS hands a (d, d) matrix to several threads, and up to which one is enough.
_FEW, _MANY = 64, 512


class OneThread:
    """BLAS in one thread inside a ``with`` block, for matrices of some columns."""

    # The setting belongs to the process: BLAS calls of other threads run in one thread in the meantime, too. Above 512
    # columns, ``n_features``, BLAS uses its threads; below ``least`` it starts none anyway.

    __slots__ = ("_changed", "_wanted")

    def __init__(self, n_features: int = _FEW, least: int = _FEW) -> None:
        self._wanted = least <= n_features <= _MANY

    def __enter__(self) -> None:
        # Libraries with more than one thread, and their numbers, to be restored.
        self._changed: list[tuple[Any, int]] = []
        for library in _libraries() if self._wanted else ():
            if (count := library.get_num_threads()) > 1:
                library.set_num_threads(1)
                self._changed.append((library, count))

    def __exit__(self, *error: object) -> None:
        for library, count in self._changed:
            library.set_num_threads(count)


@cache
def _libraries() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread for the rest of the process: in workers and by the command line only."""
    threadpool_limits(limits=1, user_api="blas")
