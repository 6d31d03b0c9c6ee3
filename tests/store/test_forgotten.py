"""Streams and stores that the caller forgot: like a crash, with one warning, and nothing hangs."""

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import ROWS, begin, proceed, rows_of, whole

import streampca as sp
from streampca.errors import StoreLockedError
from streampca.store.reading import status
from streampca.store.store import Store


def collected() -> list[str]:
    """Collect garbage; return the warnings about stores that were not closed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    return [text for one in caught if "was not closed" in (text := str(one.message))]


def test_a_forgotten_run_goes_on_from_its_last_commit(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store, stream = begin(path, 20)
    assert len(stream.push_many(ROWS[20:30]).releases) == 1  # which commits
    stream.push(ROWS[30])
    store.owner = stream  # a cycle
    gc.disable()
    try:
        del store, stream
        with pytest.raises(StoreLockedError, match="this process has the store open"):
            Store(path)._lock.open()
        with pytest.warns(RuntimeWarning, match="the last 1 rows were not committed"):
            assert proceed(path) == whole()  # collects the garbage that holds the lock
    finally:
        gc.enable()
    assert not collected()


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
    assert not collected()  # nothing is lost
    assert rows_of(path) == 20
    with Store(path) as store:
        sp.Stream.resume(store).push_many(ROWS[20:40])
        assert not collected()
    assert rows_of(path) == 40


def test_a_stream_that_passed_its_store_on_does_not_keep_it(tmp_path: Path) -> None:
    store, old = begin(tmp_path / "run.db", 20)
    sp.Stream.resume(store).push_many(ROWS[20:41])
    del store
    assert len(collected()) == 1
    assert rows_of(tmp_path / "run.db") == 20
    with pytest.raises(StoreLockedError):
        old.push(ROWS[20])


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
    gc.disable()
    try:
        begin(tmp_path / "run.db", 25)[1].cycle = begin  # garbage in both processes

        def child() -> None:
            gc.collect()
            assert status(tmp_path / "run.db")["rows"] == 0

        assert in_child(child) == 0
    finally:
        gc.enable()
    collected()
    assert rows_of(tmp_path / "run.db") == 0


SCRIPT = """
import atexit, sys, threading
if sys.argv[2] == "handler":  # registered before the library is imported, it runs after the commit at the end
    atexit.register(lambda: (stream.push([0.1, 0.2, 0.3]), store.close()))
import numpy as np, streampca as sp
from streampca.store import log
log._PATIENCE = 0.1
store = sp.Store(sys.argv[1], commit_every="1h")
stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=7), store=store)
for row in np.full((40, 3), 0.1):
    stream.push(row)
def hold():
    with stream.engine.guard.lock:
        held.set()
        threading.Event().wait()
if sys.argv[2] == "held":
    held = threading.Event()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
elif sys.argv[2] != "handler":
    exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("end", "rows"), [("raise SystemExit(3)", 40), ("raise KeyboardInterrupt", 40), ("del store", 40),
                      ("handler", 41), ("held", 35)],
)  # fmt: skip
def test_the_end_of_the_interpreter_commits_what_nobody_closed(tmp_path: Path, end: str, rows: int) -> None:
    """It waits no longer than a moment for a stream that another thread holds, and an exit handler may still push."""
    path = tmp_path / "run.db"
    command = [sys.executable, "-c", SCRIPT, str(path), end]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert ("not committed, a thread holds the stream" in done.stderr) == (end == "held")
    assert "Exception ignored" not in done.stderr
    with Store(path) as store:
        assert sp.Stream.resume(store).t == (rows if end != "held" else 0)
