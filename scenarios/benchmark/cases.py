"""The suites of ``scenarios/bench.py``: what is timed, beside what, and the figures to reach.

`SUITES` is the table of them. To add a case, add a `Contender` to a comparison, or a function that yields comparisons
to the table. No other software here is private.
"""

import contextlib
import io
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg.blas import dsyrk

import streampca as sp
from benchmark.timing import Comparison, Contender, Goal, Result
from streampca import _native
from streampca.cli.options import RunOptions
from streampca.cli.run import run
from streampca.linalg.eigen import power_step, ritz_pairs
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.blt import GeometricBLT
from streampca.sources import from_csv
from streampca.sources.synthetic import spiked

COMPONENTS = 5
INCREMENTAL = "scikit-learn IncrementalPCA.partial_fit a row, not private"
BUDGET: dict[str, Any] = {"n_components": COMPONENTS, "epsilon": 1.0, "delta": 1e-6}
#: Makes an algorithm for the rows that it gets, within the time that is measured.
Make = Callable[[FloatArray], sp.Algorithm]


def unit_rows(count: int, n_features: int) -> FloatArray:
    """Rows of norm 1 around a subspace of `COMPONENTS` dimensions, (count, n_features)."""
    rows = np.concatenate(list(spiked(count, n_features, COMPONENTS, seed=1).blocks()))
    unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def incremental_pca(rows: FloatArray, step: int) -> None:
    """scikit-learn's IncrementalPCA, fitted to ``step`` rows at a time after a first batch of at least k."""
    from sklearn.decomposition import IncrementalPCA

    model = IncrementalPCA(n_components=COMPONENTS)
    first = max(COMPONENTS, step)
    model.partial_fit(rows[:first])
    for start in range(first, len(rows), step):
        model.partial_fit(rows[start : start + step])


def bare_dsyrk(rows: FloatArray, step: int, times: int) -> FloatArray:
    """The Gram matrix of each block of rows added up by BLAS, and nothing else."""
    gram = np.zeros((rows.shape[1], rows.shape[1]), order="F")
    for start in [*range(0, len(rows), step)] * times:
        gram = dsyrk(1.0, rows[start : start + step].T, beta=1.0, c=gram, overwrite_c=1, lower=1)
    return gram


def least_work(rows: FloatArray) -> None:
    """What a private release a row takes at least, by the kernels in use here: no stream, no admission, no regret."""
    d = rows.shape[1]
    noise, gram = GeometricBLT(len(rows), 1.0).start(svec_size(d)), GramSum(d)
    span, stream = np.asfortranarray(np.eye(d, COMPONENTS)), sp.Randomness.from_seed(1).stream("floor")
    for n, row in enumerate(onto_ball(rows)[:, None]):
        gram = gram.add(row)
        noise = noise.advance(stream.draws(n))
        packed = gram.noisy(noise.noise, 1.0)
        span = power_step(packed, span, 1.0)
        ritz_pairs(packed, span)


def rolling_covariance(rows: FloatArray, window: int, every: int) -> None:
    """River's Rolling(EmpiricalCovariance) with an eigendecomposition after each ``every`` rows, row by row."""
    from river.covariance import EmpiricalCovariance
    from river.utils import Rolling

    names = list(range(rows.shape[1]))
    rolling = Rolling(EmpiricalCovariance, window_size=window)
    for i, row in enumerate(rows.tolist(), start=1):
        rolling.update(dict(zip(names, row, strict=True)))
        if i % every == 0:
            matrix = np.array([[rolling[a, b].get() if a != b else rolling[a, a].get() for b in names] for a in names])
            np.linalg.eigh(matrix)


def pandas_chunks(file: Path, size: int) -> None:
    """Parse a CSV file with pandas, chunk by chunk, to arrays."""
    for chunk in pd.read_csv(file, chunksize=size):
        chunk.to_numpy(dtype=np.float64)


def leader(rows: FloatArray, every: int = 1, times: int = 1, **further: Any) -> sp.PrivateFPL:
    """Private PCA of ``times`` passes over the rows."""
    settings = {"center": False, **BUDGET, **further}
    return sp.PrivateFPL(**settings, horizon=times * len(rows), release_every=every)


@contextlib.contextmanager
def kernels(compiled: bool | None) -> Iterator[None]:
    """Compiled kernels, or only numpy; None for those in use."""
    before = _native.use(_native.compiled is not None if compiled is None else compiled)
    try:
        yield
    finally:
        _native.use(before)


