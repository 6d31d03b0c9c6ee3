"""Keeping a board up to date with the files of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streampca.dashboard.curator import CuratorBoard
from streampca.dashboard.files import CuratorRun, PublicRun
from streampca.dashboard.public import PublicBoard


def publish(board: PublicBoard, run: PublicRun) -> bool:
    """Take in what has come; False if nothing has."""
    releases = run.new_releases()
    if run.parameters:
        board.describe(run.parameters)
    board.add(releases)
    records = run.new_regret()
    board.add_regret(records)
    return bool(releases or records)


def tell(board: CuratorBoard, run: CuratorRun) -> bool:
    """Take in exact regret that has come; False if none has. Curator only."""
    records = run.new_records()
    board.add(records)
    if records:
        board.count(rows=records[-1].t, rows_per_second=None, bad_rows=None)
    return bool(records)


def follow(
    looks: list[Callable[[], bool]],
    stop: threading.Event,
    *,
    every: float = 0.5,
    settled: Callable[[], None] | None = None,
) -> None:
    """Look for news until asked to stop; while there is any, at once again.

    ``settled`` is called whenever nothing has come for a while: a finished
    run shows its last release, whatever was thinned out.
    """
    quiet = time.monotonic()
    while not stop.is_set():
        news = [look() for look in looks]
        if any(news):
            quiet = time.monotonic()
            continue
        if settled is not None and time.monotonic() - quiet > 3.0:
            settled()
            settled = None
        stop.wait(every)
