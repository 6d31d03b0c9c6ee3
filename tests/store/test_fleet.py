"""Durable fleets: resumed to the bit, whole commits, copies, moved tenants and what the files show."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace

import fleet_crash as script
import numpy as np
import pytest

import streampca as sp
from streampca import fleet as module
from streampca.errors import (
    BadParameterError,
    BudgetExhaustedError,
    HorizonReachedError,
    StoreCorruptError,
    StoreForkedError,
    StoreLockedError,
    StoreUnwritableError,
    TenantRetiredError,
    UsageError,
    WrongKeyError,
)
from streampca.rows.protocol import Position

FPL = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=7, horizon=100)
OJA = sp.PrivateOja(n_components=2, epsilon=1.0, horizon=600, batch_size=7)
ROWS = np.random.default_rng(0).normal(size=(600, 5))
ROWS[7, 2] = np.nan
KEYS = [("eu" if i % 2 else b"us", i % 9) for i in range(600)]
TOTALS = {0: replace(FPL, release_every=50, horizon=None), 1: replace(FPL, release_every=50, horizon=None)}


def fleet(path, algorithm=FPL, **given):
    return sp.Fleet(algorithm, store=path, **{"features": 5, "row_norm": 1.0, "totals": TOTALS} | given)


def same(one, other):
    for first, second in zip(one._levels, other._levels, strict=True):
        assert first.places == second.places
        assert first.generation == second.generation
        assert first.all[: len(first.places)].tobytes() == second.all[: len(second.places)].tobytes()
    assert one._now == other._now


def texts(steps):
    return [(step.number, step.key, step.t, step.release.to_json()) for step in steps]


@pytest.mark.parametrize("algorithm", [FPL, replace(FPL, solver="tracking"), OJA], ids=["exact", "tracking", "oja"])
@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("fold", [False, True])
def test_a_resumed_fleet_is_the_one_that_was_closed(tmp_path, algorithm, seed, fold):
    path = tmp_path / "fleet.db"
    totals = {0: replace(OJA, horizon=None), 1: OJA} if algorithm is OJA else TOTALS
    with fleet(path, algorithm, seed=seed, totals=totals) as one:
        steps = one.push_many(KEYS[:200], ROWS[:200])
        steps += one.push_many(KEYS[200:300], ROWS[200:300])
        one.retire(("eu", 1))
        step = one.push(("eu", 3), ROWS[0])
        assert step.t == one["eu", 3].t
        if fold:
            one._fold()
            one.push_many(KEYS[302:304], ROWS[302:304])
    # Releases of a call come tenants first.
    numbers = [step.number for step in steps]
    assert numbers == sorted(numbers)
    with sp.Fleet.resume(path) as again:
        same(one, again)
        assert (repr(again), again.guarantee) == (repr(one), one.guarantee)
        kept = texts(again.releases())
        assert kept[: len(steps)] == texts(steps)
        assert texts(again.releases(since=kept[5][0])) == kept[6:]
        assert again.total().t == one._levels[1].t[0]
        with pytest.raises(TenantRetiredError):
            again.push(("eu", 1), ROWS[0])


def test_a_resumed_fleet_draws_the_noise_of_one_that_went_through(tmp_path):
    whole = fleet(None, seed=1)
    expected = whole.push_many(KEYS[:300], ROWS[:300]) + whole.push_many(KEYS[300:], ROWS[300:])
    with fleet(tmp_path / "fleet.db", seed=1) as one:
        steps = one.push_many(KEYS[:300], ROWS[:300])
    with sp.Fleet.resume(tmp_path / "fleet.db") as one:
        steps += one.push_many(KEYS[300:], ROWS[300:])
    strip = [(number, key, t) for number, key, t, _ in texts(steps)]
    assert strip == [(number, key, t) for number, key, t, _ in texts(expected)]
    assert [step.release.packed.tobytes() for step in steps] == [step.release.packed.tobytes() for step in expected]


def test_a_fleet_moves_to_a_machine_with_other_kernels(tmp_path, monkeypatch):
    with fleet(tmp_path / "fleet.db", replace(FPL, solver="tracking")) as one:
        one.push_many(KEYS, ROWS)
    monkeypatch.setattr("streampca._native.compiled", None)
    with sp.Fleet.resume(tmp_path / "fleet.db") as again:
        for key in one:
            first, second = one[key].release, again[key].release
            assert np.array_equal(first.packed, second.packed)
            assert np.allclose(first.subspace.basis, second.subspace.basis, rtol=0.0, atol=1e-9)


def test_records_replace_the_log_when_its_replay_takes_long(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_REPLAY", 1e-3)
    with fleet(tmp_path / "fleet.db") as one:
        for start in range(0, 600, 50):
            one.push_many(KEYS[start : start + 50], ROWS[start : start + 50])
        entries = one._store._database.first("SELECT count(*) FROM log")[0]
        assert entries < 6
    with sp.Fleet.resume(tmp_path / "fleet.db") as again:
        same(one, again)


@pytest.mark.parametrize(
    ("times", "rows", "more"),
    [
        pytest.param(5, 5_000, (), marks=pytest.mark.ci),
        pytest.param(5, 5_000, ("--oja",), marks=pytest.mark.ci),
        pytest.param(100, 60_000, (), marks=pytest.mark.long),
    ],
)
def test_fleets_that_are_killed_at_random_moments(times, rows, more):
    command = [sys.executable, script.__file__, "--times", str(times), "--rows", str(rows), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"'times': {times}" in done.stdout


def test_the_check_of_killed_fleets_rejects_a_lost_row_and_another_release(tmp_path):
    with script.opened(tmp_path / "fleet.db") as one:
        for _ in one.run(script.Numbers(400), key="shop"):
            pass
    (tmp_path / "world").touch()
    script.check(tmp_path, 400)
    with pytest.raises(AssertionError, match="lost or doubled"):
        script.check(tmp_path, 401)
    (tmp_path / "world").write_text("1 3 5 0123456789abcdef\n")
    with pytest.raises(AssertionError, match="differs"):
        script.check(tmp_path, 400)


def test_a_source_continues_at_its_position(tmp_path):
    source, heard = script.Numbers(500), []
    source.durable = heard.append
    with script.opened(tmp_path / "fleet.db") as one:
        run = one.run(source, key="shop")
        for _ in range(20):
            next(run)
        done = one._now["position"][1]
        assert 0 < heard[-1] <= done < 500
    with script.opened(tmp_path / "fleet.db") as again:
        for _ in again.run(source, key="shop"):
            pass
        assert sum(again[key].t for key in again) == again.total().t == heard[-1] == 500
        source.rows, source.shops = np.tile(source.rows, (2, 1)), source.shops * 2
        first, second = (again.run(source, key="shop") for _ in range(2))
        next(first), next(second)
        with pytest.raises(UsageError, match="another run read rows"):
            list(first)
        list(second)
        assert again.total().t == 1000
        source.name = "another"
        with pytest.raises(UsageError, match="another source"):
            next(again.run(source, key="shop"))


def test_a_commit_that_fails_leaves_the_calls_before(tmp_path):
    path = tmp_path / "fleet.db"
    with fleet(path) as one:
        one.push_many(KEYS[:50], ROWS[:50])
        one._store._database.db.execute("PRAGMA max_page_count = 1")  # as on a full disk
        before = dict(one._now)
        with pytest.raises(StoreUnwritableError):
            one.push_many([("new", i) for i in range(5000)], np.ones((5000, 5)))
        assert ("new", 0) not in one
        assert one.total().t == 50
        assert one._now == before
        one._store._database.db.execute("PRAGMA max_page_count = 1073741823")
        one.push_many(KEYS[50:60], ROWS[50:60])
    with sp.Fleet.resume(path) as again:
        same(one, again)
        assert again.total().t == 60


def test_an_interrupt_after_the_transaction_keeps_the_call(tmp_path, monkeypatch):
    class Stop(BaseException):
        pass

    with fleet(tmp_path / "fleet.db") as one:
        append = one._store.append

        def interrupted(*given):
            append(*given)
            raise Stop

        monkeypatch.setattr(one._store, "append", interrupted)
        with pytest.raises(Stop):
            one.push_many(KEYS[:50], ROWS[:50])
        monkeypatch.setattr(one._store, "append", append)
        assert one.total().t == 50
        one.push_many(KEYS[50:60], ROWS[50:60])
    with sp.Fleet.resume(tmp_path / "fleet.db") as again:
        same(one, again)


def test_copies_that_are_set_back_are_refused_or_paid_for(tmp_path, monkeypatch):
    path, copy = tmp_path / "fleet.db", tmp_path / "copy.db"
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", sp.Budget(1.2, 1e-6))
        with fleet(path, totals=None, account=ledger.account("rows")) as one:
            one.push_many([1, 2] * 7, ROWS[:14])
        shutil.copy(path, copy)
        with sp.Fleet.resume(path) as one:
            one.push(1, ROWS[0])
        path.rename(newest := tmp_path / "newest.db")
        shutil.copy(copy, path)
        monkeypatch.setattr(sp.Fleet, "_event", lambda *_: sys.exit())  # a crash before it is another run
        with pytest.raises(SystemExit):
            sp.Fleet.resume(path, moved=True)
        monkeypatch.undo()
        with pytest.raises(StoreForkedError):
            sp.Fleet.resume(path)
        with pytest.raises(BudgetExhaustedError):  # sqrt(2) times mu
            sp.Fleet.resume(path, moved=True)
        newest.rename(path)
        with sp.Fleet.resume(path) as one:  # a refusal takes nothing away from the other copy
            one.push(1, ROWS[1])
        assert len(ledger.balance("rows").entries) == 1


def test_a_moved_fleet_is_another_run_with_noise_of_its_own(tmp_path):
    path, there = tmp_path / "fleet.db", tmp_path / "there"
    with fleet(path, totals=None) as one:
        one.push_many([1] * 7, ROWS[:7])
    there.mkdir()
    for name in tmp_path.glob("fleet.db*"):
        shutil.copy(name, there)
    with sp.Fleet.resume(path) as one, sp.Fleet.resume(there / "fleet.db", moved=True) as other:
        first, second = (each.push_many([1] * 7, ROWS[7:14])[0].release for each in (one, other))
        assert not np.array_equal(first.packed, second.packed)
        assert first.terms.run["name"] != second.terms.run["name"]
        assert one.address != other.address
    with sp.Fleet.resume(there / "fleet.db") as again:
        same(other, again)


def test_a_fleet_has_one_writer_and_its_own_key(tmp_path):
    path = tmp_path / "fleet.db"
    with fleet(path) as one:
        one.push_many(KEYS[:50], ROWS[:50])
        with pytest.raises(StoreLockedError):
            sp.Fleet.resume(path)
        with pytest.raises((UsageError, StoreLockedError)):
            fleet(path)
    with pytest.raises(StoreLockedError, match="was closed"):
        one.push(("eu", 3), ROWS[0])
    with pytest.raises(StoreCorruptError):
        sp.Stream.resume(sp.Store(path))
    with pytest.raises(StoreLockedError, match="was closed"):
        one.releases()
    with pytest.raises(UsageError, match=r"holds a run. Continue with .*Fleet\.resume\(path\)"):
        fleet(path)
    witness = (tmp_path / "fleet.db.witness").rename(tmp_path / "away")
    with pytest.raises(StoreForkedError, match=r"missing \(put it back\), so"):  # a fleet has no witness=
        sp.Fleet.resume(path)
    witness.rename(tmp_path / "fleet.db.witness")
    (tmp_path / "fleet.db.key").rename(tmp_path / "elsewhere")
    with pytest.raises(WrongKeyError):
        sp.Fleet.resume(path)
    with pytest.raises(UsageError, match=r"no run.*Fleet\("):
        sp.Fleet.resume(tmp_path / "missing.db")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM log WHERE number = 2",
        "DELETE FROM log WHERE number = 3",
        "UPDATE log SET sealed = (SELECT sealed FROM log WHERE number = 1) WHERE number = 2",
        "UPDATE log SET sealed = 7 WHERE number = 2",
        "DELETE FROM records WHERE number = 2",
        "UPDATE records SET sealed = (SELECT sealed FROM records WHERE number = 2) WHERE number = 3",
    ],
)
def test_damage_is_found(tmp_path, damage):
    path = tmp_path / "fleet.db"
    with fleet(path) as one:
        for start in range(0, 300, 100):
            one.push_many(KEYS[start : start + 100], ROWS[start : start + 100])
        if "records" in damage:
            one._fold()
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(damage).rowcount == 1
    db.close()
    with pytest.raises(StoreCorruptError):
        sp.Fleet.resume(path)


@pytest.mark.parametrize(
    "damage", ["DELETE FROM releases WHERE number = 4", "UPDATE releases SET record = x'00' WHERE number = 4"]
)
def test_damaged_releases_are_found_when_they_are_read(tmp_path, damage):
    path = tmp_path / "fleet.db"
    with fleet(path) as one:
        one.push_many(KEYS[:300], ROWS[:300])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)
    db.close()
    with sp.Fleet.resume(path) as one, pytest.raises(StoreCorruptError):
        list(one.releases())


def test_the_database_shows_nothing_of_rows_without_its_key(tmp_path):
    sizes = []
    for value in (0.25, 0.5, np.nan):  # fleets whose rows differ have files of one size, and no row in the clear
        folder = tmp_path / str(value)
        folder.mkdir()
        with fleet(folder / "fleet.db", totals=None, features=2) as one:
            one.push_many(["a"] * 5, np.full((5, 2), value))
            one._fold()
            one.push_many(["a"] * 1, np.full((1, 2), value))
            entries = [len(sealed) for _, sealed in one._store._database.all_rows("log")]
        data = (folder / "fleet.db").read_bytes()
        if value == value:
            assert np.full(2, value * 2**20, dtype=np.int32).tobytes() not in data
        assert np.full(2, value).tobytes() not in data
        sizes.append((len(data), entries))
    assert sizes[0] == sizes[1] == sizes[2]


def test_a_tenant_moves_once(tmp_path):
    with fleet(tmp_path / "a.db") as one, fleet(tmp_path / "b.db") as other, fleet(tmp_path / "c.db") as third:
        one.push_many(KEYS[:200], ROWS[:200])
        keys = [("eu", 3), (b"us", 0)]
        before = {key: one[key] for key in keys}
        packet = one.hand_over(keys, other.address)
        assert one.hand_over(keys, other.address) == packet
        for wrong, where in (
            (third, packet),
            (other, packet[:-1] + bytes([packet[-1] ^ 1])),
            (other, b"short"),
            (other, None),
        ):
            with pytest.raises(UsageError, match="packet"):
                wrong.take(where)
        other.take(packet)
        with pytest.raises(UsageError, match="taken before"):
            other.take(packet)
        with pytest.raises(TenantRetiredError):
            one.hand_over(keys, third.address)
        with pytest.raises(TenantRetiredError):
            one.push(keys[0], ROWS[0])
        for nowhere in ("nowhere", 32 * "00", None):
            with pytest.raises(BadParameterError, match="to="):
                one.hand_over([("eu", 5)], nowhere)
        assert one.total().t == 200
        other.push_many(keys, ROWS[:2])
        assert other.total().t == 2  # the rows of before stay in the totals of the first fleet
        for key in keys:
            assert other[key].t == before[key].t + 1
            assert np.array_equal(other[key].release.packed, before[key].release.packed)
    for path, last in (("a.db", one), ("b.db", other)):
        with sp.Fleet.resume(tmp_path / path) as again:
            same(again, last)
            if path == "a.db":
                assert again.hand_over(keys, other.address) == packet
            else:
                again._fold()
                with pytest.raises(UsageError, match="taken before"):
                    again.take(packet)


def test_a_moved_tenant_has_the_sums_and_noise_levels_of_one_that_stayed(tmp_path):
    one, other, stayed = (fleet(None, totals=None) for _ in range(3))
    steps = one.push_many([5] * 30, ROWS[:30])
    other.take(one.hand_over([5], other.address))
    steps += other.push_many([5] * 70, ROWS[30:100])
    alone = stayed.push_many([5] * 100, ROWS[:100])
    assert [(s.t, s.release.details["joint_noise_std"]) for s in steps] == [
        (s.t, s.release.details["joint_noise_std"]) for s in alone
    ]
    assert np.array_equal(other._tenants.all["sum"][0], stayed._tenants.all["sum"][0])
    with pytest.raises(HorizonReachedError):
        other.push(5, ROWS[0])


@pytest.mark.parametrize(
    "changed", [{"row_norm": 2.0}, {"algorithm": replace(FPL, epsilon=2.0)}, {"features": list("abcde")}, {"seed": 1}]
)
def test_fleets_with_other_parameters_do_not_exchange_tenants(changed):
    one, other = fleet(None, totals=None), fleet(None, **{"totals": None} | changed)
    one.push("a", ROWS[0])
    with pytest.raises(UsageError, match="other parameters"):
        other.take(one.hand_over(["a"], other.address))


@pytest.mark.parametrize("fold", [False, True])
def test_a_fleet_killed_between_tombstone_and_packet(tmp_path, fold):
    with fleet(tmp_path / "b.db", totals=None) as other:
        address, child = other.address, os.fork()
        if child == 0:  # the packet is committed, and never returned
            one = fleet(tmp_path / "a.db", totals=None)
            one.push_many(["x", "y"] * 10, ROWS[:20])
            append = one._store.append
            one._store.append = lambda *given: (append(*given), os.kill(os.getpid(), signal.SIGKILL))
            one.hand_over(["x"], address)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with sp.Fleet.resume(tmp_path / "a.db") as one:
            if fold:
                one._fold()
            with pytest.raises(TenantRetiredError):
                one.push("x", ROWS[0])
            other.take(one.hand_over(["x"], address))
            assert (other["x"].t, one["y"].t, list(one)) == (10, 10, ["y"])


def test_tenants_need_no_thread_and_no_file(tmp_path):
    def used():
        return threading.active_count(), len(os.listdir("/proc/self/fd")), len(list(tmp_path.iterdir()))

    with fleet(tmp_path / "fleet.db", totals=None) as one:
        one.push(0, ROWS[0])
        before = used()
        one.push_many(list(range(1000)), np.ones((1000, 5)))
        assert used() == before


def test_one_fleet_a_partition_counts_redelivered_messages_once(tmp_path):
    """Offsets are in the commit of their batch: the consumer's own come late, and a batch is delivered again."""
    kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'streampca[kafka]'")
    producer = kafka.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    servers = ",".join(f"{b.host}:{b.port}" for b in producer.list_topics(timeout=30).brokers.values())
    for i in range(300):  # a tenant is in one partition
        producer.produce("sales", ROWS[i].tobytes(), key=f"shop-{i % 9}", partition=i % 3)
    assert producer.flush(30) == 0
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "g", "fetch.wait.max.ms": 20})
    expected = fleet(None, totals=None)
    expected.push_many([f"shop-{i % 9}" for i in range(300)], ROWS[:300])
    for p in range(3):
        path, at, delivered = tmp_path / f"{p}.db", 0, 0
        while at < 100:  # killed after each batch; the offsets of the group lag by ten messages
            with sp.Fleet.resume(path) if at else fleet(path, totals=None) as one:
                assert (one.position.at if one.position else 0) == at
                consumer.assign([kafka.TopicPartition("sales", p, max(0, at - 10))])
                batch = consumer.consume(40, 30)
                delivered += len(batch)
                fresh = [message for message in batch if message.offset() >= at]
                keys, rows = ([f(message) for message in fresh] for f in (kafka.Message.key, kafka.Message.value))
                at = batch[-1].offset() + 1
                where = Position(f"sales/{p}", at)
                one.push_many([key.decode() for key in keys], [np.frombuffer(row) for row in rows], where)
        assert delivered == 120
        with sp.Fleet.resume(path) as one:
            assert one.position == (f"sales/{p}", 100)
            assert len(one) == 3
            for key in one:
                assert one[key].t == expected[key].t
                mine, other = (each._tenants.all["sum"][each._tenants.places[key]] for each in (one, expected))
                assert np.array_equal(mine, other)
    consumer.close()


