"""A ledger under load, kill -9 and nonsense: nothing is lost, doubled, overspent or refused without a reason."""

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca as sp
from streampca.errors import BadParameterError, BudgetExhaustedError, StoreCorruptError
from streampca.privacy import accounting
from streampca.privacy.accounting import Event, epsilon_of
from streampca.privacy.guarantee import Guarantee
from streampca.store.ledger import Ledger, _put_sum

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
SMALL = Event("a small one", "zero-out", mu=0.01)
ROWS = np.random.default_rng(0).normal(size=(50, 3)) / 3.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", sp.Budget(epsilon_of([SMALL] * 100, 1e-6), 1e-6))
        ledger.set_budget("many", sp.Budget(100.0, 1e-6))
    return tmp_path / "ledger.db"


def booked(path: Path, data_set: str) -> list[str | None]:
    with Ledger(path) as ledger:
        return [entry.run for entry in ledger.balance(data_set).entries]


def children(count: int, work: Any) -> list[int]:
    return [
        os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [forked(work, number) for number in range(count)]
    ]


def forked(work: Any, number: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 251
        try:
            code = work(number)
        finally:
            os._exit(code)
    return pid


def test_eight_processes_get_exactly_what_the_budget_covers(path: Path) -> None:
    def work(_: int) -> int:
        granted = 0
        for _ in range(100):
            try:
                with Ledger(path) as ledger:
                    ledger.debit("rows", SMALL)
                granted += 1
            except BudgetExhaustedError:
                pass
        return granted

    granted = children(8, work)
    assert sum(granted) == 100
    assert len(booked(path, "rows")) == 100


def test_eight_processes_make_one_ledger(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.db"

        def work(number: int, path: Path = path) -> int:
            with Ledger(path) as ledger:
                ledger.set_budget("rows", sp.Budget(1.0, 1e-6))
                ledger.debit("rows", SMALL, run=str(number))
            return 0

        assert children(8, work) == [0] * 8
        assert len(booked(path, "rows")) == 8


def test_240_debits_from_threads(path: Path) -> None:
    problems: list[Exception] = []
    with Ledger(path) as ledger:

        def work() -> None:
            try:
                for _ in range(20):
                    ledger.debit("many", SMALL)
                    ledger.balances()
            except Exception as problem:
                problems.append(problem)

        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems
    assert len(booked(path, "many")) == 240


def test_kill_9_loses_no_debit_and_doubles_none(path: Path, tmp_path: Path) -> None:
    """A start is noted in a file before its debit, and once more after it; a child begins with the one that is open."""
    notes, draw, kills = tmp_path / "notes", random.Random(0), 0
    notes.touch()

    def work(_: int) -> int:
        file = os.open(notes, os.O_WRONLY | os.O_APPEND)
        lines = notes.read_text().splitlines()
        done = [line[5:] for line in lines if line.startswith("done ")]
        left = list({line[6:] for line in lines if line.startswith("begin ")} - set(done))
        with Ledger(path) as ledger:
            while len(done) < 150:
                start = left.pop() if left else os.urandom(16).hex()
                os.write(file, f"begin {start}\n".encode())
                ledger.debit("many", SMALL, run=start)
                os.write(file, f"done {start}\n".encode())
                done.append(start)
        return 0

    while True:
        pid = forked(work, 0)
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
    lines = notes.read_text().splitlines()
    begun = {line[6:] for line in lines if line.startswith("begin ")}
    done = [line[5:] for line in lines if line.startswith("done ")]
    assert len(done) == len(set(done)) == 150
    assert begun == set(done)
    runs = booked(path, "many")
    assert len(runs) == len(set(runs)) == 150


# -- nonsense -----------------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, -1e-300, 1.0, 0.0, -0.0, 0.5, True, None, "1", 1, -1, 10**400]),
)


def is_number(value: Any, *, below: float = sys.float_info.max) -> bool:
    return type(value) in (int, float) and 0.0 <= value < below


@settings(max_examples=400, deadline=None)
@given(mu=NUMBERS, slack=NUMBERS, epsilon=NUMBERS, delta=NUMBERS)
def test_an_event_is_of_finite_numbers_or_refused(mu: Any, slack: Any, epsilon: Any, delta: Any) -> None:
    sound = (mu is None or is_number(mu)) and is_number(epsilon) and is_number(slack, below=1.0)
    sound = sound and is_number(delta, below=1.0)
    values = {"what": "x", "adjacency": "zero-out", "mu": mu, "slack": slack, "epsilon": epsilon, "delta": delta}
    for make in (lambda: Event(**values), lambda: Event.from_dict({**values, "unit": "one row"})):
        if sound:
            assert make().mu == mu
        else:
            with pytest.raises(BadParameterError, match="expected"):
                make()


@settings(max_examples=400, deadline=None)
@given(mu=NUMBERS, slack=NUMBERS, epsilon=NUMBERS, delta=NUMBERS)
def test_a_guarantee_is_of_finite_numbers_or_none_or_refused(mu: Any, slack: Any, epsilon: Any, delta: Any) -> None:
    promised = (mu is None or is_number(mu)) and is_number(epsilon) and is_number(slack, below=1.0)
    promised = promised and is_number(delta, below=1.0)
    none = epsilon in (math.inf, None) and delta == 1.0 and type(delta) in (int, float) and mu is None and slack == 0.0
    none = none and type(slack) in (int, float)
    values: dict[str, Any] = {"adjacency": "zero-out", "scope": "s", "theorem": "t", "citation": "c"}
    values |= {"mu": mu, "slack": slack, "epsilon": epsilon, "delta": delta}
    if promised or none:
        assert Guarantee.from_dict(values).is_private == promised
    else:
        with pytest.raises(BadParameterError, match="expected"):
            Guarantee.from_dict(values)


def test_what_has_no_guarantee_can_still_be_said() -> None:
    none = Guarantee.none("nothing is promised")
    assert not none.is_private
    assert Guarantee.from_dict(none.to_dict()) == none
    half = Guarantee(1.0, 0.6, "zero-out", "s", "t", "c")
    assert not half.compose(half).is_private


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "-1.0", "1e999", '"0.1"', "true"])
def test_nonsense_in_the_file_is_told_and_wipes_nothing(path: Path, wrong: str) -> None:
    def write(statement: str, *values: str) -> None:
        with sqlite3.connect(path) as db:
            db.execute(statement, values)
            _put_sum(db, "many")
        db.close()

    with Ledger(path) as ledger:
        ledger.debit("many", SMALL)
        spent = ledger.balance("many").spent
    text = json.dumps(SMALL.to_dict()).replace("0.01", wrong)
    write("INSERT INTO entries (data_set, at, run, event) VALUES ('many', 'now', 'x', ?)", text)
    with Ledger(path) as ledger:
        for act in (lambda: ledger.balance("many"), lambda: ledger.debit("many", SMALL)):
            with pytest.raises(StoreCorruptError, match="an entry cannot be read"):
                act()
    write("DELETE FROM entries WHERE run = 'x'")
    with Ledger(path) as ledger:
        assert ledger.balance("many").spent == spent > 0.0


