"""Copies of a durable run: forks, pickles, and stores that witness or ledger know to be older than the run."""

import copy
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runs import ROWS, begin, copied, fpl, payments, proceed, rows_of, whole

import streampca as sp
from streampca.errors import (
    BadParameterError,
    BudgetExhaustedError,
    StoreForkedError,
    StoreLockedError,
    StoreUnwritableError,
    UsageError,
)
from streampca.store.ledger import Account, Ledger
from streampca.store.reading import verify

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
FILES = ".key", ".witness"


def test_the_child_of_a_fork_leaves_the_run_to_its_parent(
    tmp_path: Path, in_child: Callable[[Callable[[], object]], int]
) -> None:
    path = tmp_path / "run.db"
    store, stream = begin(path)
    steps = stream.push_many(ROWS[:100])

    def child() -> None:
        for read in (lambda: stream.push(ROWS[0]), lambda: stream.release, lambda: steps.releases):
            with pytest.raises(StoreLockedError):
                read()
        store.flush()
        with pytest.raises(UsageError, match="not open"):
            next(store.releases())
        store.close()
        with pytest.raises(StoreLockedError, match="another process"):
            sp.Stream.resume(sp.Store(path))

    began = time.monotonic()
    assert in_child(child) == 0
    assert time.monotonic() - began < 10.0
    assert len(steps.releases) == 10
    stream.push_many(ROWS[100:200])
    store.close()
    assert rows_of(path) == 200


def test_a_child_that_lives_on_keeps_no_lock(tmp_path: Path) -> None:
    store, _ = begin(tmp_path / "run.db", 100)
    pid = os.fork()
    if pid == 0:
        time.sleep(30.0)
        os._exit(0)
    try:
        time.sleep(0.2)
        store.close()
        assert rows_of(tmp_path / "run.db") == 100
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_durable_stream_cannot_be_copied() -> None:
    store, stream = begin(":memory:", 100)
    for one in (stream, sp.Stream.resume(store)):
        for make in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(UsageError, match="cannot be copied or pickled"):
                make(one)


# -- what the witness knows -----------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    begin(tmp_path / "run.db", 700)[0].close()
    return tmp_path / "run.db"


def test_a_database_set_back_in_place_is_refused(path: Path) -> None:
    old = path.read_bytes()
    assert proceed(path) == whole()
    path.write_bytes(old)
    told = r"is at row 700, but the witness .* row 900.*--moved.*sqrt\(2\) times mu"
    with pytest.raises(StoreForkedError, match=told):
        proceed(path)


def test_a_copy_is_refused_and_so_is_a_twin_that_shares_the_witness(path: Path) -> None:
    twin, shared = copied(path), path.with_name("run.db.witness")
    with pytest.raises(StoreForkedError, match="witness is missing"):
        proceed(twin)
    assert not path.with_name("twin.db.witness").exists()
    with sp.Store(path) as store:
        sp.Stream.resume(store)
        with sp.Store(twin, witness=shared) as other, pytest.raises(StoreLockedError):
            sp.Stream.resume(other, moved=True)
    before = shared.read_bytes()
    proceed(path, 800)
    with pytest.raises(StoreForkedError, match="is at row 700"):
        proceed(twin, witness=shared)
    after = shared.read_bytes()
    shared.write_bytes(before)
    with sp.Store(twin, witness=shared) as store:
        sp.Stream.resume(store, moved=True).push_many(ROWS[:150])
    shared.write_bytes(after)
    with pytest.raises(StoreForkedError, match="different rows"):
        proceed(twin, witness=shared)


@pytest.mark.parametrize("damage", [b"", b"x" * 700])
def test_a_witness_that_remembers_nothing_is_refused(path: Path, damage: bytes) -> None:
    path.with_name("run.db.witness").write_bytes(damage)
    with pytest.raises(StoreForkedError, match="remembers nothing"):
        proceed(path)
    proceed(path, moved=True)
    with sp.Store(path) as store:  # from now on, the witness knows it
        assert sp.Stream.resume(store).t == 900


def test_an_old_witness(tmp_path: Path) -> None:
    path, witness, old = tmp_path / "run.db", tmp_path / "run.db.witness", {}
    store, stream = begin(path, commit_every=1)
    for row in ROWS[:100]:
        stream.push(row)
        old[stream.t] = witness.read_bytes()
    store.close()
    newest = witness.read_bytes()
    witness.write_bytes(old[20])
    with pytest.raises(StoreForkedError, match="what is remembered is an old copy"):
        rows_of(path)
    for data in (old[90], newest):  # of the latest commits; a crash may leave the witness one behind
        witness.write_bytes(data)
        assert rows_of(path) == 100


def test_a_copy_that_goes_on_has_noise_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    begin(path, 720, stream={"seed": None})[0].close()
    twin, late = copied(path), {}
    for file, moved in ((path, False), (twin, True)):
        for upto in (800, 900):
            proceed(file, upto, moved=moved)
            moved = False  # it is said once
        with sp.Store(file) as store:
            sp.Stream.resume(store)
            late[file] = [release.packed for release in store.releases()]
    assert len(late[path]) == len(late[twin]) == 90
    for t, (one, other) in enumerate(zip(late[path], late[twin], strict=True), 1):
        assert np.all(one == other) if t <= 72 else np.abs(one - other).min() > 0.0
    verify(twin)