def test_a_batch_without_rows_moves_the_position(tmp_path):
    with fleet(tmp_path / "fleet.db") as one:
        one.push_many(KEYS[:20], ROWS[:20], Position("topic", 20))
        assert one.push_many([], np.empty((0, 5)), Position("topic", 25)) == []
    with sp.Fleet.resume(tmp_path / "fleet.db") as again:
        assert again.position == ("topic", 25)
        assert again.total().t == 20


def test_a_moved_fleet_is_paid_for_whenever_it_continues(tmp_path):
    path = tmp_path / "fleet.db"
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", sp.Budget(3.0, 1e-6))
        with fleet(path, totals=None, account=ledger.account("rows")) as one:
            one._fold()
        with sp.Fleet.resume(path, moved=True) as one:  # the run before it has no row and costs nothing
            one._fold()  # as after a long log
        assert len(ledger.balance("rows").entries) == 1
        with sp.Fleet.resume(path) as again:  # a crash came before its first row
            again.push_many([1, 2] * 7, ROWS[:14])
        with sp.Fleet.resume(path, moved=True) as again:
            again.push_many([1, 2] * 7, ROWS[:14])
        assert len(ledger.balance("rows").entries) == 2


def test_a_call_whose_ledger_is_locked_counts_once(tmp_path, monkeypatch):
    path, source = tmp_path / "fleet.db", script.Numbers(500)
    monkeypatch.setattr("streampca.store.database.SQLiteFile.__init__.__kwdefaults__", {"write": True, "timeout": 0.1})
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", sp.Budget(3.0, 1e-6))
        options = {"features": source.features, "account": ledger.account("rows")}
        with fleet(path, totals={0: TOTALS[0]}, **options) as one, closing(sqlite3.connect(ledger.path)) as other:
            run = one.run(source, key="shop")
            next(run)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreLockedError, match=r"call is committed: .* releases\(since=\d+\)"):
                list(run)
            with pytest.raises(StoreLockedError):
                _ = one.position
            other.rollback()
            list(one.run(source, key="shop"))
            assert sum(one[key].t for key in one) == 500
            assert [step.number for step in one.releases()] == list(range(1, one._now["releases"] + 1))


