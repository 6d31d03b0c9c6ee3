"""The ledger: debits before the first row, refusals before anything changes, all of it on the disk, under any load."""

import copy
import math
import os
import pickle
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from interrupts import forked

import streampca as sp
from streampca.errors import (
    BadParameterError,
    BadRowError,
    BudgetExhaustedError,
    HorizonReachedError,
    StoreCorruptError,
    StoreForkedError,
    StoreUnwritableError,
    UsageError,
)
from streampca.privacy import accounting
from streampca.privacy.accounting import Event, epsilon_of
from streampca.store.ledger import Entry, Ledger

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
ROWS, MANY = np.eye(3), np.random.default_rng(0).standard_normal((30, 4)) * 0.3
FEW = {"epsilon": 1.0, "delta": 1e-6}
SMALL = Event("a small one", "zero-out", mu=0.01)
#: In one process after the other, 100 debits of this event are covered, and no more.
HUNDRED = sp.Budget(epsilon_of([SMALL] * 100, 1e-6), 1e-6)


def fpl(epsilon=1.0, n_components=1, horizon=3, **options):
    options |= {"n_components": n_components, "horizon": horizon}
    return sp.PrivateFPL(epsilon=epsilon, center=False, release_every=1, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    with Ledger(path) as made:
        made.set_budget("patients", sp.Budget(2.0, 1e-6))
        made.set_budget("many", sp.Budget(100.0, 1e-6))
        made.set_budget("small", HUNDRED)
        yield made


def runs(ledger, data_set="patients"):
    return [entry.run for entry in ledger.balance(data_set).entries]


# -- who pays, and when ---------------------------------------------------------------


def test_a_stream_is_booked_before_its_first_row_and_once(ledger):
    for number in (1, 2):  # of one name
        stream = sp.Stream(fpl(), row_norm=1.0, features=3, account=ledger.account("many", run="nightly"))
        for refused, error in (([[1.0, 0.0]], BadRowError), (np.zeros((4, 3)), HorizonReachedError)):
            with pytest.raises(error):
                stream.push_many(refused)
        assert len(runs(ledger, "many")) == number - 1
        stream.push(ROWS[0])
        stream.push_many(ROWS[1:])
        assert len(set(runs(ledger, "many"))) == number
    assert all(run.startswith("nightly ") for run in runs(ledger, "many"))


@pytest.mark.parametrize("feed", ["push", "push_many", "run"])
@pytest.mark.parametrize("features", [None, 3])
def test_refusal_before_anything_changes(ledger, feed, features):
    ledger.debit("patients", fpl(1.9))
    before = ledger.balance("patients")
    stream = sp.Stream(fpl(1.0), row_norm=1.0, features=features, account=ledger.account("patients"))
    for _ in range(2):
        with pytest.raises(
            BudgetExhaustedError, match=r"data set 'patients' has spent epsilon=1.9 of 2 at delta=1e-06"
        ):
            list(getattr(stream, feed)(ROWS[0] if feed == "push" else ROWS))
    assert ledger.balance("patients") == before
    assert (stream.t, stream.release) == (0, None)


@pytest.mark.parametrize(
    ("algorithm", "rows", "problem"),
    [
        (fpl(n_components=5, horizon=30), MANY, UsageError),
        (fpl(n_components=2, horizon=20), MANY, HorizonReachedError),
        (sp.DPPCA(n_components=2, horizon=30, **FEW), MANY, UsageError),
        (sp.SlidingWindowPCA(window=5, n_components=5, release_every=1, center=False, **FEW), MANY, UsageError),
        (sp.PrivateOja(n_components=5, **FEW), MANY, UsageError),
        (sp.Tumbling(sp.GaussianCovariance(n_components=5, center=False, **FEW), release_every=5), MANY, UsageError),
        (fpl(n_components=2, horizon=30), [*MANY.tolist(), ["x", 0, 0]], BadRowError),
        (fpl(n_components=2, horizon=40), np.zeros((1, 4, 1)), BadRowError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_refused_costs_nothing(ledger, algorithm, rows, problem):
    refused = sp.Stream(algorithm, row_norm=1.0, account=ledger.account("patients"))
    with pytest.raises(problem):
        refused.push_many(rows)
    assert not runs(ledger)
    assert refused.t == 0
    if problem is not HorizonReachedError and not isinstance(rows, list):
        with pytest.raises(problem):
            refused.push(rows[0])
        assert not runs(ledger)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("seed", [None, 7])
def test_copies_and_children_of_streams_pay_again(ledger, in_child, how, seed):
    """The budget covers two runs, not three."""
    stream = sp.Stream(fpl(1.2), row_norm=1.0, account=ledger.account("patients"), seed=seed)
    stream.push(ROWS[0])
    twin, third = how(stream), how(stream)
    assert twin.release.to_json() == stream.release.to_json()
    assert len(runs(ledger)) == 1
    twin.push(ROWS[1])
    assert len(runs(ledger)) == 2

    def refused(copied=stream):
        with pytest.raises(BudgetExhaustedError):
            copied.push(ROWS[1])
        assert copied.t == 1

    refused(third)
    assert in_child(refused) == 0
    stream.push(ROWS[1])
    assert len(runs(ledger)) == 2


def test_one_shots_check_pay_and_start_in_this_order(ledger):
    small = sp.GaussianCovariance(n_components=1, epsilon=0.1, center=False)
    account = ledger.account("many", run="by hand")
    for rows in (ROWS, ROWS, np.zeros(3), [[1.0, 0.0], [1.0]]):
        with suppress(sp.errors.UsageError, BadRowError):
            small.release(rows, account=account, row_norm=1.0)
    assert [entry.event.what for entry in ledger.balance("many").entries] == [Event.of(small).what] * 2
    with pytest.raises(BudgetExhaustedError):
        replace(small, epsilon=5.0).release(ROWS, account=ledger.account("patients"), row_norm=1.0)
    leader = sp.papers.PerturbedLeader(n_components=1, epsilon=1.0, release_every=1, center=False)
    with pytest.raises(BudgetExhaustedError, match="without a guarantee"):
        sp.Stream(leader, row_norm=1.0, account=ledger.account("patients")).push(ROWS[0])
    assert not runs(ledger)


def test_events_compose_exactly_until_the_budget_is_spent(ledger):
    for epsilon in (0.5, 0.7, 0.9):
        ledger.debit("patients", fpl(epsilon))
    spent = ledger.balance("patients").spent
    assert spent == epsilon_of([Event.of(fpl(epsilon)) for epsilon in (0.5, 0.7, 0.9)], 1e-6)
    assert spent < 2.0 < 0.5 + 0.7 + 0.9  # the sum of epsilons would have been refused
    ledger.set_budget("exact", sp.Budget(2.0, 1e-6))
    ledger.debit("exact", fpl(2.0))
    with pytest.raises(BudgetExhaustedError):
        ledger.debit("exact", fpl(0.01))
    ledger.debit("many", Event("one", "zero-out", mu=1.0))
    spent = epsilon_of([Event("one", "zero-out", mu=1.0)], 1e-6)
    assert ledger.account("many").remaining() == (
        f"many: epsilon {spent:.6g} of 100 spent at delta 1e-06, {100 - spent:.6g} remain, for one row under zero-out "
        "adjacency"
    )


def test_a_named_start_is_booked_once_by_any_object_and_process(path, ledger, in_child):
    account = ledger.account("patients", run="nightly")
    for booking in (account, pickle.loads(pickle.dumps(account)), copy.deepcopy(account)):
        booking.debit(fpl(0.5).guarantee, bytes(16))
    assert in_child(lambda: (account.debit(fpl(0.5).guarantee, bytes(16)), ledger.close())) == 0
    assert len(runs(ledger)) == 1
    assert runs(ledger)[0].startswith("nightly ")
    assert bytes(16).hex() not in runs(ledger)[0]
    account.debit(fpl(0.5).guarantee, bytes(15) + b"1")
    for _ in range(3):
        ledger.debit("patients", fpl(0.5), run="x")
    assert len(runs(ledger)) == 3
    with pytest.raises(UsageError, match="run='x' was debited for something else"):
        ledger.debit("patients", fpl(0.4), run="x")


def test_heads_go_on_from_where_they_are(path, ledger):
    assert ledger.head("patients", "r") is None
    for before, after in ((None, (0, "")), ((0, ""), (5, "x")), ((0, ""), (5, "x"))):  # the last one is repeated
        ledger.note("patients", "r", before, after)
    with pytest.raises(StoreForkedError, match="another copy of this run continued"):
        ledger.note("patients", "r", (0, ""), (6, "y"))
    with Ledger(path) as again:
        assert again.head("patients", "r") == (5, "x")
        assert [balance.data_set for balance in again.balances()] == ["many", "patients", "small"]


def test_what_is_refused(ledger):
    one_shot = sp.GaussianCovariance(n_components=1, epsilon=1.0, center=False)
    ledger.set_budget("patients", sp.Budget(2.0, 1e-6))  # again
    for message, act in {
        "budgets are set once": lambda: ledger.set_budget("patients", sp.Budget(3.0, 1e-6)),
        r"budget=2\.0: expected a budget": lambda: ledger.set_budget("flights", 2.0, 1e-6),
        "expected a name": lambda: ledger.set_budget("", sp.Budget(2.0, 1e-6)),
        "account=.*: expected an account": lambda: sp.Stream(fpl(), row_norm=1.0, account=ledger),
        "=<.*: expected an account": lambda: one_shot.release(ROWS, account=ledger, row_norm=1.0),
        "'flights' has no budget": lambda: ledger.debit("flights", fpl()),
        "Calibrate it for the same": lambda: ledger.debit("patients", fpl(adjacency="replace")),
    }.items():
        with pytest.raises(UsageError, match=message):
            act()
    ledger.close()
    ledger.close()
    with pytest.raises(StoreUnwritableError, match="closed database"):
        ledger.balance("patients")


def test_days_that_begin_at_other_hours_are_other_units(ledger):
    ledger.set_budget("days", sp.Budget(2.0, 1e-6), "one person in one day")
    unit = sp.Person(column="who", period="1d")
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon="9d", release_every="12h", unit=unit)

    def paid(start):
        stream = sp.Stream(algorithm, row_norm=1.0, features=["a"], start=start, account=ledger.account("days"))
        stream.tick(datetime.fromisoformat(start))
        return stream.guarantee

    # A noon to noon is in two days: her rows in one of these cost the run twice its mu.
    for_days = "'days' is for one person in one day under 'zero-out', this is calibrated for one person in one day from"
    with pytest.raises(UsageError, match=f"{for_days} 12:00 UTC"):
        paid("2026-03-01T12:00+00:00")
    with pytest.raises(UsageError, match=f"{for_days} 23:00 UTC"):
        paid("2026-03-01T00:00+01:00")
    first, second = paid("2026-03-01T00:00+00:00"), paid("2026-03-09T02:00+02:00")
    assert (first.unit, first.adjacency) == ("one person in one day", "add-remove")
    # Adding and removing rows is a change of contents, too: a zero row is not there.
    assert ledger.balance("days").spent == pytest.approx(first.compose(second).epsilon)
    stream = sp.Stream(algorithm, row_norm=1.0, features=["a"], start="2026-03-01T12:00+00:00")
    with pytest.raises(UsageError, match="cannot compose"):
        first.compose(stream.guarantee)


# -- damage and nonsense --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE facts SET value = x'00'", "fails its checksum"),
        ("UPDATE facts SET sum = x'00'", "fails its checksum"),
        ("PRAGMA user_version = 2", "is of schema 2, this version reads"),
        ("PRAGMA application_id = 2", "another program's database"),
    ],
)
def test_damage_is_reported(path, ledger, change, message):
    ledger.debit("patients", fpl(0.5))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(change)
    for act in (lambda one: one.balance("patients"), lambda one: one.debit("patients", fpl(0.1))):
        with pytest.raises(StoreCorruptError, match=message), Ledger(path) as again:
            act(again)


def test_other_files_are_told(tmp_path):
    text = tmp_path / "ledger.txt"
    text.write_text("epsilon = 1\n" * 100)
    with pytest.raises(StoreCorruptError):
        Ledger(text)
    with pytest.raises(StoreUnwritableError):
        Ledger(tmp_path / "nowhere" / "ledger.db")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, "0.1", True])
