"""The position of a source is kept with its rows: runs and commands resume there."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from runs import Blocks

import streampca as sp
from streampca.cli import main
from streampca.errors import SourceError, UsageError
from streampca.rows.protocol import Position, PositionedBlock
from streampca.sources import NumberedRows

ROWS = np.random.default_rng(1).normal(size=(400, 2))
RUN = ["-k", "1", "--epsilon", "1", "--delta", "1e-6", "--bounds", "-5:5", "--release-every", "50", "--no-live"]


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=50)


def releases(path: Path) -> list[str]:
    with sp.Store(path) as store:
        sp.Stream.resume(store)
        return [release.to_json() for release in store.releases()]


def write(path: Path, first: int, stop: int) -> None:
    with path.open("a") as file:
        file.write("" if first else "a,b\n")
        np.savetxt(file, ROWS[first:stop], delimiter=",", fmt="%.17g")


def test_only_durable_rows_are_reported_and_the_store_encrypts_positions(tmp_path: Path) -> None:
    store = sp.Store(tmp_path / "run.db", commit_every=10)
    reported = []

    class Watched(NumberedRows):
        def blocks_from(self, at=None):
            for block in super().blocks_from(at):
                yield PositionedBlock(block.rows, lambda m, after=block.after: f"canary {after(m)}")

        def durable(self, at: str) -> None:
            reported.append(int(at.split()[1]))
            assert reported[-1] <= store.durable - 30

    stream = sp.Stream(algorithm(), row_norm=1.0, seed=1, store=store)
    list(stream.run(NumberedRows(Blocks(ROWS[:30]), "another")))  # whose positions are not for the next
    list(stream.run(Watched(Blocks(*ROWS[:70].reshape(10, 7, 2)), "watched"), new_source=True))
    assert reported
    store.flush()
    assert store.position == Position("watched", "canary 70")
    store.close()
    assert b"canary" not in (tmp_path / "run.db").read_bytes()


def test_rows_by_hand_leave_no_position_and_a_new_source_is_new_once(tmp_path: Path) -> None:
    first, second = (NumberedRows(Blocks(ROWS[:30]), name) for name in ("first", "second"))
    with sp.Store(tmp_path / "run.db") as store:
        stream = sp.Stream(algorithm(), row_norm=1.0, seed=1, store=store)
        list(stream.run(first))
        stream.push(ROWS[0])  # it waits
        with pytest.raises(UsageError, match="came otherwise"):
            list(stream.run(first))
        for _ in range(2):  # a program that was killed is started again as it was
            list(stream.run(second, new_source=True))
        assert stream.t == 61
        with pytest.raises(SourceError, match="second: 29 rows, fewer than the 30 of the run"):
            list(stream.run(NumberedRows(Blocks(ROWS[:29]), "second")))


def test_an_interrupt_between_two_commits_leaves_position_and_rows_together(tmp_path: Path) -> None:
    def breaks_at_40(m: int) -> Position:
        if m > 40:
            raise KeyboardInterrupt
        return Position("s", m)

    store = sp.Store(tmp_path / "run.db", commit_every="1h")
    stream = sp.Stream(algorithm(), row_norm=1.0, seed=1, store=store)
    stream.engine.push_many(ROWS[:60], position=lambda m: Position("s", m))
    with pytest.raises(KeyboardInterrupt):
        stream.engine.push_many(ROWS[60:200], position=breaks_at_40)
    assert stream.t == 100  # the piece before the one without a position
    store.flush()
    assert (store.durable, store.position) == (100, Position("s", 40))
    store.close()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_the_command_resumes_without_being_told_where(tmp_path: Path, kind: str, capsys) -> None:
    database, path, table = tmp_path / "rows.db", tmp_path / "run.db", tmp_path / "rows.csv"

    def add(first: int, stop: int) -> None:
        write(table, first, stop)
        with closing(sqlite3.connect(database)) as made, made:
            made.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, a, b)")
            made.executemany("INSERT INTO rows (a, b) VALUES (?, ?)", ROWS[first:stop].tolist())

    where = [str(table), "--columns", "all"] if kind == "file" else [
        f"sqlite:///{database}", "--read", "query=SELECT * FROM rows", "--read", "cursor=id",
    ]  # fmt: skip

    def resumed(*words: str) -> tuple[int, str]:
        return main(["resume", str(path), *words, "--no-live"]), capsys.readouterr().err

    add(0, 130)
    seeded = [*RUN, "--seed", "1", "--out"]
    assert main(["run", *where, *seeded, str(tmp_path / "out.jsonl"), "--store", str(path)]) == 0
    add(130, 400)
    for more in ("270 rows more, 400 in all", "0 rows more, 400 in all"):
        code, said = resumed()
        assert (code, more in said) == (0, True)
    once = tmp_path / "once.db"
    assert main(["run", *where, *seeded, str(tmp_path / "all.jsonl"), "--store", str(once)]) == 0
    assert releases(path) == releases(once)
    if kind == "sqlite":
        other = [where[0], "--read", "query=SELECT id, a, b FROM rows", "--read", "cursor=id"]
        for words, code, said in (
            (other, 2, "--continues"), ([*other, "--continues"], 0, "400 rows more, 800 in all"),
            ([], 0, "0 rows more, 800 in all"),
        ):  # fmt: skip
            found = resumed(*words)
            assert (found[0], said in found[1]) == (code, True)
