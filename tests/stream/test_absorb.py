"""Parquet files through executors: the releases of one process, bit for bit, whatever the tasks and their order.

A curator that is killed 40 times, and workers of Dask, 20 times: ``pytest -m long tests/stream/test_absorb.py``.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext, suppress
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runs import of_steps, texts

import streampca as sp
from streampca.errors import (
    AbsorbInterruptedError,
    BadParameterError,
    HorizonReachedError,
    SourceError,
    StoreForkedError,
    StreamPCAWarning,
    UsageError,
)  # fmt: skip
from streampca.ray import RayExecutor
from streampca.rows.protocol import arrow_rows, as_source
from streampca.sources.parquet import from_parquet
from streampca.store.database import Database
from streampca.stream.absorb import Open
from streampca.stream.executors import Here

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'streampca[parquet]'")
ds = pytest.importorskip("pyarrow.dataset")
fs = pytest.importorskip("pyarrow.fs")
pq = pytest.importorskip("pyarrow.parquet")

D, N, EVERY = 5, 3210, 100
NAMES = [f"x{j}" for j in range(D)]
#: Rows of a task: one, a release, a row group and one more, several, and the default.
SIZES = [1, 100, 217, 218, 999, 2000, None]


def write(path: Path, rows: np.ndarray, group: int = 217) -> Path:
    pq.write_table(pa.table({f"x{j}": column for j, column in enumerate(rows.T)}), path, row_group_size=group)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files of some rows, of one, and of none, in a folder with files that are no rows."""
    rows = np.random.default_rng(1).normal(size=(N, D)) / 5.0
    rows[700, 2] = np.nan
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("_SUCCESS", ".part-4.parquet.crc", "_temporary-9.parquet"):
        (folder / name).write_text("no Parquet")
    pieces = enumerate(pairwise([0, 1000, 1001, 1001, 1500, N]))
    return [write(folder / f"part-{i}.parquet", rows[a:b]) for i, (a, b) in pieces]


def stream(**options) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=EVERY, horizon=2 * N)
    return sp.Stream(algorithm, **{"features": NAMES, "row_norm": 2.0, "seed": 5, **options})


def single(files: list[Path]) -> list[str]:
    one = stream()
    blocks = [block for path in files if pq.read_metadata(path).num_rows for block in from_parquet(path).blocks()]
    return texts(one.push_many(np.concatenate(blocks)).releases)


def released(path: Path) -> list[str]:
    with closing(Database(str(path), write=False)) as database:
        return texts(database.releases())


def drain(steps: Iterator[sp.Step], made: list[str]) -> None:
    for step in steps:
        made += of_steps([step])


class Late(ThreadPoolExecutor):
    """Tasks end in any order."""

    def __init__(self, workers: int = 6) -> None:
        super().__init__(workers)
        self.workers, self.draw = workers, random.Random(2)

    def submit(self, fn, item) -> Future:
        delay = 0.02 * self.draw.random()

        def late():
            time.sleep(delay)
            return fn(item)

        return super().submit(late)


@pytest.mark.parametrize("size", SIZES)
def test_tasks_of_any_size_in_any_order_give_the_bits_of_one_process(files: list[Path], size: int | None) -> None:
    expected = single(files)
    assert len(expected) == N // EVERY
    assert of_steps(stream().absorb(files, rows_per_task=size)) == expected
    with Late() as late:
        out = stream()
        assert of_steps(out.absorb(files[0].parent, late, rows_per_task=size, in_flight=9)) == expected
        assert (out.t, out.admission.bad_rows) == (N, 1)