def test_nonsense_in_the_file_is_told_and_wipes_nothing(ledger, wrong):
    ledger.debit("many", SMALL)
    before = ledger.balance("many")
    event = {"what": "x", "adjacency": "zero-out", "mu": wrong}
    entries = [entry.__dict__ | {"event": vars(entry.event)} for entry in before.entries]
    damaged = before.__dict__ | {"entries": [*entries, {"at": "now", "run": "x", "event": event}]}
    ledger._file.transact(lambda _: ledger._file.put(**{"balance many": damaged}))
    for act in (lambda: ledger.balance("many"), lambda: ledger.debit("many", SMALL)):
        with pytest.raises(StoreCorruptError, match="cannot be read"):
            act()
    ledger._file.transact(lambda _: ledger._file.put(**{"balance many": before}))
    assert ledger.balance("many") == before
    assert isinstance(before.entries[0], Entry)


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, -1e-300, 1.0, 0.0, -0.0, 0.5, True, None, "1", 1, -1, 10**400]),
)


def is_number(value: Any, *, below: float = sys.float_info.max) -> bool:
    return type(value) in (int, float) and 0.0 <= value < below


@settings(max_examples=400, deadline=None)
@given(mu=NUMBERS, slack=NUMBERS, epsilon=NUMBERS, delta=NUMBERS)
def test_events_and_guarantees_are_of_finite_numbers_or_refused(mu, slack, epsilon, delta):
    sound = (mu is None or is_number(mu)) and is_number(epsilon)
    sound = sound and is_number(slack, below=1.0) and is_number(delta, below=1.0)
    none = epsilon in (math.inf, None) and delta == 1.0 and type(delta) in (int, float) and mu is None and slack == 0.0
    none = none and type(slack) in (int, float)
    values = {"adjacency": "zero-out", "mu": mu, "slack": slack, "epsilon": epsilon, "delta": delta}
    promise = values | {"scope": "s", "theorem": "t", "citation": "c"}
    makers: list[tuple[bool, Callable[[], Any]]] = [
        (sound, lambda: Event(what="x", **values)),
        (sound or none, lambda: sp.Guarantee.from_dict(promise)),
    ]
    for is_sound, make in makers:
        if is_sound:
            assert make().mu == mu
        else:
            with pytest.raises(BadParameterError, match="expected"):
                make()
    if sound or none:
        assert sp.Guarantee.from_dict(promise).is_private == sound


