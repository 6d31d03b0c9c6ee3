"""Kafka topics, against librdkafka's own mock cluster: order, poison, and each row once after any kill.

Thirty kills: ``pytest -m long tests/sources/test_kafka.py``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'streampca[kafka]'")
from confluent_kafka import Consumer, Producer, TopicPartition

import streampca as sp
from streampca.cli import main
from streampca.errors import SourceError, UsageError
from streampca.readers import collect
from streampca.sources.kafka import _Partitions, from_kafka
from streampca.stream import feed, periods

FEATURES = ["a", "b", "c"]


def brokers(count: int) -> tuple[Producer, str]:
    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": count, "log_level": 0})
    return producer, ",".join(f"{b.host}:{b.port}" for b in producer.list_topics(timeout=30).brokers.values())


@pytest.fixture(scope="module")
def cluster() -> tuple[Producer, str]:
    return brokers(1)


def fill(producer: Producer, topic: str, sizes: list[int], seed: int = 0) -> list[np.ndarray]:
    """Produce messages with three features and the person of `whose`; return the rows of each partition."""
    parts = []
    for p, size in enumerate(sizes):
        rows = np.random.default_rng([seed, p]).normal(size=(size, 3))
        for row, who in zip(rows.tolist(), whose(p, size), strict=True):
            producer.produce(topic, json.dumps({"who": who, **dict(zip(FEATURES, row, strict=True))}), partition=p)
        parts.append(rows)
    assert producer.flush(30) == 0
    return parts


def whose(p: int, size: int) -> list[object]:
    """People with rows in every partition, under a number or its text; None for some rows of nobody."""
    some = np.random.default_rng(p).integers(60, size=size).tolist()
    return [None if who == 0 else str(who) if i % 2 else who for i, who in enumerate(some)]


def in_turns(parts: list[np.ndarray], turn: int) -> np.ndarray:
    rounds = -(-max(map(len, parts)) // turn)
    return np.concatenate([part[r * turn : (r + 1) * turn] for r in range(rounds) for part in parts])


def test_partitions_take_turns_and_any_position_goes_on_in_the_same_order(cluster, monkeypatch) -> None:
    monkeypatch.setattr("streampca.sources.kafka._HELD", 200)  # so that partitions are paused
    producer, servers = cluster
    parts = fill(producer, "turns", [250, 0, 410, 77])
    source = from_kafka("turns", "g", servers=servers, features=FEATURES, turn=100, config={"fetch.wait.max.ms": 20})
    blocks, whole = list(source.blocks_from()), in_turns(parts, 100)
    assert np.array_equal(np.concatenate([block.rows for block in blocks]), whole)
    done = 0
    for block in blocks[:4]:
        m = len(block.rows)  # the end of a turn, and its middle
        for some in (m // 2, m):
            rest = np.concatenate([b.rows for b in source.blocks_from(block.after(some))])
            assert np.array_equal(rest, whole[done + some :])
        done += m


def test_poison_is_a_bad_row(cluster) -> None:
    producer, servers = cluster
    good = json.dumps([1.0, 2.0, 3.0])
    poison = [
        b"", b"{", b"[" * 201 + b"]" * 201, b"[1, 2]", b'{"a": "x", "b": 1, "c": 2}', b"\xff", b'{"a": {}}', None, b"7",
    ]  # fmt: skip
    for value in (good, *poison, good):
        producer.produce("poison", value, partition=0)
    assert producer.flush(30) == 0
    options = {"servers": servers, "features": FEATURES}
    lenient = np.concatenate(list(from_kafka("poison", "g", **options).blocks()))
    assert lenient[[0, -1]].tolist() == [[1.0, 2.0, 3.0]] * 2
    assert len(lenient) == 11
    assert np.isnan(lenient[1:-1]).all()


def test_a_message_with_bad_numbers_belongs_to_its_tenant(cluster) -> None:
    producer, servers = cluster
    values = [0.1, "text", [1], None, {}]
    for value in values:
        producer.produce("tenants", json.dumps({"shop": "s", "a": value}), partition=0)
    producer.produce("tenants", b'{"shop": "s"', partition=0)  # of nobody
    assert producer.flush(30) == 0
    fleet = sp.Fleet(sp.PrivateFPL(n_components=1, epsilon=1.0, center=True), features=["a"], row_norm=1.0)
    list(fleet.run(from_kafka("tenants", "g", servers=servers, features=["a"]), key="shop"))
    # When the tenant releases is a function of keys, not of numbers.
    assert (fleet["s"].t, fleet["s"].bad_rows) == (len(values), 4)


def test_a_topic_that_grows_is_followed(cluster) -> None:
    producer, servers = cluster
    fill(producer, "grows", [5])
    blocks = from_kafka("grows", "g", servers=servers, features=FEATURES, follow=True).blocks()
    assert len(next(blocks)) == 5
    fill(producer, "grows", [3], seed=1)
    assert sum(len(rows) for rows in (next(blocks),)) in (1, 2, 3)
    blocks.close()


def test_a_position_without_a_partition_reads_it_from_its_first_message(cluster) -> None:
    producer, servers = cluster
    parts = fill(producer, "widens", [5, 0, 0, 10])
    source = from_kafka("widens", "g", servers=servers, features=FEATURES)
    rest = [block.rows for block in source.blocks_from({"offsets": [3, 0, 0], "turn": [0, 1000]})]
    assert np.array_equal(np.concatenate(rest), np.concatenate([parts[0][3:], parts[3]]))


@pytest.mark.ci
def test_brokers_that_go_down_are_an_error(monkeypatch) -> None:
    producer, servers = brokers(1)
    for _ in range(60):
        fill(producer, "down", [20])
    little = {"max.partition.fetch.bytes": 1, "queued.max.messages.kbytes": 1}  # so that most stays with the broker
    source = from_kafka("down", "g", servers=servers, features=FEATURES, turn=5, config=little, connect_timeout=1.5)
    monkeypatch.setattr("streampca.sources.kafka._PATIENCE", 1.5)
    monkeypatch.setattr("streampca.sources.kafka._HELD", 10)
    blocks = source.blocks()
    assert len(next(blocks)) == 5
    del producer  # and with it its broker
    with pytest.raises(SourceError, match=r"no broker has answered for 2 s, offset \d+ is next of 1200"):
        list(blocks)
    with pytest.raises(SourceError, match=r"no broker answered at `127.* within 1\.5 s"):
        next(source.blocks())


def test_a_poison_block_is_named_by_partition_and_offset(cluster) -> None:
    producer, servers = cluster
    for value in (b"poison", None):
        producer.produce("poisoned", value, partition=2)
    assert producer.flush(30) == 0
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-9, release_every=4, center=False)
    source = from_kafka("poisoned", "g", servers=servers, features=FEATURES, value="block")
    with pytest.raises(SourceError, match="topic poisoned of blocks, partition 2, offset 0: this is no block"):
        list(collect(sp.Stream(algorithm, row_norm=1.0, features=FEATURES), source, readers=2, rows=2))


@pytest.mark.ci
def test_a_calendar_goes_by_the_arrival_of_messages_at_any_kill(tmp_path: Path, monkeypatch) -> None:
    """Days pass while the topic is silent and while its broker is down; a resumed run repeats the closings."""
    (producer, servers), start, days = brokers(1), datetime(2026, 1, 1, tzinfo=UTC), [0.0]
    fill(producer, "days", [30, 40], seed=0)
    # Every poll is a sixteenth of a day later once all messages have arrived. What these days bring:
    plan = [(2.5, "messages"), (4.0, "kill"), (5.5, "messages"), (7.0, "down"), (9.25, "kill")]
    fetch, push, arrived, alive, sent = _Partitions.fetch, feed.push, [], [producer], [70]
    del producer

    def polled(self: _Partitions) -> bool:
        if sum(len(rows) for _, rows, _ in arrived) == sent[0]:
            days[0] += 1 / 16
        if days[0] >= plan[0][0]:
            what = plan.pop(0)[1]
            if what == "messages":
                sent[0] += sum(map(len, fill(alive[0], "days", [20, 5, 9], seed=len(plan))))
            elif what == "down":
                alive.clear()
            else:
                raise KeyboardInterrupt
        return fetch(self)

    def pushed(engine: Any, batch: feed.Batch) -> Any:
        arrived.append((days[0], batch.rows, batch.names))
        return push(engine, batch)

    monkeypatch.setattr("streampca.sources.kafka._POLL", 0.02)
    monkeypatch.setattr(periods, "clock", lambda: round((start + timedelta(days=days[0])).timestamp() * 1e6))
    monkeypatch.setattr(_Partitions, "fetch", polled)
    monkeypatch.setattr(feed, "push", pushed)
    live = from_kafka("days", "g", servers=servers, features=FEATURES, turn=25, follow=True)

    def begun(**more: Any) -> sp.Stream:
        algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon="30d", release_every="1d", unit="who")
        return sp.Stream(algorithm, features=FEATURES, row_norm=3.0, seed=1, start=start, **more)

    def until_killed(run: sp.Stream) -> list[int]:
        closed = []
        with pytest.raises(KeyboardInterrupt):
            closed += [step.t for step in run.run(live)]  # type: ignore[misc]
        return closed

    with sp.Store(tmp_path / "run.db", commit_every=1) as store:
        run = begun(store=store)
        until_killed(run)
        assert run.t == 3  # the tick of the fourth day was not reached
        for file in list(tmp_path.iterdir()):  # what a kill leaves
            shutil.copy(file, file.with_name(f"copy-{file.name}"))
    with sp.Store(tmp_path / "copy-run.db") as store:
        resumed = sp.Stream.resume(store)
        until_killed(resumed)
        assert resumed.t == 9
        store.flush()
        releases = [release.to_json() for release in store.releases()]
        admission = resumed.admission
    whole, last = begun(), days[0]
    expected = []
    for days[0], rows, names in [*arrived, (last, [], [])]:
        expected += [release.to_json() for release in whole.push_many(np.reshape(rows, (-1, 3)), names).releases]
    assert len({name for _, _, names in arrived for name in names}) > 30
    assert admission.rows == sent[0] == 138
    assert releases == expected
    assert len(releases) == 9
    assert admission == whole.admission


def test_periods_that_end_while_a_topic_is_silent_are_yielded_before_the_next_rows(cluster, monkeypatch) -> None:
    producer, servers = cluster
    fill(producer, "silent", [3])
    start, days = datetime(2026, 1, 1, tzinfo=UTC), [0.0]
    monkeypatch.setattr("streampca.sources.kafka._POLL", 0.02)
    monkeypatch.setattr(periods, "clock", lambda: round((start + timedelta(days=days[0])).timestamp() * 1e6))
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, release_every="1d", horizon="9d")
    stream = sp.Stream(algorithm, features=FEATURES, row_norm=3.0, start=start)
    live = from_kafka("silent", "g", servers=servers, features=FEATURES, follow=True)
    sent: list[int] = []

    def while_idle(call: Any) -> None:
        def tick() -> None:
            days[0] += 0.5 if stream.admission.rows == 3 and not sent else 0.0
            call()
            if stream.t == 3 and not sent:  # the release does not wait for the next message
                assert stream.release is not None
                assert stream.release.t == 3
                sent.extend(map(len, fill(producer, "silent", [2], seed=1)))

        live._idle = tick

    monkeypatch.setattr(live, "while_idle", while_idle)
    steps = stream.run(live)
    assert [next(steps).t for _ in range(3)] == [1, 2, 3]
    steps.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": []}, "no header line"),
        ({"value": "xml"}, "value='xml'"),
        ({"servers": "user:SECRET@broker"}, "holds a user"),
        ({"config": {"no.such": "1"}}, "No such configuration property"),
        ({"config": {"auto.offset.reset": "earliest", "sasl.password": "SECRET"}}, "config: .*decide what a row is"),
        ({"config": ["SECRET"]}, "config: expected settings"),
        ({"features": [1, 2]}, "expected distinct names"),
        *(({name: value}, f"{name}={value!r}: expected text") for name in ("topic", "group") for value in (None, "")),
    ],
)
def test_bad_parameters_of_a_topic(cluster, options: dict, message: str) -> None:
    given = {"topic": "t", "group": "g", "servers": cluster[1], "features": ["a"]} | options
    with pytest.raises((UsageError, SourceError), match=message) as raised:
        next(from_kafka(**given).blocks())
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("offsets", [[11, 0, 0, 0], [0] * 5])
def test_a_topic_of_the_same_name_is_an_error(cluster, offsets) -> None:
    producer, servers = cluster
    topic = f"anew{len(offsets)}"
    fill(producer, topic, [10])
    source = from_kafka(topic, "g", servers=servers, features=FEATURES)
    with pytest.raises(SourceError, match="another topic has its name"):
        next(source.blocks_from({"offsets": offsets, "turn": [0, 10]}))
    assert from_kafka(topic, "g", servers=servers, features=["a"], value="block").name != source.name


def test_the_command_resumes_at_its_offsets(cluster, tmp_path: Path, capsys) -> None:
    producer, servers = cluster
    fill(producer, "cli", [60, 70])
    where = f"kafka://{servers}/cli?group=g&fetch.wait.max.ms=20"
    words = ["--columns", "a,b,c", "-k", "1", "--epsilon", "1", "--delta", "1e-6", "--bounds", "-5:5", "--no-live"]
    out = ["--out", str(tmp_path / "out.jsonl"), "--store", str(tmp_path / "run.db"), "--release-every", "50"]
    assert main(["run", where, *words, *out]) == 0
    fill(producer, "cli", [5, 6, 7], seed=1)
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run.db"), "--no-live"]) == 0
    assert "18 rows more, 148 in all" in capsys.readouterr().err
    with sp.Store(tmp_path / "run.db") as store:
        sp.Stream.resume(store)
        assert store.position.at["offsets"][:3] == [65, 76, 7]


CHILD = """
import sys
from streampca.errors import UsageError
from streampca.processors.private_fpl import PrivateFPL
from streampca.sources import from_kafka
from streampca.store.store import Store
from streampca.stream.stream import Stream
servers, path, unit = sys.argv[1:]
topic = from_kafka("rows", "crash", servers=servers, features=["a", "b", "c"], turn=100)
algorithm = PrivateFPL(n_components=1, epsilon=1.0, center=False, horizon=4000, release_every=50, unit=unit or None)
with Store(path, commit_every=40, snapshot_every="20ms") as store:
    try:
        stream = Stream.resume(store)
    except UsageError:
        stream = Stream(algorithm, features=topic.features, row_norm=3.0, seed=1, store=store)
    for step in stream.run(topic):
        if step.t % 40 == 0:
            print(step.t, flush=True)
