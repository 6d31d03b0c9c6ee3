"""Checks of a durable run: every checksum, and replays that must give the stored releases. Curator only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from streampca.errors import BadParameterError, HorizonReachedError, StoreCorruptError
from streampca.rows.protocol import Reader, RowSource
from streampca.store.config import config_in
from streampca.store.database import Database, plain_errors
from streampca.store.keys import Seal, read_key
from streampca.store.reading import kernels_of
from streampca.store.records import read_trace
from streampca.store.recovery import TOLERANCE, alike, check_key, fresh_stream, rebuild, replay_checked
from streampca.store.witness import beside
from streampca.stream.blocks import Entry
from streampca.stream.stream import Stream

#: Rows that are replayed at a time.
_AT_ONCE = 4096


class Verification:
    """Checks of one moment of a run, which may go on meanwhile."""

    def __init__(self, path: Path, passphrase: str | None = None) -> None:
        self._path = path
        self._database = Database(str(path), write=False)
        try:
            with plain_errors(path):
                self._database.db.execute("BEGIN")
            self._key = read_key(beside(path, ".key"), passphrase)
            check_key(self._database, self._key)
            config = config_in(self._database)
        except BaseException:
            self._database.close()
            raise
        self.rows = self._database.progress.rows
        self.kernels = kernels_of(self._database)
        self.features = None if config["features"] is None else tuple(config["features"])
        self.on_bad_row: Literal["raise", "zero"] = config["on_bad_row"]
        self._replayed: Stream | None = None

    def file(self) -> Path:
        """Check pages and releases.

        Raises
        ------
        StoreCorruptError
            If something is damaged.
        """
        with plain_errors(self._path):
            (found,) = self._database.db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise StoreCorruptError(f"{self._path} is damaged ({found}); restore the newest copy")
        for _release in self._database.releases():
            pass
        return self._path

    def replay(self) -> int:
        """Rebuild the stream from the snapshot and the entries since; return how many rows these have."""
        self._replayed = rebuild(self._database, self._key, Stream)
        return self.rows - self._database.progress.snapshot

    def replay_all(self, source: RowSource) -> int:
        """Replay all rows; return the number of releases, every one of which is the stored one.

        Raises
        ------
        StoreCorruptError
            If a release differs, or the state at the end.
        """
        engine = fresh_stream(self._database, self._key, Stream).engine
        engine.adopt(source)
        rows, due, count = Reader(source.blocks()), self._database.releases(), 0
        try:
            for kind, last, fresh in self._taken():
                used = 0
                while kind == "rows" and engine.t < last:
                    taken = rows.take(min(last - engine.t, engine.warmup_left or _AT_ONCE, _AT_ONCE))
                    if not len(taken):
                        break
                    admitted, marks = engine.now.admission.block(taken, engine.t + 1)
                    drawn = engine.processor.chain.n
                    entry = Entry(engine.t + 1, len(taken), admitted, None, marks.counts(), fresh[used:])
                    count += replay_checked(engine, entry, due, str(self._path))
                    used += engine.processor.chain.n - drawn
                if kind != "rows":
                    entry = Entry(engine.t + 1, 0, None, None, fresh=fresh, kind=kind)
                    count += replay_checked(engine, entry, due, str(self._path))
        except (BadParameterError, HorizonReachedError) as problem:
            raise self._other_source() from problem
        if engine.t != self.rows:
            raise StoreCorruptError(
                f"{self._path}: {self.rows} rows were taken, the source has {engine.t}: another source?"
            )
        replayed = (self._replayed or rebuild(self._database, self._key, Stream)).engine
        if self.rows and not alike(engine.processor.snapshot(), replayed.processor.snapshot(), TOLERANCE):
            raise self._other_source()
        if next(due, None) is not None:
            raise StoreCorruptError(f"{self._path}: these rows lead to fewer releases than are stored: another source?")
        return count

    def _taken(self) -> Iterator[tuple[str, int, tuple[bytes, ...]]]:
        """The entries of the run, as kind, last row and fresh bytes."""
        seal = Seal(self._key)
        for number, sealed in self._database.trace():
            for last, kind, fresh in read_trace(seal.open("trace", number, sealed)):
                if kind != "rows":  # rows before it that drew no noise
                    yield "rows", last, ()
                yield kind, last, tuple(fresh)
        yield "rows", self.rows, ()

    def _other_source(self) -> StoreCorruptError:
        return StoreCorruptError(f"{self._path}: these rows lead to another state than the stored one: another source?")

    def close(self) -> None:
        """Close the database."""
        self._database.close()
