"""One BLAS thread a process."""

from __future__ import annotations

from functools import cache

from threadpoolctl import threadpool_limits


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread for the rest of the process, the first time it is called.

    The matrices here are small: handing them to several threads takes longer
    than the arithmetic, and on a busy machine ten times as long. A program
    that wants threads for work of its own sets them after its first stream
    has started, with `threadpoolctl.threadpool_limits`.
    """
    threadpool_limits(limits=1, user_api="blas")
