"""A second memory of how far a run has come, outside its database.

A database can be copied or set back to an older state, and cannot tell. The
witness remembers the latest durable point of the run as a pair (rows, keyed
digest of the chain value there). A database whose history does not contain
that point is another run from some row on, and is refused unless it is said to
be one (``moved=True``).

Two slots are written in turn, each with a checksum, so a torn write costs one
of them and the other still stands.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path

from streampca.errors import StoreForked
from streampca.store.files import HeldFile, sync_folder

#: Rows, and the keyed digest of the chain value after them.
Point = tuple[int, str]

_SLOT = 512
_sync = getattr(os, "fdatasync", os.fsync)  # the former is not everywhere
_SUM = 16


class Witness:
    """The witness of one run, in a small file.

    Parameters
    ----------
    path : the file. Best kept where backups of the database are not restored to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = 0
        self._held = HeldFile(path)

    def open(self) -> None:
        """Open the file for this process alone, and make it if it is missing."""
        self._held.open()
        sync_folder(self._path)

    def recall(self, run: str) -> Point | None:
        """The latest point; None if the file is empty or damaged.

        Raises
        ------
        StoreForked
            If it is the witness of another run.
        """
        best: tuple[int, int, str] | None = None
        for seen, number, rows, digest in self._slots():
            if seen != run:
                raise StoreForked(f"{self._path} is the witness of another run; give each run its own")
            if best is None or number > best[0]:
                best = (number, rows, digest)
        if best is None:
            return None
        self._turn = best[0]
        return best[1], best[2]

    def clear(self, run: str | None) -> None:
        """Forget everything, for a run that begins in place of one without rows.

        Raises
        ------
        StoreForked
            If it is the witness of another run than that.
        """
        if any(seen != run for seen, _, _, _ in self._slots()):
            raise StoreForked(f"{self._path} is the witness of another run; give each run its own")
        os.ftruncate(self._held.handle, 0)
        os.fsync(self._held.handle)
        self._turn = 0

    def remember(self, run: str, point: Point) -> None:
        """Note the latest point, durably."""
        number = self._turn + 1
        text = json.dumps([run, number, *point]).encode()
        slot = text.ljust(_SLOT - _SUM) + _digest(text)
        if os.pwrite(self._held.handle, slot, (number % 2) * _SLOT) != _SLOT:
            raise OSError(28, "the disk is full", str(self._path))
        _sync(self._held.handle)
        self._turn = number

    def _slots(self) -> list[tuple[str, int, int, str]]:
        """What was written whole."""
        found = []
        for turn in (0, 1):
            slot = os.pread(self._held.handle, _SLOT, turn * _SLOT)
            text, total = slot[:-_SUM].rstrip(b" "), slot[-_SUM:]
            if len(slot) == _SLOT and _digest(text) == total:
                found.append(tuple(json.loads(text)))
        return found

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._held.close()


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=_SUM, person=b"streampca wtness").digest()