def test_processes(files: list[Path]) -> None:
    expected = single(files)
    assert of_steps(stream().absorb(str(files[0].parent / "part-*.parquet"), 2, rows_per_task=300)) == expected
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        data = ds.dataset([str(path) for path in files])
        assert of_steps(stream().absorb(data, pool, rows_per_task=300)) == expected


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")  # of theirs: sockets are left to the garbage collector
# Ray itself is 240 MB and starts slowly: `pip install ray`, then `pytest -m long tests/stream/test_absorb.py -k ray`.
@pytest.mark.parametrize("engine", ["processes", "loky", "dask", pytest.param("ray", marks=pytest.mark.long)])
def test_engines_give_the_bits_of_one_process_for_any_size(files: list[Path], engine: str) -> None:
    expected = single(files)
    with ExitStack() as opened:
        if engine == "processes":
            executor: Any = opened.enter_context(ProcessPoolExecutor(2, get_context("spawn")))
        elif engine == "loky":
            loky = pytest.importorskip("loky", reason="needs pip install loky")
            executor = opened.enter_context(loky.ProcessPoolExecutor(2))
        elif engine == "dask":
            distributed = pytest.importorskip("distributed", reason="needs pip install distributed")
            cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            executor = opened.enter_context(distributed.Client(opened.enter_context(cluster))).get_executor()
        else:
            ray = pytest.importorskip("ray", reason="needs pip install 'streampca[ray]'")
            ray.init(num_cpus=2, include_dashboard=False)
            opened.callback(ray.shutdown)
            executor = RayExecutor()
        for size in SIZES:
            assert of_steps(stream().absorb(files, executor, rows_per_task=size)) == expected, size


@pytest.mark.filterwarnings("ignore")  # of its own: sockets are left to the garbage collector
@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.ci), pytest.param(20, marks=pytest.mark.long)])
def test_dask_with_workers_that_are_killed_at_random(tmp_path: Path, kills: int) -> None:
    distributed = pytest.importorskip("distributed", reason="needs pip install distributed")
    import dask

    rows, draw, killed = np.random.default_rng(4).normal(size=(10_000 * kills, D)) / 5.0, random.Random(kills), 0
    data = [write(tmp_path / f"{i}.parquet", part, group=100) for i, part in enumerate(np.array_split(rows, 7))]
    options = {"algorithm": sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=EVERY, horizon=2**20)}
    options |= {"features": NAMES, "row_norm": 2.0, "seed": 5}
    out = sp.Stream(**options, store=sp.Store(tmp_path / "run.db"))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 2 * kills}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.adapt(minimum=2, maximum=2, interval="200ms")  # Dask gives up a worker that is killed while it begins
        following = 20
        for i, _ in enumerate(out.absorb(data, client.get_executor(), rows_per_task=100, in_flight=6)):
            while i >= following and killed < kills:
                pids = [*client.run(os.getpid, on_error="ignore").values()]
                with suppress(ProcessLookupError, IndexError):  # none has begun again yet
                    os.kill(draw.choice(pids), signal.SIGKILL)
                    killed, following = killed + 1, i + draw.randrange(1, 90)
    out.close()
    assert killed == kills
    assert released(tmp_path / "run.db") == texts(sp.Stream(**options).push_many(rows).releases)


def test_ray(files: list[Path], monkeypatch) -> None:
    """The library is stood in for by the calls of it that are used."""
    with ThreadPoolExecutor(2) as pool:

        def remote(fn):
            return SimpleNamespace(remote=lambda *given: SimpleNamespace(future=lambda: pool.submit(fn, *given)))

        stub = SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 3.0}, remote=remote)
        monkeypatch.setitem(sys.modules, "ray", stub)
        executor = RayExecutor()
        assert executor.workers == 3
        assert of_steps(stream().absorb(files, executor, rows_per_task=300)) == single(files)


def test_addresses_and_file_systems(files: list[Path]) -> None:
    expected, folder = single(files), files[0].parent
    for dataset, storage in (
        (f"file://{folder}", None),
        ([f"file://{path}" for path in files], None),
        ("", fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())),
    ):
        assert of_steps(stream().absorb(dataset, storage=storage)) == expected


