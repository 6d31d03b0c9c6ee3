"""Streams and stores that the caller forgot: no row is lost, one warning, nothing hangs."""

import gc
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import StoreLockedError, StoreUnwritableError
from streampca.store import log as store_log
from streampca.store.ledger import Ledger
from streampca.store.reading import status
from streampca.store.store import Store

ROWS = np.random.default_rng(3).normal(size=(700, 3)) / 3.0


def algorithm(**options: Any) -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, **{"release_every": 7} | options)


WHOLE = [release.to_json() for release in sp.Stream(algorithm(), seed=5).push_many(ROWS).releases]


def begin(path: Path, rows: int, *, single: bool, **options: Any) -> sp.Stream:
    stream = sp.Stream(algorithm(), seed=5, store=Store(path, commit_every="1h"), **options)
    if single:
        for row in ROWS[:rows]:
            stream.push(row)
    else:
        stream.push_many(ROWS[:rows])
    return stream


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage by explicit calls only."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def collected() -> Iterator[list[str]]:
    gc.collect()
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
        gc.collect()
    said += [text for one in caught if "store was not closed" in (text := str(one.message))]


def check(path: Path, t: int) -> None:
    with Store(path) as store:
        stream = sp.Stream.resume(store)
        assert stream.t == t
        assert [release.to_json() for release in store.releases()] == WHOLE[: t // 7]


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.long)])
def test_collected_streams_lose_no_row_and_warn_once(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(count)
    expected: dict[Path, int] = {}
    with collected() as said:
        for number in range(count):
            path = tmp_path / f"{number}.db"
            expected[path] = int(random.integers(1, 300))
            begin(path, expected[path], single=number % 2 == 0)
    assert len(said) == count
    assert all(sum(str(path) in text for text in said) == 1 for path in expected)
    assert all("close()" in text and "with" in text for text in said)
    for path, rows in expected.items():
        assert status(path) | {"rows": rows, "running": False} == status(path)
        check(path, rows)


def test_a_stream_keeps_its_store_open(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with collected() as said:
        stream = begin(path, 10, single=True)
        gc.collect()
        assert not said
        assert status(path)["running"]
        stream.push(ROWS[10])
        with pytest.raises(StoreLockedError, match="this process has the store open"):
            sp.Stream.resume(Store(path))
        steps = stream.push_many(ROWS[11:21])  # they hold the stream, since reading their releases commits rows
        del stream
        gc.collect()
        assert steps.releases[-1].t == 21
        assert status(path)["rows"] == 21
        del steps
    assert len(said) == 1
    check(path, 21)


def test_a_store_keeps_its_stream(tmp_path: Path) -> None:
    with collected() as said, Store(tmp_path / "run.db", commit_every="1h") as store:
        sp.Stream(algorithm(), seed=5, store=store).push_many(ROWS[:20])
        gc.collect()
        assert store.durable == 0
    assert not said
    check(tmp_path / "run.db", 20)


def test_a_stream_that_passed_its_store_on_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = Store(path, commit_every="1h")
    with collected() as said:
        old = sp.Stream(algorithm(), seed=5, store=store)
        old.push_many(ROWS[:20])
        sp.Stream.resume(store).push_many(ROWS[20:40])
        del store
    assert len(said) == 1
    check(path, 40)
    with pytest.raises(StoreLockedError):
        old.push(ROWS[20])


def test_what_was_forgotten_and_not_collected_can_be_resumed_at_once(tmp_path: Path) -> None:
    with uncollected():
        begin(tmp_path / "run.db", 20, single=True)
        with pytest.warns(ResourceWarning, match="was not closed"):
            check(tmp_path / "run.db", 20)


def test_closed_stores_and_stores_in_memory_give_no_warning(tmp_path: Path) -> None:
    before = threading.active_count()
    with collected() as said:
        with Store(tmp_path / "run.db") as store:
            sp.Stream(algorithm(), store=store).push_many(ROWS[:20])
        del store
        sp.Stream(algorithm(), store=Store(":memory:")).push_many(ROWS[:20])
    assert not said
    for _ in range(100):
        if threading.active_count() <= before:
            break
        threading.Event().wait(0.05)
    assert threading.active_count() <= before


def test_rows_are_committed_where_warnings_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    begin(tmp_path / "run.db", 20, single=True)
    gc.collect()  # warnings are errors in these tests
    assert [one.exc_type for one in told] == [ResourceWarning]
    check(tmp_path / "run.db", 20)


def test_the_ledger_knows_the_last_rows(tmp_path: Path) -> None:
    book = tmp_path / "ledger.db"
    with Ledger(book) as ledger:
        ledger.set_budget("rows", sp.Budget(2.0, 1e-5))
        with collected() as said:
            begin(tmp_path / "run.db", 50, single=True, ledger=ledger.account("rows"))
    assert len(said) == 1
    check(tmp_path / "run.db", 50)


def collected_in(place: str, path: Path, tmp_path: Path) -> None:
    begin(path, 30, single=True)
    if place == "another thread":
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join(30.0)
        assert not thread.is_alive()
    elif place == "a ledger's transaction":
        with Ledger(tmp_path / "ledger.db") as ledger:
            ledger._file.transact(lambda _: gc.collect())
    elif place == "a handler's lock":
        handler = logging.getLogger().handlers[0] if logging.getLogger().handlers else logging.StreamHandler()
        with handler.lock or threading.RLock():
            gc.collect()
    elif place == "a stream's lock":
        other = sp.Stream(algorithm())
        with other.engine.guard.lock:
            gc.collect()
    else:  # in the thread that writes for another stream, or for the one that is collected
        with Store(path.with_name("other.db"), commit_every="1h") as store:
            sp.Stream(algorithm(), store=store)
            assert store._writer is not None
            store._writer.thread.do(lambda: print(gc.collect()))


@pytest.mark.parametrize(
    "place", ["another thread", "a ledger's transaction", "a handler's lock", "a stream's lock", "a writing thread"]
)
def test_garbage_is_collected_anywhere(tmp_path: Path, place: str) -> None:
    with uncollected(), pytest.warns(ResourceWarning, match=r"run\.db: the store was not closed"):
        collected_in(place, tmp_path / "run.db", tmp_path)
    check(tmp_path / "run.db", 30)


def test_a_stream_is_collected_in_the_thread_that_writes_for_it(tmp_path: Path) -> None:
    stream = begin(tmp_path / "run.db", 30, single=True)
    assert stream.engine.log is not None
    thread = stream.engine.log.thread  # type: ignore[attr-defined]
    del stream
    with pytest.warns(ResourceWarning, match=r"run\.db: the store was not closed"):
        thread.do(gc.collect)
    check(tmp_path / "run.db", 30)


class Owner:
    def __init__(self, path: Path) -> None:
        self.store = Store(path, commit_every="1h")
        self.stream = sp.Stream(algorithm(), seed=5, store=self.store)

    def __del__(self) -> None:
        self.store.close()


class Kept(Owner):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.store.owner = self  # type: ignore[attr-defined]
        self.stream.owner = self  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Owner, Kept])
