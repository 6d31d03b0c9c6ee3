"""The whole of ``streampca run`` on a CSV file, beside pandas parsing the same file in chunks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from streampca.bench.peers import pandas_chunks
from streampca.bench.timing import Contender, Result, take_turns
from streampca.linalg import fast
from streampca.sources import from_csv
from streampca.sources.synthetic import spiked

PEER = "pandas.read_csv in chunks of 10 000 rows"
RUN = "streampca run, a release every 1000 rows"
_NOTE = (
    "by the clock, on whatever cores there are; nothing is done in a thread of its own. Where numba is (extra fast), "
    "half of it is reading and parsing, in half the time of pandas; elsewhere pandas parses, some 1.4 times as long as "
    "by itself, since the layout of the text is checked and cells may mean a missing value. Then rows are admitted, "
    "scored and added up, an eigenproblem is solved a release, and releases are written as JSON. The regret is "
    "computed at the end, as nobody follows it (--regret writes a record every 1000 rows: one more eigenproblem each)"
)


def run_csv(
    rounds: int, *, run_file: Callable[[Path], object], small: bool = False, rows: int | None = None
) -> list[Result]:
    """The suite. The table is in CPU seconds of all threads, the bar by the clock, as reading can wait.

    Parameters
    ----------
    run_file : the command, from the rim, as in a script: no terminal, no regret file.
    """
    count, features = rows or (2000 if small else 200_000), 20
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        table = np.concatenate(list(spiked(count, features, 5, seed=1).blocks()))
        np.savetxt(
            file, table, fmt="%.6f", delimiter=",", header=",".join(f"x{i}" for i in range(features)), comments=""
        )
        del table
        found = [
            Contender(PEER, count, partial(pandas_chunks, file, 10_000)),
            Contender(RUN, count, partial(run_file, file)),
            Contender("its parse alone", count, partial(_parse, file)),
        ]
        if fast.kernels is not None:
            found += [
                Contender(f"{RUN}, without the extra fast", count, partial(_plainly, run_file, file)),
                Contender("its parse alone, without the extra fast", count, partial(_plainly, _parse, file)),
            ]
        size = file.stat().st_size / 1e6
        timed = take_turns(found, rounds)
    result = Result("csv", f"{count} rows x {features} columns, {size:.0f} MB", timed)
    clocks = [t.by_the_clock for t in timed]
    for clock in clocks[1:]:
        result.facts.append(f"  {1.0 / clock.faster_than(clocks[0]):.2f} times pandas by the clock: {clock.name}")
    value = 1.0 / result[RUN].by_the_clock.faster_than(clocks[0])
    result.require(f"{RUN}, by the clock, against {PEER}", "<=", 1.6, value, _NOTE)
    return [result]


def _parse(file: Path) -> None:
    for _ in from_csv(file).blocks():
        pass


def _plainly(work: Callable[[Path], object], file: Path) -> None:
    """Do it without compiled kernels."""
    before = fast.use(False)
    try:
        work(file)
    finally:
        fast.use(before)
