"""The ledger: debits before the first row, refusals before anything changes, all of it on the disk."""

import copy
import pickle
import sqlite3

import numpy as np
import pytest

import streampca as sp
from streampca.cli import main
from streampca.errors import (
    BadParameterError,
    BadRowError,
    BudgetExhaustedError,
    HorizonReachedError,
    StoreCorruptError,
    StoreForkedError,
    StoreUnwritableError,
)
from streampca.privacy.accounting import Event, epsilon_of
from streampca.store.ledger import Ledger

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
ROWS = np.eye(3)


def fpl(epsilon=1.0, **options):
    return sp.PrivateFPL(n_components=1, epsilon=epsilon, delta=1e-6, horizon=3, **options)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        made.set_budget("patients", sp.Budget(2.0, 1e-6))
        yield made


def spent(ledger):
    return ledger.balance("patients").spent


def test_a_stream_is_booked_before_its_first_row(ledger):
    stream = sp.Stream(fpl(n_features=3), ledger=ledger.account("patients"))
    assert spent(ledger) == 0.0
    stream.push(ROWS[0])
    assert spent(ledger) == pytest.approx(1.0)
    stream.push_many(ROWS[1:])
    assert len(ledger.balance("patients").entries) == 1


@pytest.mark.parametrize("feed", ["push", "push_many", "run"])
@pytest.mark.parametrize("n_features", [None, 3])
def test_refusal_before_anything_changes(ledger, feed, n_features):
    ledger.debit("patients", fpl(1.9))
    before = ledger.balance("patients")
    stream = sp.Stream(fpl(1.0, n_features=n_features), ledger=ledger.account("patients"))
    with pytest.raises(BudgetExhaustedError, match=r"data set 'patients' has spent epsilon=1.9 of 2 at delta=1e-06"):
        {"push": lambda: stream.push(ROWS[0]), "push_many": lambda: stream.push_many(ROWS)}.get(
            feed, lambda: list(stream.run(ROWS))
        )()
    assert ledger.balance("patients") == before
    assert stream.t == 0
    assert stream.release is None
    if n_features is None:
        with pytest.raises(BadParameterError, match="not known yet"):
            _ = stream.engine.subspace
    with pytest.raises(BudgetExhaustedError):  # and again, not only once
        stream.push(ROWS[0])


def test_refused_rows_cost_nothing(ledger):
    stream = sp.Stream(fpl(n_features=3), ledger=ledger.account("patients"))
    with pytest.raises(BadRowError):
        stream.push([1.0, np.nan, 0.0])
    with pytest.raises(HorizonReachedError):
        stream.push_many(np.zeros((4, 3)))
    assert spent(ledger) == 0.0
    assert stream.t == 0


def test_streams_over_the_same_rows_compose_exactly(ledger):
    for epsilon in (0.5, 0.7, 0.9):
        sp.Stream(fpl(epsilon), ledger=ledger.account("patients")).push(ROWS[0])
    events = [Event.of(fpl(epsilon)) for epsilon in (0.5, 0.7, 0.9)]
    assert spent(ledger) == epsilon_of(events, 1e-6)
    assert spent(ledger) < 2.0 < 0.5 + 0.7 + 0.9  # the sum of epsilons would have been refused


def test_a_budget_can_be_spent_to_the_end_and_no_further(ledger):
    ledger.debit("patients", fpl(2.0))
    assert spent(ledger) == pytest.approx(2.0, rel=1e-12)
    with pytest.raises(BudgetExhaustedError):
        ledger.debit("patients", fpl(0.01))


def test_a_named_run_is_booked_once(ledger):
    for _ in range(3):
        ledger.debit("patients", fpl(1.5), run="nightly")
    assert len(ledger.balance("patients").entries) == 1
    with pytest.raises(BadParameterError, match="run='nightly' was debited for something else"):
        ledger.debit("patients", fpl(0.5), run="nightly")


def test_an_account_pays_for_each_start_once(ledger):
    account = ledger.account("patients", run="nightly")
    promised = fpl(0.5).guarantee
    for start in (bytes(16), bytes(16), bytes(15) + b"1"):
        account.debit(promised, start)
    runs = [entry.run for entry in ledger.balance("patients").entries]
    assert len(runs) == 2
    assert all(run.startswith("nightly ") for run in runs)
    assert bytes(16).hex() not in runs[0]
    before = ledger.balance("patients")
    with pytest.raises(BudgetExhaustedError):
        account.debit(fpl(1.9).guarantee, b"2" * 16)
    assert ledger.balance("patients") == before


def test_copies_and_children_of_streams_pay_again(ledger, in_child):
    stream = sp.Stream(fpl(0.5), ledger=ledger.account("patients"))
    stream.push(ROWS[0])
    copied = pickle.loads(pickle.dumps(stream))
    assert len(ledger.balance("patients").entries) == 1
    copied.push(ROWS[1])
    assert len(ledger.balance("patients").entries) == 2
    assert in_child(lambda: stream.push(ROWS[1])) == 0
    assert len(ledger.balance("patients").entries) == 3
    stream.push(ROWS[1])
    assert len(ledger.balance("patients").entries) == 3