def push(
    rows: FloatArray, make: Make, *, scored: bool = True, block: bool = False, compiled: bool | None = None,
    times: int = 1,
) -> sp.Stream:  # fmt: skip
    """Push rows through a new stream, so many times, and read basis and eigenvalues of every release.

    ``scored`` keeps the default regret, and ``block`` pushes all rows as one block.
    """
    with kernels(compiled):
        stream = sp.Stream(make(rows), row_norm=1.0, regret=sp.RegretLog() if scored else None)
        for _ in range(times):
            for release in stream.push_many(rows).releases if block else (stream.push(row).release for row in rows):
                if release is not None:
                    _ = release.subspace.basis, release.eigenvalues
        if isinstance(stream.algorithm, sp.Oja):
            stream.engine.absorb_waiting()  # the rows that still wait for a batch
        return stream


#: What is timed a row at a time beside IncrementalPCA: how it is made, rows between releases, and by d the ratios to
#: reach with compiled kernels and with numpy.
ROWS: dict[str, tuple[Make, int, dict[int, tuple[float, float]]]] = {
    "exact, every row": (leader, 1, {20: (11.0, 2.5), 100: (1.5, 0.6)}),
    "exact, center=True, every row": (partial(leader, center=True), 1, {20: (8.0, 2.0), 100: (1.3, 0.6)}),
    "tracking, every row": (partial(leader, solver=sp.Tracking()), 1, {20: (16.0, 4.5), 100: (3.4, 1.2)}),
    "tracking, center=True, every row": (
        partial(leader, solver=sp.Tracking(), center=True), 1, {20: (10.0, 3.0), 100: (2.5, 1.0)},
    ),
    "smoothed, every row": (partial(leader, solver=sp.Smoothed()), 1, {20: (9.0, 1.5), 100: (1.3, 0.5)}),
    "exact, every 100 rows": (partial(leader, every=100), 100, {20: (30.0, 30.0), 100: (15.0, 15.0)}),
}  # fmt: skip