# -- who pays, and when ---------------------------------------------------------------


def test_five_streams_of_one_name_are_five_payments(path: Path) -> None:
    with Ledger(path) as ledger:
        account = ledger.account("many", run="nightly")
        for _ in range(5):
            stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=0.1, delta=1e-6), ledger=account)
            stream.push_many(ROWS)
            stream.push_many(ROWS)
        runs = [entry.run for entry in ledger.balance("many").entries]
    assert len(set(runs)) == 5
    assert all(str(run).startswith("nightly ") for run in runs)


def test_one_shots_check_pay_and_start_in_this_order(path: Path) -> None:
    small = sp.GaussianCovariance(n_components=1, epsilon=0.1, delta=1e-6, n_features=3)
    exact = sp.ExactSubspace(n_components=1, epsilon=1.0, delta=1e-7)
    with Ledger(path) as ledger:
        account = ledger.account("many", run="by hand")
        for _ in range(2):
            small.release(ROWS, ledger=account)
        exact.release(np.tile([1, 2, 2], (400, 1)), ledger=account)
        assert [entry.event.what for entry in ledger.balance("many").entries] == [
            Event.of(one).what for one in (small, small, exact)
        ]
        for wrong in (np.zeros((3, 2)), [[1.0, math.nan, 0.0]]):
            with pytest.raises(sp.errors.StreamPCAError):
                small.release(wrong, ledger=account)
        assert len(ledger.balance("many").entries) == 3, "what was refused has paid"
        with pytest.raises(BudgetExhaustedError):
            replace(small, epsilon=0.5).release(ROWS, ledger=ledger.account("rows"))
        assert not ledger.balance("rows").entries


def test_prices_are_worked_out_without_a_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other debits are booked while one is priced, which is then priced anew."""
    library, pure = accounting.library_epsilon, Event("pure", "zero-out", epsilon=0.05)
    priced = 0

    def slow(*given: Any, **options: Any) -> float:
        nonlocal priced
        priced += 1
        if priced == 1:
            with Ledger(path) as other:
                other.debit("rows", Event("small", "zero-out", mu=1e-3))
        return library(*given, **options)

    monkeypatch.setattr(accounting, "library_epsilon", slow)
    with Ledger(path) as ledger:
        ledger.debit("rows", Event("half", "zero-out", mu=0.05))
        began = time.monotonic()
        ledger.debit("rows", Event("pure", "zero-out", epsilon=pure.epsilon))
        events = ledger.balance("rows").entries
    assert priced in (0, 2), "priced with an old balance"
    assert time.monotonic() - began < 20.0
    assert len(events) in (2, 3)


def test_the_heavy_accountant_is_loaded_for_mixed_accounts_only(path: Path) -> None:
    code = f"""
import sys, math
from streampca.privacy.accounting import Event
from streampca.store.ledger import Ledger
with Ledger({str(path)!r}) as ledger:
    for _ in range(5):
        ledger.debit("many", Event("gaussian", "zero-out", mu=0.1))
    str(ledger.balance("many"))
    assert not any(name.startswith("dp_accounting") for name in sys.modules)
    ledger.debit("many", Event("pure", "zero-out", epsilon=0.5))  # basic composition says yes
    assert not any(name.startswith("dp_accounting") for name in sys.modules)
    str(ledger.balance("many"))
    assert any(name.startswith("dp_accounting") for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_remains_is_told_in_one_sentence(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.debit("many", Event("one", "zero-out", mu=1.0))
        told = ledger.account("many").remaining()
    spent = epsilon_of([Event("one", "zero-out", mu=1.0)], 1e-6)
    assert told == (
        f"many: epsilon {spent:.6g} of 100 spent at delta 1e-06, {100 - spent:.6g} remain, for one row under zero-out "
        "adjacency"
    )