@pytest.mark.parametrize("call", [lambda one: one.push(1, ROWS[0, :2]), lambda one: one.retire(1)], ids=["row", "key"])
def test_a_refused_call_costs_nothing(tmp_path, call):
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", sp.Budget(1.0, 1e-6))
        with fleet(tmp_path / "fleet.db", totals=None, account=ledger.account("rows")) as one:
            with pytest.raises((ValueError, KeyError)):
                call(one)
            assert not ledger.balance("rows").entries
            one.push(1, ROWS[0])
            assert len(ledger.balance("rows").entries) == 1


def test_an_interrupt_after_records_replaced_the_log_leaves_a_whole_store(tmp_path, monkeypatch):
    class Stop(BaseException):
        pass

    with fleet(tmp_path / "fleet.db") as one:
        one.push_many(KEYS[:50], ROWS[:50])
        database = one._store._database
        transact = database.transact

        def interrupted(*given):
            transact(*given)
            raise Stop

        monkeypatch.setattr(database, "transact", interrupted)
        with pytest.raises(Stop):
            one._fold()
        monkeypatch.setattr(database, "transact", transact)
        one.push_many(KEYS[50:60], ROWS[50:60])
    with sp.Fleet.resume(tmp_path / "fleet.db") as again:
        same(one, again)


