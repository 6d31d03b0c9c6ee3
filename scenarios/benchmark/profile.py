"""Profile of a row: ``make profile``, or ``python -m benchmark.profile FEATURES FAST`` in ``scenarios/``."""

from __future__ import annotations

import cProfile
import io
import pstats
import sys
from functools import partial

from threadpoolctl import threadpool_limits

from benchmark.cases import leader, push
from benchmark.peers import unit_rows
from streampca.processors.solvers import Tracking


def profile(n_features: int, compiled: bool, rows: int = 3000, lines: int = 30) -> str:
    """The functions that take most of the time when every row is released, read and scored.

    A profiler slows calls and not arithmetic: only the order is meaningful.
    Times are those of ``python scenarios/bench.py row``.
    """
    table, tracking = unit_rows(rows, n_features), partial(leader, solver=Tracking())
    push(table[:200], tracking, compiled=compiled)
    profiler = cProfile.Profile()
    profiler.enable()
    push(table, tracking, compiled=compiled)
    profiler.disable()
    out = io.StringIO()
    pstats.Stats(profiler, stream=out).strip_dirs().sort_stats("tottime").print_stats(lines)
    return out.getvalue()


if __name__ == "__main__":
    with threadpool_limits(1):
        print(profile(int(sys.argv[1]), compiled=sys.argv[2] != "0"))
