"""Large snapshots, and the deletion of what they supersede: many small transactions, with room for commits between.

Each step of these iterators is one transaction and gives the bytes it wrote.
Until the last piece of a snapshot is there and `Progress.folded` names it, the
snapshot before and the log since count; from then on they are superseded. What
does not count may outlive a crash: readers pass it over, and the next writer
deletes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial

from streampca.store.codec import Part, in_pieces
from streampca.store.database import Database
from streampca.store.entries import PIECE
from streampca.store.keys import Seal

_Deletion = tuple[str, tuple[int, ...], int]  # statement, key, bytes


def label(piece: int, pieces: int) -> str:
    """What a piece of a snapshot is sealed as."""
    return f"snapshot {piece}/{pieces}"


def sealed_pieces(seal: Seal, number: int, parts: list[Part]) -> Iterator[tuple[int, int, int, bytes]]:
    """The records of the snapshot after record ``number``."""
    pieces = -(-sum(map(len, parts)) // PIECE)
    for piece, data in enumerate(in_pieces(parts, PIECE), start=1):
        yield number, piece, pieces, seal.close(label(piece, pieces), number, data)


def write_pieces(database: Database, seal: Seal, number: int, parts: list[Part]) -> Iterator[int]:
    """Write the snapshot after record ``number``. It does not count yet."""
    for record in sealed_pieces(seal, number, parts):
        database.transact(partial(_insert, record))  # in place of a piece of an attempt that broke off
        yield len(record[3])


def sweep(database: Database, number: int) -> Iterator[int] | None:
    """Delete all snapshots but that after record ``number``, and the log up to it; None if there are none."""
    old: list[_Deletion] = []
    query = "SELECT number, piece, length(sealed) FROM snapshot WHERE number != ?"
    for of, piece, size in database.db.execute(query, (number,)).fetchall():
        old.append(("DELETE FROM snapshot WHERE number = ? AND piece = ?", (of, piece), size))
    query = "SELECT number, length(sealed) FROM log WHERE number <= ?"
    for of, size in database.db.execute(query, (number,)).fetchall():
        old.append(("DELETE FROM log WHERE number = ?", (of,), size))
    return _delete(database, old) if old else None


def _delete(database: Database, old: list[_Deletion]) -> Iterator[int]:
    while old:
        step: list[_Deletion] = []
        written = 0
        while old and (not step or written + old[-1][2] <= PIECE):
            step.append(old.pop())
            written += step[-1][2]
        database.transact(partial(_execute, step))
        yield written


def _insert(record: tuple[int, int, int, bytes], db: sqlite3.Connection) -> None:
    db.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", record)


def _execute(step: list[_Deletion], db: sqlite3.Connection) -> None:
    for statement, key, _ in step:
        db.execute(statement, key)
