"""Ray: workers of a cluster read and sum rows, ``stream.absorb(dataset, RayExecutor())``."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class RayExecutor:
    """Executor for `Stream.absorb` whose workers are those of a Ray cluster, to which this process is connected.

    ``workers`` is the number of tasks that run at a time, by default that of the cluster's CPUs.
    """

    def __init__(self, *, workers: int | None = None) -> None:
        import ray

        if not ray.is_initialized():
            ray.init()
        self.workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._call = ray.remote(lambda fn, item: fn(item))

    def submit(self, fn: Callable[[Any], Any], item: Any) -> Future[Any]:
        """Call a function with an item in a worker."""
        future: Future[Any] = self._call.remote(fn, item).future()
        return future
