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
from runs import ROWS, begin, rows_of, writer_of

import streampca as sp
from streampca.errors import StoreLockedError, StoreUnwritableError
from streampca.store.log import Writer
from streampca.store.reading import status
from streampca.store.writing_thread import WritingThread


def collected() -> list[str]:
    """Collect garbage; return the warnings about stores that were not closed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    return [text for one in caught if issubclass(one.category, ResourceWarning) and (text := str(one.message))]


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage by explicit calls only."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def forget(path: Path, rows: int, **options: Any) -> WritingThread:
    """Leave a run as garbage: a cycle of the store and its stream, whose last row waits to be absorbed."""
    store, stream = begin(path, rows - 1, **options)
    stream.push(ROWS[rows - 1])
    return writer_of(store).thread


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.long)])
def test_collected_streams_lose_no_row_and_warn_once(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(count)
    expected = {tmp_path / f"{number}.db": int(random.integers(1, 300)) for number in range(count)}
    with uncollected():
        for path, rows in expected.items():
            forget(path, rows, commit_every=["1h", "1ms", 100][rows % 3])
        said = collected()
    assert sorted(text.partition(": the store was not closed")[0] for text in said) == sorted(map(str, expected))
    for path, rows in expected.items():
        assert status(path) | {"rows": rows, "rows_to_replay": 0, "running": False} == status(path)
        assert rows_of(path) == rows


def test_what_was_forgotten_and_not_collected_can_be_resumed_at_once(tmp_path: Path) -> None:
    with uncollected():
        forget(tmp_path / "run.db", 31)
        with pytest.raises(StoreLockedError, match="this process has the store open"):
            sp.Store(tmp_path / "run.db")._lock.open()
        with pytest.warns(ResourceWarning, match="was not closed"):
            assert rows_of(tmp_path / "run.db") == 31  # collects the garbage that holds the lock


def test_a_stream_keeps_its_store_open_and_a_store_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    stream = begin(path, 10)[1]
    assert not collected()
    assert status(path)["running"]
    steps = stream.push_many(ROWS[10:20])  # they hold the stream, since reading their releases commits rows
    del stream
    assert not collected()
    assert steps.releases[-1].t == 20
    del steps
    assert len(collected()) == 1
    assert rows_of(path) == 20
    with sp.Store(path) as store:
        sp.Stream.resume(store).push_many(ROWS[20:40])
        assert not collected()
    assert rows_of(path) == 40


def test_a_stream_that_passed_its_store_on_does_not_keep_it(tmp_path: Path) -> None:
    store, old = begin(tmp_path / "run.db", 20)
    sp.Stream.resume(store).push_many(ROWS[20:41])
    del store
    assert len(collected()) == 1
    assert rows_of(tmp_path / "run.db") == 41
    with pytest.raises(StoreLockedError):
        old.push(ROWS[20])


def test_a_commit_that_fails_in_the_background_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that failed before the stream was collected is made again, also when rows wait."""

    def full(*_: Any) -> None:
        raise OSError(28, "no space left")

    for name, is_repaired in (("once", True), ("always", False)):
        with monkeypatch.context() as patch, uncollected():
            stream = begin(tmp_path / f"{name}.db", 10)[1]
            stream.push(ROWS[10])
            patch.setattr(Writer, "_store", full)
            with pytest.raises(StoreUnwritableError):
                stream.engine.log.commit()  # type: ignore[union-attr, attr-defined]
            if is_repaired:
                patch.undo()
            caplog.clear()
            del stream
            assert len(collected()) == 1
            found = status(tmp_path / f"{name}.db")
            assert (found["rows"], found["running"]) == (11 if is_repaired else 0, False)
            assert ("not committed" in caplog.text) != is_repaired
    assert rows_of(tmp_path / "once.db") == 11


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_ledger_knows_the_last_rows(
    tmp_path: Path, is_refused: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(5, "refused")

    with sp.Ledger(tmp_path / "ledger.db") as ledger, uncollected(), monkeypatch.context() as patch:
        ledger.set_budget("rows", sp.Budget(2.0, 1e-5))
        forget(tmp_path / "run.db", 51, stream={"account": ledger.account("rows")})
        if is_refused:
            patch.setattr(sp.Ledger, "note", refuse)
        assert len(collected()) == 1
        assert not status(tmp_path / "run.db")["running"]
    assert ("not committed" in caplog.text) == is_refused
    assert rows_of(tmp_path / "run.db") == 51  # the rows are in the database before the ledger knows of them


def collected_in(place: str, path: Path, own: WritingThread) -> None:
    """Collect garbage in a place where a commit would wait forever."""
    if place == "a ledger's transaction":
        with sp.Ledger(path.with_name("ledger.db")) as ledger:
            ledger._file.transact(lambda _: gc.collect())
    elif place == "a handler's lock":
        with logging.StreamHandler().lock or threading.RLock():
            gc.collect()
    elif place == "a stream's lock":
        with sp.Stream(
            sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False), row_norm=1.0
        ).engine.guard.lock:
            gc.collect()
    elif place == "its writing thread":
        own.wait(own.begin(lambda: print(gc.collect())))
    else:  # the thread that writes for another stream
        with begin(path.with_name("other.db"))[0] as store:
            other = writer_of(store).thread
            other.wait(other.begin(lambda: print(gc.collect())))