def test_a_durable_stream_continues_after_any_step_though_the_list_grows(files: list[Path], tmp_path: Path) -> None:
    expected = single(files)
    out = stream(store=sp.Store(tmp_path / "run.db", commit_every=1))
    for stop, known in ((7, 2), (3, 4), (10**6, 5)):
        for i, _ in enumerate(out.absorb(files[:known], rows_per_task=50, commit_every=0.0)):
            if i == stop:
                break
        out.close()
        out = sp.Stream.resume(sp.Store(tmp_path / "run.db", commit_every=1))
    assert (out.t, released(tmp_path / "run.db")) == (N, expected)
    for other in (files[:3], [files[1], files[0], *files[2:]], files[1:]):
        with pytest.raises(StoreForkedError, match="other files"):
            next(out.absorb(other))
    with pytest.raises(StoreForkedError, match="or columns"):
        next(out.absorb(files, columns=NAMES[::-1]))
    write(files[0], np.zeros((1000, D)), group=500)
    with pytest.raises(StoreForkedError, match=f"before={N}"):
        next(out.absorb(files))
    assert [step.t for step in out.absorb(files[:1], before=N)][-1] == N + 1000
    out.push_many(np.zeros((1, D)))
    with pytest.raises(UsageError, match=f"came otherwise; pass before={N + 1001} "):
        next(out.absorb(files))
    out.close()


def test_without_a_store_it_continues_too_and_rows_from_elsewhere_may_come_first(files: list[Path]) -> None:
    out = stream()
    first = next(from_parquet(files[3]).blocks())
    expected = stream()
    expected.push_many(first)
    made = texts(out.push_many(first).releases)
    with pytest.raises(UsageError, match=f"pass before={len(first)}"):
        next(out.absorb(files))
    for step in out.absorb(files, rows_per_task=50, before=len(first)):
        made += [] if step.release is None else texts([step.release])
        if step.t > 900:
            break
    made += of_steps(out.absorb(files, before=len(first)))
    rows = np.concatenate([block for i in (0, 1, 3, 4) for block in from_parquet(files[i]).blocks()])
    assert made[4:] == texts(expected.push_many(rows).releases)
    with pytest.raises(StoreForkedError):
        next(out.absorb(files[3:], before=len(first)))


@pytest.mark.parametrize("executor", [None, 6])
def test_a_file_that_is_replaced_or_damaged_costs_no_row_before_it(files: list[Path], executor: int | None) -> None:
    whole = files[4].read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 400] = bytes(400)
    for change, message in (
        (lambda: write(files[4], np.zeros((1710, D))), "part-4.parquet: changed since"),
        (files[4].unlink, "part-4.parquet: is damaged"),
        (lambda: files[4].write_bytes(damaged), "part-4.parquet: "),
    ):
        files[4].write_bytes(whole)
        expected, out = single(files), stream()
        steps = out.absorb(files, None if executor is None else Late(executor), rows_per_task=200, in_flight=2)
        made = of_steps([next(steps)])
        change()
        with pytest.raises(SourceError, match=message):
            drain(steps, made)
        assert 1500 <= out.t < N
        files[4].write_bytes(whole)
        assert made + of_steps(out.absorb(files)) == expected


@pytest.mark.parametrize(("file", "row", "number"), [(0, 6, 7), (4, 1709, 3210)])
def test_the_curator_is_told_which_row_lacks_a_number(files: list[Path], caplog, file: int, row: int, number) -> None:
    tables = [pq.read_table(path).to_pydict() for path in files]
    tables[0]["x2"][700] = 0.0
    tables[file]["x3"][row] = None
    for table, path in zip(tables, files, strict=True):
        pq.write_table(pa.table(table, pa.schema([(name, pa.float64()) for name in NAMES])), path)
    for executor in (None, Late()):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "streampca.curator"):
            out = stream()
            list(out.absorb(files, executor, rows_per_task=100))
        assert (out.t, out.admission.bad_rows) == (N, 1)
        (said,) = (record.getMessage() for record in caplog.records)
        assert said.startswith(f"row {number}, row {row + 1} of {files[file]}, could not be used, as it lacks a number")


