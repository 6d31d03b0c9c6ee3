"""Checks of a durable run: every checksum, and replays that must give the stored releases. Curator only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from streampca.errors import StoreCorrupt
from streampca.linalg.types import FloatArray
from streampca.rows import RowSource
from streampca.store.checkpoint import stream_of
from streampca.store.codec import encode
from streampca.store.database import Database
from streampca.store.files import told_plainly
from streampca.store.keys import read_key
from streampca.store.reading import config_text, features_of, stored_releases
from streampca.store.recovery import beside, check_key, compare, rebuild
from streampca.stream import Stream


class Verification:
    """Checks of one moment of a run, which may go on meanwhile.

    Parameters
    ----------
    path : the database.
    passphrase : of the key file, if it has one.
    key_file : where the key is; ``<path>.key`` if left out.
    """

    def __init__(self, path: Path, passphrase: str | None = None, key_file: Path | None = None) -> None:
        self._path = path
        self._database = Database(str(path), write=False)
        try:
            with told_plainly(path):
                self._database.db.execute("BEGIN")
            self._key = read_key(beside(path, ".key") if key_file is None else key_file, passphrase)
            check_key(self._database, self._key)
            config = config_text(self._database)
        except BaseException:
            self._database.close()
            raise
        self.rows = self._database.progress.rows
        self.features = features_of(self._database)
        self.on_bad_row: Literal["raise", "zero"] = config["on_bad_row"]
        self._replayed: Stream | None = None

    def file(self) -> Path:
        """Check pages and releases.

        Raises
        ------
        StoreCorrupt
            If something is damaged.
        """
        with told_plainly(self._path):
            (found,) = self._database.db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise StoreCorrupt(f"{self._path} is damaged ({found}); restore the newest copy")
        for _release in stored_releases(self._database):
            pass
        return self._path

    def replay(self) -> int:
        """Rebuild the stream from the snapshot and the rows since; return how many these are."""
        self._replayed = rebuild(self._database, self._key, Stream)
        return self.rows - self._database.progress.snapshot

    def replay_all(self, source: RowSource) -> int:
        """Play all rows again; return the number of releases, every one of which is the stored one.

        Raises
        ------
        StoreCorrupt
            If a release differs, or the state at the end.
        """
        stream = stream_of(config_text(self._database), self._key, Stream)
        stream.adopt(source)
        stored, count = stored_releases(self._database), 0
        for block in _first(source.blocks(), self.rows):
            for made in stream.push_many(block).releases:
                due = next(stored, None)
                if due is None:
                    raise StoreCorrupt(f"{self._path}: the release at row {made.t} is missing; restore the newest copy")
                compare(made, due, str(self._path))
                count += 1
        if stream.t != self.rows:
            raise StoreCorrupt(f"{self._path}: {self.rows} rows were taken, the source has {stream.t}: another source?")
        replayed = self._replayed or rebuild(self._database, self._key, Stream)
        if self.rows and encode(stream.processor.state()) != encode(replayed.processor.state()):
            raise StoreCorrupt(f"{self._path}: these rows lead to another state than the stored one: another source?")
        return count

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _first(blocks: Iterator[FloatArray], count: int) -> Iterator[FloatArray]:
    for block in blocks:
        if count <= 0:
            return
        yield block[:count]
        count -= len(block)
