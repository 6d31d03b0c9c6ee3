"""Keyed digests of the rows that a run has absorbed: they show whether a file begins with the same rows.

Curator only: the digests are sealed. They are of admitted rows, so a file whose values changed only beyond the public
bounds counts as the same file. The digest of rows is a sum over their entries, so that it depends on no blocks, and
continues after a crash from its value:

    sum of c[i, j] * word[i, j]  mod 2**64,    c[i, j] uniform, from the key and the place (row i, feature j).

Words are entries in whole numbers of lattice steps, of 32 bits. Rows that differ in a place have different digests but
for a probability of 2**-33: a uniform number times a difference d of two words is uniform but for the factors 2 of d.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streampca.errors import UsageError
from streampca.linalg.lattice import STEP
from streampca.linalg.types import FloatArray

#: Number of first rows of a session whose digest is kept.
HEAD = 64
_CHUNK = 4096  # rows that are added together: the coefficients take twice the memory of the words


class TakenRows(NamedTuple):
    """Digests of the rows of a run: an immutable value."""

    rows: int = 0  #: number of rows
    total: int = 0  #: digest of all rows
    #: first row, from 0, of each session (the first one, and one for each `Stream.resume`), and the digest of its
    #: first `HEAD` rows
    heads: Sequence[tuple[int, int]] = ()
    known: bool = True  #: False if some rows arrived as a sum, so that their values are unknown

    def resumed(self) -> TakenRows:
        """Return the digests at the beginning of another session."""
        same = bool(self.heads) and self.heads[-1][0] == self.rows  # a session without rows
        return self if same else self._replace(heads=[*self.heads, (self.rows, 0)])

    def after(self, key: bytes, groups: Iterable[tuple[int, Any]]) -> TakenRows:
        """Return the digests after more rows, as their number and words; None stands for a sum of rows."""
        count, total, known = self.rows, self.total, self.known
        start, head = self.heads[-1]
        for size, words in groups:
            if words is not None:
                total += digest_of(key, words, count)
                if (missing := start + HEAD - count) > 0:
                    head += digest_of(key, words[:missing], count)
            known = known and (words is not None or size == 0)
            count += size
        return TakenRows(count, total % 2**64, [*self.heads[:-1], (start, head % 2**64)], known)


def words_of(rows: FloatArray) -> Any:
    """Return admitted rows in whole numbers of lattice steps, int32."""
    words = np.empty(rows.shape, dtype="<i4")
    np.multiply(rows, 1.0 / STEP, out=words, casting="unsafe")
    return words


def digest_of(key: bytes, words: Any, first: int) -> int:
    """Return the digest of consecutive rows; ``first`` is the number of rows before them."""
    draws = -(-words.shape[1] // 4)  # a counter of Philox gives four numbers of 64 bits
    # Seekable: numbers are a function of key and counter, so that rows can be added in any blocks.
    secret, total = int.from_bytes(key[:16], "little"), 0
    for start in range(0, len(words), _CHUNK):
        part = words[start : start + _CHUNK]
        uniform = np.random.Philox(counter=(first + start) * draws, key=secret).random_raw(4 * draws * len(part))
        # Unused numbers of the last counter are skipped, so that each row begins at a counter of its own.
        factors = uniform.reshape(len(part), 4 * draws)[:, : part.shape[1]]
        total += int(np.einsum("ij,ij->", factors, part.astype(np.int64).view(np.uint64)))  # wraps at 2**64
    return total


@dataclass(eq=False, repr=False)
class PassedRows:
    """Check of the first rows of a file, which a resumed run has absorbed already and skips."""

    HEAD = HEAD

    _key: bytes
    _taken: TakenRows
    _total: int = field(default=0, init=False)
    count: int = field(default=0, init=False)  #: number of rows skipped so far

    def take(self, admitted: FloatArray) -> None:
        """Skip rows. Raise `UsageError` after the last of them if they are not the rows of the run."""
        self._total += digest_of(self._key, words_of(admitted), self.count)
        self.count += len(admitted)
        taken = self._taken
        if taken.known and self.count == taken.rows and self._total % 2**64 != taken.total:
            raise UsageError(
                f"the first {taken.rows} rows of the file are not the rows that the run has taken (another file, order "
                "or column). Give the file of the run"
            )

    def check_next(self, admitted: FloatArray) -> None:
        """Raise `UsageError` if a continuation file begins with rows that the run has absorbed already."""
        words = words_of(admitted[:HEAD])
        if len(words) < HEAD or (words == words[0]).all():
            return  # equal rows begin many files, and identify none
        for start, head in self._taken.heads:
            if digest_of(self._key, words, start) % 2**64 == head:
                raise UsageError(
                    f"the file begins with the rows that the run has taken from row {start + 1} on, which would count "
                    "twice. Omit --continues for the whole file, or give the file that comes next"
                )
