"""Small files that must survive a crash, one writer at a time, and errors of files as errors of the store."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path

from streampca.errors import StoreCorrupt, StoreLocked, StoreUnwritable

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def told_plainly(path: object) -> Iterator[None]:
    """Turn errors of SQLite and of the system into one clear error each."""
    try:
        yield
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGED:
            raise StoreCorrupt(f"{path} is damaged or not a store ({problem}); restore the newest copy") from problem
        if code in _BUSY:
            raise StoreLocked(f"{path} is in use by another program; let it finish, then try again") from problem
        if code == sqlite3.SQLITE_FULL:
            raise StoreUnwritable(
                f"{path}: the disk is full; make room, then go on. What was committed is safe"
            ) from problem
        if isinstance(problem, (sqlite3.OperationalError, sqlite3.InternalError)):
            raise StoreUnwritable(
                f"{path} cannot be written ({problem}); mend that, then go on. What was committed is safe"
            ) from problem
        raise StoreCorrupt(f"{path} is damaged ({problem}); restore the newest copy") from problem
    except OSError as problem:
        what = "the disk is full" if problem.errno in (errno.ENOSPC, errno.EDQUOT) else problem.strerror
        raise StoreUnwritable(
            f"{problem.filename or path}: {what}; mend that, then go on. What was committed is safe"
        ) from problem


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file that must not exist yet, and wait until it is on the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.fchmod(handle, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    except BaseException:
        os.close(handle)
        os.unlink(path)
        raise
    os.close(handle)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Wait until the name of a file is on the disk."""
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class HeldFile:
    """A file that this process alone has, from `open` to `close`. The system lets it go if the process dies.

    Parameters
    ----------
    path : the file; made if it is missing, mode 0600.
    """

    _file: FileIO | None = None

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> None:
        """Take the file.

        Raises
        ------
        StoreLocked
            If another process has it.
        """
        import fcntl

        if self._file is None or self._file.closed:
            opener = partial(os.open, mode=0o600)
            self._file = FileIO(self._path, "r+", opener=lambda path, flags: opener(path, flags | os.O_CREAT))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            self.close()
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StoreLocked(
                f"{self._path} is held: another process writes to this run; let it finish, or end it, then try again"
            ) from None

    @property
    def handle(self) -> int:
        """The open file."""
        if self._file is None:
            raise ValueError(f"{self._path} is not open")
        return self._file.fileno()

    def close(self) -> None:
        """Let the next writer in. Closing again does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()


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
