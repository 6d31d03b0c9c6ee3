"""Where the time of a row goes: ``make profile``, or ``python -m streampca.bench.profile FEATURES FAST``."""

from __future__ import annotations

import cProfile
import pstats
import sys

from threadpoolctl import threadpool_limits

from streampca.bench.row_suite import push_rows, unit_rows


def profile(n_features: int, compiled: bool, rows: int = 3000, lines: int = 30) -> None:
    """Print the functions that take most of the time when every row is released and scored.

    A profiler makes calls dearer and leaves arithmetic as it is: read it as
    an order, and the times of ``streampca bench row`` as times.
    """
    table = unit_rows(rows, n_features)
    push_rows(table[:200], "tracking", compiled=compiled)
    profiler = cProfile.Profile()
    profiler.enable()
    push_rows(table, "tracking", compiled=compiled)
    profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(lines)


if __name__ == "__main__":
    with threadpool_limits(1):
        profile(int(sys.argv[1]), compiled=sys.argv[2] != "0")
