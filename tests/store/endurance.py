"""Long runs: memory, time and rounding after very many rows, and a large store after kill -9.

    python tests/store/endurance.py rows --rows 100000000     # push_many at d = 20
    python tests/store/endurance.py store --rows 10000000     # a release every 10 rows, killed at the end
    python tests/store/endurance.py window --rows 10000000    # the last 131072 rows, against their exact sum

Rows are drawn once, as 16 blocks that come again and again, so that exact sums of all rows are quickly had.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

import streampca as sp
from streampca.linalg.lattice import STEP
from streampca.regret.regret import RegretLog
from streampca.store.store import Store

BLOCK = 2**16


def blocks(features: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    scales = np.linspace(1.0, 0.2, features) / (4.0 * features**0.5)
    return [draw.normal(size=(BLOCK, features)) * scales for _ in range(16)]


def grams(given: list[np.ndarray]) -> list[np.ndarray]:
    admitted = [(np.trunc(block / STEP) * STEP).astype(np.longdouble) for block in given]
    return [np.einsum("ni,nj->ij", block, block) for block in admitted]


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found - exact.astype(np.float64)) / np.linalg.norm(exact.astype(np.float64)))


def rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def many_rows(count: int) -> None:
    given = blocks(20)
    stream = sp.Stream(
        sp.PrivateFPL(n_components=3, epsilon=1.0, delta=1e-6, n_features=20, release_every=BLOCK),
        regret=RegretLog(every=2**20),
    )
    total, times, early = math.ceil(count / BLOCK), [], 0.0
    for number in range(total):
        began = time.process_time()
        stream.push_many(given[number % 16])
        times.append(time.process_time() - began)
        if number == total // 10:
            early = rss()
    tenth, late = max(1, total // 10), rss()
    first, last = (1e6 * sum(part) / len(part) / BLOCK for part in (times[1 : tenth + 1], times[-tenth:]))
    longest = max(float(np.linalg.norm(block, axis=1).max()) for block in given)
    assert longest <= 1.0
    each = grams(given)
    exact = sum((each[i] * len(range(i, total, 16)) for i in range(16)), np.zeros((20, 20), np.longdouble))
    print(
        f"{stream.t} rows: {first:.2f} us a row in the first tenth, {last:.2f} in the last; resident memory "
        f"{early:.0f} MB after a tenth, {late:.0f} at the end; relative error of the Gram matrix "
        f"{error(stream.regret.exact_gram(), exact):.1e}; {sum(times):.0f} s"
    )


def large_store(count: int, features: int) -> None:
    given = blocks(features)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path, done = Path(folder, "run.db"), Path(folder, "done")
        pid = os.fork()
        if pid == 0:
            store = Store(path)
            algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, n_features=features, release_every=10)
            stream = sp.Stream(algorithm, regret=None, store=store)
            seconds = time.process_time()
            for number in range(10**9):
                stream.push_many(given[number % 16])
                if stream.t >= count and not done.exists():
                    done.write_text(f"{stream.t} rows, {time.process_time() - seconds:.0f} s, {rss():.0f} MB resident")
        while not done.exists():
            time.sleep(0.1)
            assert os.waitpid(pid, os.WNOHANG)[0] == 0
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        sizes = {file.name: file.stat().st_size / 2**20 for file in sorted(path.parent.glob("run.db*"))}
        began = time.perf_counter()
        with Store(path) as store:
            stream = sp.Stream.resume(store)
            took = time.perf_counter() - began
            rows, releases = stream.t, store._open_database().progress.releases
            assert releases == rows // 10 >= count // 10
            seen = 0
            for release in store.releases():
                seen += 1
                assert release.t == 10 * seen
            assert seen == releases
        print(
            f"{done.read_text()}; MB of files: {', '.join(f'{name} {size:.1f}' for name, size in sizes.items())}; "
            f"resumed at row {rows} in {took:.2f} s; all {seen} releases are there"
        )


def window(count: int) -> None:
    given = blocks(20)
    for method in ("ring", "histogram"):
        algorithm = sp.SlidingWindowPCA(
            window=2 * BLOCK, n_components=3, epsilon=1e9, delta=1e-6, n_features=20, method=method, release_every=BLOCK
        )
        stream = sp.Stream(algorithm, regret=None, seed=1)
        began, errors = time.process_time(), []
        each = grams(given)
        for number in range(math.ceil(count / BLOCK)):
            released = stream.push_many(given[number % 16]).releases[-1]
            if number >= 15:
                first, _ = released.details["window"]
                exact = sum(each[at % 16] for at in range(math.ceil((first - 1) / BLOCK), number + 1))
                errors.append(error(released.gram, np.asarray(exact)))
        print(
            f"{method}, {stream.t} rows: relative error of the window {errors[0]:.1e} at first, {errors[-1]:.1e} at "
            f"the end, {max(errors):.1e} at most; {time.process_time() - began:.0f} s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rows", "store", "window"))
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--features", type=int, default=20, help="of the store")
    chosen = parser.parse_args()
    if chosen.what == "store":
        large_store(chosen.rows, chosen.features)
    else:
        {"rows": many_rows, "window": window}[chosen.what](chosen.rows)