def test_a_null_in_row_7_of_a_million_is_named_after_one_task(tmp_path: Path, caplog) -> None:
    column = pa.array([None if i == 6 else 0.5 for i in range(8)] + [0.5] * (10**6 - 8))
    pq.write_table(pa.table(dict.fromkeys(NAMES, column)), tmp_path / "long.parquet", row_group_size=2**14)
    ran: list[object] = []

    class Counting(Here):
        def submit(self, fn, item) -> Future:
            ran.append(item)
            return super().submit(fn, item)

    out = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=2**14), features=NAMES, row_norm=2.0)
    with caplog.at_level(logging.WARNING, "streampca.curator"):
        next(out.absorb(tmp_path / "long.parquet", Counting(), rows_per_task=2**14, in_flight=1))
    assert "row 7, row 7 of" in caplog.text
    assert len(ran) <= 3  # of which one is for the footer, and none runs twice


def test_a_column_without_values(files: list[Path]) -> None:
    table = pq.read_table(files[0])
    pq.write_table(table.set_column(1, "x1", pa.nulls(len(table), pa.float64())), files[0])
    out = stream()
    list(out.absorb(files))
    assert (out.t, out.admission.bad_rows) == (N, 1000)
    pq.write_table(table.set_column(1, "x1", pa.nulls(len(table))), files[0])
    with pytest.raises(SourceError, match="'x1' does not hold numbers"):
        next(stream().absorb(files))


def test_the_curator_is_told_of_another_unit_of_measure(files: list[Path], caplog) -> None:
    rows = np.random.default_rng(2).normal(size=(1000, D)) / 5.0
    for scale, file in ((1.0, files[0]), (1000.0, files[3]), (1000.0, files[4])):
        write(file, scale * rows)
    for options in ({}, {"row_norm": None, "bounds": (-2.0, 2.0)}):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "streampca.curator"):
            list(stream(**options).absorb(files, rows_per_task=100))
        (said,) = (record.getMessage() for record in caplog.records)
        assert said.startswith("100 % of the rows" if not options else "")
        assert f"rows in and near {files[3]} exceed their bounds or row_norm" in said


def test_idle_workers_are_reported_once(files: list[Path], monkeypatch) -> None:
    class Instant(Here):
        workers = 2

    monkeypatch.setattr("streampca.stream.executors._PATIENCE", 0.0)
    monkeypatch.setattr("streampca.stream.executors._LOOKS", 4)
    with pytest.warns(StreamPCAWarning, match="workers are idle; raise in_flight") as said:
        list(stream().absorb(files, Instant(), rows_per_task=1))
    assert len(said) == 1
    list(stream().absorb(files, rows_per_task=1, in_flight=4))  # one process has no idle workers


def test_memory_is_bounded_behind_a_task_that_is_late(files: list[Path], monkeypatch) -> None:
    """The fourth task ends when no other can run. Counted: sums that are finished, and those that wait for it."""
    block = 16 * 21
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=30, horizon=2 * N)
    options = {"algorithm": algorithm, "features": NAMES, "row_norm": 2.0, "seed": 5}
    expected, join, lock = of_steps(sp.Stream(**options).absorb(files)), Open.join, threading.Lock()
    ready = peak = started = ended = 0

    def count(change: int, runs: int) -> None:
        nonlocal peak, ready
        with lock:
            ready += change
            peak = max(peak, ready + runs)

    class Straggling(Late):
        def submit(self, fn, item) -> Future:
            nonlocal started
            started += hasattr(item, "pieces")  # the rest are footers
            number = started

            def timed():
                nonlocal ended
                seen = -1
                while number == 4 and seen != ended:
                    seen = ended
                    time.sleep(0.2)
                result = fn(item)
                if number:
                    ended += 1
                    count(block * len(result.blocks), 0)
                return result

            return ThreadPoolExecutor.submit(self, timed)

    def joined(self: Open, one) -> None:
        join(self, one)
        count(-block, sum(run.high.nbytes + run.low.nbytes for run in self.runs.values()))

    monkeypatch.setattr(Open, "join", joined)
    for memory, least, most in ((50 * block, 0.5, 1.1), (2**30, 80 * block / 2**30, 1.0)):
        peak = started = 0
        with Straggling() as executor:
            steps = sp.Stream(**options).absorb(files, executor, rows_per_task=60, in_flight=40, memory=memory)
            assert of_steps(steps) == expected
        assert least * memory <= peak <= most * memory
    # A limit below one sum stops nothing.
    assert len(of_steps(stream().absorb(files, rows_per_task=10, memory=1))) == N // EVERY


