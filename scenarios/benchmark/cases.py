"""The suites of ``scenarios/bench.py``: what is timed, beside what, and the figures to reach.

`SUITES` is the table of them. To add a case, add a `Contender` to a
comparison, or a function that yields comparisons to the table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmark import peers
from benchmark.peers import COMPONENTS, unit_rows
from benchmark.scale import measure_scale
from benchmark.timing import Comparison, Contender, Goal, Result
from streampca import _native
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.noises import Tree
from streampca.mechanisms.adaptive import AdaptiveCovariance
from streampca.processors.base import Algorithm
from streampca.processors.dp_pca import DPPCA
from streampca.processors.oja import Oja
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.solvers import Smoothed, Tracking
from streampca.processors.tumbling import Tumbling
from streampca.regret.regret import RegretLog
from streampca.sources import from_csv
from streampca.sources.synthetic import spiked
from streampca.stream.stream import Stream

INCREMENTAL = "scikit-learn IncrementalPCA.partial_fit a row, not private"
FLOOR = "floor: draws, buffers, sum, power step and Ritz values of a row, and nothing else"


def run_suite(
    name: str, rounds: int, *, run_file: Callable[[Path], object], small: bool = False, full: bool = False
) -> Iterator[Result]:
    """Measure one suite of `SUITES`, or ``scale``.

    Parameters
    ----------
    name : of the suite.
    rounds : rounds that are counted.
    run_file : ``streampca run`` on a CSV file, without terminal and regret file.
    small, full : size of the rows.
    """
    if name == "scale":
        most = 10_000_000 if full else 20_000 if small else 500_000
        yield measure_scale(rounds, small=small, full=full, memory_rows=most)
        return
    for comparison in SUITES[name](small=small, full=full, run_file=run_file):
        yield comparison.run(name, rounds)


def leader(rows: FloatArray, every: int = 1, times: int = 1, **further: Any) -> PrivateFPL:
    """Private PCA of so many rows, so many times."""
    return PrivateFPL(
        n_components=COMPONENTS, epsilon=1.0, delta=1e-6, horizon=times * len(rows), release_every=every,
        **further,
    )  # fmt: skip


def push(
    rows: FloatArray,
    make: Callable[[FloatArray], Algorithm],
    *,
    scored: bool = True,
    block: bool = False,
    compiled: bool | None = None,
    times: int = 1,
) -> None:
    """Push rows through a new stream, and read basis and eigenvalues of every release.

    Parameters
    ----------
    rows : (n, d) array.
    make : makes the algorithm, within the time that is measured.
    scored : keep the default regret.
    block : push all rows as one block, not one at a time.
    compiled : use compiled kernels, or only numpy; None for the default.
    times : how often the rows are pushed.
    """
    before = None if compiled is None else _native.use(compiled)
    try:
        stream = Stream(make(rows), regret=RegretLog() if scored else None)
        for _ in range(times):
            for release in stream.push_many(rows).releases if block else (stream.push(row).release for row in rows):
                if release is not None:
                    _ = release.subspace.basis, release.eigenvalues
        if isinstance(stream.algorithm, Oja):
            stream.engine.absorb_waiting()  # the rows that still wait for a batch
    finally:
        if before is not None:
            _native.use(before)


#: What is timed a row at a time beside IncrementalPCA: how it is made, rows between releases, and by d the ratios to
#: reach with compiled kernels and with numpy.
ROWS: dict[str, tuple[Callable[[FloatArray], Algorithm], int, dict[int, tuple[float, float]]]] = {
    "solver='exact', every row": (leader, 1, {20: (3.5, 2.5), 100: (0.6, 0.6)}),
    "solver='tracking', every row": (partial(leader, solver=Tracking()), 1, {20: (10.0, 4.5), 100: (2.5, 1.7)}),
    "solver='smoothed', every row": (partial(leader, solver=Smoothed()), 1, {20: (10.0, 4.5), 100: (2.5, 1.7)}),
    "solver='exact', every 100 rows": (partial(leader, every=100), 100, {20: (30.0, 30.0), 100: (15.0, 15.0)}),
}


def _row(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """Rows from the first on, one at a time, with default arguments; each release is read."""
    note = "see the profile of a row: docs/benchmarks.md"
    for d in (20, 100):
        n = 200 if small else 1000
        rows, many = unit_rows(n, d), unit_rows(n if small else 3000, d)
        contenders = [Contender(INCREMENTAL, n, partial(peers.incremental_pca, rows, COMPONENTS, 1), "sklearn")]
        goals = []
        for name, (make, every, bounds) in ROWS.items():
            fed = rows if every == 1 else many
            for how, compiled, bound in (("compiled", True, bounds[d][0]), ("numpy", False, bounds[d][1])):
                title, needs = f"{name}, {how}", "native" if compiled else ""
                contenders.append(Contender(title, len(fed), partial(push, fed, make, compiled=compiled), needs))
                goals.append(Goal(title, INCREMENTAL, ">=", bound, note))
        contenders.append(Contender(FLOOR, n, partial(peers.floor, rows, COMPONENTS), "native"))
        yield Comparison(
            f"warm: rows 1 to {n} x {d} features, or 1 to {len(many)}; k = {COMPONENTS}", contenders, goals
        )
    yield _others(rows)
    names = [INCREMENTAL, *ROWS][: 2 if small else None]
    yield Comparison(
        f"cold: a new process, imports and cached kernels included: rows 1 to {n} x 20 features",
        [Contender(f"{name}, cold", n, partial(_cold, name, n), "sklearn" * (name == INCREMENTAL)) for name in names],
        cold=True,
    )


def _others(rows: FloatArray) -> Comparison:
    """Every other algorithm with its defaults, none slower than IncrementalPCA."""
    n, d = rows.shape
    budget: dict[str, Any] = {"n_components": COMPONENTS, "epsilon": 1.0, "delta": 1e-6}

    def tumbling(rows: FloatArray) -> Tumbling:
        return Tumbling(AdaptiveCovariance(**budget), release_every=len(rows) // 4)

    def window(rows: FloatArray, method: Literal["histogram", "ring"]) -> SlidingWindowPCA:
        return SlidingWindowPCA(window=len(rows) // 4, method=method, release_every=len(rows) // 20, **budget)

    made: dict[str, Callable[[FloatArray], Algorithm]] = {
        "DPPCA": lambda rows: DPPCA(horizon=10**6, **budget),
        "PrivateOja": lambda rows: PrivateOja(horizon=10**6, **budget),
        f"SlidingWindowPCA, ring, every {n // 20} rows": partial(window, method="ring"),
        f"SlidingWindowPCA, histogram, every {n // 20} rows": partial(window, method="histogram"),
        f"Tumbling(AdaptiveCovariance), every {n // 4} rows": tumbling,
        "Oja": lambda rows: Oja(n_components=COMPONENTS),
    }
    contenders = [Contender(INCREMENTAL, n, partial(peers.incremental_pca, rows, COMPONENTS, 1), "sklearn")]
    contenders += [Contender(name, n, partial(push, rows, make)) for name, make in made.items()]
    goals = [Goal(name, INCREMENTAL, ">=", 1.0) for name in made]
    narrow, tree = unit_rows(n, 20), partial(leader, noise="tree")
    for name, make in (("discrete noise", partial(leader, noise=Tree(discrete=True))), ("float noise", tree)):
        contenders.append(Contender(f"noise='tree', {name}, d = 20, every row", n, partial(push, narrow, make)))
    goals.append(Goal(contenders[-2].name, contenders[-1].name, "<=", 3.0, "in the same run; both on the binary tree"))
    return Comparison(f"warm: rows 1 to {n} x {d} features, other algorithms", contenders, goals)


def _cold(name: str, count: int) -> None:
    """Do the rows of one name in a new process."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(count)]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True)  # noqa: S603