# -- load and kill -9 -----------------------------------------------------------------


def test_eight_processes_make_one_ledger_and_get_exactly_what_the_budget_covers(path):
    def work() -> None:
        granted = 0
        for _ in range(30):
            with suppress(BudgetExhaustedError), Ledger(path) as ledger:
                ledger.set_budget("small", HUNDRED)
                ledger.debit("small", SMALL)
                granted += 1
        os._exit(granted)

    pids = [forked(work) for _ in range(8)]
    assert sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids) == 100
    with Ledger(path) as ledger:
        assert len(runs(ledger, "small")) == 100


def test_debits_from_threads(ledger):
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda _: (ledger.debit("many", SMALL), ledger.balances()), range(80)):
            pass
    assert len(runs(ledger, "many")) == 80


def test_kill_9_loses_no_debit_and_doubles_none(path, ledger, tmp_path):
    """A start is noted in a file before its debit, and once more after it; a child begins with the one that is open."""
    notes, draw, kills = tmp_path / "notes", random.Random(0), 0
    notes.touch()

    def noted() -> tuple[set[str], list[str]]:
        lines = notes.read_text().splitlines()
        return {line[6:] for line in lines if line[:6] == "begin "}, [line[5:] for line in lines if line[:5] == "done "]

    def work() -> None:
        file = os.open(notes, os.O_WRONLY | os.O_APPEND)
        begun, done = noted()
        left = list(begun - set(done))
        with Ledger(path) as ledger:
            while len(done) < 150:
                start = left.pop() if left else os.urandom(16).hex()
                os.write(file, f"begin {start}\n".encode())
                ledger.debit("many", SMALL, run=start)
                os.write(file, f"done {start}\n".encode())
                done.append(start)

    while True:
        pid = forked(work)
        aim = notes.read_bytes().count(b"\n") + draw.randrange(12)
        while kills < 25 and notes.read_bytes().count(b"\n") < aim:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
        if kills < 25:
            time.sleep(draw.uniform(0.0, 0.002))
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
    assert kills >= 10
    begun, done = noted()
    assert begun == set(done)
    assert sorted(done) == sorted(runs(ledger, "many"))
    assert len(begun) == len(done) == 150


def test_prices_are_worked_out_without_a_lock(path, ledger, monkeypatch):
    """Other debits are booked while one is priced, which is then priced anew."""
    library, priced = accounting.library_epsilon, 0

    def slow(*given: Any, **options: Any) -> float:
        nonlocal priced
        priced += 1
        if priced == 1:
            with Ledger(path) as other:
                other.debit("small", Event("small", "zero-out", mu=1e-3))
        return library(*given, **options)

    monkeypatch.setattr(accounting, "library_epsilon", slow)
    ledger.debit("small", Event("half", "zero-out", mu=0.05))
    ledger.debit("small", Event("pure", "zero-out", epsilon=0.05))
    assert priced in (0, 2), "priced with an old balance"
    assert len(runs(ledger, "small")) in (2, 3)