def test_a_closed_iterator_cancels_what_has_not_begun(files: list[Path]) -> None:
    ran: list[object] = []

    class Counting(Late):
        def submit(self, fn, item) -> Future:
            return super().submit(lambda given: (ran.append(given), fn(given))[1], item)

    out = stream()
    with Counting(1) as executor:
        steps = out.absorb(files, executor, rows_per_task=217, in_flight=20)
        made = of_steps([next(steps)])
        steps.close()
        begun = len(ran)
    assert len(ran) <= begun + 1 < 10  # one may be running
    drain(out.absorb(files), made)
    assert made == single(files)


def test_a_worker_that_dies_interrupts_and_the_same_call_continues(files: list[Path]) -> None:
    class Breaks(Late):
        def submit(self, fn, item) -> Future:
            if getattr(item, "before", 0) < 1000:
                return super().submit(fn, item)
            future: Future = Future()
            future.set_exception(OSError("killed"))
            return future

    out = stream()
    made: list[str] = []
    with Breaks() as executor, pytest.raises(AbsorbInterruptedError, match=r"\(OSError\).*call absorb again"):
        drain(out.absorb(files, executor, rows_per_task=100), made)
    assert made + of_steps(out.absorb(files)) == single(files)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("ended", r"a worker failed \(RuntimeError\)"),
        ("no future", r"a worker failed \(AttributeError\)"),
        ("another result", "the executor lost results after row"),
        ("no result", r"a worker failed \(TypeError\)"),
        ("twice", None),
    ],
)
def test_an_executor_that_misbehaves_costs_no_row_and_doubles_none(files: list[Path], fault: str, message) -> None:
    class Twice(Future):
        def add_done_callback(self, fn) -> None:
            super().add_done_callback(fn)
            super().add_done_callback(fn)

    class Faulty:
        def __init__(self) -> None:
            self.tasks, self.last = 0, None

        def submit(self, fn, item) -> Future | None:
            self.tasks += 1
            if fault == "ended" and self.tasks == 12:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future = Twice() if fault == "twice" else Future()
            wrong = {"another result": self.last, "no result": "done"}
            future.set_result(wrong[fault] if fault in wrong and self.tasks == 12 else fn(item))
            self.last = future.result()
            return None if fault == "no future" and self.tasks == 12 else future

    out = stream()
    made: list[str] = []
    expected = nullcontext() if message is None else pytest.raises(AbsorbInterruptedError, match=message)
    with expected:
        drain(out.absorb(files, Faulty(), rows_per_task=100), made)
    assert made + of_steps(out.absorb(files)) == single(files)


def test_private_bounds_are_found_first(files: list[Path]) -> None:
    def private() -> sp.Stream:
        algorithm = sp.PrivateFPL(n_components=2, epsilon=2.0, release_every=EVERY, horizon=2 * N)
        return sp.Stream(algorithm, bounds="private", warmup=1234, features=NAMES, seed=5)

    rows = np.concatenate([block for i in (0, 1, 3, 4) for block in from_parquet(files[i]).blocks()])
    with Late() as late:
        assert of_steps(private().absorb(files, late, rows_per_task=100)) == texts(private().push_many(rows).releases)


