"""Digests of the rows that a run has taken: they tell whether a file begins with the same rows. Curator only.

Digests are keyed with the key of the run, and tell nothing without it. They are of admitted rows, so a file
whose values changed beyond the public bounds is the same file.
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

#: Rows that are hashed together at most.
PART = 4096
#: First rows of a session that are remembered.
HEAD = 64


class Sessions(NamedTuple):
    """Digests of the rows of a run, by session."""

    starts: Sequence[int] = ()  #: rows before each session: 0, and wherever the run was resumed
    #: digest of the first `HEAD` rows of each session; empty if it has fewer, or if they are all the same
    heads: Sequence[str] = ()
    digest: str = ""  #: of all rows
    known: bool = True  #: False where some rows came as a sum, whose rows are not known


class RowDigest:
    """Digest of rows in order, however they are cut into blocks.

    Each part is hashed together with the digest before it. Parts end at multiples of `PART` rows, and at ``ends``.
    """

    def __init__(self, key: bytes, digest: str = "", rows: int = 0, ends: Sequence[int] = (), part: Any = None) -> None:
        self.rows = rows
        self._key, self._ends = key, list(ends)
        self._part = self._begin(digest) if part is None else part
        self._end_parts()

    def take(self, words: Any) -> None:
        """Take rows as whole numbers of lattice steps."""
        while len(words):
            end = self.rows - self.rows % PART + PART
            count = min(len(words), (min(end, self._ends[0]) if self._ends else end) - self.rows)
            self._part.update(words[:count].data)
            words, self.rows = words[count:], self.rows + count
            if self.rows == end:
                self._part = self._begin(self._part.hexdigest())
            self._end_parts()

    def value(self) -> str:
        """The digest of all rows so far."""
        return str(self._part.hexdigest())

    def copy(self) -> RowDigest:
        """The same digest, which goes on by itself."""
        return RowDigest(self._key, rows=self.rows, ends=self._ends, part=self._part.copy())

    def _end_parts(self) -> None:
        while self._ends and self._ends[0] == self.rows:
            self._part = self._begin(self._part.hexdigest())
            del self._ends[0]

    def _begin(self, digest: str) -> Any:
        return blake2b(digest.encode(), key=self._key, digest_size=16)


class TakenRows:
    """Digests of the rows of a run, while a session takes more after the first ``rows``."""

    def __init__(self, key: bytes, before: Sessions, rows: int) -> None:
        self._key, self._digest = key, RowDigest(key, before.digest, rows)
        self._before, self._start, self._head = before, rows, np.empty((0, 0), dtype="<i4")
        self._known = before.known and (rows == 0 or bool(before.digest))

    def after(self, entries: Sequence[FloatArray | None]) -> TakenRows:
        """The same after more rows; None stands for a sum of rows."""
        digest, known, head = self._digest.copy(), self._known, self._head
        for rows in entries:
            if rows is None:
                known = False
                continue
            words = words_of(rows)
            digest.take(words)
            if len(head) < HEAD:
                more = words[: HEAD - len(head)]
                head = np.concatenate([head, more]) if len(head) else more
        made = copy(self)
        vars(made).update(_digest=digest, _known=known, _head=head)
        return made

    def sessions(self) -> Sessions:
        """The digests, this session's among them."""
        before = self._before
        return Sessions(
            (*before.starts, self._start), (*before.heads, head_of(self._key, self._head)), self._digest.value(),
            self._known,
        )  # fmt: skip


def words_of(rows: FloatArray) -> Any:
    """Admitted rows as whole numbers of lattice steps, int32."""
    words = np.empty(rows.shape, dtype="<i4")
    np.multiply(rows, 1.0 / STEP, out=words, casting="unsafe")
    return words


def head_of(key: bytes, words: Any) -> str:
    """Digest of the first `HEAD` rows; empty if there are fewer, or if they are all the same."""
    head = words[:HEAD]
    if len(head) < HEAD or np.array_equal(head, np.broadcast_to(head[0], head.shape)):
        return ""
    return blake2b(np.ascontiguousarray(head).data, key=key, digest_size=16).hexdigest()


class PassedRows:
    """The first ``rows`` rows of a file, which a resumed run has taken already, as they are passed over."""

    HEAD = HEAD

    def __init__(self, key: bytes, kept: Sessions, rows: int) -> None:
        self._key, self._kept, self._rows = key, kept, rows
        self._digest = RowDigest(key, ends=kept.starts[1:])

    @property
    def count(self) -> int:
        """Rows that were passed over."""
        return self._digest.rows

    def take(self, admitted: FloatArray) -> None:
        """Take rows that are passed over.

        Raises `BadParameterError` if these were the last of them, and the rows are not those that the run has taken.
        """
        self._digest.take(words_of(admitted))
        if self._kept.known and self._digest.rows == self._rows and self._digest.value() != self._kept.digest:
            raise BadParameterError(
                f"the first {self._rows} rows of the file are not the rows that the run has taken (another file, order "
                "or column); give the file of the run"
            )

    def check_next(self, admitted: FloatArray) -> None:
        """Check the first rows of a file that is said to begin with the next row.

        Raises `BadParameterError` if a session of the run began with the same rows, so that they would count twice.
        """
        head = head_of(self._key, words_of(admitted))
        if head and head in self._kept.heads:
            at = self._kept.starts[list(self._kept.heads).index(head)] + 1
            raise BadParameterError(
                f"the file begins with the rows that the run has taken from row {at} on, which would count twice; "
                "leave out --continues if it is the whole file, or give the file that comes next"
            )
