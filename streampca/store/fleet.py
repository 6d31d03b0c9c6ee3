"""Durable fleets: the files of `streampca.store.store`, with one log for all tenants. All are curator-side.

An entry of the log is one call: keys, admitted rows, fresh bytes and the position of the source, sealed. When a replay
of the log would take long, sealed records of all tenants replace it. The digest of a commit is a keyed hash of the one
before, of its entry and of its releases, so that a replay which gives other releases is found. Releases, with their
keys, are in the clear.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streampca.errors import BadParameterError, StreamPCAError, UsageError, reason
from streampca.store.config import check_label, load, stream_of
from streampca.store.database import Database, Progress, checksum, plain_errors
from streampca.store.log import POINTS
from streampca.store.records import damaged, decode
from streampca.store.store import Store
from streampca.store.witness import Point
from streampca.stream.engine import Engine
from streampca.stream.stream import Stream

#: Number of a release in the fleet, its record, and what a replay gives again to the bit.
Kept = tuple[int, bytes, bytes]


class FleetDatabase(Database):
    """The database of a fleet. `Progress.rows` counts commits."""

    application = 0x53504346
    no_run = "{} holds no run. Start one with `Fleet(..., store=path)`"
    # log: entries since the records were written. records: those of all tenants, in pieces.
    tables = """