def test_a_copy_that_was_said_to_be_one_but_took_no_row_is_still_one(path: Path) -> None:
    twin = copied(path)
    for _ in range(2):
        with sp.Store(twin) as store:
            sp.Stream.resume(store, moved=True)
        with pytest.raises(StoreForkedError):
            proceed(twin)


def test_a_copy_without_rows_starts_anew(tmp_path: Path) -> None:
    path, found = tmp_path / "run.db", []
    begin(path)[0].close()
    twin = copied(path)
    for file, moved in ((path, False), (twin, True)):
        proceed(file, 0, moved=moved)  # the start is durable before the first row
        proceed(file, 100)
        with sp.Store(file) as store:
            found.append(sp.Stream.resume(store).engine.start_id)
    assert found[0] != found[1]


# -- what the ledger knows ------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.set_budget("rows", sp.Budget(1.5, 1e-6))  # for two runs of epsilon = 1, not for three
        begin(tmp_path / "run.db", 100, stream={"account": ledger.account("rows", run="nightly")})[0].close()
    return path


def test_the_ledger_knows_which_copy_went_on(tmp_path: Path, ledger: Path) -> None:
    path = tmp_path / "run.db"
    twin, third = copied(path, *FILES), copied(path, *FILES, to="third.db")
    assert len(proceed(path, 150)) == 15
    assert payments(ledger) == 1  # the run itself goes on for free
    with pytest.raises(StoreForkedError, match=r"is at row 100, but the ledger .* row 150.*sqrt\(2\) times mu"):
        proceed(twin)
    assert payments(ledger) == 1
    for upto, moved in ((150, True), (200, False)):  # it is said once, and paid for once
        assert len(proceed(twin, upto, moved=moved)) == upto // 10
        assert payments(ledger) == 2
    with sp.Store(third) as store:
        stream = sp.Stream.resume(store, moved=True)
        with pytest.raises(BudgetExhaustedError):
            stream.push(ROWS[0])
        assert stream.t == 100
    assert payments(ledger) == 2
    with pytest.raises(StoreForkedError, match="at row 200"):
        proceed(path)  # the ledger knows the twin now


def test_twins_at_once_cannot_both_hand_out(tmp_path: Path, ledger: Path) -> None:
    twin = copied(tmp_path / "run.db", *FILES)
    one, other = sp.Store(tmp_path / "run.db"), sp.Store(twin)
    first, second = sp.Stream.resume(one), sp.Stream.resume(other)
    assert len(first.push_many(ROWS[100:120]).releases) == 2
    steps = second.push_many(ROWS[200:220])
    for _ in range(2):
        with pytest.raises(StoreForkedError, match="not handed out"):
            _ = steps.releases
    for act in (lambda: second.push(ROWS[0]), other.close, lambda: proceed(twin)):
        with pytest.raises(StoreForkedError):
            act()
    assert len(first.push_many(ROWS[120:140]).releases) == 2
    one.close()
    assert payments(ledger) == 1


@pytest.mark.parametrize("crashes", [True, False])
def test_nothing_is_handed_out_that_the_ledger_does_not_know(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    """After a crash the run repeats the release; otherwise the next call repeats the note."""
    store = sp.Store(tmp_path / "run.db", commit_every="1h")
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
            store._let_go()
    if not crashes:
        stream.push(ROWS[120])
        assert len(steps.releases) == 2
        store.close()
    assert proceed(tmp_path / "run.db") == whole()
    assert payments(ledger) == 1


@pytest.mark.parametrize("is_booked", [False, True])
def test_start_bytes_are_durable_before_the_account_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_booked: bool
) -> None:
    """Killed while it pays, before or after the booking: the run goes on, paid for once."""
    debit = Account.debit

    def killed(self: Account, *given: object) -> None:
        if is_booked:
            debit(self, *given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    book = tmp_path / "ledger.db"
    with Ledger(book) as ledger:
        ledger.set_budget("rows", sp.Budget(1.0, 1e-6))
        store, stream = begin(tmp_path / "run.db", stream={"account": ledger.account("rows")})
        with monkeypatch.context() as patch:
            patch.setattr(Account, "debit", killed)
            with pytest.raises(KeyboardInterrupt):
                stream.push(ROWS[0])
        store._let_go()
    assert payments(book) == is_booked
    for upto in (0, 50, 60):
        assert len(proceed(tmp_path / "run.db", upto)) == upto // 10
        assert payments(book) == (is_booked if upto == 0 else 1)


def test_a_durable_stream_needs_a_durable_account(tmp_path: Path, ledger: Path) -> None:
    class Mine:
        def debit(self, *_: object) -> None:
            """Book nothing."""

    with pytest.raises(BadParameterError, match="a debit that is durable too"):
        sp.Stream(fpl(), row_norm=1.0, store=sp.Store(":memory:"), account=Mine())
    ledger.rename(tmp_path / "away.db")
    with pytest.raises(UsageError, match="there is no ledger"):
        proceed(tmp_path / "run.db")
    (tmp_path / "away.db").rename(ledger)
    assert len(proceed(tmp_path / "run.db", 150)) == 15