def _row(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """Rows from the first on, one at a time, with default arguments; each release is read."""
    n, longer = (200, 200) if small else (1000, 3000)
    floor = "floor: draws, buffers, sum, power step and Ritz values of a row, and nothing else"
    for d in (20, 100):
        rows, many = unit_rows(n, d), unit_rows(longer, d)
        contenders = [Contender(INCREMENTAL, n, partial(incremental_pca, rows, 1), "sklearn")]
        goals = []
        for name, (make, every, bounds) in ROWS.items():
            fed = rows if every == 1 else many
            for how, compiled, bound in (("compiled", True, bounds[d][0]), ("numpy", False, bounds[d][1])):
                title, needs = f"{name}, {how}", "native" if compiled else ""
                contenders.append(Contender(title, len(fed), partial(push, fed, make, compiled=compiled), needs))
                goals.append(Goal(title, INCREMENTAL, ">=", bound))
        contenders.append(Contender(floor, n, partial(least_work, rows), "native"))
        yield Comparison(f"row: rows 1 to {n} x {d} features, or 1 to {longer}; k = {COMPONENTS}", contenders, goals)

    # Every other algorithm with its defaults, none slower than IncrementalPCA, on the rows of 100 features.
    window = partial(sp.SlidingWindowPCA, window=n // 4, release_every=n // 20, **BUDGET)
    adaptive, blocks = partial(sp.AdaptiveCovariance, **BUDGET), n // 4
    made: dict[str, Make] = {
        "DPPCA": lambda _: sp.DPPCA(horizon=10**6, **BUDGET),
        "PrivateOja": lambda _: sp.PrivateOja(horizon=10**6, **BUDGET),
        f"SlidingWindowPCA, ring, every {n // 20} rows": lambda _: window(method="ring"),
        f"SlidingWindowPCA, histogram, every {n // 20} rows": lambda _: window(method="histogram"),
        f"Tumbling(AdaptiveCovariance), every {blocks} rows": lambda _: sp.Tumbling(adaptive(), release_every=blocks),
        "Oja": lambda _: sp.Oja(n_components=COMPONENTS),
    }
    contenders = [Contender(INCREMENTAL, n, partial(incremental_pca, rows, 1), "sklearn")]
    contenders += [Contender(name, n, partial(push, rows, make)) for name, make in made.items()]
    goals = [Goal(name, INCREMENTAL, ">=", 1.0) for name in made]
    for name, noise in (("discrete noise", sp.Tree(discrete=True)), ("float noise", sp.Tree())):
        work = partial(push, unit_rows(n, 20), partial(leader, noise=noise))
        contenders.append(Contender(f"noise='tree', {name}, d = 20, every row", n, work))
    goals.append(Goal(contenders[-2].name, contenders[-1].name, "<=", 3.0))
    yield Comparison(f"row: rows 1 to {n} x {d} features, other algorithms", contenders, goals)


def _block(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """Blocks of rows, beside the BLAS calls alone that add up the same blocks."""
    # Beside dsyrk, all rows are checked for what is not finite before the first is absorbed, then those of a release
    # are put on the lattice (four passes over them, or one where compiled), measured, and scored; each release draws
    # its noise, takes a power step, and its basis is read.
    n, times, size = (4000, 1, 1000) if small else (100_000, 10, 1000)
    rows = unit_rows(n, 64)
    shorter, tracking = 0.7 * rows, partial(leader, solver=sp.Tracking(), every=size, times=times)
    floor, peer = f"bare dsyrk on blocks of {size}", f"IncrementalPCA.partial_fit, {size} rows at a time, not private"
    contenders = [Contender(floor, times * n, partial(bare_dsyrk, rows, size, times))]
    goals: list[Goal] = []
    for how, compiled, needs, bounds in (("numpy", False, "", (1.4, 1.6)), ("compiled", True, "native", (1.2, 1.4))):
        whole = partial(push, make=tracking, block=True, compiled=compiled, times=times)
        for name, table, scored, bound in (
            (f"push_many, {how}", shorter, False, bounds[0]),
            (f"push_many, rows of norm 1, {how}", rows, False, None),
            (f"push_many with live regret, {how}", shorter, True, bounds[1]),
        ):
            contenders.append(Contender(name, times * n, partial(whole, table, scored=scored), needs))
            if bound is not None:
                goals.append(Goal(name, floor, "<=", bound))
    contenders.append(Contender(peer, n, partial(incremental_pca, rows, size), "sklearn"))
    yield Comparison(
        f"block: {times * n} rows x 64 features, a release every {size} rows, each read", contenders, goals
    )


def _window(*, small: bool, **_: Any) -> Iterator[Comparison]:
    """A sliding window, beside river's covariance of a shorter one: its time a row does not depend on the length."""
    length, n, every, d, theirs = (500, 1000, 100, 20, 600) if small else (10_000, 20_000, 100, 20, 1500)
    peer = "river Rolling(EmpiricalCovariance) + eigh, window 500, not private"
    follow = partial(partial, push, unit_rows(n, d), scored=False)
    made = partial(sp.SlidingWindowPCA, window=length, release_every=every, center=False, **BUDGET)
    contenders = [
        Contender(peer, theirs, partial(rolling_covariance, unit_rows(theirs, d), 500, every), "river"),
        *(
            Contender(
                f"SlidingWindowPCA, {method}, window {length}", n, follow(make=lambda _, m=method: made(method=m))
            )
            for method in ("histogram", "ring")
        ),
    ]
    goals = [Goal(contenders[1].name, peer, ">=", 10.0)]
    title = f"window: rows x {d} features one at a time, a release every {every} rows, each read"
    yield Comparison(title, contenders, goals)


def _csv(*, small: bool, full: bool) -> Iterator[Comparison]:
    """The whole of ``streampca run`` on a CSV file, beside pandas parsing the same file in chunks."""
    # By the clock, on all cores: a second thread converts the cells, which pyarrow parses. Then rows are admitted,
    # scored and added up, an eigenproblem is solved a release, and releases are written as JSON.
    n, d = 2000 if small else 1_000_000 if full else 200_000, 20
    peer, ours = "pandas.read_csv in chunks of 10 000 rows", "streampca run, a release every 1000 rows"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        table = np.concatenate(list(spiked(n, d, COMPONENTS, seed=1).blocks()))
        np.savetxt(file, table, fmt="%.6f", delimiter=",", header=",".join(f"x{i}" for i in range(d)), comments="")
        del table
        out = file.with_name("releases.jsonl")
        options = RunOptions(
            **BUDGET, release_every=1000, row_norm=1.0, columns="all", out=out, force=True, live=False
        )  # fmt: skip

        def run_file(compiled: bool | None = None) -> None:
            with kernels(compiled), contextlib.redirect_stderr(io.StringIO()):
                run(file, options=options)

        contenders = [
            Contender(peer, n, partial(pandas_chunks, file, 10_000)),
            Contender(ours, n, run_file),
            Contender("its parse alone", n, lambda: sum(map(len, from_csv(file, columns="all").blocks()))),
            Contender(f"{ours}, with numpy", n, partial(run_file, False), "native"),
        ]
        title = f"csv: {n} rows x {d} columns, {file.stat().st_size / 1e6:.0f} MB"
        yield Comparison(title, contenders, [Goal(ours, peer, "<=", 1.6)], by_the_clock=True)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Slope of log(cost) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


@dataclass(frozen=True)
class Growth:
    """Exponents of the time of a run and of the memory that its processor holds, fitted over sizes.

    ``parts`` are the name of a size, its values, the run at each of them, and what to expect.
    """

    parts: list[tuple[str, Sequence[int], Callable[[int], sp.Stream], str]]

    def run(self, rounds: int) -> Result:
        """Measure each size; the least time of the rounds counts."""
        result = Result("scale: exponents of time a run and of memory held, fitted over doublings", pd.DataFrame())
        for name, sizes, work, expected in self.parts:
            seconds, held = [], []
            for size in sizes:
                work(size)
                times = []
                for _ in range(rounds):
                    started = time.process_time()
                    processor = work(size).engine.processor
                    times.append(time.process_time() - started)
                seconds.append(min(times))
                held.append(float(len(pickle.dumps(processor.snapshot()))))
            result.facts.append(
                f"{name} = {', '.join(map(str, sizes))}: time ~ {name}^{exponent(sizes, seconds):.2f}, "
                f"memory ~ {name}^{exponent(sizes, held):.2f} (expected {expected})"
            )
        return result


def _scale(*, small: bool, full: bool) -> Iterator[Growth]:
    """Growth with the number of rows n, features d, window W and components k."""
    f = 1 if small else 4
    rows = unit_rows(1000 * f, 20)

    def fed(count: int, d: int = 20, k: int = 2) -> sp.Stream:
        algorithm = sp.PrivateFPL(
            release_every=1, center=False, **BUDGET | {"n_components": k}, horizon=count, solver=sp.Tracking()
        )
        return push(rows[:count] if d == 20 else unit_rows(count, d), lambda _: algorithm, scored=False)

    def window(size: int) -> sp.Stream:
        algorithm = sp.SlidingWindowPCA(
            center=False, **BUDGET | {"n_components": 2}, window=size, method="histogram", release_every=20
        )
        return push(rows, lambda _: algorithm, scored=False)

    def blocks(size: int) -> sp.Stream:
        # A block of 1000 rows, doubled, and pushed 100 times.
        gram, count = GramSum(20).add(onto_ball(rows[:1000])), size // 100
        for _ in range((count // 1000).bit_length() - 1):
            gram = gram.add_high_low(*gram.high_low())
        block = sp.BlockGram(*gram.high_low(), count=count)
        algorithm = sp.PrivateFPL(center=False, **BUDGET, horizon=size, release_every=count)
        stream = sp.Stream(algorithm, row_norm=1.0, regret=None)
        for _ in range(100):
            stream.push_block(block)
        return stream

    wide = (16, 32, 64) if small else (250, 500, 1000, 2000) if full else (32, 64, 128, 256)
    of_wide = 10 if full else 50 * f
    yield Growth([
        ("n", (125 * f, 250 * f, 500 * f, 1000 * f), fed, "time: 1; memory: 0"),
        ("n", [10**5 * 2**j for j in (0, 4, 7, 10)], blocks, "100 blocks: time and memory: 0"),
        ("d", wide, lambda d: fed(of_wide, d), "time and memory: at most 2"),
        ("W", (50 * f, 100 * f, 200 * f, 400 * f), window, "both well below 1 (log W)"),
        ("k", (1, 2, 4, 8, 16), lambda k: fed(100 * f, k=k), "time: at most 1"),
    ])  # fmt: skip


#: Name of a suite -> its comparisons, from the keywords ``small`` and ``full``: the size of the rows.
SUITES: dict[str, Callable[..., Iterator[Comparison | Growth]]] = {
    "row": _row, "block": _block, "window": _window, "csv": _csv, "scale": _scale,
}  # fmt: skip
