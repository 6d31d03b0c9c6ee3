"""Many readers, one curator: blocks that come late, twice, out of order or never, and restarts on both sides.

Ten thousand readers: ``pytest -m long tests/integrations/test_readers.py``.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.errors import SourceError, UsageError
from streampca.readers import BlockFolder, collect, reader_blocks, write_blocks
from streampca.rows.protocol import Part
from streampca.store.records import decode, encode

D, M = 4, 3
NAMES = [f"x{j}" for j in range(D)]


class Topic:
    """Packed blocks in the order in which they arrived."""

    name = "topic"

    def __init__(self, messages: list[bytes]) -> None:
        self.messages = messages

    def parts_from(self, at: int | None = None) -> Iterator:
        for start in range(at or 0, len(self.messages), 50):
            part = self.messages[start : start + 50]
            yield Part(part, lambda m, s=start: s + m, lambda i, s=start: f"message {s + i}")


def made(readers: int, store: sp.Store | None = None, **options) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-9, release_every=readers * M, center=False)
    return sp.Stream(algorithm, features=NAMES, row_norm=2.0, seed=4, store=store, **options)


def rows_of(readers: int, rounds: int) -> np.ndarray:
    return np.random.default_rng(readers).normal(size=(rounds, readers, M, D))


def sent(rows: np.ndarray, draw: np.random.Generator, cutter) -> list[bytes]:
    rounds, readers = rows.shape[:2]
    arrivals = []
    for reader in range(readers):
        own = list(reader_blocks(cutter, [rows[:, reader].reshape(-1, D)], reader=reader, rows=M))
        restart = draw.integers(rounds) if draw.random() < 0.1 else rounds  # repeats the previous block
        first = max(0, restart - 1)
        again = reader_blocks(cutter, rows[first:, reader], reader=reader, rows=M, number=first)
        for number, packed in [*enumerate(own[:restart]), *enumerate(again, first)]:
            late = 3.0 * draw.random() if draw.random() < 0.01 else 0.0
            arrivals.append((number + draw.random() + late, packed))
            if draw.random() < 0.05:
                arrivals.append((number + 4.0 * draw.random(), packed))
    return [packed for _, packed in sorted(arrivals, key=lambda one: one[0])]


def simulate(path: Path, readers: int, rounds: int, restarts: int) -> None:
    draw, rows = np.random.default_rng(0), rows_of(readers, rounds)
    expected = [release.to_json() for release in made(readers).push_many(rows.reshape(-1, D)).releases]
    topic = Topic(sent(rows, draw, made(readers).leaves()))
    assert len(topic.messages) > 1.04 * readers * rounds
    begun, ends = False, sorted(draw.integers(1, rounds, size=restarts))
    for end in [*ends, rounds + 1]:
        with sp.Store(path) as store:
            stream = sp.Stream.resume(store) if begun else made(readers, store)
            begun = True
            for step in collect(stream, topic, readers=readers, rows=M):
                if step.t >= end * readers * M:
                    break
    with sp.Store(path) as store:
        assert sp.Stream.resume(store).t == rows[..., 0].size
        assert [release.to_json() for release in store.releases()] == expected
        assert list(collect(sp.Stream.resume(store), topic, readers=readers, rows=M)) == []


def test_the_releases_are_those_of_one_process_whatever_arrives_when(tmp_path: Path) -> None:
    simulate(tmp_path / "run.db", readers=40, rounds=6, restarts=3)


@pytest.mark.long
def test_ten_thousand_readers(tmp_path: Path) -> None:
    simulate(tmp_path / "run.db", readers=10_000, rounds=20, restarts=10)


def test_what_is_missing_counts_as_zero_rows_once_its_round_is_closed(tmp_path: Path) -> None:
    rows, cutter = rows_of(5, 3), made(5).leaves()
    arrived = [next(reader_blocks(cutter, [rows[n, r]], reader=r, rows=M, number=n))
               for r in range(5) for n in range(3) if (r, n) not in ((2, 0), (4, 1))]  # fmt: skip
    stream = made(5)
    assert list(collect(stream, Topic(arrived), readers=5, rows=M)) == []  # round 0 waits, and all after it
    assert [step.t for step in collect(stream, Topic(arrived), readers=5, rows=M, close=2)] == [15, 30]
    rows[0, 2] = rows[1, 4] = 0.0
    assert stream.release.to_json() == made(5).push_many(rows[:2].reshape(-1, D)).releases[-1].to_json()


def test_blocks_that_do_not_fit_are_refused_with_their_place(tmp_path: Path) -> None:
    rows, cutter = rows_of(2, 2), made(2).leaves()
    pieces = np.split(rows[:, 0].reshape(-1, D), [1, 2])

    def block(cutter=cutter, reader: int = 0, at: int = 1) -> bytes:
        return next(reader_blocks(cutter, [rows[at, 0]], reader=reader, rows=M))

    whole = list(reader_blocks(cutter, pieces, reader=0, rows=M))
    assert whole[0] == block(at=0)
    write_blocks(tmp_path, "reader-1", [*whole, b"poison"])
    fields = decode(block())
    narrow = encode([*fields[:1], *(part[:1] for part in fields[1:3]), *fields[3:]])
    loud = encode([fields[0], fields[1] + 9, *fields[2:]])
    elsewhere = sp.Stream(made(2).algorithm, features=NAMES, row_norm=3.0).leaves()
    for source, readers, error, message in (
        (Topic([whole[0], block()]), 2, SourceError, "two different blocks 0"),
        (Topic([block(), b"poison"]), 2, SourceError, "topic, message 1: this is no block of a reader"),
        (Topic([block().replace(fields[-1].encode(), b"\xff" * 16)]), 2, SourceError, "message 0: this is no block"),
        (BlockFolder(tmp_path), 2, SourceError, r"reader-1\.parquet, entry 2: this is no block"),
        (Topic([loud]), 2, SourceError, "no Gram matrix of 3 rows of the unit ball"),
        (Topic([narrow]), 2, SourceError, "other settings"),
        (Topic([block(reader=2)]), 2, SourceError, "2 readers send 3 rows"),
        (Topic([block(elsewhere)]), 2, SourceError, "other settings"),
        (Topic([]), 4, UsageError, "must be a multiple"),
    ):
        with pytest.raises(error, match=message):
            list(collect(made(2), source, readers=readers, rows=M))
    (tmp_path / "reader-1.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"reader-1\.parquet cannot be read \(ArrowInvalid\)"):
        list(collect(made(2), BlockFolder(tmp_path), readers=2, rows=M))


def test_a_restart_reads_no_file_of_a_folder_that_is_settled(tmp_path: Path, monkeypatch) -> None:
    import pyarrow.parquet as pq

    rows, cutter = rows_of(2, 4), made(2).leaves()
    packed = [list(reader_blocks(cutter, [rows[:, r].reshape(-1, D)], reader=r, rows=M)) for r in range(2)]
    opened, read_table = [], pq.read_table
    monkeypatch.setattr(pq, "read_table", lambda path: opened.append(path.name) or read_table(path))

    def go_on(begin: bool) -> list[int]:
        opened.clear()
        with sp.Store(tmp_path / "run.db") as store:
            stream = made(2, store) if begin else sp.Stream.resume(store)
            return [step.t for step in collect(stream, BlockFolder(tmp_path), readers=2, rows=M)]

    for n in (0, 1):
        for r in range(2):
            write_blocks(tmp_path, f"{n}-{r}", [packed[r][n]])
    write_blocks(tmp_path, "2-0", [packed[0][2]])
    assert go_on(begin=True) == [6, 12]
    write_blocks(tmp_path, "2-1", [packed[1][2]])
    write_blocks(tmp_path, "0-1", [packed[1][3]])  # takes the name of another
    assert go_on(begin=False) == [18]
    assert opened == ["0-1.parquet", "2-0.parquet", "2-1.parquet"]
    write_blocks(tmp_path, "3-0", [packed[0][3]])
    (tmp_path / "1-0.parquet").unlink()
    assert go_on(begin=False) == [24]
    assert set(opened) == {"0-1.parquet", "2-0.parquet", "2-1.parquet", "3-0.parquet"}  # round 3 was open since 0-1
    assert go_on(begin=False) == []
    assert opened == []
    with sp.Store(tmp_path / "run.db") as store:
        expected = made(2).push_many(rows.reshape(-1, D)).releases[-1].to_json()
        assert sp.Stream.resume(store).release.to_json() == expected
