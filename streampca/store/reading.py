"""Read a store while its run continues: status, parameters, a copy and checks. Only `Verification` needs the key."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from streampca.errors import BadParameterError, HorizonReachedError, StoreCorruptError
from streampca.rows.protocol import Reader, RowSource
from streampca.store.config import load, public_parameters
from streampca.store.database import SCHEMA, Database, plain_errors
from streampca.store.keys import Seal, read_key
from streampca.store.records import damaged, read_trace
from streampca.store.recovery import (
    alike,
    check_key,
    check_lineage,
    fresh_stream,
    rebuild,
    replay_checked,
)
from streampca.store.witness import beside, is_locked, peek, sync_folder
from streampca.stream.blocks import Entry
from streampca.stream.engine import Engine
from streampca.stream.stream import Stream

#: Rows that are replayed together.
_AT_ONCE = 4096


def check_witness(path: Path, witness: Path | None = None) -> str:
    """Compare a store with its witness, which damage to the database cannot change. Return the result as a sentence.

    Raises `StoreForkedError` if the witness holds rows that the store lacks: the last commits are gone, or the store
    is another copy.
    """
    where = beside(path, ".witness") if witness is None else witness
    with closing(Database(str(path), write=False)) as database:
        # Before the rows are counted: a running writer notes a commit after it.
        seen = peek(where, database.run()["run"])
        if seen is None:
            return f"{where} remembers nothing; commits missing from the end could not be seen"
        check_lineage(database, seen, f"the witness {where}")
    return f"{where} remembers row {seen[0]}: no commit is missing"


def kernels_of(database: Database) -> str:
    """Return the kernels that computed bases and eigenvalues, with their first rows."""
    return ", ".join(f"{name} from row {row}" for row, name in database.fact("kernels"))


def status(path: Path) -> dict[str, Any]:
    """Return the status of a run. Curator only: the number of rows may be secret."""
    with closing(Database(str(path), write=False)) as database:
        run, progress = database.run(), database.progress
        config, kernels = load(database.fact("config")), kernels_of(database)
    return {
        "run": run["run"],
        "schema": SCHEMA,
        "algorithm": repr(config["algorithm"]),
        "guarantee": run["guarantee"],
        "rows": progress.rows,
        "next_row": progress.rows + 1,
        "releases": progress.releases,
        "rows_in_snapshot": progress.snapshot,
        "rows_to_replay": progress.rows - progress.snapshot,
        "bytes": sum(file.stat().st_size for file in (path, beside(path, "-wal")) if file.exists()),
        "kernels": kernels,
        "running": is_locked(beside(path, ".lock")),
    }


def backup(path: Path, to: Path) -> int:
    """Copy a database consistently, also while the run continues, but not the key. Return the number of its rows."""
    if to.exists():
        raise BadParameterError(f"{to} exists. Name another file: a backup overwrites none")
    with closing(Database(str(path), write=False)) as source, plain_errors(to):
        source.run()
        part = beside(to, ".part")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as target:
                source.db.backup(target)
                (bad,) = target.execute("PRAGMA quick_check").fetchone()
                target.execute("PRAGMA journal_mode = DELETE")
            if bad != "ok":
                raise damaged(f"{path} is damaged ({bad})")
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.link(part, to)  # unlike a rename, fails if the target exists by now
        finally:
            part.unlink(missing_ok=True)
        sync_folder(to)
    with closing(Database(str(to), write=False)) as copied:
        return copied.progress.rows


def published_parameters(database: Database) -> dict[str, Any]:
    """Return the publishable parameters of a run. Neither key nor seed is in the database."""
    config = load(database.fact("config"))
    bounds = config["bounds"]
    if isinstance(bounds, dict):
        bounds = [[float(bounds[name][side]) for name in config["features"] or ()] for side in (0, 1)]
    return public_parameters(config["algorithm"], row_norm=config["row_norm"], center=config["center"], bounds=bounds)


class Verification:
    """Checks of a run as it is when they begin: every checksum, and replays. Curator only."""

    def __init__(self, path: Path, passphrase: str | None = None) -> None:
        self._path = path
        self._database = Database(str(path), write=False)
        try:
            with plain_errors(path):
                self._database.db.execute("BEGIN")  # one view, while the run may continue
            self._key = read_key(beside(path, ".key"), passphrase)
            check_key(self._database, self._key)
            config = load(self._database.fact("config"))
        except BaseException:
            self._database.close()
            raise
        self.rows = self._database.progress.rows
        self.kernels = kernels_of(self._database)
        self.features = None if config["features"] is None else tuple(config["features"])
        self.on_bad_row: Literal["raise", "zero"] = config["on_bad_row"]

    def file(self) -> None:
        """Check pages and releases. Raises `StoreCorruptError` for damage."""
        found = self._database.first("PRAGMA integrity_check(1)")
        if found != ("ok",):
            raise damaged(f"{self._path} is damaged ({found})")
        for _release in self._database.releases():
            pass

    def replay(self) -> int:
        """Rebuild the stream from the snapshot and the entries since. Return the number of rows of these entries."""
        rebuild(self._database, self._key, Stream)
        return self.rows - self._database.progress.snapshot

    def replay_all(self, source: RowSource) -> int:
        """Replay all rows from their source, compare every release, and return the number of releases.

        Raises
        ------
        StoreCorruptError
            If a release or the final state differs.
        """
        engine = fresh_stream(self._database, self._key, Stream).engine
        engine.adopt(source)
        differs = StoreCorruptError(
            f"{self._path}: these rows lead to another state than the stored one, or to fewer releases: another source?"
        )
        try:
            releases = self._database.releases()
            count = replay_checked(engine, self._entries(engine, Reader(source.blocks())), releases, str(self._path))
        except (BadParameterError, HorizonReachedError) as problem:
            raise differs from problem
        if engine.t != self.rows:
            raise StoreCorruptError(f"{self._path}: {self.rows} rows were taken, the source has {engine.t}")
        replayed = rebuild(self._database, self._key, Stream).engine
        if self.rows and not alike(engine.processor.snapshot(), replayed.processor.snapshot()):
            raise differs
        return count

    def _entries(self, engine: Engine, rows: Reader) -> Iterator[Entry]:
        """Yield the entries that replay a source, each after the engine has absorbed the one before."""
        seal, sealed = Seal(self._key), self._database.rows("trace", 0, self._database.progress.records)
        traces = (read_trace(seal.open("trace", number, record)) for number, record in sealed)
        for last, kind, fresh in chain(chain.from_iterable(traces), [(self.rows, "rows", [])]):
            # Rows before an entry of another kind drew no noise, and have no trace.
            left = tuple(fresh) if kind == "rows" else ()
            while engine.t < last:
                # The first row after a warm-up begins a block, as in the run.
                taken = rows.take(min(last - engine.t, engine.warmup_left or _AT_ONCE, _AT_ONCE))
                if not len(taken):
                    break
                admitted, marks = engine.now.admission.block(taken, engine.t + 1)
                drawn = engine.processor.chain.n
                yield Entry(engine.t + 1, len(taken), admitted, None, marks.counts(), left)
                left = left[engine.processor.chain.n - drawn :]
            if kind != "rows":
                yield Entry(engine.t + 1, 0, None, None, fresh=tuple(fresh), kind=kind)

    def close(self) -> None:
        """Close the database."""
        self._database.close()