def _block(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """Blocks of rows, beside the BLAS calls alone that add up the same blocks."""
    n, times, size = (4000, 1, 1000) if small else (100_000, 10, 1000)
    rows = unit_rows(n, 64)
    shorter, tracking = 0.7 * rows, partial(leader, solver=Tracking(), every=size, times=times)
    floor = f"bare dsyrk on blocks of {size}"
    peer = f"IncrementalPCA.partial_fit, {size} rows at a time, not private"
    note = (
        "beside dsyrk, all rows are checked for what is not finite before the first is taken, then those of a release "
        "are put on the lattice (four passes over them, or one where compiled), measured, and scored; each release "
        "draws its noise, takes a power step, and its basis is read"
    )
    contenders = [Contender(floor, times * n, partial(_repeated, partial(peers.bare_dsyrk, rows, size), times))]
    goals: list[Goal] = []
    for how, compiled, needs, bounds in (("numpy", False, "", (1.4, 1.6)), ("compiled", True, "native", (1.2, 1.4))):
        whole = partial(push, block=True, compiled=compiled, times=times)
        for name, table, scored, bound in (
            (f"push_many, {how}", shorter, False, bounds[0]),
            (f"push_many, rows of norm 1, {how}", rows, False, None),
            (f"push_many with live regret, {how}", shorter, True, bounds[1]),
        ):
            contenders.append(Contender(name, times * n, partial(whole, table, tracking, scored=scored), needs))
            if bound is not None:
                goals.append(Goal(name, floor, "<=", bound, note))
    contenders.append(Contender(peer, n, partial(peers.incremental_pca, rows, COMPONENTS, size), "sklearn"))
    yield Comparison(f"{times * n} rows x 64 features, a release every {size} rows, each read", contenders, goals)


def _repeated(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


def _window(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """A sliding window, beside river's covariance of a shorter one: its time a row does not depend on the length."""
    length, n, every, d, theirs = (500, 1000, 100, 20, 600) if small else (10_000, 20_000, 100, 20, 1500)
    rows = unit_rows(n, d)
    peer = "river Rolling(EmpiricalCovariance) + eigh, window 500, not private"

    def window(_: FloatArray, method: Literal["histogram", "ring"]) -> SlidingWindowPCA:
        return SlidingWindowPCA(
            window=length, n_components=COMPONENTS, epsilon=1.0, delta=1e-6, release_every=every, method=method
        )

    histogram, ring = (f"SlidingWindowPCA, {method}, window {length}" for method in ("histogram", "ring"))
    follow = partial(push, rows, scored=False)
    yield Comparison(
        f"rows x {d} features one at a time, a release every {every} rows, each read",
        [
            Contender(peer, theirs, partial(peers.rolling_covariance, unit_rows(theirs, d), 500, every)),
            Contender(histogram, n, partial(follow, make=partial(window, method="histogram"))),
            Contender(ring, n, partial(follow, make=partial(window, method="ring"))),
        ],
        [Goal(histogram, peer, ">=", 10.0)],
    )


def _oja(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """Oja's algorithm row by row, beside others row by row. None is private."""
    n = 200 if small else 1000
    rows, many = unit_rows(n, 100), unit_rows(10 * n, 100)
    oja = "Oja, rows pushed one at a time"

    def learner(_: FloatArray) -> Oja:
        return Oja(n_components=COMPONENTS)

    yield Comparison(
        f"rows x 100 features, k = {COMPONENTS}",
        [
            Contender(INCREMENTAL, n, partial(peers.incremental_pca, rows, COMPONENTS, 1), "sklearn"),
            Contender(oja, 10 * n, partial(push, many, learner, scored=False)),
            Contender(f"{oja}, each scored", 10 * n, partial(push, many, learner)),
            Contender("GROUSE, in lean numpy", 10 * n, partial(peers.grouse, many, COMPONENTS)),
            Contender("proSVD, a row at a time", n, partial(peers.pro_svd, rows, COMPONENTS), "proSVD"),
        ],
        [Goal(oja, INCREMENTAL, ">=", 8.0)],
    )


def _csv(*, small: bool, full: bool, run_file: Callable[[Path], object]) -> Iterator[Comparison]:
    """The whole of ``streampca run`` on a CSV file, beside pandas parsing the same file in chunks."""
    n, d = 2000 if small else 1_000_000 if full else 200_000, 20
    peer, ours = "pandas.read_csv in chunks of 10 000 rows", "streampca run, a release every 1000 rows"
    note = (
        "by the clock, on whatever cores there are: a second thread converts the cells. pyarrow parses them. "
        "Then rows are admitted, scored and added up, an eigenproblem is solved a release, and releases are written as "
        "JSON. The regret is computed at the end, as nobody follows it (--regret writes a record every 1000 rows: one "
        "more eigenproblem each)"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        table = np.concatenate(list(spiked(n, d, COMPONENTS, seed=1).blocks()))
        np.savetxt(file, table, fmt="%.6f", delimiter=",", header=",".join(f"x{i}" for i in range(d)), comments="")
        del table
        yield Comparison(
            f"{n} rows x {d} columns, {file.stat().st_size / 1e6:.0f} MB",
            [
                Contender(peer, n, partial(peers.pandas_chunks, file, 10_000)),
                Contender(ours, n, partial(run_file, file)),
                Contender("its parse alone", n, partial(_parse, file)),
                Contender(f"{ours}, with numpy", n, partial(_without_kernels, run_file, file), "native"),
            ],
            [Goal(ours, peer, "<=", 1.6, note)],
            by_the_clock=True,
        )  # fmt: skip


def _parse(file: Path) -> None:
    for _ in from_csv(file).blocks():
        pass


def _without_kernels(work: Callable[[Path], object], file: Path) -> None:
    before = _native.use(False)
    try:
        work(file)
    finally:
        _native.use(before)


#: Name of a suite -> its comparisons, from the keywords ``small``, ``full`` and ``run_file`` of `run_suite`.
SUITES: dict[str, Callable[..., Iterator[Comparison]]] = {
    "row": _row,
    "block": _block,
    "window": _window,
    "oja": _oja,
    "csv": _csv,
}


if __name__ == "__main__":
    table = unit_rows(int(sys.argv[2]), 20)
    if sys.argv[1] == INCREMENTAL:
        peers.incremental_pca(table, COMPONENTS, 1)
    else:
        push(table, ROWS[sys.argv[1]][0])
