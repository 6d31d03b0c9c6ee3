"""Check, then pay, then start: a refusal costs nothing, and each start is paid for once."""

import copy
import os
import pickle
import sys

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError, BadRowError, BudgetExhaustedError, HorizonReachedError
from streampca.privacy.budget import Budget
from streampca.store.ledger import Ledger

ROWS = np.random.default_rng(0).standard_normal((30, 4)) * 0.3
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as opened:
        opened.set_budget("patients", Budget(1.2, 1e-6))
        yield opened


def entries(ledger):
    return ledger.balance("patients").entries


def stream(ledger, algorithm=None, run=None, **options):
    algorithm = algorithm or sp.PrivateFPL(n_components=2, horizon=30, **BUDGET)
    return sp.Stream(algorithm, ledger=ledger.account("patients", run=run), **options)


@pytest.mark.parametrize(
    ("algorithm", "rows", "problem"),
    [
        (sp.PrivateFPL(n_components=5, horizon=30, **BUDGET), ROWS, BadParameterError),
        (sp.PrivateFPL(n_components=2, horizon=20, **BUDGET), ROWS, HorizonReachedError),
        (sp.DPPCA(n_components=2, horizon=30, **BUDGET), ROWS, BadParameterError),
        (sp.SlidingWindowPCA(window=5, n_components=5, **BUDGET), ROWS, BadParameterError),
        (sp.PrivateOja(n_components=5, **BUDGET), ROWS, BadParameterError),
        (sp.Tumbling(sp.GaussianCovariance(n_components=5, **BUDGET), release_every=5), ROWS, BadParameterError),
        (sp.PrivateFPL(n_components=2, horizon=30, **BUDGET), [*ROWS.tolist(), ["x", 0, 0, 0]], BadRowError),
        (sp.PrivateFPL(n_components=2, horizon=40, **BUDGET), np.full((1, 4), np.nan), BadRowError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_refused_costs_nothing(ledger, algorithm, rows, problem):
    refused = stream(ledger, algorithm)
    with pytest.raises(problem):
        refused.push_many(rows)
    assert entries(ledger) == ()
    assert refused.t == 0
    if problem is not HorizonReachedError and not isinstance(rows, list):
        with pytest.raises(problem):
            refused.push(rows[0])
    assert entries(ledger) == ()


def test_one_start_is_paid_once_and_two_starts_twice(ledger):
    first = stream(ledger, run="monday")
    first.push(ROWS[0])
    first.push_many(ROWS[1:])
    assert len(entries(ledger)) == 1
    ledger.set_budget("others", Budget(10.0, 1e-6))
    account = ledger.account("others", run="monday")
    for _ in range(3):
        sp.Stream(sp.PrivateFPL(n_components=2, horizon=30, **BUDGET), ledger=account, seed=1).push_many(ROWS)
    assert len(ledger.balance("others").entries) == 3
    with pytest.raises(BudgetExhaustedError):
        stream(ledger).push(ROWS[0])
    assert len(entries(ledger)) == 1


def test_an_interrupt_between_payment_and_start_pays_once(ledger, monkeypatch):
    begun = stream(ledger)
    debit = type(begun.engine.account).debit

    def interrupted(self, guarantee, start):
        debit(self, guarantee, start)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(begun.engine.account), "debit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            begun.push(ROWS[0])
    assert begun.t == 0
    begun.push_many(ROWS)
    assert len(entries(ledger)) == 1


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("seed", [None, 7])
def test_a_copy_pays_before_its_next_row(ledger, how, seed):
    original = stream(ledger, seed=seed)
    original.push_many(ROWS[:10])
    twin = how(original)
    assert len(entries(ledger)) == 1
    assert twin.release.to_json() == original.release.to_json()
    with pytest.raises(BudgetExhaustedError):
        twin.push(ROWS[10])
    assert twin.t == 10
    original.push_many(ROWS[10:])
    assert len(entries(ledger)) == 1


@pytest.mark.skipif(not hasattr(os, "fork") or sys.version_info >= (3, 12), reason="3.12 warns of forks with threads")
def test_the_child_of_a_fork_pays_before_its_next_row(ledger, in_child):
    original = stream(ledger)
    original.push_many(ROWS[:10])

    def refused():
        with pytest.raises(BudgetExhaustedError):
            original.push(ROWS[10])

    assert in_child(refused) == 0
    original.push_many(ROWS[10:])
    assert len(entries(ledger)) == 1
