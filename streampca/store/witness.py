"""Small files beside the database: the lock of the single writer, and the witness of the progress of the run.

A database whose history does not contain the point in the witness is another run from some row on (`store.store`).
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from pathlib import Path

from streampca.errors import StoreForkedError, StoreLockedError
from streampca.exclusive import tell_of_forks

#: Rows, and the keyed digest of the chain value after them.
Point = tuple[int, str]

_SLOT, _SUM = 512, 16  # bytes of a slot, and of its checksum
_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def write_new(path: Path, data: bytes) -> None:
    """Create a file that must not exist yet, mode 0600, and flush it to the disk."""
    # Security: O_EXCL follows no link and writes to no file that was put there before.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
    except BaseException:
        os.unlink(path)
        raise


def sync_folder(path: Path) -> None:
    """Flush the name of a file to the disk."""
    # A crash of the system may otherwise forget that the file was created or renamed, although its bytes were flushed.
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class LockFile:
    """A file that only this process holds, from `open` to `close`. The system releases it if the process dies."""

    # A file of its own, not the database: SQLite's locks are POSIX locks, which any close in this process would drop.
    _file: FileIO | None = None
    handle = -1  #: descriptor of the open file; -1, which no call accepts, of a closed one

    def __init__(self, path: Path) -> None:
        self._path = path
        tell_of_forks(self)

    def open(self) -> None:
        """Lock the file. Raises `StoreLockedError` if another object holds it."""
        import fcntl

        if self._file is None or self._file.closed:
            self._file = FileIO(self._path, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o600))
        self.handle = self._file.fileno()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            self.close()
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StoreLockedError(
                f"{self._path} is held: another process writes to this run, or this process has the store open. "
                "End it, or close it (`close()` or a `with` block), then try again"
            ) from None

    def close(self) -> None:
        """Release the file. Idempotent."""
        self.handle = -1  # first: the system may give the number to another file
        if self._file is not None:
            self._file.close()

    # The child of a fork closes its handle, too: a lock lasts until all handles are closed.
    after_fork = close


def is_locked(path: Path) -> bool:
    """Return whether a writer holds a lock file."""
    import fcntl

    with suppress(OSError), path.open("rb") as file:
        try:
            # Shared, so that two readers at once do not find each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending appended to its name."""
    return path.with_name(path.name + ending)


class Witness(LockFile):
    """The witness of one run: a small file, best kept where backups of the database are not restored to."""

    _turn = 0

    def recall(self, run: str | None, *, clear: bool = False) -> Point | None:
        """Lock the file, and return its point; None if it is empty or damaged. `StoreForkedError` for another run."""
        self.open()
        sync_folder(self._path)  # it may be new
        self._turn, point = _latest(self._path, os.pread(self.handle, 2 * _SLOT, 0), run)
        if clear:  # for the run that replaces this one
            os.ftruncate(self.handle, 0)
            os.fsync(self.handle)
            self._turn = 0
        return point

    def remember(self, run: str, point: Point) -> None:
        """Write the latest point, and flush it to the disk."""
        # Two slots in turn, each with a checksum: a torn write costs one of them, and the other one remains.
        number = self._turn + 1
        text = json.dumps([run, number, *point]).encode()
        slot = text.ljust(_SLOT - _SUM) + _digest(text)
        if os.pwrite(self.handle, slot, (number % 2) * _SLOT) != _SLOT:
            raise OSError(errno.ENOSPC, "the disk is full", str(self._path))
        _sync(self.handle)
        self._turn = number


def peek(path: Path, run: str) -> Point | None:
    """Return the latest point in a witness file that a writer may hold, or None. `StoreForkedError` as `recall`."""
    with suppress(OSError):
        return _latest(path, path.read_bytes(), run)[1]
    return None


def _latest(path: Path, data: bytes, run: str | None) -> tuple[int, Point | None]:
    """Return number and point of the latest intact slot; 0 and None if there is none."""
    # The slot of the higher number is the newer one; a torn one fails its checksum and is passed over.
    latest: tuple[int, Point | None] = 0, None
    for slot in (data[:_SLOT], data[_SLOT : 2 * _SLOT]):
        text, total = slot[:-_SUM].rstrip(b" "), slot[-_SUM:]
        if len(slot) == _SLOT and _digest(text) == total:
            owner, number, rows, digest = json.loads(text)
            if owner != run:
                raise StoreForkedError(f"{path} is the witness of another run. Give each run its own")
            latest = max(latest, (number, (rows, digest)), key=lambda one: one[0])
    return latest


def _digest(text: bytes) -> bytes:
    # Without a key: it detects torn writes only. The point in the slot is a keyed digest.
    return blake2b(text, digest_size=_SUM, person=b"streampca wtness").digest()
