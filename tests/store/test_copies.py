"""Copies of a durable run: forks, pickles, and stores whose ledger knows the one that went on."""

import copy
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.errors import (
    BadParameterError,
    BudgetExhaustedError,
    StoreForkedError,
    StoreLockedError,
    StoreUnwritableError,
)
from streampca.store.ledger import Account, Ledger
from streampca.store.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
ROWS = np.random.default_rng(3).normal(size=(600, 3)) / 3.0


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=10)


def test_the_child_of_a_fork_leaves_the_run_to_its_parent(
    tmp_path: Path, in_child: Callable[[Callable[[], object]], int]
) -> None:
    path = tmp_path / "run.db"
    store = Store(path, commit_every="1h")
    stream = sp.Stream(algorithm(), store=store)
    steps = stream.push_many(ROWS[:100])

    def child() -> None:
        for read in (lambda: stream.push(ROWS[0]), lambda: stream.release, lambda: steps.releases):
            with pytest.raises(StoreLockedError):
                read()
        store.flush()
        with pytest.raises(BadParameterError, match="not open"):
            next(store.releases())
        store.close()
        other = Store(path)
        with pytest.raises(StoreLockedError, match="another process"):
            sp.Stream.resume(other)

    began = time.monotonic()
    assert in_child(child) == 0
    assert time.monotonic() - began < 10.0
    assert len(steps.releases) == 10
    stream.push_many(ROWS[100:200])
    store.close()
    with Store(path) as again:
        assert sp.Stream.resume(again).t == 200


def test_a_child_that_lives_on_keeps_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = Store(path)
    stream = sp.Stream(algorithm(), store=store)
    stream.push_many(ROWS[:100])
    pid = os.fork()
    if pid == 0:
        time.sleep(30.0)
        os._exit(0)
    try:
        time.sleep(0.2)
        store.close()
        with Store(path) as again:
            assert sp.Stream.resume(again).t == 100
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_durable_stream_cannot_be_copied(tmp_path: Path) -> None:
    with Store(tmp_path / "run.db") as store:
        stream = sp.Stream(algorithm(), store=store)
        stream.push_many(ROWS[:100])
        for make in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(BadParameterError, match="cannot be copied or pickled"):
                make(stream)
        stream.push_many(ROWS[100:200])
        resumed = sp.Stream.resume(store)
        with pytest.raises(BadParameterError, match="cannot be copied or pickled"):
            pickle.dumps(resumed)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.set_budget("rows", sp.Budget(1.5, 1e-6))  # for two runs of epsilon = 1, not for three
    return path


def begin(path: Path, ledger: Path, rows: int = 100) -> None:
    with Ledger(ledger) as opened, Store(path, commit_every=10) as store:
        stream = sp.Stream(algorithm(), store=store, ledger=opened.account("rows", run="nightly"))
        stream.push_many(ROWS[:rows])


def duplicate(path: Path, to: Path) -> None:
    for ending in ("", ".key", ".witness"):
        shutil.copy2(f"{path}{ending}", f"{to}{ending}")


def go_on(path: Path, *, moved: bool = False, rows: int = 50) -> int:
    with Store(path, commit_every=10) as store:
        stream = sp.Stream.resume(store, moved=moved)
        stream.push_many(ROWS[stream.t : stream.t + rows])
        return len([*store.releases()])


def payments(ledger: Path) -> int:
    with Ledger(ledger) as opened:
        return len(opened.balance("rows").entries)


def test_the_ledger_knows_which_copy_went_on(tmp_path: Path, ledger: Path) -> None:
    path, twin, third = tmp_path / "run.db", tmp_path / "twin.db", tmp_path / "third.db"
    begin(path, ledger)
    duplicate(path, twin)
    duplicate(path, third)
    assert go_on(path) == 15
    assert payments(ledger) == 1  # the run itself goes on for free
    with pytest.raises(StoreForkedError, match=r"is at row 100, but the ledger .* row 150.*sqrt\(2\) times mu"):
        go_on(twin)
    assert payments(ledger) == 1
    assert go_on(twin, moved=True) == 15
    assert payments(ledger) == 2
    assert go_on(twin) == 20  # it is said once, and paid for once
    assert payments(ledger) == 2
    with Store(third) as store:
        stream = sp.Stream.resume(store, moved=True)
        with pytest.raises(BudgetExhaustedError):
            stream.push(ROWS[0])
        assert stream.t == 100
    assert payments(ledger) == 2
    with pytest.raises(StoreForkedError, match="at row 200"):
        go_on(path)  # the ledger knows the twin now


