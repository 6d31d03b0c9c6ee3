"""Keyed digests of the rows that a run has absorbed: they show whether a file begins with the same rows.

Curator only. Without the key of the run, a digest reveals nothing. Digests are of admitted rows, so a file whose values
changed only beyond the public bounds counts as the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.lattice import STEP
from streampca.linalg.types import FloatArray

#: Largest number of rows that are hashed together.
PART = 4096
#: Number of first rows of a session whose digest is kept.
HEAD = 64


class Sessions(NamedTuple):
    """Digests of the rows of a run, by session."""

    starts: Sequence[int] = ()  #: rows before each session: 0, and the row of each `Stream.resume`
    #: digest of the first `HEAD` rows of each session; empty if it has fewer, or if they are all the same
    heads: Sequence[str] = ()
    digest: str = ""  #: of all rows
    known: bool = True  #: False if some rows arrived as a sum, so that their values are unknown


class RowDigest:
    """Digest of rows in order. It does not depend on the blocks in which the rows arrive.

    Each part is hashed together with the digest before it. Parts end at multiples of `PART` rows, and at ``ends``.
    """

    def __init__(self, key: bytes, digest: str = "", rows: int = 0, ends: Sequence[int] = ()) -> None:
        self._key, self.rows, self.ends = key, rows, list(ends)
        self.part = self._begin(digest)
        self.take(())

    def take(self, words: Any) -> None:
        """Absorb rows in whole numbers of lattice steps."""
        while True:
            # A session begins from the stored digest, because the state of a hash cannot be stored. Several sessions
            # may begin at one row.
            while self.ends and self.ends[0] == self.rows:
                self.part = self._begin(self.part.hexdigest())
                del self.ends[0]
            if not len(words):
                return
            end = self.rows - self.rows % PART + PART
            count = min(len(words), min([end, *self.ends[:1]]) - self.rows)
            self.part.update(words[:count].data)
            words, self.rows = words[count:], self.rows + count
            if self.rows == end:
                self.part = self._begin(self.part.hexdigest())

    def copy(self) -> RowDigest:
        """Return an independent copy."""
        made = copy(self)
        made.part, made.ends = self.part.copy(), list(self.ends)
        return made

    def _begin(self, digest: str) -> Any:
        return blake2b(digest.encode(), key=self._key, digest_size=16)


class TakenRows:
    """Digests of the rows of a run during a session that begins after ``rows`` rows: an immutable value."""

    def __init__(self, key: bytes, before: Sessions, rows: int) -> None:
        self._key, self.digest = key, RowDigest(key, before.digest, rows)
        self._before, self._start, self.head = before, rows, np.empty((0, 0), dtype="<i4")
        self.known = before.known and (rows == 0 or bool(before.digest))

    def after(self, entries: Sequence[FloatArray | None]) -> TakenRows:
        """Return the digests after more rows; None stands for a sum of rows."""
        made = copy(self)
        made.digest = self.digest.copy()
        for rows in entries:
            if rows is None:
                made.known = False
                continue
            words = words_of(rows)
            made.digest.take(words)
            if (missing := HEAD - len(made.head)) > 0:
                head = words[:missing]
                made.head = np.concatenate([made.head, head]) if len(made.head) else head
        return made

    def sessions(self) -> Sessions:
        """Return the digests, including those of this session."""
        before = self._before
        starts, heads = (*before.starts, self._start), (*before.heads, head_of(self._key, self.head))
        return Sessions(starts, heads, self.digest.part.hexdigest(), self.known)


def words_of(rows: FloatArray) -> Any:
    """Return admitted rows in whole numbers of lattice steps, int32."""
    words = np.empty(rows.shape, dtype="<i4")
    np.multiply(rows, 1.0 / STEP, out=words, casting="unsafe")
    return words


def head_of(key: bytes, words: Any) -> str:
    """Return the digest of the first `HEAD` rows; empty if there are fewer, or if they are all the same."""
    head = words[:HEAD]
    if len(head) < HEAD or np.array_equal(head, np.broadcast_to(head[0], head.shape)):
        return ""  # equal rows begin many files, and identify none
    return blake2b(np.ascontiguousarray(head).data, key=key, digest_size=16).hexdigest()


class PassedRows:
    """Check of the first ``rows`` rows of a file, which a resumed run has absorbed already and skips."""

    HEAD = HEAD

    def __init__(self, key: bytes, kept: Sessions, rows: int) -> None:
        self._key, self._kept, self._rows = key, kept, rows
        self._digest = RowDigest(key, ends=kept.starts[1:])

    @property
    def count(self) -> int:
        """Number of rows skipped so far."""
        return self._digest.rows

    def take(self, admitted: FloatArray) -> None:
        """Skip rows. Raise `BadParameterError` after the last of them if they are not the rows of the run."""
        self._digest.take(words_of(admitted))
        if self._kept.known and self.count == self._rows and self._digest.part.hexdigest() != self._kept.digest:
            raise BadParameterError(
                f"the first {self._rows} rows of the file are not the rows that the run has taken (another file, order "
                "or column). Give the file of the run"
            )

    def check_next(self, admitted: FloatArray) -> None:
        """Raise `BadParameterError` if a continuation file begins with rows that the run has absorbed already."""
        head = head_of(self._key, words_of(admitted))
        if head and head in self._kept.heads:
            at = self._kept.starts[list(self._kept.heads).index(head)] + 1
            raise BadParameterError(
                f"the file begins with the rows that the run has taken from row {at} on, which would count twice. "
                "Omit --continues for the whole file, or give the file that comes next"
            )
