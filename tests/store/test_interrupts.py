"""An interrupt at any line of what a durable stream does: it goes on, and so does whoever closes and resumes."""

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from interrupts import every_line
from runs import ROWS, begin, fpl, rows_of, writer_of

import streampca as sp
from streampca.errors import StoreLockedError, UsageError
from streampca.store.reading import verify

#: Files of which every line is tried.
STORE = ("store/log.py", "store/store.py", "store/recovery.py", "store/database.py")
#: Every line is tried in long runs only.
STEPS = pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
# A tracer can raise between the end of a `with` block and its exit, where no signal is handled: files stay open.
UNCLOSED = pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning")


def closed(opened: list[sp.Store]) -> None:
    while opened:
        opened.pop().close()


def check(path: Path, t: int) -> None:
    assert rows_of(path) == t
    verify(path)


@pytest.mark.parametrize(("commit_every", "single"), [(1, False), ("1h", True), ("1ms", True), ("1ms", False)])
def test_feeding_and_reading(tmp_path: Path, commit_every: int | str, single: bool) -> None:
    path, rows = tmp_path / "run.db", [*ROWS, *ROWS, *ROWS]
    expected = {
        release.t: release.to_json() for release in sp.Stream(fpl(), row_norm=1.0, seed=5).push_many(rows).releases
    }
    options: Any = {"commit_every": commit_every, "snapshot_every": "1ms"}
    store, stream = begin(path, stream={"regret": None}, **options)
    read: set[int] = set()

    def work() -> None:
        due = 10 * (stream.t // 10 + 1)  # every call completes a release
        if single:
            for t in range(stream.t, due):
                stream.push(rows[t])
        else:
            stream.push_many(rows[stream.t : due + 3])
        release = stream.release
        assert release is not None
        assert release.to_json() == expected[release.t]
        read.add(release.t)
        store.flush()

    for number in every_line(work, "store/log.py", "stream/engine.py"):
        if number % 9 == 0:  # what is resumed is the same
            store.close()
            store = sp.Store(path, **options)
            stream = sp.Stream.resume(store)
    assert number > 100
    assert len(read) < stream.t // 10  # of most, the reading was broken off
    store.close()
    with sp.Store(path) as store:
        assert sp.Stream.resume(store).t == stream.t
        stored = {release.t: release.to_json() for release in store.releases()}
    assert stored == {t: text for t, text in expected.items() if t <= stream.t}


def fed(path: Path) -> None:
    """Begin a run, or resume one that had been begun to the end, and feed it."""
    with sp.Store(path) as store:
        try:
            stream = sp.Stream(fpl(), row_norm=1.0, seed=5, store=store)
        except UsageError:
            stream = sp.Stream.resume(store)
        stream.push_many(ROWS[stream.t : 50])


@STEPS
@UNCLOSED
def test_beginning(tmp_path: Path, step: int) -> None:
    """In a new place, and again in one place, where leftovers of beginnings that broke off do not stand in the way."""
    numbers, same = count(), tmp_path / "same.db"
    opened: list[sp.Store] = []

    def work() -> None:
        opened.append(sp.Store(path))
        sp.Stream(fpl(), row_norm=1.0, seed=5, store=opened[0])
        opened[0].close()

    path = tmp_path / "first.db"
    for number in every_line(work, *STORE, "store/keys.py", "store/witness.py", step=step):
        closed(opened)
        fed(path)
        if number % 10 == 0:
            check(path, 50)
        path = tmp_path / f"{next(numbers)}.db"
    assert number > 60
    path = same
    opened.clear()
    with suppress(UsageError):  # it was begun
        for _ in every_line(work, *STORE, "store/keys.py", "store/witness.py", step=step):
            closed(opened)
    closed(opened)
    fed(path)
    check(path, 50)


@STEPS
def test_resuming_and_closing(tmp_path: Path, step: int) -> None:
    path, t = tmp_path / "run.db", 20
    begin(path, t)[0].close()
    opened: list[sp.Store] = []

    def taken(store: sp.Store) -> sp.Stream:
        nonlocal t
        stream = sp.Stream.resume(store)
        assert stream.t in (t, t + 1)
        t = stream.t
        return stream

    def work() -> None:
        opened.append(sp.Store(path, commit_every=10))
        taken(opened[0]).push(ROWS[t])
        opened[0].close()

    broken = 0
    for broken in every_line(work, *STORE, "store/witness.py", step=step):  # noqa: B007
        closed(opened)
        with sp.Store(path) as store:
            taken(store)
    assert broken > 100
    check(path, t + 1)


@STEPS
def test_an_epoch_is_durable_as_a_whole_or_not_at_all(tmp_path: Path, step: int) -> None:
    path, numbers = tmp_path / "run.db", count()
    begin(path)[0].close()
    opened: list[sp.Store] = []

    def work() -> None:
        opened.append(sp.Store(path))
        stream = sp.Stream.resume(opened[0])
        with opened[0].in_one_commit({"epoch": next(numbers)}):
            stream.push_many(ROWS[stream.t : stream.t + 6])
            stream.push(ROWS[stream.t])
        opened[0].close()

    for _ in every_line(work, "store/log.py", "store/store.py", step=step):
        closed(opened)
        with sp.Store(path) as store:
            t = sp.Stream.resume(store).t
            assert t % 7 == 0
            assert (0 if store.epoch is None else store.epoch["rows"]) == t
    check(path, t + 7)


def test_a_commit_log_goes_on_from_what_the_stream_has_taken() -> None:
    """Between `append` and what follows it, and between that and `appended`."""
    store, stream = begin(":memory:")
    log = writer_of(store)
    append, appended = log.append, log.appended

    def raising(before: Any) -> Any:
        def broken(*given: Any) -> None:
            before(*given)
            raise KeyboardInterrupt

        return broken

    for name, by in (("append", append), ("appended", appended)):
        for feed in (lambda: stream.push_many(ROWS[:20]), lambda: stream.finish()):
            setattr(log, name, raising(by))
            t = stream.t
            with pytest.raises(KeyboardInterrupt):
                feed()
            setattr(log, name, by)
            taken = stream.t
            assert taken - t in ((0,) if name == "append" else range(11))  # up to a release or record
            store.flush()
            assert store.durable == taken
            stream.push_many(ROWS[:8])
    resumed = sp.Stream.resume(store)
    assert resumed.t == stream.t
    assert [release.t for release in store.releases()] == list(range(10, stream.t + 1, 10))
    with pytest.raises(StoreLockedError):
        stream.push(ROWS[0])


def test_a_debit_is_booked_or_not_and_leaves_nothing_open(tmp_path: Path) -> None:
    ledger, other = sp.Ledger(tmp_path / "ledger.db"), sp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("rows", sp.Budget(2.0, 1e-6))
    small, broken = fpl(epsilon=1e-3), 0
    for broken in every_line(lambda: ledger.debit("rows", small, run="r"), "store/ledger.py", "store/database.py"):  # noqa: B007
        other.debit("rows", small, run="other")  # at once
    assert broken > 20
    ledger.debit("rows", small, run="r")
    assert [entry.run for entry in ledger.balance("rows").entries].count("r") == 1
    ledger.close()
    other.close()
