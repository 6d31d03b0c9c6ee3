"""The whole of ``streampca run`` on a CSV file, beside pandas parsing the same file in chunks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from streampca.bench.peers import pandas_chunks
from streampca.bench.timing import Contender, Result, take_turns
from streampca.sources.synthetic import spiked

PEER = "pandas.read_csv in chunks of 10 000 rows"
_NOTE = (
    "our parse alone takes some 1.5 times what pandas takes by itself: the same parser, after the layout of the text "
    "is checked, with cells that mean a missing value; then rows are admitted, scored and added up, two eigenproblems "
    "are solved a release (it, and the best subspace of its regret record), and releases are written as JSON"
)


def run_csv(
    rounds: int, *, run_file: Callable[[Path], object], small: bool = False, rows: int | None = None
) -> list[Result]:
    """The suite: CPU seconds of all threads. ``run_file`` is the command, from the rim."""
    count, features = rows or (2000 if small else 200_000), 20
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        table = np.concatenate(list(spiked(count, features, 5, seed=1).blocks()))
        np.savetxt(
            file, table, fmt="%.6f", delimiter=",", header=",".join(f"x{i}" for i in range(features)), comments=""
        )
        found = [
            Contender(PEER, count, partial(pandas_chunks, file, 10_000)),
            Contender("streampca run, a release every 1000 rows", count, partial(run_file, file)),
        ]
        size = file.stat().st_size / 1e6
        timed = take_turns(found, rounds)
    result = Result("csv", f"{count} rows x {features} columns, {size:.0f} MB", timed)
    value = 1.0 / timed[-1].faster_than(timed[0])
    result.require(f"{timed[-1].name}, against {PEER}", "<=", 1.6, value, _NOTE)
    return [result]