@pytest.mark.parametrize(
    ("options", "dataset", "call", "error", "message"),
    [
        ({"algorithm": sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=10, horizon=3000)}, None, {},
         HorizonReachedError, "3210 rows given, but the horizon leaves room for 3000"),
        ({"algorithm": sp.Oja(n_components=2)}, None, {}, UsageError, "needs rows"),
        ({"algorithm": sp.PrivateFPL(n_components=1, epsilon=1.0, unit=sp.Person(max_rows=4), horizon=9000)}, None, {},
         UsageError, "a block does not show whose rows"),
        ({}, None, {"executor": 0}, BadParameterError, "executor=0"),
        ({}, None, {"executor": "dask"}, BadParameterError, "executor='dask'"),
        ({}, None, {"memory": None}, BadParameterError, "memory=None"),
        ({}, None, {"before": -1}, UsageError, "before=-1"),
        ({}, None, {"before": None}, BadParameterError, "before=None"),
        ({}, None, {"commit_every": "10s"}, BadParameterError, "commit_every='10s'"),
        ({}, None, {"storage": "s3"}, BadParameterError, "storage='s3': expected a pyarrow.fs.FileSystem"),
        ({}, None, {"columns": "abcde"}, BadParameterError, "columns='abcde': expected a list of names"),
        ({}, None, {"columns": [0, 1, 2, 3, 4]}, BadParameterError, "a list of names"),
        ({}, "", {}, BadParameterError, "dataset='': expected paths of Parquet files"),
        ({}, 7, {}, BadParameterError, "dataset=7: expected paths"),
        ({}, pa.table({"x0": [1.0]}), {}, BadParameterError, "expected paths of Parquet files"),
        ({}, None, {"columns": NAMES[:3]}, BadParameterError, "the 5 features"),
        ({"features": [*NAMES[:4], "y"]}, None, {}, SourceError, "part-0.parquet: no column for the feature 'y'"),
        ({}, [], {}, SourceError, "no Parquet file here; check the path"),
        ({}, "a.csv", {}, BadParameterError, "stream.run"),
        ({}, "nowhere.parquet", {}, SourceError, "nowhere.parquet"),
    ],
)  # fmt: skip
def test_errors_before_any_row(files: list[Path], options, dataset, call, error, message: str) -> None:
    algorithm = options.pop("algorithm", None)
    out = stream(**options) if algorithm is None else sp.Stream(algorithm, features=NAMES, row_norm=1.0)
    with pytest.raises(error, match=message):
        next(out.absorb(files if dataset is None else dataset, **call))
    assert out.t == 0


def test_a_selection_is_refused(files: list[Path]) -> None:
    data = ds.dataset([str(path) for path in files])
    kind, local = ds.ParquetFileFormat(), fs.LocalFileSystem()
    part = kind.make_fragment(str(files[0]), local, partition_expression=ds.field("x0") == 1.0)
    parts = ds.FileSystemDataset([part], data.schema, kind, local)
    for selection in (data.filter(ds.field("x0") > 0), parts):
        with pytest.raises(BadParameterError, match="write the selection first, or use stream"):
            next(stream().absorb(selection))


def test_one_feature_and_row_groups_of_one_row(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(230, 1))
    path = write(tmp_path / "one.parquet", rows, group=1)
    options = {"features": ["x0"], "algorithm": sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=100)}
    for executor in (None, Late()):
        made = of_steps(sp.Stream(row_norm=1.0, seed=5, **options).absorb(path, executor, rows_per_task=7))
        assert made == texts(sp.Stream(row_norm=1.0, seed=5, **options).push_many(rows).releases)


def test_no_rows(tmp_path: Path) -> None:
    out = stream()
    assert list(out.absorb(write(tmp_path / "none.parquet", np.empty((0, D))))) == []
    assert [step.t for step in out.absorb(write(tmp_path / "one.parquet", np.zeros((1, D))))] == [1]


