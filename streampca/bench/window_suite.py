"""A sliding window, beside river's covariance of a rolling window."""

from __future__ import annotations

from functools import partial

from streampca.bench.peers import rolling_covariance
from streampca.bench.row_suite import COMPONENTS, unit_rows
from streampca.bench.timing import Contender, Result, take_turns
from streampca.linalg.types import FloatArray
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.stream import Stream

EVERY = 100
FEATURES = 20
_RIVER_WINDOW = 500


def run_window(rounds: int, *, small: bool = False) -> list[Result]:
    """The suite. river runs on a shorter window: its time a row does not depend on the length."""
    window, count = (500, 1000) if small else (10_000, 20_000)
    theirs = unit_rows(600 if small else 1500, FEATURES)
    rows = unit_rows(count, FEATURES)
    peer = f"river Rolling(EmpiricalCovariance) + eigh, window {_RIVER_WINDOW}, not private"
    found = [Contender(peer, len(theirs), partial(rolling_covariance, theirs, _RIVER_WINDOW, EVERY))]
    found += [
        Contender(f"SlidingWindowPCA, {method}, window {window}", count, partial(_follow, rows, window, method))
        for method in ("histogram", "ring")
    ]
    title = f"rows x {FEATURES} features one at a time, a release every {EVERY} rows, each read"
    result = Result("window", title, take_turns(found, rounds))
    histogram = result.timed[1]
    result.require(f"{histogram.name} against river", ">=", 10.0, histogram.faster_than(result[peer]))
    return [result]


def _follow(rows: FloatArray, window: int, method: str) -> None:
    algorithm = SlidingWindowPCA(
        window=window,
        n_components=COMPONENTS,
        epsilon=1.0,
        delta=1e-6,
        release_every=EVERY,
        method=method,  # type: ignore[arg-type]
    )
    stream = Stream(algorithm, regret=None)
    for row in rows:
        release = stream.push(row).release
        if release is not None:
            release.subspace  # noqa: B018  computed when read
