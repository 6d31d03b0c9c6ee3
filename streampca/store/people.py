"""Records of the people of a run, and the head that seals all of them together.

The seal of a record shows that the run wrote it, and not that it is the latest one of its person: an older one has more
of the budget left. The head holds a digest of the set of records, the sum of a keyed hash of each modulo 2**256
(MSet-Add-Hash, Clarke et al. 2003), which a commit updates from the records that it
replaces. Its seal names the commit. Without the key, nobody can exchange, add or remove records and keep the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from streampca.rows.people import NOBODY, People
from streampca.store.database import Database, Progress
from streampca.store.keys import RunKey
from streampca.store.records import damaged, decode, encode

_MODULUS = 2**256
_TOGETHER = 500  # records that a query looks up; SQLite accepts 999 parameters at least


def _label(progress: Progress) -> str:
    """Return the kind of the head's record: the rows of the commit are part of it."""
    return f"people {progress.digest}"


def _hashed(key: bytes, record: tuple[bytes, int, bytes]) -> int:
    """Return the keyed hash of a record: the hash of a name, the number of its commit, and the sealed state."""
    identity, number, sealed = record
    text = b"%b|%d|%b" % (identity, number, sealed)
    return int.from_bytes(blake2b(text, digest_size=32, key=key).digest(), "little")


def put_people(
    database: Database, key: RunKey, progress: Progress, people: People | None, changed: Mapping[bytes, bytes],
    dropped: bool,
) -> None:  # fmt: skip
    """Write the states that a commit changes, and the head, within its transaction and before its progress.

    ``people`` are those after the commit; None if it leaves them as they are. ``dropped`` removes the states before.
    """
    # The head of the database, not of memory: a commit that failed after its transaction is written once more.
    totals, digest = _head(database, key)
    secret, db = key.derive(b"streampca people"), database.db
    if dropped:
        db.execute("DELETE FROM people")
        digest = 0
    records = [
        (one, progress.records, key.seal(f"person {one.hex()}", progress.records, state))
        for one, state in changed.items()
    ]
    for start in range(0, len(records), _TOGETHER):
        ids = [one for one, _, _ in records[start : start + _TOGETHER]]
        places = ",".join("?" * len(ids))
        for old in db.execute(f"SELECT id, number, sealed FROM people WHERE id IN ({places})", ids):  # noqa: S608
            digest -= _hashed(secret, old)
    db.executemany("INSERT OR REPLACE INTO people VALUES (?, ?, ?)", records)
    digest += sum(_hashed(secret, record) for record in records)
    data = encode([(people or totals)[1:], (digest % _MODULUS).to_bytes(32, "little")])
    database.put(people=key.seal(_label(progress), progress.records, data))


def _head(database: Database, key: RunKey) -> tuple[People, int]:
    """Return the totals of the people after the latest commit, and the digest of their records."""
    progress = database.progress
    if not progress.records:
        return NOBODY, 0
    totals, digest = decode(key.open(_label(progress), progress.records, database.fact("people")))
    return People({}, *totals), int.from_bytes(digest, "little")


def sealed_people(database: Database, key: RunKey) -> tuple[dict[bytes, bytes], People]:
    """Return the states of the people of a run by their hashed names, and their totals."""
    people, digest = _head(database, key)
    records, secret = database.all_rows("people"), key.derive(b"streampca people")
    states = {one: key.open(f"person {one.hex()}", number, sealed) for one, number, sealed in records}
    # Privacy: a person whose record is missing or old would have a fresh budget.
    if (sum(_hashed(secret, record) for record in records) - digest) % _MODULUS:
        raise damaged(
            f"{database.path}: the records of people are not those of the last commit: one is missing, or an older one "
            "was put back"
        )
    return states, people
