"""A second memory of how far a run has come, outside its database.

A database can be copied or set back to an older state, and then cannot tell:
both twins hold the same key, and other rows fed to one of them would meet the
noise that the other has already released. The witness remembers, per run, the
latest durable point as a pair (rows, keyed digest of the rows and of all
before). A database whose history does not contain that point is refused.

Two slots are written in turn, each with a checksum, so a torn write costs one
of them and the other still stands.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from streampca.errors import StoreForked
from streampca.store.files import hold, sync_folder

_SLOT = 512
_sync = getattr(os, "fdatasync", os.fsync)  # the former is not everywhere
_SUM = 16


class Witness(Protocol):
    """Where the latest durable point of runs is remembered: beside the key, or in a shared ledger."""

    def recall(self, run: str) -> tuple[int, str] | None:
        """The latest (rows, digest) of a run; None if it was never seen."""

    def remember(self, run: str, rows: int, digest: str) -> None:
        """Note the latest point, durably, before this returns."""


class MemoryWitness:
    """For runs that live in memory: there is nothing to outlive."""

    def recall(self, run: str) -> tuple[int, str] | None:
        """Nothing is known."""
        return None

    def remember(self, run: str, rows: int, digest: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class WitnessFile:
    """The witness of one run, in a small file.

    Parameters
    ----------
    path : the file. Best kept where backups of the database are not restored to.
    create : make it if it is missing.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self._path = path
        self._turn = 0
        try:
            self._handle = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        except FileNotFoundError:
            raise StoreForked(
                f"{path} is missing: without it, it is not known whether another copy of this run went on; "
                "put it back, name it (witness=, --witness), or pass moved=True (--moved) if no other copy was resumed"
            ) from None
        try:
            hold(self._handle, path)
            if create:
                sync_folder(path)
        except BaseException:
            os.close(self._handle)
            raise

    def recall(self, run: str) -> tuple[int, str] | None:
        """The latest point. Of another run's witness, nothing."""
        best: tuple[int, int, str] | None = None
        for turn in (0, 1):
            slot = os.pread(self._handle, _SLOT, turn * _SLOT)
            text, total = slot[:-_SUM].rstrip(b" "), slot[-_SUM:]
            if len(slot) < _SLOT or _digest(text) != total:
                continue
            seen, number, rows, digest = json.loads(text)
            if seen != run:
                raise StoreForked(f"{self._path} is the witness of another run; give each run its own")
            if best is None or number > best[0]:
                best = (number, rows, digest)
        if best is None:
            if os.fstat(self._handle).st_size:
                raise StoreForked(
                    f"{self._path} is damaged: it is not known whether another copy of this run went on; "
                    "delete it and pass moved=True (--moved) if no other copy has been resumed"
                )
            return None
        self._turn = best[0]
        return best[1], best[2]

    def remember(self, run: str, rows: int, digest: str) -> None:
        """Note the latest point, durably."""
        number = self._turn + 1
        text = json.dumps([run, number, rows, digest]).encode()
        slot = text.ljust(_SLOT - _SUM) + _digest(text)
        if os.pwrite(self._handle, slot, (number % 2) * _SLOT) != _SLOT:
            raise OSError(28, "the disk is full", str(self._path))
        _sync(self._handle)
        self._turn = number

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=_SUM, person=b"streampca wtness").digest()