def test_columns_of_lists_are_features(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).normal(size=(501, D))
    rows[[7, 9]] = np.nan
    flat, cells = pa.array(rows[:, 1:].ravel()), rows[:, 1:].tolist()
    cells[7], cells[9] = None, [1.0]
    kinds = {
        "fixed": pa.FixedSizeListArray.from_arrays(flat, 4),
        "list": pa.array(cells), "large": pa.array(cells, pa.large_list(pa.float64())),
        "short": pa.array(cells, pa.list_(pa.float64())).slice(0),
        "tensor": pa.FixedShapeTensorArray.from_storage(
            pa.fixed_shape_tensor(pa.float64(), [2, 2]), pa.FixedSizeListArray.from_arrays(flat, 4)
        ),
        "coded": pa.array(cells, pa.list_(pa.dictionary(pa.int32(), pa.float64()))),
    }  # fmt: skip
    names = ["x0", *(f"e[{i}]" for i in range(4))]
    plain = pa.table({"x0": rows[:, 0], **{f"e[{i}]": rows[:, i + 1] for i in range(4)}})
    pq.write_table(plain, tmp_path / "plain.parquet")
    expected = of_steps(stream(features=names).absorb(tmp_path / "plain.parquet"))
    for kind, column in kinds.items():
        table = pa.table({"e": column, "x0": rows[:, 0]})
        pq.write_table(table, tmp_path / f"{kind}.parquet")
        assert of_steps(stream(features=names).absorb(tmp_path / f"{kind}.parquet")) == expected, kind
        part = table.slice(100, 50).to_batches()[0]
        np.testing.assert_array_equal(np.concatenate([*arrow_rows(part, names)]), rows[100:150], kind)
    coded = pa.table({"x0": pa.array([0.5, None, 0.25]).dictionary_encode()})
    np.testing.assert_array_equal(np.concatenate([*as_source(coded).blocks()]), [[0.5], [np.nan], [0.25]])
    with pytest.raises(SourceError, match=r"'x0' of the table \(dictionary.* does not hold numbers"):
        as_source(coded, ["x0[0]"])
    with pytest.raises(BadParameterError, match=r"Pass pyarrow.feather.read_table\(path\) as rows"):
        sp.sources.open_rows(tmp_path / "rows.feather")
    with pytest.raises(SourceError, match="'e' does not hold lists of 3 numbers"):
        next(stream(features=["x0", "e[0]", "e[1]", "e[2]"]).absorb(tmp_path / "fixed.parquet"))
    with pytest.raises(SourceError, match=r"no column for the feature 'e\[2\]'"):
        next(stream(features=["x0", "e[0]", "e[2]"]).absorb(tmp_path / "fixed.parquet"))


@pytest.mark.parametrize("width", [12, pytest.param(768, marks=pytest.mark.ci)])
def test_embeddings_have_one_digest_at_every_door(tmp_path: Path, width: int) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = np.random.default_rng(3).normal(size=(120, width)).astype(np.float32)
    names = [f"e[{i}]" for i in range(width)]
    cells: list[np.ndarray | None] = [*rows]
    cells[7], cells[9] = None, rows[9][:9]
    rows[[7, 9]] = np.nan
    flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), width)
    tables = {
        "arrow": pa.table({"e": flat}), "ragged": pa.table({"e": pa.array(cells)}),
        "pandas": pd.DataFrame({"e": cells}), "polars": pl.DataFrame({"e": flat}),
    }  # fmt: skip
    expected = texts(stream(features=names).push_many(rows).releases)
    assert len(expected) == 1
    for kind, table in tables.items():
        assert texts(stream(features=names).push_many(table).releases) == expected, kind
        assert of_steps(stream(features=names).run(table)) == expected, kind
    for kind in ("arrow", "ragged"):
        pq.write_table(tables[kind], tmp_path / f"{kind}.parquet")
        # A column stands for its entries, as far as its type or the stream has their number.
        chosen = [names] if kind == "ragged" else [None, ["e"], names]
        for columns in chosen:
            source = from_parquet(tmp_path / f"{kind}.parquet", columns=columns)
            assert source.features == tuple(names)
            assert of_steps(stream(features=width).run(source)) == expected, kind
        for columns in (None, ["e"], names):
            found = stream(features=names).absorb(tmp_path / f"{kind}.parquet", columns=columns)
            assert of_steps(found) == expected, kind
    assert of_steps(stream(features=None).run(tables["arrow"])) == expected
    with pytest.raises(SourceError, match="does not hold numbers"):
        next(stream(features=names[:9]).run(tables["arrow"]))
    with pytest.raises(
        SourceError, match=r"'e' \(list.* does not hold numbers; name all entries .*columns=\['e\[0\]', "
    ):
        from_parquet(tmp_path / "ragged.parquet", columns=["e"])
    with pytest.raises(BadParameterError, match="expected the 9 features of the stream"):
        next(stream(features=9).absorb(tmp_path / "arrow.parquet", columns=["e"]))
    with pytest.raises(SourceError, match="no column for the feature 'g'"):
        next(stream(features=2).absorb(tmp_path / "arrow.parquet", columns=["e", "g"]))
    chosen = [
        sp.pca(data, 2, epsilon=9.0, row_norm=30.0, columns=columns, seed=1).components
        for data in (tables["arrow"], tables["pandas"], tmp_path / "arrow.parquet", tmp_path / "ragged.parquet")
        for columns in (names, ["e"])[: 1 + (data is tables["arrow"])]
    ]
    for components in chosen:
        np.testing.assert_array_equal(components, chosen[0])