def test_an_unmoved_copy_is_the_run_and_the_original_a_copy(tmp_path: Path, ledger: Path) -> None:
    path, twin = tmp_path / "run.db", tmp_path / "twin.db"
    begin(path, ledger)
    duplicate(path, twin)
    assert go_on(twin) == 15
    with pytest.raises(StoreForkedError):
        go_on(path)


def test_twins_at_once_cannot_both_hand_out(tmp_path: Path, ledger: Path) -> None:
    path, twin = tmp_path / "run.db", tmp_path / "twin.db"
    begin(path, ledger)
    duplicate(path, twin)
    one, other = Store(path), Store(twin)
    first, second = sp.Stream.resume(one), sp.Stream.resume(other)
    assert len(first.push_many(ROWS[100:120]).releases) == 2
    steps = second.push_many(ROWS[100:120])
    for _ in range(2):
        with pytest.raises(StoreForkedError, match="not handed out"):
            _ = steps.releases
    with pytest.raises(StoreForkedError):
        second.push(ROWS[0])
    with pytest.raises(StoreForkedError):
        other.close()
    assert len(first.push_many(ROWS[120:140]).releases) == 2
    one.close()
    with pytest.raises(StoreForkedError):
        go_on(twin)
    assert payments(ledger) == 1


@pytest.mark.parametrize("crashes", [True, False])
def test_nothing_is_handed_out_that_the_ledger_does_not_know(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    """After a crash the run repeats the release; otherwise the next call repeats the note."""
    path = tmp_path / "run.db"
    begin(path, ledger)
    store = Store(path, commit_every="1h")
    stream = sp.Stream.resume(store)
    steps = stream.push_many(ROWS[100:120])

    def full(*_: object) -> None:
        raise StoreUnwritableError("the disk of the ledger is full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "note", full)
        for act in (lambda: steps.releases, lambda: stream.push(ROWS[120])):
            with pytest.raises(StoreUnwritableError):
                act()
        assert (stream.t, store.durable) == (120, 100)
        if crashes:
            store._let_go()  # as a crash does
    if not crashes:
        stream.push(ROWS[120])
        assert len(steps.releases) == 2
        store.close()
    assert go_on(path) == 17
    assert payments(ledger) == 1


def test_start_bytes_are_durable_before_the_account_pays(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it pays, before or after the booking: the run goes on, paid for once."""
    debit = Account.debit

    def killed(self: Account, *given: object) -> None:
        if before:
            raise KeyboardInterrupt
        debit(self, *given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    for before, name in ((True, "a"), (False, "b")):
        with Ledger(ledger) as opened:
            opened.set_budget(name, sp.Budget(1.0, 1e-6))
            store = Store(tmp_path / f"{name}.db")
            stream = sp.Stream(algorithm(), store=store, ledger=opened.account(name))
            with monkeypatch.context() as patch:
                patch.setattr(Account, "debit", killed)
                with pytest.raises(KeyboardInterrupt):
                    stream.push(ROWS[0])
            store._let_go()
            assert len(opened.balance(name).entries) == (0 if before else 1)
            assert go_on(tmp_path / f"{name}.db") == 5
            assert len(opened.balance(name).entries) == 1


def test_a_durable_stream_needs_a_durable_account(tmp_path: Path, ledger: Path) -> None:
    class Mine:
        def debit(self, *_: object) -> None:
            """Book nothing."""

    with pytest.raises(BadParameterError, match="a debit that is durable too"):
        sp.Stream(algorithm(), store=Store(":memory:"), ledger=Mine())
    begin(tmp_path / "run.db", ledger)
    ledger.rename(tmp_path / "away.db")
    with pytest.raises(BadParameterError, match="there is no such ledger"):
        go_on(tmp_path / "run.db")
    (tmp_path / "away.db").rename(ledger)
    assert go_on(tmp_path / "run.db") == 15


def test_no_chain_value_leaves_the_sealed_part(tmp_path: Path, ledger: Path) -> None:
    path = tmp_path / "run.db"
    begin(path, ledger)
    with Store(path) as store:
        stream = sp.Stream.resume(store)
        link, start = stream.engine.processor.chain.link, stream.engine.start_id
        stream.push_many(ROWS[100:105])
        store.flush()
        files = [file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith(".key")]
    for secret in (link, start):
        assert not any(secret in data or secret.hex().encode() in data for data in files)
