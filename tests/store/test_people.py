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
from streampca.errors import StoreCorruptError, StoreUnwritableError
from streampca.store.database import Database
from streampca.store.reading import backup, verify

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


def old_and_new(path):
    """A store closed after 200 rows, and the same closed after 400; return the records of its people at both times."""
    records = []
    for start in (0, 200):
        with sp.Store(path, commit_every=20) as store:
            stream = begun(store) if start == 0 else sp.Stream.resume(store)
            stream.push_many(X[start : start + 200], person=[who % 50 for who in WHOSE[start : start + 200]])
        with closing(sqlite3.connect(path)) as database:
            records.append({row[0]: row for row in database.execute("SELECT * FROM people")})
    return records


def put_back(database, old, new):
    """The budget of one person as it was."""
    database.execute(
        "INSERT OR REPLACE INTO people VALUES (?, ?, ?)", next(old[one] for one in old if old[one] != new[one])
    )


def put_back_all(database, old, new):
    database.execute("DELETE FROM people")
    database.executemany("INSERT INTO people VALUES (?, ?, ?)", old.values())


def exchange(database, old, new):
    one, other = sorted(new)[:2]
    database.execute("UPDATE people SET number = ?, sealed = ? WHERE id = ?", (*new[other][1:], one))


DAMAGE = {
    "put back": put_back,
    "all put back": put_back_all,
    "deleted": lambda database, old, new: database.execute("DELETE FROM people WHERE id = ?", (min(new),)),
    "all deleted": lambda database, *_: database.execute("DELETE FROM people"),
    "no head": lambda database, *_: database.execute("DELETE FROM facts WHERE name = 'people'"),
    "exchanged": exchange,
    "another number": lambda database, *_: database.execute("UPDATE people SET number = number + 1"),
    "zeros": lambda database, old, new: database.execute("UPDATE people SET sealed = zeroblob(60)"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_records_of_people_are_those_of_the_last_commit(name, tmp_path):
    path = tmp_path / "run.db"
    old, new = old_and_new(path)
    assert len(new) == 50
    assert verify(path) == 0
    with closing(sqlite3.connect(path)) as database, database:
        DAMAGE[name](database, old, new)
    for read in (lambda: verify(path), lambda: sp.Stream.resume(sp.Store(path))):
        with pytest.raises(StoreCorruptError) as refused:
            read()
        if name in ("put back", "all put back", "deleted", "all deleted"):
            assert "the records of people are not those of the last commit" in str(refused.value)


def test_a_head_of_an_earlier_commit_is_refused(tmp_path):
    """All records of people and their head together, as they were: the budgets would begin anew."""
    path = tmp_path / "run.db"
    copy = tmp_path / "old.db"
    with sp.Store(path, commit_every=10) as store:
        stream = begun(store)
        stream.push_many(X[:100], person=WHOSE[:100])
        backup(path, copy)
        stream.push_many(X[100:200], person=WHOSE[100:200])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ATTACH ? AS old", (str(copy),))
        database.execute("DELETE FROM people")
        database.execute("INSERT INTO people SELECT * FROM old.people")
        database.execute("INSERT OR REPLACE INTO facts SELECT * FROM old.facts WHERE name = 'people'")
    with pytest.raises(StoreCorruptError):
        sp.Stream.resume(sp.Store(path))


def test_a_commit_that_is_written_twice_keeps_the_digest(tmp_path, monkeypatch):
    """Its transaction ended, and its writer was interrupted before it knew."""
    path, transact, calls = tmp_path / "run.db", Database.transact, []

    def interrupted(self, work, **more):
        result = transact(self, work, **more)
        calls.append(1)
        if len(calls) == 3:
            raise OSError("interrupted")
        return result

    with sp.Store(path, commit_every=10) as store:
        stream = begun(store)
        stream.push_many(X[:10], person=WHOSE[:10])
        monkeypatch.setattr(Database, "transact", interrupted)
        stream.push_many(X[10:20], person=WHOSE[10:20])
        stream.push_many(X[20:30], person=WHOSE[20:30])
        with pytest.raises(StoreUnwritableError):
            stream.push_many(X[30:40], person=WHOSE[30:40])
        stream.push_many(X[stream.t : 100], person=WHOSE[stream.t : 100])
        assert len(calls) > 3
        before = states(stream)
    with sp.Store(path) as store:
        assert states(sp.Stream.resume(store)) == before


def test_a_store_shows_no_name(tmp_path):
    path = tmp_path / "run.db"
    with sp.Store(path) as store:
        begun(store).push_many(X[:4], person=["Ada Lovelace", "Grace Hopper", "Ada Lovelace", "Emmy Noether"])
    assert not any(name in path.read_bytes() for name in (b"Lovelace", b"Hopper", b"Noether"))
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute("SELECT count(*) FROM people").fetchone() == (3,)