"""


@pytest.mark.parametrize("unit", [pytest.param(None, marks=pytest.mark.ci), "who"])
@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.long)])
def test_each_row_counts_once_after_any_kill(tmp_path: Path, kills: int, unit: str | None) -> None:
    (producer, servers), path = brokers(1), tmp_path / "run.db"
    sizes = [900, 800, 1200, 100]
    parts = fill(producer, "rows", sizes)
    producer.produce("rows", b"poison", partition=0)
    assert producer.flush(30) == 0
    parts[0] = np.vstack([parts[0], np.full(3, np.nan)])
    for kill in range(kills + 1):
        child = subprocess.Popen([sys.executable, "-c", CHILD, servers, path, unit or ""], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _, _ in zip(range(1 + 3 * kill % 8), child.stdout, strict=False):
            pass
        if kill < kills:
            child.kill()
        child.communicate()
        assert child.returncode == (-9 if kill < kills else 0)
    algorithm = sp.PrivateFPL(
        n_components=1, epsilon=1.0, center=False, horizon=4000, release_every=50, unit=unit
    )  # fmt: skip
    whole = sp.Stream(algorithm, features=FEATURES, row_norm=3.0, seed=1)
    names = [np.array([*whose(p, size), *[None] * (p == 0)], dtype=object) for p, size in enumerate(sizes)]
    people = {} if unit is None else {"person": in_turns(names, 100)}
    expected = [release.to_json() for release in whole.push_many(in_turns(parts, 100), **people).releases]
    with sp.Store(path) as store:
        resumed = sp.Stream.resume(store)
        assert resumed.t == 3001
        for field in ("people", "people_spent", "rows_full", "rows_shrunk", "rows_refused", "mean_weight"):
            assert getattr(resumed.admission, field) == getattr(whole.admission, field)
        nobody = 0 if unit is None else sum(who is None for part in names for who in part) - 1
        assert resumed.admission.bad_rows == 1 + nobody
        assert resumed.admission.people_spent == (None if unit is None else 59)
        assert [release.to_json() for release in store.releases()] == expected
        topic = from_kafka("rows", "crash", servers=servers, features=FEATURES, turn=100)
        assert list(resumed.run(topic)) == []  # nothing comes twice
        position = store.position.at["offsets"]
    group = Consumer({"bootstrap.servers": servers, "group.id": "crash"})
    committed = group.committed([TopicPartition("rows", p) for p in range(4)], timeout=30)
    group.close()
    assert all(one.offset <= at for one, at in zip(committed, position, strict=True))
