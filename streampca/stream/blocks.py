"""Blocks of admitted rows: as exact Gram matrices, from other processes, and as entries of a commit log.

A `BlockGram` is a few kilobytes for any number of rows. Its entries
are integers, so adding blocks is exact: for every cut of the rows into blocks
and every order of summation, the Gram matrix at a release has the same
bits, and so has the release. `BlockCutter` cuts rows where releases are due.

Curator only: a block is an exact function of raw rows, without noise. The
maker of blocks is trusted like the curator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from streampca.errors import BadParameterError, BadRowError, HorizonReachedError
from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import LOW, UNIT_BITS, GramSum, is_plausible
from streampca.linalg.svec import mirror, svec_size, unpack_entries
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.randomness import encoded
from streampca.rows.admission import NO_COUNTS, Admission, Counts
from streampca.rows.protocol import Position

if TYPE_CHECKING:  # what processes of a pool do not need
    from streampca.release.release import Release, Scoring

#: Rows that are admitted at a time, so that a leaf of any size takes little memory.
_CHUNK = 4096
#: Whole units up to which an entry is sent as one word: units of 2**-40 fill the rest of its 63 bits.
_ONE_WORD = 2 ** (63 - UNIT_BITS)


@dataclass(frozen=True, eq=False)
class BlockGram:
    """The exact Gram matrix of a run of admitted rows. Curator only.

    Attributes
    ----------
    high, low : the packed upper triangle: units of 1, and units of 2**-40 in [0, 2**40).
    count : rows in it, bad ones that count as zero rows included.
    counts : what admission did to them.
    first : place of its first row in the stream, from 1; None if it may go anywhere.
    admission : what admitted the rows, as `admission_mark` names it; "" if that is not checked.

    Notes
    -----
    The rewards of a block need no terms of their own: while one subspace V is
    in play, they add up to ``tr(V^T G V)`` (`rewards`), and a block that
    crosses no release has one V.
    """

    high: IntArray
    low: IntArray
    count: int
    counts: Counts = NO_COUNTS
    first: int | None = None
    admission: str = ""

    def __post_init__(self) -> None:
        for name in ("high", "low"):
            part = getattr(self, name)
            if not isinstance(part, np.ndarray) or part.dtype != np.int64 or part.ndim != 1:
                raise BadParameterError(f"{name} must be a 1-D array of 64-bit integers; use BlockGram.of")
        if self.high.shape != self.low.shape or svec_size(self.n_features) != self.high.size:
            raise BadParameterError(
                f"high ({self.high.size} entries) and low ({self.low.size}) are no packed Gram matrix; use BlockGram.of"
            )
        if self.count < 1 or not 0 <= self.bad <= self.count or (self.first is not None and self.first < 1):
            raise BadParameterError(
                f"count={self.count}, bad={self.bad}, first={self.first}: a block has at least one row, "
                "no more bad rows than rows, and a place from 1"
            )
        sums = self.high, self.low
        if not any(is_plausible(sums, self.count, self.n_features, constant) for constant in (0.0, CONSTANT)):
            raise BadRowError(
                f"this is no Gram matrix of {self.count} rows of the unit ball; admit rows first (Stream.leaves)"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Half as many bytes to another process, if every entry is below 2**23."""
        rest = self.count, self.counts, self.first, self.admission
        if not -_ONE_WORD <= self.high.min() <= self.high.max() < _ONE_WORD:
            return BlockGram, (self.high, self.low, *rest)
        return _of_words, ((self.high << UNIT_BITS) | self.low, *rest)

    @classmethod
    def of(
        cls, rows: FloatArray, *, counts: Counts | None = None, first: int | None = None, admission: str = ""
    ) -> BlockGram:
        """The block of admitted rows, (n, d), n >= 1. By default, counts are those of rows that needed no change."""
        high, low = GramSum.of(rows).high_low()
        if counts is None:
            at = mirror(rows.shape[1]).diagonal()
            counts = Counts(squares=(int(high[at].sum()) << UNIT_BITS) + int(low[at].sum()))
        return cls(high, low, rows.shape[0], counts, first, admission)

    @property
    def bad(self) -> int:
        """Number of bad rows."""
        return self.counts.bad

    @property
    def n_features(self) -> int:
        """Length of the admitted rows, d."""
        return (math.isqrt(8 * self.high.size + 1) - 1) // 2

    @property
    def block_id(self) -> str:
        """Digest of place, number of rows and Gram matrix: the same for every way of joining blocks.

        Curator only, as the block is.
        """
        head = f"{self.first}|{self.count}|{self.bad}|{self.admission}|".encode()
        return blake2b(head + self.high.tobytes() + self.low.tobytes(), digest_size=16).hexdigest()

    def check(self, admission: Admission, first: int) -> None:
        """Raise `BadParameterError` unless its rows were admitted like this and it may begin at row ``first``."""
        if self.first is not None and self.first != first:
            raise BadParameterError(
                f"a block from row {self.first} given, row {first} is next: blocks come once each, in order"
            )
        expected = admission.admitted_features
        if expected is not None and self.n_features != expected:
            raise BadParameterError(f"a block of {self.n_features} features given, {expected} expected")
        if self.admission and self.admission != admission_mark(admission):
            raise BadParameterError(
                "the block was admitted with other settings or by another version; use stream.leaves()"
            )

    def then(self, other: BlockGram) -> BlockGram:
        """Join this block and the one after it. Exact and associative.

        Raises
        ------
        BadParameterError
            If the other block is of other features, of another admission or from another place.
        """
        if other.high.size != self.high.size or other.admission != self.admission:
            raise BadParameterError("blocks of other features or of another row admission cannot be joined")
        if (self.first is None) != (other.first is None) or (
            self.first is not None and other.first != self.first + self.count
        ):
            raise BadParameterError(
                f"a block from row {other.first} cannot follow one of rows {self.first} to "
                f"{(self.first or 1) + self.count - 1}; join blocks in order"
            )
        low = self.low + other.low
        return replace(
            self,
            high=self.high + other.high + (low >> UNIT_BITS),
            low=low & LOW,
            count=self.count + other.count,
            counts=self.counts.plus(other.counts),
        )

    def rewards(self, scoring: Scoring) -> float:
        """Sum of the rewards of the rows: that of one-by-one scoring up to rounding."""
        gram = unpack_entries(self.high + self.low * 2.0**-UNIT_BITS, self.n_features)
        total = float(np.einsum("ij,ij->", scoring.basis, gram @ scoring.basis))
        if scoring.linear is not None:
            total += 2.0 / CONSTANT * float(gram[-1] @ scoring.linear)
        return total


