"""Blocks of admitted rows: exact Gram matrices from other processes, and entries of a commit log.

A `BlockGram` has a few kilobytes for any number of rows. Its entries are integers, so that sums of blocks are exact:
for every cut of the rows into blocks and every order of summation, the Gram matrix at a release has the same bits, and
so has the release. `BlockCutter` cuts rows where releases are due.

Curator only: a block is an exact function of raw rows, without noise. Its process is trusted like the curator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from streampca.errors import BadParameterError, BadRowError, HorizonReachedError, UsageError
from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import LOW, UNIT_BITS, GramSum, is_plausible
from streampca.linalg.svec import mirror, svec_size, unpack_entries
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.randomness import encoded
from streampca.rows.admission import NO_COUNTS, Admission, Counts
from streampca.rows.people import People
from streampca.rows.protocol import Position

if TYPE_CHECKING:  # processes of a pool do not need these modules
    from streampca.release.release import Release
    from streampca.release.scoring import Scoring

#: Numbers and rows that are admitted at a time, so that the passes over them find them in the cache.
_CHUNK_NUMBERS, _LEAST_CHUNK, _MOST_CHUNK = 2**16, 1024, 4096


@dataclass(frozen=True, eq=False)
class BlockGram:
    """Exact Gram matrix of consecutive admitted rows. Curator only.

    Attributes
    ----------
    high, low : packed upper triangle: units of 1, and units of 2**-40 in [0, 2**40).
    count : number of rows, including bad rows, which are absent from the matrix.
    counts : counts of what admission did to the rows.
    first : number of the first row in the stream, from 1; None if the block may follow any row.
    admission : `admission_mark` of the admission of the rows; "" to skip that check.
    n_features : length of the admitted rows, d.
    """

    high: IntArray
    low: IntArray
    count: int
    counts: Counts = NO_COUNTS
    first: int | None = None
    admission: str = ""
    n_features: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for part in (self.high, self.low):
            if not isinstance(part, np.ndarray) or part.dtype != np.int64 or part.ndim != 1:
                raise UsageError("high, low: expected 1-D arrays of 64-bit integers. Use BlockGram.of")
        object.__setattr__(self, "n_features", (math.isqrt(8 * self.high.size + 1) - 1) // 2)
        if self.high.shape != self.low.shape or svec_size(self.n_features) != self.high.size:
            raise UsageError(
                f"high, low: {self.high.size} and {self.low.size} entries are no packed Gram matrix. Use BlockGram.of"
            )
        bad = self.counts.bad
        if self.count < 1 or not 0 <= bad <= self.count or (self.first is not None and self.first < 1):
            raise UsageError(
                f"count={self.count}, first={self.first}: expected integers of at least 1, and at most count bad rows "
                f"({bad} counted)"
            )
        # A centered row ends with CONSTANT, which changes the range of plausible entries.
        sums = self.high, self.low
        if not any(is_plausible(sums, self.count, self.n_features, constant) for constant in (0.0, CONSTANT)):
            raise BadRowError(None, f"block: no Gram matrix of {self.count} rows of the unit ball. Use Stream.leaves")

    @classmethod
    def of(cls, rows: FloatArray, *, counts: Counts | None = None, first: int | None = None) -> BlockGram:
        """Return the block of admitted rows, (n, d), n >= 1. By default, counts are those of unchanged rows."""
        # Sums of lattice products are integers, so that any order of summation gives these bits.
        high, low = GramSum.of(rows).high_low()
        if counts is None:
            # Squared norms add up to the trace, in integers: 2**UNIT_BITS steps are one unit.
            diagonal = mirror(rows.shape[1]).diagonal()
            counts = Counts(squares=(int(high[diagonal].sum()) << UNIT_BITS) + int(low[diagonal].sum()))
        return cls(high, low, rows.shape[0], counts, first)

    def check(self, admission: Admission, first: int) -> None:
        """Raise `UsageError` unless the block has this admission and may begin at row ``first``."""
        if self.first is not None and self.first != first:
            raise BadParameterError("first", self.first, f"row {first}", advice="Push each block once, in order")
        # A block of another admission would have another sensitivity, whatever its sums look like.
        expected = admission.admitted_features
        if expected is not None and self.n_features != expected:
            raise UsageError(f"block: {self.n_features} features, expected {expected}")
        if self.admission and self.admission != admission_mark(admission):
            raise UsageError("block: admitted with other settings or by another version. Cut rows with stream.leaves()")

    def then(self, other: BlockGram) -> BlockGram:
        """Join this block and the following one. Exact and associative.

        Raises
        ------
        UsageError
            If the other block has other features or another admission, or does not begin where this one ends.
        """
        if other.high.size != self.high.size or other.admission != self.admission:
            raise BadParameterError("block", ..., "a block of the same features and the same admission")
        following = None if self.first is None else self.first + self.count
        if other.first != following:
            raise BadParameterError("first", other.first, str(following), advice="Join blocks in order")
        low = self.low + other.low
        # Carry the low parts, so that they stay below one unit.
        return replace(
            self, high=self.high + other.high + (low >> UNIT_BITS), low=low & LOW,
            count=self.count + other.count, counts=self.counts.plus(other.counts),
        )  # fmt: skip

    def rewards(self, scoring: Scoring) -> float:
        """Return the sum of the rewards of the rows, equal to that of single rows up to rounding."""
        return block_reward(self.high, self.low, self.n_features, scoring)


def block_reward(high: IntArray, low: IntArray, n_features: int, scoring: Scoring) -> float:
    """Return the sum of the rewards of rows with an exact packed Gram matrix."""
    # One subspace V scores all rows of a block, which crosses no release: their rewards sum to tr(V^T G V).
    gram = unpack_entries(high + low * 2.0**-UNIT_BITS, n_features)
    total = float(np.einsum("ij,ij->", scoring.basis, gram @ scoring.basis))
    if scoring.linear is not None:
        # The last row of G is the constant times the sum of the rows.
        total += 2.0 / CONSTANT * float(gram[-1] @ scoring.linear)
    return total


def chunk_rows(n_features: int) -> int:
    """Return how many rows are admitted at a time. Each call has the overhead of some hundred numbers a feature."""
    return min(_MOST_CHUNK, max(_LEAST_CHUNK, _CHUNK_NUMBERS // n_features))


@lru_cache(maxsize=8)  # keyed by identity: an admission is immutable, and a driver needs its mark for each block
def admission_mark(admission: Admission) -> str:
    """Return a digest of the map from rows to the unit ball: equal if every good row has the same image. Public."""
    # The digest covers the version of the admission code: another version may round differently.
    # `settings` lack the bounds that were found, which are part of the map.
    found = () if admission.found is None else tuple(tuple(side.tolist()) for side in admission.found)
    return blake2b(encoded(admission.settings, admission.features, *found), digest_size=8).hexdigest()


class Entry(NamedTuple):
    """Rows or a block that a stream has absorbed, as a commit log keeps them. As secret as the rows."""

    first: int
    count: int  # type: ignore[assignment]
    rows: FloatArray | None  #: admitted rows, (count, d); None for a block or no rows
    block: BlockGram | None
    counts: Counts = NO_COUNTS
    fresh: tuple[bytes, ...] = ()  #: 16 fresh bytes for each vector of noise drawn for it
    link: bytes = b""  #: chain value after it
    release: Release | None = None  #: the release that it completed
    #: Or "finish", "generation" where the run continued as another one, or those of `streampca.stream.periods`.
    kind: str = "rows"
    position: Position | None = None  #: of the source after it; None if unknown
    people: People | None = None  #: of the stream after it, with the states that it changed


class CommitLog(Protocol):
    """Log that makes the rows of one stream durable before their releases are returned."""

    @property
    def room(self) -> int | None:
        """Number of single rows that may wait before the next commit; None for no limit."""

    def position(self, *, durable: bool) -> Position | None:
        """Return the position of the source after the rows in the log, or after the durable ones; None if unknown."""

    def check(self) -> bool:
        """Return whether a commit is overdue; raise if the log accepts no more entries. Called before rows."""

    def append(self, entry: Entry) -> None:
        """Keep an entry, in place of any earlier entries from its first row on."""

    def appended(self) -> None:
        """Commit if it is time. Called after the stream has absorbed the entry."""

    def hold(self, t: int) -> None:
        """Return once the first t rows and their releases are durable."""

    def close(self) -> None:
        """Commit all rows and close the store."""


@dataclass(frozen=True)
class BlockCutter:
    """Public settings that cut rows into blocks where releases are due, in any process. See `Stream.leaves`."""

    admission: Admission  #: of single rows; its features are fixed
    release_every: int  #: rows between releases
    horizon: int | None = None  #: maximum number of rows

    def due(self, rows: int) -> int:
        """Return the maximum size of the block after ``rows`` rows; `HorizonReachedError` if no row is left."""
        size = self.release_every - rows % self.release_every
        if self.horizon is not None:
            size = min(size, self.horizon - rows)
        if size < 1:
            raise HorizonReachedError(f"horizon={self.horizon}: no row is left, and the noise is calibrated for it")
        return size

    def blocks(self, chunks: Iterable[FloatArray], rows: int, bad: list[int] | None = None) -> Iterator[BlockGram]:
        """Yield the blocks of raw rows, in chunks of any size, that follow the first ``rows`` rows of the stream.

        The number of the first bad row is appended to ``bad``.

        The first and the last block may be shorter than a full one: sums are exact, so that another process may
        contribute the rows before or after them. Raises `BadRowError` for rows with another number of features, and
        `HorizonReachedError` past the horizon.
        """
        # Blocks end where releases are due, so that no block has to be split after it was summed.
        mark = admission_mark(self.admission)
        gram, first, counts = None, rows + 1, NO_COUNTS
        most = chunk_rows(self.admission.known_features())
        for chunk in chunks:
            for start in range(0, len(chunk), most):
                admitted, marks = self.admission.block(chunk[start : start + most], rows + 1)
                if bad is not None and not bad and marks.reasons is not None:
                    bad.append(rows + 1 + int(np.argmax(marks.reasons >= 0)))
                place = 0
                while place < len(admitted):
                    size = min(len(admitted) - place, self.due(rows))
                    part = admitted[place : place + size]
                    counts = counts.plus(marks.counts(place, place + size))
                    gram = (gram or GramSum(part.shape[1])).add(part)
                    rows, place = rows + size, place + size
                    if rows == self.horizon or rows % self.release_every == 0:
                        yield BlockGram(*gram.high_low(), rows + 1 - first, counts, first, mark)
                        gram, first, counts = None, rows + 1, NO_COUNTS
        if gram is not None:
            yield BlockGram(*gram.high_low(), rows + 1 - first, counts, first, mark)
