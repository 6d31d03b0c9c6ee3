"""An interrupt at any line of what a durable stream does: it goes on, and so does whoever closes and resumes."""

import runpy
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError, StoreLockedError
from streampca.store.ledger import Ledger
from streampca.store.reading import Verification
from streampca.store.store import Store

every_line: Callable[..., Iterator[int]] = runpy.run_path(str(Path(__file__).with_name("interrupts.py")))["every_line"]

ROWS = np.random.default_rng(3).normal(size=(3000, 3)) / 3.0
#: Files of which every line is tried.
STORE = ("store/log.py", "store/store.py", "store/recovery.py", "store/database.py")


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=7)


WHOLE = [release.to_json() for release in sp.Stream(algorithm(), seed=5).push_many(ROWS).releases]


def check(path: Path, read: dict[int, str], t: int) -> None:
    with Store(path) as store:
        assert sp.Stream.resume(store).t == t
        stored = [release.to_json() for release in store.releases()]
    assert stored == WHOLE[: len(stored)]
    assert len(stored) == t // 7
    assert all(stored[number // 7 - 1] == text for number, text in read.items())
    verification = Verification(path)
    verification.file()
    verification.close()


@pytest.mark.parametrize("commit_every", [1, "1h", "1ms"])
@pytest.mark.parametrize("single", [True, False])
def test_feeding_and_reading(tmp_path: Path, commit_every: int | str, single: bool) -> None:
    store = Store(tmp_path / "run.db", commit_every=commit_every, snapshot_every="1ms")
    stream = sp.Stream(algorithm(), seed=5, store=store, regret=None)
    read: dict[int, str] = {}

    def work() -> None:
        due = 7 * (stream.t // 7 + 1)  # every call completes a release
        if single:
            for t in range(stream.t, due):
                stream.push(ROWS[t])
        else:
            stream.push_many(ROWS[stream.t : due + 9])
        release = stream.release
        assert release is not None
        read[release.t] = release.to_json()
        store.flush()

    for number in every_line(work, "store/log.py", "stream/engine.py"):
        if number % 9 == 0:  # what is resumed is the same
            store.close()
            store = Store(tmp_path / "run.db", commit_every=commit_every, snapshot_every="1ms")
            stream = sp.Stream.resume(store)
    assert number > 100
    assert len(read) < stream.t // 7  # of most, the reading was broken off
    store.close()
    check(tmp_path / "run.db", read, stream.t)


#: Every line is tried in long runs only.
STEPS = pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
# A tracer can raise between the end of a `with` block and its exit, where no signal is handled: files stay open.
UNCLOSED = pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning")


@STEPS
@UNCLOSED
def test_beginning(tmp_path: Path, step: int) -> None:
    numbers = count()
    path = tmp_path / "first.db"
    opened: list[Store] = []

    def work() -> None:
        opened.append(Store(path))
        sp.Stream(algorithm(), seed=5, store=opened[0])
        opened[0].close()

    for number in every_line(work, *STORE, "store/keys.py", "store/witness.py", step=step):
        if opened:
            opened.pop().close()
        with Store(path) as store:
            try:
                stream = sp.Stream(algorithm(), seed=5, store=store)
            except BadParameterError:  # it had been begun to the end
                stream = sp.Stream.resume(store)
            stream.push_many(ROWS[:50])
        if number % 10 == 0:
            check(path, {}, 50)
        path = tmp_path / f"{next(numbers)}.db"
    assert number > 60


@STEPS
@UNCLOSED
def test_beginning_again_in_the_same_place(tmp_path: Path, step: int) -> None:
    """Leftovers of one beginning that broke off do not stand in the way of another one that breaks off."""
    path = tmp_path / "run.db"
    store = Store(path)

    def work() -> None:
        sp.Stream(algorithm(), seed=5, store=store)

    lines = every_line(work, *STORE, "store/keys.py", "store/witness.py", step=step)
    with suppress(BadParameterError):  # it was begun, and the store is open
        for _ in lines:
            store.close()
            store = Store(path)
    store.close()
    with Store(path) as again:
        try:
            stream = sp.Stream(algorithm(), seed=5, store=again)
        except BadParameterError:
            stream = sp.Stream.resume(again)
        stream.push_many(ROWS[:50])
    check(path, {}, 50)


@STEPS
def test_resuming_and_closing(tmp_path: Path, step: int) -> None:
    path = tmp_path / "run.db"
    with Store(path, commit_every=10) as store:
        sp.Stream(algorithm(), seed=5, store=store).push_many(ROWS[:20])
    t = 20
    opened: list[Store] = []

    def work() -> None:
        nonlocal t
        store = Store(path, commit_every=10)
        opened.append(store)
        stream = sp.Stream.resume(store)
        assert stream.t in (t, t + 1)
        t = stream.t
        stream.push(ROWS[t])
        store.close()

    broken = 0
    for broken in every_line(work, *STORE, "store/witness.py", step=step):  # noqa: B007
        if opened:
            opened.pop().close()
        with Store(path) as store:
            stream = sp.Stream.resume(store)
            assert stream.t in (t, t + 1)
            t = stream.t
    assert broken > 100
    check(path, {}, t + 1)


@STEPS
def test_an_epoch_is_durable_as_a_whole_or_not_at_all(tmp_path: Path, step: int) -> None:
    path = tmp_path / "run.db"
    numbers = count()
    with Store(path) as store:
        sp.Stream(algorithm(), seed=5, store=store)
    opened: list[Store] = []

    def work() -> None:
        store = Store(path)
        opened.append(store)
        stream = sp.Stream.resume(store)
        with store.in_one_commit({"epoch": next(numbers)}):
            stream.push_many(ROWS[stream.t : stream.t + 20])
            stream.push(ROWS[stream.t])
        store.close()

    for _ in every_line(work, "store/log.py", "store/store.py", step=step):
        if opened:
            opened.pop().close()
        with Store(path) as store:
            stream = sp.Stream.resume(store)
            assert stream.t % 21 == 0
            assert (0 if store.epoch is None else store.epoch["rows"]) == stream.t
    with Store(path) as store:
        t = sp.Stream.resume(store).t
    check(path, {}, t)


def test_a_commit_log_goes_on_from_what_the_stream_has_taken() -> None:
    """Between `append` and what follows it, and between that and `appended`."""
    store = Store(":memory:", commit_every="1h")
    stream = sp.Stream(algorithm(), store=store)
    log = store._writer
    assert log is not None
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
            assert taken - t in ((0,) if name == "append" else range(8))  # up to a release or record
            store.flush()
            assert store.durable == taken
            stream.push_many(ROWS[:8])
    resumed = sp.Stream.resume(store)
    assert resumed.t == stream.t
    assert [release.t for release in store.releases()] == list(range(7, stream.t + 1, 7))
    with pytest.raises(StoreLockedError):
        stream.push(ROWS[0])


def test_a_debit_is_booked_or_not_and_leaves_nothing_open(tmp_path: Path) -> None:
    ledger, other = Ledger(tmp_path / "ledger.db"), Ledger(tmp_path / "ledger.db")
    ledger.set_budget("rows", sp.Budget(2.0, 1e-6))
    small = sp.PrivateFPL(n_components=1, epsilon=1e-3, delta=1e-6)
    broken = 0
    for broken in every_line(lambda: ledger.debit("rows", small, run="r"), "store/ledger.py", "store/database.py"):  # noqa: B007
        other.debit("rows", small, run="other")  # at once
    assert broken > 20
    ledger.debit("rows", small, run="r")
    assert [entry.run for entry in ledger.balance("rows").entries].count("r") == 1
    ledger.close()
    other.close()
