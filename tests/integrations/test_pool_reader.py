"""Rows summed by a pool of processes: the releases of one process, bit for bit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import write_files
from runs import of_steps, texts

import streampca as sp
from streampca import pool
from streampca.errors import BadParameterError, HorizonReachedError, UsageError
from streampca.pool import absorb_parquet
from streampca.sources.parquet import from_parquet

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'streampca[parquet]'")
pq = pytest.importorskip("pyarrow.parquet")

D, N = 5, 3210
BUDGET = {"n_components": 2, "epsilon": 1.0}
NAMES = [f"x{j}" for j in range(D)]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_files(tmp_path, N, D, files=2, group=217)


def stream(**options) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=100, horizon=N)
    return sp.Stream(algorithm, features=NAMES, row_norm=2.0, **{"seed": 5, **options})


def single(files: list[Path]) -> list[str]:
    one = stream()
    blocks = (block for path in files for block in from_parquet(path).blocks())
    return [text for block in blocks for text in texts(one.push_many(block).releases)]


@pytest.mark.parametrize(("processes", "rows_per_task"), [(2, 500), (1, 1)])
def test_a_pool_gives_the_releases_of_one_process(
    files: list[Path], processes: int, rows_per_task: int, monkeypatch
) -> None:
    monkeypatch.setattr(pool, "TASK_ROWS", rows_per_task)
    expected = single(files)
    assert len(expected) == 33
    assert of_steps(absorb_parquet(stream(), files, processes=processes)) == expected


def test_it_continues_after_any_block(files: list[Path], monkeypatch) -> None:
    monkeypatch.setattr(pool, "TASK_ROWS", 300)
    expected = single(files)
    store = sp.Store(":memory:", commit_every=1)
    out = stream(store=store)
    for stop in (7, 19, 10**6):
        for i, _ in enumerate(absorb_parquet(out, files, processes=1)):
            if i == stop:
                break
        out = sp.Stream.resume(store)
    assert texts(store.releases()) == expected


def test_rows_from_elsewhere_may_come_first_and_columns_are_read_by_name(files: list[Path]) -> None:
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=100)
    out, other = (sp.Stream(algorithm, row_norm=1.0, features=["x3", "x1"], seed=5) for _ in range(2))
    first, second = (next(from_parquet(path, columns=["x3", "x1"]).blocks()) for path in files)
    for made in (out, other):
        made.push_many(first)
    got = of_steps(absorb_parquet(out, files[1], processes=1, before=1605))
    assert got == texts(other.push_many(second).releases)
    with pytest.raises(UsageError, match="is at row 3210"):
        next(absorb_parquet(out, files[1], processes=1))


@pytest.mark.parametrize(
    ("out", "paths", "options", "error", "message"),
    [
        (lambda: sp.Stream(sp.PrivateFPL(**BUDGET, horizon=3000), row_norm=1.0, features=D), None, {},
         HorizonReachedError, "3210 rows given"),
        (lambda: sp.Stream(sp.Oja(n_components=2), row_norm=1.0, features=D), None, {}, UsageError, "needs rows"),
        (lambda: stream(), None, {"processes": 0}, BadParameterError, "processes=0"),
        (lambda: stream(), [], {}, BadParameterError, "at least one file"),
        (lambda: stream(), "s3://bucket/a.parquet", {}, UsageError, "Spark's own reader"),
    ],
)  # fmt: skip
def test_errors_before_any_row(files: list[Path], out, paths, options, error, message: str) -> None:
    with pytest.raises(error, match=message):
        next(absorb_parquet(out(), files if paths is None else paths, **options))


def test_a_missing_value_is_a_bad_row(files: list[Path]) -> None:
    table = pq.read_table(files[1]).to_pydict()
    table["x2"][100] = None
    pq.write_table(pa.table(table), files[1], row_group_size=50)
    out = stream()
    list(absorb_parquet(out, files, processes=1))
    assert (out.t, out.admission.bad_rows) == (N, 1)


_ORPHAN = """
import multiprocessing, sys, time
from streampca import pool
from streampca.processors.private_fpl import PrivateFPL
from streampca.stream.stream import Stream
if __name__ == "__main__":
    stream = Stream(PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=100), row_norm=1.0, features=5)
    pool.TASK_ROWS = 200
    steps = pool.absorb_parquet(stream, sys.argv[1:], processes=2)
    next(steps)
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    time.sleep(60)
"""


def test_processes_do_not_outlive_a_killed_parent(files: list[Path], tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(_ORPHAN)
    with subprocess.Popen([sys.executable, script, *files], stdout=-1, stderr=-3, text=True) as parent:
        children = [Path(f"/proc/{pid}/stat") for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(children) == 2

    def lives(stat: Path) -> bool:
        try:
            return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    end = time.monotonic() + 15.0
    while any(map(lives, children)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(lives, children))
