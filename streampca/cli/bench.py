"""``streampca bench``: speed beside a peer, interleaved, so that a noisy machine is noisy for both.

Times are CPU seconds of one thread. Read the ratios: the machine may be busy.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info, threadpool_limits

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.processors.perturbed_leader import PrivateFPL
from streampca.regret import RegretLog
from streampca.sources.synthetic import spiked
from streampca.stream import Stream

COMPONENTS = 5
BLOCK = 1000
REGRET_EVERY = 1000
_ROW_SHARE = 10

Contender = Callable[[FloatArray], None]


def bench(suites: Sequence[str], rounds: int, features: int, rows: int) -> int:
    """Run the suites and print a table of each."""
    if rounds < 1 or rows < BLOCK or features < COMPONENTS:
        raise BadParameter(f"bench needs --rounds >= 1, --rows >= {BLOCK} and --features >= {COMPONENTS}")
    threadpool_limits(1)
    console = Console()
    for line in describe():
        console.print(line, highlight=False)
    data = np.concatenate(list(spiked(rows, features, COMPONENTS).blocks()))
    for suite in dict.fromkeys(suites):
        table = data[: max(BLOCK, rows // _ROW_SHARE)] if suite == "row" else data
        console.print()
        console.print(_table(suite, table, measure(contenders(suite), table, rounds)))
    if find_spec("sklearn") is None:
        console.print("\nIncrementalPCA is left out: pip install scikit-learn to measure it beside.", highlight=False)
    return 0


def describe() -> list[str]:
    """The machine and the libraries, for whoever reads the numbers later."""
    blas = ", ".join(
        sorted({f"{i['internal_api']} {i['version']}" for i in threadpool_info() if i["user_api"] == "blas"})
    )
    names = [name for name in ("numpy", "scipy", "scikit-learn") if find_spec(name.replace("scikit-learn", "sklearn"))]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("streampca", *names))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return [
        f"{platform.system()} {platform.machine()}, {_cpu()}, {os.cpu_count()} cores{load}; one thread is used",
        f"Python {platform.python_version()}, {libraries}; {blas}",
    ]


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def contenders(suite: str) -> dict[str, Contender]:
    """What is measured; the first is what the others are compared with."""
    found: dict[str, Contender] = {}
    step = 1 if suite == "row" else BLOCK
    if find_spec("sklearn") is not None:
        found["scikit-learn IncrementalPCA, not private"] = lambda x: _incremental(x, max(step, COMPONENTS), step)
    every, what = (1, "every row") if suite == "row" else (BLOCK, f"every {BLOCK} rows")
    found[f"PrivateFPL, a release {what}"] = lambda x: _private(x, step, every, regret=False)
    found[f"the same, with live regret every {REGRET_EVERY} rows"] = lambda x: _private(x, step, every, regret=True)
    return found


def _private(rows: FloatArray, step: int, every: int, *, regret: bool) -> None:
    processor = PrivateFPL(n_components=COMPONENTS, epsilon=1.0, delta=1e-6, horizon=len(rows), release_every=every)
    stream = Stream(processor, regret=RegretLog(every=REGRET_EVERY) if regret else None)
    if step == 1:
        for row in rows:
            release = stream.push(row).release
            if release is not None:
                release.subspace  # noqa: B018  computed when read: the peer computes it too
        return
    for start in range(0, len(rows), step):
        for release in stream.push_many(rows[start : start + step]).releases:
            release.subspace  # noqa: B018


def _incremental(rows: FloatArray, first: int, step: int) -> None:
    from sklearn.decomposition import IncrementalPCA

    model = IncrementalPCA(n_components=COMPONENTS)
    model.partial_fit(rows[:first].copy(), check_input=False)
    for start in range(first, len(rows), step):
        model.partial_fit(rows[start : start + step].copy(), check_input=False)


def measure(found: dict[str, Contender], rows: FloatArray, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every contender in every round; all take their turn in each."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for contender in found.values():
        contender(rows)  # caches and fits are warm
    for _ in range(rounds):
        for name, contender in found.items():
            started = time.process_time()
            contender(rows)
            times[name].append(time.process_time() - started)
    return times


def _table(suite: str, rows: FloatArray, times: dict[str, list[float]]) -> Table:
    title = f"{suite}: {len(rows)} rows x {rows.shape[1]} features, k = {COMPONENTS}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in ("us/row", "rows/s", "spread", "ratio"):
        table.add_column(name, justify="right")
    base = next(iter(times.values()))
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        ratio = statistics.median(b / s for b, s in zip(base, seconds, strict=True))
        spread = (max(seconds) - min(seconds)) / middle
        table.add_row(
            name, f"{1e6 * middle / len(rows):.3g}", f"{len(rows) / middle:,.0f}".replace(",", " "),
            f"{100 * spread:.0f} %", f"{ratio:.2f}x",
        )  # fmt: skip
    return table