@pytest.mark.parametrize(
    "place",
    ["a ledger's transaction", "a handler's lock", "a stream's lock", "its writing thread", "another writing thread"],
)
def test_garbage_is_collected_anywhere(tmp_path: Path, place: str) -> None:
    with uncollected():
        thread = forget(tmp_path / "run.db", 31)
        with pytest.warns(ResourceWarning, match=r"run\.db: the store was not closed"):
            collected_in(place, tmp_path / "run.db", thread)
    assert rows_of(tmp_path / "run.db") == 31


class Owner:
    """Closes its store when it is collected. An error there would be one of the test."""

    def __del__(self) -> None:
        self.store.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_finalizer_of_the_caller_closes_the_store_too(tmp_path: Path, is_first: bool) -> None:
    with uncollected():
        owner = Owner() if is_first else None
        store, _ = begin(tmp_path / "run.db", 41)
        owner = owner or Owner()
        owner.store, store.owner = store, owner  # type: ignore[attr-defined]
        del owner, store, _
        assert len(collected()) == (0 if is_first else 1)
    assert rows_of(tmp_path / "run.db") == 41


def test_closed_stores_and_stores_in_memory_leave_no_thread_and_no_warning(tmp_path: Path) -> None:
    collected()
    before = threading.active_count()
    begin(tmp_path / "run.db", 25)[0].close()
    begin(":memory:", 25)
    assert not collected()
    for _ in range(100):
        if threading.active_count() > before:
            threading.Event().wait(0.05)
    assert threading.active_count() <= before


def test_the_child_of_a_fork_leaves_garbage_to_the_parent(
    tmp_path: Path, in_child: Callable[[Callable[[], object]], int]
) -> None:
    with uncollected():
        forget(tmp_path / "run.db", 25)  # garbage in both processes

        def child() -> None:
            assert not collected()
            assert status(tmp_path / "run.db")["rows"] == 0

        assert in_child(child) == 0
        assert len(collected()) == 1
    assert rows_of(tmp_path / "run.db") == 25


#: Forks for each path and end, since imports take most of the time. A handler that is registered before the library is
#: imported runs after the commit at the end.
SCRIPT = """
import atexit, gc, os, sys, threading, time
atexit.register(lambda: "handler" in end and (stream.push([0.1, 0.2, 0.3]), end == "handler" and store.close()))
import numpy as np, streampca as sp
from streampca.store import log
fpl = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=7)
for path, end in zip(sys.argv[1::2], sys.argv[2::2]):
    if (child := os.fork()) == 0:
        os.dup2(os.open(path + ".err", os.O_WRONLY | os.O_CREAT), 2)
        break
    os.waitpid(child, 0)
else:
    os._exit(0)
log._PATIENCE = 0.1
store = sp.Store(path, commit_every="1h")
stream = sp.Stream(fpl, row_norm=1.0, store=store)
for row in np.full((40, 3), 0.1):
    stream.push(row)
def collect():
    global store, stream
    last_call = log.Writer.last_call
    log.Writer.last_call = lambda writer: (time.sleep(0.5), last_call(writer))
    del store, stream
    gc.collect()
def hold():
    with stream.engine.guard.lock:
        held.set()
        threading.Event().wait()
if end == "held":
    held = threading.Event()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
elif "handler" not in end:
    exec(end)
"""


def test_the_end_of_the_interpreter_commits_what_nobody_closed(tmp_path: Path) -> None:
    """It waits for collected streams, only a moment for one that a thread holds, and an exit handler may still push."""
    ends = {
        "raise SystemExit(3)": 40, "raise KeyboardInterrupt": 40, "del store": 40, "collect()": 40, "handler": 41,
        "a handler": 41, "held": 0,
    }  # fmt: skip
    paths = {end: tmp_path / f"{i}.db" for i, end in enumerate(ends)}
    words = [str(word) for end, path in paths.items() for word in (path, end)]
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", SCRIPT, *words]
    subprocess.run(command, timeout=120, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, check=True)
    for end, rows in ends.items():
        said = Path(f"{paths[end]}.err").read_text()
        assert ("not committed, a thread holds the stream" in said) == (end == "held"), end
        assert said.count(": ResourceWarning: ") == (0 if end in ("handler", "held") else 1), end
        assert said.count("the store was not closed") <= 1
        assert "Exception ignored" not in said
        with sp.Store(paths[end]) as store:
            assert sp.Stream.resume(store).t == rows, end
