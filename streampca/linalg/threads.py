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
    """BLAS in one thread inside a ``with`` block, for matrices of some columns; elsewhere as it was.

    The number belongs to the process: what other threads compute in the meantime runs in one thread, too.

    Parameters
    ----------
    n_features : columns of the matrices; above 512 they are left to BLAS. Left out, none are that large.
    least : columns below which BLAS starts no threads anyway.
    """

    __slots__ = ("_changed", "_wanted")

    def __init__(self, n_features: int = _FEW, least: int = _FEW) -> None:
        self._wanted = least <= n_features <= _MANY

    def __enter__(self) -> None:
        self._changed = _limited() if self._wanted else ()

    def __exit__(self, *error: object) -> None:
        for library, count in self._changed:
            library.set_num_threads(count)


def _limited() -> tuple[tuple[Any, int], ...]:
    """Set each library to one thread; return those that had more, and how many."""
    more = tuple((library, count) for library in _libraries() if (count := library.get_num_threads()) > 1)
    for library, _ in more:
        library.set_num_threads(1)
    return more


@cache
def _libraries() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread for the rest of the process, the first time it is called.

    Used in worker processes and by the command line only: as a library, streampca limits threads inside its own calls
    (`OneThread`).
    """
    threadpool_limits(limits=1, user_api="blas")