def test_links_and_patterns_give_each_file_once(files: list[Path]) -> None:
    folder = files[0].parent
    assert of_steps(stream().absorb(folder / "*")) == single(files)  # without _SUCCESS
    (folder / "more").symlink_to(folder, target_is_directory=True)
    with pytest.raises(SourceError, match="links lead to some of its files twice"):
        next(stream().absorb(folder))
    assert of_steps(stream().absorb(files)) == single(files)


_CURATOR = """
import sys, time
sys.path[:0] = sys.argv[1].split(":")
import streampca as sp
COLUMNS = [f"x{j}" for j in range(5)]
if __name__ == "__main__":
    path, folder, processes = sys.argv[2], sys.argv[3], int(sys.argv[4]) or None
    try:
        stream = sp.Stream.resume(sp.Store(path, commit_every="2ms"))
    except sp.errors.UsageError:
        algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=100, horizon=2**20)
        stream = sp.Stream(algorithm, features=5, row_norm=2.0, seed=5, store=sp.Store(path, commit_every="2ms"))
    for i, _ in enumerate(stream.absorb(folder, processes, rows_per_task=30, commit_every=0.0, columns=COLUMNS)):
        if i == 0:
            print("ready", flush=True)
        time.sleep(0.002)
    stream.close()
"""


def _killed(tmp_path: Path, kills: int, n: int) -> None:
    folder, script = tmp_path / "rows", tmp_path / "curator.py"
    folder.mkdir()
    rows = np.random.default_rng(4).normal(size=(n, D)) / 5.0
    for i, part in enumerate(np.array_split(rows, 7)):
        write(folder / f"{i}.parquet", part, group=33)
    script.write_text(_CURATOR)
    draw, seen = random.Random(kills), set()
    command = [sys.executable, script, os.pathsep.join(sys.path), tmp_path / "run.db", folder]
    for kill in range(10**6):
        with subprocess.Popen([*command, str(2 * (kill % 4 == 3))], stdout=-1, text=True) as curator:
            curator.stdout.readline()  # its first step, or its end
            if kill < kills:
                time.sleep(draw.random() * 0.4)
                curator.kill()
        if (tmp_path / "run.db").exists():
            seen.add(len(released(tmp_path / "run.db")))
        if curator.returncode == 0:
            break
    assert kill == kills, "it ended before it was killed as often"
    assert len(seen) > 2, "no process was killed in the middle"
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=100, horizon=2**20)
    whole = sp.Stream(algorithm, features=5, row_norm=2.0, seed=5)
    assert released(tmp_path / "run.db") == texts(whole.push_many(rows).releases)
    with sp.Store(tmp_path / "run.db") as store:
        assert sp.Stream.resume(store).t == n


@pytest.mark.ci
def test_a_curator_that_is_killed_counts_each_row_once(tmp_path: Path) -> None:
    _killed(tmp_path, 5, 40_000)


@pytest.mark.long
def test_a_curator_that_is_killed_forty_times_counts_each_row_once(tmp_path: Path) -> None:
    _killed(tmp_path, 40, 150_000)


_ORPHAN = """
import multiprocessing, sys, time
import streampca as sp
if __name__ == "__main__":
    stream = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=100), row_norm=1.0, features=5)
    steps = stream.absorb(sys.argv[1:], 2, rows_per_task=200)
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
