"""Large snapshots, and the deletion of what they supersede: many small transactions, with room for commits between.

Each step of these iterators is one transaction and gives the bytes it wrote.
Until the last piece of a snapshot is there and `Progress.snapshot` names it,
the snapshot before and all rows since count; from then on, they are rubbish.
Either kind of rubbish may outlive a crash: whoever reads passes it over, and
the next writer deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from streampca.store.batch import PIECE
from streampca.store.codec import Part, in_pieces
from streampca.store.database import Database
from streampca.store.keys import Seal

_Deletion = tuple[str, tuple[int, ...], int]  # statement, key, bytes


def label(piece: int, pieces: int) -> str:
    """What a piece of a snapshot is sealed as. As in schema 1, if it is the only one."""
    return "snapshot" if pieces == 1 else f"snapshot {piece}/{pieces}"


def sealed_pieces(seal: Seal, t: int, parts: list[Part]) -> Iterator[tuple[int, int, int, bytes]]:
    """The records of the snapshot of row t."""
    pieces = -(-sum(map(len, parts)) // PIECE)
    for number, data in enumerate(in_pieces(parts, PIECE), start=1):
        yield t, number, pieces, seal.close(label(number, pieces), t, data)


def write_pieces(database: Database, seal: Seal, t: int, parts: list[Part]) -> Iterator[int]:
    """Write the snapshot of row t. It does not count yet."""
    for record in sealed_pieces(seal, t, parts):
        with database.transaction() as db:
            db.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", record)
        yield len(record[3])


def sweep(database: Database, t: int) -> Iterator[int] | None:
    """Delete all snapshots but that of row t, and the rows up to it; None if there are none."""
    old: list[_Deletion] = []
    found = database.db.execute("SELECT t, piece, length(sealed) FROM snapshot WHERE t != ?", (t,)).fetchall()
    old += [("DELETE FROM snapshot WHERE t = ? AND piece = ?", (of, piece), size) for of, piece, size in found]
    found = database.db.execute("SELECT first, length(sealed) FROM rows WHERE first <= ?", (t,)).fetchall()
    old += [("DELETE FROM rows WHERE first = ?", (first,), size) for first, size in found]
    return _delete(database, old) if old else None


def _delete(database: Database, old: list[_Deletion]) -> Iterator[int]:
    while old:
        written = 0
        with database.transaction() as db:
            while old and (not written or written + old[-1][2] <= PIECE):
                statement, key, size = old.pop()
                db.execute(statement, key)
                written += size
        yield written