def test_a_forked_child_leaves_the_store_to_its_parent(tmp_path):
    with fleet(tmp_path / "fleet.db") as one:
        one.push_many(KEYS[:50], ROWS[:50])
        child = os.fork()
        if child == 0:
            status = 1
            with suppress(StoreLockedError):
                one.push_many(KEYS[50:60], ROWS[50:60])
                status = 2
            with suppress(StoreLockedError):  # nor may it begin anew
                sp.Fleet.resume(tmp_path / "fleet.db")
                status = 3
            one.close()
            os._exit(status - 1)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(StoreLockedError):
            sp.Fleet.resume(tmp_path / "fleet.db")
        one.push_many(KEYS[50:60], ROWS[50:60])
    with sp.Fleet.resume(tmp_path / "fleet.db") as again:
        same(one, again)


def test_a_source_with_rows_of_nobody_continues_at_its_position(tmp_path):
    source = script.Numbers(500)
    source.shops[::7] = [None] * len(source.shops[::7])
    with script.opened(tmp_path / "fleet.db") as one:
        run = one.run(source, key="shop")
        for _ in range(20):
            next(run)
    with script.opened(tmp_path / "fleet.db") as again:
        list(again.run(source, key="shop"))
        assert again.total().t == 500 - len(source.shops[::7])
        assert again.position.at == 500
