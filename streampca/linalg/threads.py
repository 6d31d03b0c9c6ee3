"""One BLAS thread, in processes that are streampca's own."""

from __future__ import annotations

from functools import cache

from threadpoolctl import threadpool_limits


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread for the rest of the process, the first time it is called.

    The matrices here are small: handing them to several threads takes longer
    than the arithmetic, and on a busy machine ten times as long. For worker
    processes and the command line: as a library streampca leaves the threads of
    the process it is in alone, and who wants the limit sets ``OPENBLAS_NUM_THREADS=1``
    or uses `threadpoolctl.threadpool_limits`.
    """
    threadpool_limits(limits=1, user_api="blas")
