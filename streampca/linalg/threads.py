"""Limit BLAS to one thread, in processes that streampca starts."""

from __future__ import annotations

from functools import cache

from threadpoolctl import threadpool_limits


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread for the rest of the process, the first time it is called.

    The matrices here are small: distributing them over several threads takes longer
    than the arithmetic, and on a busy machine ten times as long. Used in worker
    processes and by the command line only: as a library, streampca does not change the threads of
    its process. To limit them, set ``OPENBLAS_NUM_THREADS=1`` or use `threadpoolctl.threadpool_limits`.
    """
    threadpool_limits(limits=1, user_api="blas")