def _of_words(words: IntArray, *rest: Any) -> BlockGram:
    return BlockGram(words >> UNIT_BITS, words & LOW, *rest)


@lru_cache(maxsize=8)  # by identity: an admission is an immutable value, and a driver asks once a block
def admission_mark(admission: Admission) -> str:
    """A name for the map from rows to the unit ball: equal where every good row is admitted alike. Public.

    It names the version of admission too: executors with another one than the driver's might round otherwise.
    """
    found = () if admission.found is None else tuple(tuple(side.tolist()) for side in admission.found)
    return blake2b(encoded(admission.settings, admission.features, *found), digest_size=8).hexdigest()


class Entry(NamedTuple):
    """Rows or a block that a stream has absorbed, as a commit log keeps them. As secret as the rows.

    Attributes
    ----------
    first : number of its first row.
    count : rows in it.
    rows : admitted rows, (count, d); None for a block.
    block : the block; None for rows.
    counts : what admission did to the rows.
    fresh : 16 fresh bytes for each vector of noise drawn for it.
    link : the chain value after it.
    release : the release that it completed, or None.
    kind : ``"rows"``, ``"finish"``, or ``"generation"`` where the run continued as another one.
    position : position of the source after it (`streampca.rows.protocol.Position`); None if that is not known.
    """

    first: int
    count: int  # type: ignore[assignment]
    rows: FloatArray | None
    block: BlockGram | None
    counts: Counts = NO_COUNTS
    fresh: tuple[bytes, ...] = ()
    link: bytes = b""
    release: Release | None = None
    kind: str = "rows"
    position: Position | None = None


class CommitLog(Protocol):
    """Makes the rows of one stream durable before its releases are returned."""

    @property
    def room(self) -> int | None:
        """Number of single rows that may wait before the next commit; None for no limit."""

    @property
    def position(self) -> Position | None:
        """Position of the source after the rows taken; None if unknown."""

    @property
    def durable_position(self) -> Position | None:
        """Position of the source after the rows that are durable."""

    def check(self) -> bool:
        """Raise if the log takes no more entries; return whether a commit is overdue. Called before rows."""

    def append(self, entry: Entry) -> None:
        """Keep an entry. Entries from its first row on that were kept before are replaced."""

    def appended(self) -> None:
        """Commit if it is time. Called once the stream has absorbed the entry."""

    def hold(self, t: int) -> None:
        """Return once the first t rows and the releases made of them are durable."""


@dataclass(frozen=True)
class BlockCutter:
    """Cuts rows into blocks that end where releases are due, in any process. Made by `Stream.leaves`.

    Attributes
    ----------
    admission : admits each row by itself; its features are settled.
    release_every : rows between releases.
    horizon : rows in the stream, or None.
    """

    admission: Admission
    release_every: int
    horizon: int | None = None

    def due(self, rows: int) -> int:
        """Return the number of rows that the block after the first ``rows`` rows may have.

        Raises
        ------
        HorizonReachedError
            If none.
        """
        left = self.release_every - rows % self.release_every
        if self.horizon is not None:
            left = min(left, self.horizon - rows)
        if left < 1:
            raise HorizonReachedError(f"the horizon of {self.horizon} rows is reached: noise is calibrated for no more")
        return left

    def blocks(self, chunks: Iterable[FloatArray], rows: int) -> Iterator[BlockGram]:
        """Blocks of raw rows, given in chunks of any size, that follow the first ``rows`` rows of the stream.

        The first and the last block may be part of a leaf: what comes before
        or after them is exact, so it can be made elsewhere.

        Raises
        ------
        BadRowError
            If a row is bad and the admission raises.
        HorizonReachedError
            If there are more rows than the horizon allows.
        """
        mark = admission_mark(self.admission)
        gram, first, counts = None, rows + 1, NO_COUNTS
        for chunk in chunks:
            for start in range(0, len(chunk), _CHUNK):
                admitted, marks = self.admission.block(chunk[start : start + _CHUNK], rows + 1)
                at = 0
                while at < len(admitted):
                    take = min(len(admitted) - at, self.due(rows))
                    part = admitted[at : at + take]
                    counts = counts.plus(marks.counts(at, at + take))
                    gram = (gram or GramSum(part.shape[1])).add(part)
                    rows, at = rows + take, at + take
                    if rows == self.horizon or rows % self.release_every == 0:
                        yield BlockGram(*gram.high_low(), rows + 1 - first, counts, first, mark)
                        gram, first, counts = None, rows + 1, NO_COUNTS
        if gram is not None:
            yield BlockGram(*gram.high_low(), rows + 1 - first, counts, first, mark)