@pytest.mark.parametrize("turn", range(3))
def test_a_finalizer_of_the_users_closes_the_store_too(tmp_path: Path, kind: type[Owner], turn: int) -> None:
    path = tmp_path / "run.db"
    with collected() as said:
        owner = kind(path)
        owner.stream.push_many(ROWS[:40])
        owner.stream.push(ROWS[40])
        del owner
    assert len(said) <= 1
    check(path, 41)


def test_the_child_of_a_fork_leaves_it_to_the_parent(
    tmp_path: Path, in_child: Callable[[Callable[[], object]], int]
) -> None:
    path = tmp_path / "run.db"
    with uncollected():
        begin(path, 30, single=True)  # garbage in both processes

        def child() -> None:
            with collected() as said:
                pass
            assert not said
            assert status(path)["rows"] == 0

        assert in_child(child) == 0
        assert status(path)["running"]
        with pytest.warns(ResourceWarning):
            gc.collect()
    check(path, 30)


def test_a_child_that_is_forked_while_a_store_is_closed_does_not_keep_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_close, last_call = threading.Event(), store_log.Writer.last_call

    def waits(writer: store_log.Writer) -> None:
        may_close.wait(30.0)
        last_call(writer)

    monkeypatch.setattr(store_log.Writer, "last_call", waits)
    begin(tmp_path / "run.db", 30, single=True)
    with pytest.warns(ResourceWarning):
        gc.collect()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    try:
        may_close.set()
        check(tmp_path / "run.db", 30)
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_a_commit_that_failed_is_made_again_and_failing_again_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "no space left")

    for name, ends in (("once", True), ("always", False)):
        with monkeypatch.context() as patch:
            stream = begin(tmp_path / f"{name}.db", 10, single=False)
            patch.setattr(store_log.Writer, "_store", full)
            with pytest.raises(StoreUnwritableError):
                stream.engine.log.commit()  # type: ignore[union-attr, attr-defined]
            if ends:
                patch.undo()
            caplog.clear()
            del stream
            with pytest.warns(ResourceWarning):
                gc.collect()
            found = status(tmp_path / f"{name}.db")
            assert (found["rows"], found["running"]) == (10 if ends else 0, False)
            assert ("not committed" in caplog.text) != ends
    check(tmp_path / "once.db", 10)


SCRIPT = """
import gc, sys, numpy as np, streampca as sp
from streampca.store.store import Store
gc.disable()
def begin(path):
    stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), store=Store(path, commit_every="1h"))
    for row in np.eye(3)[[0, 1, 2, 0, 1]] / 2:
        stream.push(row)
    return stream
held = begin(sys.argv[1])
begin(sys.argv[2])  # garbage
begin(sys.argv[3])
if sys.argv[4] == "collect":
    gc.collect()  # and end while they are being closed
"""


@pytest.mark.parametrize("how", ["leave", "collect"])
def test_the_end_of_the_interpreter_commits_and_warns_once(tmp_path: Path, how: str) -> None:
    paths = [tmp_path / f"{name}.db" for name in ("held", "garbage", "more")]
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", SCRIPT, *map(str, paths), how]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stdout) == (0, "")
    for path in paths:
        assert done.stderr.count(f"{path}: the store was not closed") == 1
        assert status(path)["rows"] == 5
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