def test_the_child_of_a_fork_opens_the_file_again(ledger, in_child):
    def spend():
        ledger.debit("patients", fpl(0.5), run="child")
        ledger.close()

    assert in_child(spend) == 0
    ledger.debit("patients", fpl(0.5), run="parent")
    assert [entry.run for entry in ledger.balance("patients").entries] == ["child", "parent"]


def test_a_pickled_ledger_is_the_same_file(ledger):
    account = ledger.account("patients", run="a")
    for copied in (pickle.loads(pickle.dumps(account)), copy.deepcopy(account)):
        copied.debit(fpl(0.5).guarantee, b"1" * 16)
        copied.ledger.close()
    assert len(ledger.balance("patients").entries) == 1


def test_a_closed_ledger_is_told(ledger):
    ledger.close()
    ledger.close()
    with pytest.raises(StoreUnwritableError, match="closed database"):
        ledger.balance("patients")


def test_heads_go_on_from_where_they_are(tmp_path, ledger):
    assert ledger.head("patients", "r") is None
    for before, after in ((None, (0, "")), ((0, ""), (5, "x")), ((0, ""), (5, "x"))):  # the last one is repeated
        ledger.note("patients", "r", before, after)
    with pytest.raises(StoreForkedError, match="another copy of this run continued"):
        ledger.note("patients", "r", (0, ""), (6, "y"))
    with Ledger(tmp_path / "ledger.db") as again:
        assert again.head("patients", "r") == (5, "x")


def test_no_budget_covers_no_guarantee(ledger):
    leader = sp.papers.PerturbedLeader(n_components=1, epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExhaustedError, match="without a guarantee"):
        sp.Stream(leader, ledger=ledger.account("patients")).push(ROWS[0])


def test_budgets_are_set_once(ledger):
    ledger.set_budget("patients", sp.Budget(2.0, 1e-6))
    one_shot = sp.GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6)
    for message, act in {
        "budgets are set once": lambda: ledger.set_budget("patients", sp.Budget(3.0, 1e-6)),
        r"budget=2\.0 is not a budget": lambda: ledger.set_budget("flights", 2.0, 1e-6),
        "ledger=.*: expected an account": lambda: sp.Stream(fpl(), ledger=ledger),
        "=<.*: expected an account": lambda: one_shot.release(ROWS, ledger=ledger),
        "'flights' has no budget": lambda: ledger.debit("flights", fpl()),
        "Calibrate it for the same": lambda: ledger.debit("patients", fpl(adjacency="replace")),
    }.items():
        with pytest.raises(BadParameterError, match=message):
            act()


def test_damage_and_other_files_are_told(tmp_path, ledger):
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE things (x)")
    db.close()
    with pytest.raises(StoreCorruptError, match="another program's database"):
        Ledger(other)
    text = tmp_path / "ledger.txt"
    text.write_text("epsilon = 1\n" * 100)
    with pytest.raises(StoreCorruptError):
        Ledger(text)
    with pytest.raises(StoreUnwritableError):
        Ledger(tmp_path / "nowhere" / "ledger.db")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE budgets SET epsilon = epsilon + 1", "fails its checksum"),
        ("UPDATE entries SET at = 'x'", "fails its checksum"),
        ("UPDATE entries SET run = 'x'", "fails its checksum"),
        ("UPDATE entries SET event = 'mu'", "fails its checksum"),
        ("DELETE FROM sums", "fails its checksum"),
        ("PRAGMA user_version = 2", "is of schema 2, this version reads 3"),
    ],
)
def test_damage_is_reported(tmp_path, ledger, change, message):
    ledger.debit("patients", fpl(0.5))
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute(change)
    db.close()
    for act in (lambda one: one.balance("patients"), lambda one: one.debit("patients", fpl(0.1))):
        with pytest.raises(StoreCorruptError, match=message), Ledger(tmp_path / "ledger.db") as again:
            act(again)


def test_command_line(tmp_path, capsys):
    file = str(tmp_path / "l.db")
    assert main(["ledger", "show", file]) == 2
    assert "there is no such ledger" in capsys.readouterr().err
    assert main(["ledger", "budget", file, "patients", "--epsilon", "2", "--delta", "1e-6"]) == 0
    with Ledger(file) as made:
        made.debit("patients", fpl(1.5), run="nightly")
    capsys.readouterr()
    assert main(["ledger", "show", file]) == 0
    shown = capsys.readouterr().out
    assert "patients" in shown
    assert "1.5" in shown
    assert "nightly" in shown
    assert main(["ledger", "show", file, "nobody"]) == 2
    assert main(["ledger", "budget", file, "patients", "--epsilon", "3", "--delta", "1e-6"]) == 2
    assert "budgets are set once" in capsys.readouterr().err