CREATE TABLE log (number INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE records (number INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE points (number INTEGER PRIMARY KEY, t INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE releases (number INTEGER PRIMARY KEY, record BLOB NOT NULL, sum BLOB NOT NULL);
"""


class FleetStore(Store):
    """Makes a fleet durable; ``options`` are its parameters besides those of a stream. Curator only."""

    kind = FleetDatabase

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        super().__init__(path)
        self.more = {"fleet": options}
        self.logged = 0  #: bytes of the log
        self._progress = Progress()
        self._head: Point | None = None  # the latest point that witness and ledger have

    def __del__(self) -> None:
        with suppress(Exception):  # every commit is on the disk already
            self._let_go()

    def _begin_writing(self, engine: Engine, head: Point | None) -> Any:
        self._head = (0, "")
        return None

    def append(self, entry: bytes, kept: Sequence[Kept]) -> None:
        """Commit an entry with its releases, on the disk."""
        database, key = self._open_database(), self._key
        assert key is not None
        self._progress = before = database.progress  # an interrupt may have come after the transaction of `fold`
        number, digest = before.rows + 1, self._digest(entry, kept)
        after = before._replace(rows=number, releases=before.releases + len(kept), digest=digest)
        sealed = key.seal("entry", number, entry)  # its number is authenticated, so that no entry replaces another

        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO log VALUES (?, ?)", (number, sealed))
            db.executemany(
                "INSERT INTO releases VALUES (?, ?, ?)", [(n, one, checksum(str(n), one)) for n, one, _ in kept]
            )
            db.execute("INSERT INTO points VALUES (?, ?, ?)", (number, number, digest))
            db.execute("DELETE FROM points WHERE number <= ?", (number - POINTS,))
            database.put(progress=after)

        database.transact(work)
        self._progress = after
        self.logged += len(sealed)

    def noted(self) -> int:
        """Bring witness and ledger to the latest commit; return its number."""
        database, key = self._open_database(), self._key
        assert key is not None
        self._progress = database.progress  # an interrupt may have come after the transaction
        point: Point = self._progress.rows, self._progress.digest
        if point != self._head:
            with plain_errors(self.path):
                if self._witness is not None:
                    self._witness.remember(key.run, point)
                if self._account is not None:
                    self._account.ledger.note(self._account.data_set, key.run, self._head, point)
            self._head = point
        return point[0]

    def fold(self, pieces: Iterable[bytes]) -> None:
        """Replace the log by records of all tenants, in pieces."""
        database, key, number = self._open_database(), self._key, self._progress.rows
        assert key is not None
        count = 0

        def sealed() -> Iterator[tuple[int, bytes]]:
            nonlocal count
            for piece in pieces:
                count += 1
                yield count, key.seal(f"records {count}", number, piece)

        def work(db: sqlite3.Connection) -> Progress:
            # Privacy: secure_delete overwrites in the file what the records replace.
            db.execute("DELETE FROM records")
            db.execute("DELETE FROM log")
            db.executemany("INSERT INTO records VALUES (?, ?)", sealed())
            after = self._progress._replace(folded=number, records=count, snapshot=number)
            database.put(progress=after, folded=[count, self._progress.digest])
            return after

        self._progress = database.transact(work)
        self.logged = 0

    def kept(self, since: int) -> Iterator[bytes]:
        """Yield the releases after a number, in order. Publishable. `StoreCorruptError` for damage or a gap."""
        database = self._open_database()
        last = database.progress.releases
        for number, record, total in database.rows("releases", since, last):
            if number != since + 1 or not isinstance(record, bytes) or checksum(str(number), record) != total:
                raise damaged(f"{self.path}: release {since + 1} is missing or fails its checksum")
            since = number
            yield record
        if since < last:
            raise damaged(f"{self.path}: release {since + 1} is missing")

    def rebuild(self, fleet: Any, *, moved: bool) -> None:
        """Build a fleet from the records and the log. Raises as `Store.resume`."""
        try:
            database, key, account, self._head = self._checked(moved)
            config = load(database.fact("config"))
            options = config.pop("fleet")
            template = stream_of(config, key, key.open("start", 0, database.fact("start")), Stream)
            check_label(database.get("label"), template.engine, self.path)
            fleet.begin(template, **options)
            self._key, self.run, end = key, key.run, database.progress
            self._progress = Progress(rows=end.folded)
            if end.folded:
                count, digest = database.fact("folded")
                self._progress = Progress(rows=end.folded, digest=digest)
                pieces = (key.open(f"records {i}", end.folded, sealed) for i, sealed in database.rows("records"))
                fleet.restore(pieces)
                if next(pieces, None) is not None or end.records != count:
                    raise damaged(f"{self.path}: the records do not fit the fleet")
            for number, sealed in database.rows("log", end.folded, end.rows):
                if number != self._progress.rows + 1:
                    break
                entry = key.open("entry", number, sealed)
                digest = self._digest(entry, fleet.replay(decode(entry)))
                self._progress = Progress(rows=number, digest=digest)
                self.logged += len(sealed)
            if (self._progress.rows, self._progress.digest) != (end.rows, end.digest):
                raise damaged(f"{self.path}: an entry is missing, or the replay gives other releases")
            fleet.attach(self, account, moved=moved)
        except BaseException as problem:
            self._let_go()
            is_damage = isinstance(problem, (StopIteration, LookupError, TypeError, ValueError, AttributeError))
            if isinstance(problem, StreamPCAError) or not is_damage:
                raise
            text = f"{self.path}: the stored state does not fit the configuration ({reason(problem)})"
            raise damaged(text) from problem

    def _digest(self, entry: bytes, kept: Sequence[Kept]) -> str:
        """Return the digest after another commit."""
        assert self._key is not None
        keyed = blake2b(key=self._key.derive(b"streampca fleet"), digest_size=16)
        for part in (self._progress.digest.encode(), entry, *(same for *_, same in kept)):
            keyed.update(len(part).to_bytes(8, "little") + part)
        return keyed.hexdigest()


def secret_of(engine: Engine, generation: bytes) -> tuple[X25519PrivateKey, bytes]:
    """Return the key that opens packets for a fleet, and its address."""
    secret = engine.randomness.derived("fleet address", engine.start_id, generation)
    private = X25519PrivateKey.from_private_bytes(secret)
    return private, private.public_key().public_bytes_raw()


def packed_for(to: str, data: bytes) -> bytes:
    """Seal data for the fleet of an address."""
    own = X25519PrivateKey.generate()
    try:
        address = bytes.fromhex(to)
        shared = own.exchange(X25519PublicKey.from_public_bytes(address))
    except (TypeError, ValueError):
        raise BadParameterError("to", to, "the address of a fleet") from None
    nonce = own.public_key().public_bytes_raw()
    return nonce + _cipher(shared, nonce, address).encrypt(bytes(12), data, None)


def opened(private: X25519PrivateKey, address: bytes, packet: bytes) -> tuple[bytes, bytes]:
    """Return the 32 bytes that name a packet, and its data."""
    try:
        nonce = bytes(packet[:32])
        shared = private.exchange(X25519PublicKey.from_public_bytes(nonce))
        return nonce, _cipher(shared, nonce, address).decrypt(bytes(12), bytes(packet[32:]), None)
    except (InvalidTag, TypeError, ValueError):
        raise UsageError("packet: damaged, or for another fleet. Hand over to the address of this one") from None


def _cipher(shared: bytes, nonce: bytes, address: bytes) -> AESGCM:
    # Each packet has a key of its own, of both public keys, so that the nonce of the cipher may be constant.
    return AESGCM(blake2b(nonce + address, key=shared, digest_size=32, person=b"streampca packet").digest())
