"""Small files beside the database: the lock of the one writer, and the witness of how far the run has come.

A database can be copied or set back to an older state, and cannot tell. The
witness remembers the latest durable point of the run as a pair (rows, keyed
digest of the chain value there). A database whose history does not contain
that point is another run from some row on, and is refused unless it is said to
be one (``moved=True``).

Two slots are written in turn, each with a checksum, so a torn write costs one
of them and the other still stands.
"""

from __future__ import annotations

import errno
import json
import os
from functools import partial
from hashlib import blake2b
from io import FileIO
from pathlib import Path

from streampca.errors import StoreForkedError, StoreLockedError
from streampca.exclusive import tell_of_forks

#: Rows, and the keyed digest of the chain value after them.
Point = tuple[int, str]

_SLOT = 512
_sync = getattr(os, "fdatasync", os.fsync)  # the former is not everywhere
_SUM = 16


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file that must not exist yet, and wait until it is on the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
    except BaseException:
        os.unlink(path)
        raise
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Wait until the name of a file is on the disk."""
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class LockFile:
    """A file that this process alone has, from `open` to `close`. The system lets it go if the process dies."""

    _file: FileIO | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        tell_of_forks(self)

    def open(self) -> None:
        """Lock the file. Raises `StoreLockedError` if another process, or another object, has it."""
        import fcntl

        if self._file is None or self._file.closed:
            opener = partial(os.open, mode=0o600)
            self._file = FileIO(self._path, "r+", opener=lambda path, flags: opener(path, flags | os.O_CREAT))
        file = _identity(self._file)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _HELD_HERE[file] = os.getpid()
        except OSError as problem:
            self._file.close()
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            if _HELD_HERE.get(file) == os.getpid():
                raise StoreLockedError(
                    f"{self._path} is held: this process has the store open; close it (`close()` or a `with` block), "
                    "or go on with its stream"
                ) from None
            raise StoreLockedError(
                f"{self._path} is held: another process writes to this run; let it finish, or end it, then try again"
            ) from None

    @property
    def handle(self) -> int:
        """The open file."""
        if self._file is None:
            raise ValueError(f"{self._path} is not open")
        return self._file.fileno()

    def close(self) -> None:
        """Release the file. Closing again does nothing."""
        if self._file is not None and not self._file.closed:
            _HELD_HERE.pop(_identity(self._file), None)
            self._file.close()

    def after_fork(self) -> None:
        """Close the handle of the child: a lock lasts until all are closed."""
        self.close()

    def __del__(self) -> None:
        self.close()


#: Device and number of the files that a process has locked, with its id: a child inherits these entries, no locks.
_HELD_HERE: dict[tuple[int, int], int] = {}


def _identity(file: FileIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def is_locked(path: Path) -> bool:
    """True if a writer is at work."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def beside(path: Path, ending: str) -> Path:
    """The file of the same name with an ending more."""
    return path.with_name(path.name + ending)


class Witness:
    """The witness of one run: a small file, best kept where backups of the database are not restored to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = 0
        self._held = LockFile(path)

    def open(self) -> None:
        """Open the file for this process alone, and make it if it is missing."""
        self._held.open()
        sync_folder(self._path)

    def recall(self, run: str) -> Point | None:
        """The latest point; None if the file is empty or damaged.

        Raises `StoreForkedError` if it is the witness of another run.
        """
        self._turn, point = _latest(self._path, os.pread(self._held.handle, 2 * _SLOT, 0), run)
        return point

    def clear(self, run: str | None) -> None:
        """Forget everything, for a run that begins in place of one without rows.

        Raises `StoreForkedError` if it is the witness of another run than that.
        """
        _latest(self._path, os.pread(self._held.handle, 2 * _SLOT, 0), run)
        os.ftruncate(self._held.handle, 0)
        os.fsync(self._held.handle)
        self._turn = 0

    def remember(self, run: str, point: Point) -> None:
        """Note the latest point, durably."""
        number = self._turn + 1
        text = json.dumps([run, number, *point]).encode()
        slot = text.ljust(_SLOT - _SUM) + _digest(text)
        if os.pwrite(self._held.handle, slot, (number % 2) * _SLOT) != _SLOT:
            raise OSError(errno.ENOSPC, "the disk is full", str(self._path))
        _sync(self._held.handle)
        self._turn = number

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._held.close()


def peek(path: Path, run: str) -> Point | None:
    """The latest point that a witness file remembers, while a writer may have it; None if it remembers nothing.

    Raises `StoreForkedError` if it is the witness of another run.
    """
    try:
        return _latest(path, path.read_bytes(), run)[1]
    except OSError:
        return None


def _latest(path: Path, data: bytes, run: str | None) -> tuple[int, Point | None]:
    """Number and point of the latest slot that was written whole; 0 and None if there is none.

    Raises `StoreForkedError` if a slot is of another run.
    """
    latest: tuple[int, Point | None] = 0, None
    for slot in (data[:_SLOT], data[_SLOT : 2 * _SLOT]):
        text, total = slot[:-_SUM].rstrip(b" "), slot[-_SUM:]
        if len(slot) == _SLOT and _digest(text) == total:
            owner, number, rows, digest = json.loads(text)
            if owner != run:
                raise StoreForkedError(f"{path} is the witness of another run; give each run its own")
            latest = max(latest, (number, (rows, digest)), key=lambda one: one[0])
    return latest


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=_SUM, person=b"streampca wtness").digest()
