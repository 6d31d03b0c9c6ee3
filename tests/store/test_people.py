"""Budgets of people in a store: part of every commit, sealed, whole or refused."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.errors import StoreCorruptError

PEOPLE, ROWS = 500, 3000
RNG = np.random.default_rng(5)
X = RNG.normal(size=(ROWS, 4)) / 3.0
WHOSE = RNG.integers(0, PEOPLE, ROWS).tolist()


def algorithm():
    return sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=ROWS, release_every=50, unit=sp.Person(column="who"))


def begun(store=None):
    return sp.Stream(algorithm(), row_norm=1.0, features=4, regret=None, seed=3, store=store)


def states(stream):
    engine = stream.engine
    engine.budgets.enter(engine.now.people)
    return engine.budgets.states(), engine.now.people[1:]


def uninterrupted():
    stream = begun()
    releases = stream.push_many(X, person=WHOSE).releases
    return [release.packed for release in releases], states(stream)


def run_until_killed(path, at):
    """Continue the run of a store in this process, which ends without a word after row ``at``."""
    store = sp.Store(path, commit_every=7)
    stream = sp.Stream.resume(store) if Path(path).exists() else begun(store)
    while stream.t < ROWS:
        stop = min(stream.t + 13, ROWS)
        stream.push_many(X[stream.t : stop], person=WHOSE[stream.t : stop])
        if stream.t >= at:
            os._exit(9)


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.ci), pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_run_continues_with_the_budget_of_each_person(kills, tmp_path):
    releases, people = uninterrupted()
    rng = np.random.default_rng(kills)
    for number in range(-(-kills // 20)):
        path = tmp_path / f"run{number}.db"
        for at in np.sort(rng.integers(20, ROWS - 20, min(20, kills))).tolist():
            code = f"import test_people; test_people.run_until_killed({str(path)!r}, {at})"
            where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
            assert subprocess.run([sys.executable, "-c", code], env=where, check=False).returncode == 9
        with sp.Store(path) as store:
            stream = sp.Stream.resume(store)
            stream.push_many(X[stream.t :], person=WHOSE[stream.t :])
            store.flush()
            found = [release.packed for release in store.releases()]
            assert len(found) == len(releases)
            assert all(map(np.array_equal, found, releases))
            assert states(stream) == people


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM people WHERE id = (SELECT min(id) FROM people)",
        "UPDATE people SET sealed = (SELECT sealed FROM people ORDER BY id DESC LIMIT 1)",
        "UPDATE people SET number = number + 1",
        "UPDATE people SET sealed = zeroblob(60) WHERE id = (SELECT max(id) FROM people)",
    ],
)
def test_a_missing_or_exchanged_record_of_a_person_is_refused(damage, tmp_path):
    path = tmp_path / "run.db"
    with sp.Store(path) as store:
        begun(store).push_many(X[:200], person=WHOSE[:200])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(damage)
    with pytest.raises(StoreCorruptError):
        sp.Stream.resume(sp.Store(path))


def test_a_store_shows_no_name(tmp_path):
    path = tmp_path / "run.db"
    with sp.Store(path) as store:
        begun(store).push_many(X[:4], person=["Ada Lovelace", "Grace Hopper", "Ada Lovelace", "Emmy Noether"])
    assert not any(name in path.read_bytes() for name in (b"Lovelace", b"Hopper", b"Noether"))
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute("SELECT count(*) FROM people").fetchone() == (3,)
