"""Many small streams in one `Fleet`, beside the bars that it is built for.

``python scenarios/many_streams.py [--tenants 100000]``. Rows have 10 features. Times are the least of some
blocks of calls, in CPU microseconds a row: other programs only add to them. The elapsed time of a durable batch has
that of the disk, too.
"""

import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts import App
from threadpoolctl import threadpool_limits

import streampca as sp
from streampca.errors import StreamPCAWarning

FEATURES, BATCH = 10, 1000
app = App(help_format="plaintext", result_action="return_value")


def memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def algorithm(every: int, *, horizon: bool = True) -> sp.PrivateFPL:
    """Return the algorithm of all tenants."""
    return sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=every, horizon=100 * every if horizon else None)


class Table:
    """Figures beside their bars, printed as they come."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def add(self, what: str, value: float, bar: float | None, unit: str) -> None:
        met = bar is None or value <= bar
        if not met:
            self.missed.append(what)
        shown = "" if bar is None else f"at most {bar:g}" + ("" if met else "  MISSED")
        print(f"{what:<52} {value:>9.2f} {unit:<5} {shown}".rstrip(), flush=True)


def timed(calls: list[Any], rows: int) -> float:
    """Return the least CPU microseconds a row of some calls of ``rows`` rows each."""
    times = []
    for call in calls:
        began = time.process_time()
        call()
        times.append((time.process_time() - began) / rows * 1e6)
    return min(times)


def measure(tenants: int, blocks: int) -> list[str]:
    """Print all figures; return the names of those that miss their bars."""
    table = Table()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(BATCH, FEATURES)) / 4.0
    keys = [f"tenant-{i}" for i in range(tenants)]
    some = [[keys[i] for i in rng.integers(0, tenants, BATCH)] for _ in range(blocks)]

    fleet, before = sp.Fleet(algorithm(10), features=FEATURES, row_norm=1.0), memory()
    first = [
        lambda s=s: fleet.push_many(keys[s : s + BATCH], rows[: len(keys[s : s + BATCH])])
        for s in range(0, tenants, BATCH)
    ]
    table.add("begin a tenant, with its first row", timed(first, BATCH), 10.0, "µs")
    table.add(f"memory of {tenants:,} tenants", (memory() - before) / 1e6, 1000.0 * max(1.0, tenants / 1e5), "MB")
    table.add("a record, with a horizon", fleet._tenants.dtype.itemsize, 3500, "bytes")
    endless = sp.Fleet(algorithm(10, horizon=False), features=FEATURES, row_norm=1.0)
    table.add("a record, endless", endless._tenants.dtype.itemsize, None, "bytes")
    singly = [
        lambda block=block: [fleet.push(key, row) for key, row in zip(block[:100], rows, strict=False)]
        for block in some
    ]
    table.add("push a row", timed(singly, 100), 12.0, "µs")
    table.add(
        "push_many, a row of a batch of 1000",
        timed([lambda b=b: fleet.push_many(b, rows) for b in some], BATCH),
        5.0,
        "µs",
    )
    del fleet, first, singly

    fleet = sp.Fleet(sp.PrivateOja(n_components=2, epsilon=1.0, horizon=1000), features=FEATURES, row_norm=1.0)
    table.add(
        "push_many of PrivateOja", timed([lambda b=b: fleet.push_many(b, rows) for b in some[:3]], BATCH), None, "µs"
    )
    table.add("its record", fleet._tenants.dtype.itemsize, None, "bytes")
    del fleet

    fleet = sp.Fleet(algorithm(1), features=FEATURES, row_norm=1.0)
    fleet.push_many(keys[:BATCH], rows[: len(keys[:BATCH])])
    calls = [lambda b=b: fleet.push_many(b, rows) for b in some[: max(3, blocks // 4)]]
    table.add("push_many with a release a row, subspace unread", timed(calls, BATCH), 60.0, "µs")
    del fleet, calls

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fleet.db")
        with sp.Fleet(algorithm(10), features=FEATURES, row_norm=1.0, store=path) as fleet:
            for start in range(0, tenants, BATCH):
                fleet.push_many(keys[start : start + BATCH], rows[: len(keys[start : start + BATCH])])
            fleet._fold()
            began = time.perf_counter()
            durable = timed([lambda b=b: fleet.push_many(b, rows) for b in some], BATCH)
            table.add("push_many, durable", durable, 10.0, "µs")
            table.add("the same, elapsed, a batch", (time.perf_counter() - began) / blocks * 1e3, None, "ms")
        table.add("file", path.stat().st_size / 1e6, None, "MB")
        began = time.perf_counter()
        with sp.Fleet.resume(path) as fleet:
            table.add("resume", time.perf_counter() - began, 15.0, "s")
            assert len(fleet) == tenants
    return table.missed


@app.default
def main(tenants: int = 100_000, blocks: int = 40) -> int:
    """Measure a fleet.

    Parameters
    ----------
    tenants
        Number of tenants.
    blocks
        Blocks of 1000 rows that are timed.
    """
    with threadpool_limits(1), warnings.catch_warnings(action="ignore", category=StreamPCAWarning):
        missed = measure(tenants, blocks)
    print(f"missed: {', '.join(missed)}" if missed else "all bars are met")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(app())
