"""Blocks of admitted rows as exact Gram matrices: what other processes send to the one that makes releases.

A `BlockGram` is a few kilobytes, whatever the number of rows in it. Its words
are integers, so adding blocks is exact: however rows are cut into blocks, and
whoever sums them in which order, the Gram matrix at a release has the same
bits, and so has the release. `Leaves` cuts rows where releases are due.

Curator only: a block is an exact function of raw rows, without noise. Who
makes blocks is trusted as the curator is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from streampca.admission import Admission
from streampca.errors import BadParameter, BadRow, HorizonReached
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray, IntArray
from streampca.linalg.words import LOW, UNIT_BITS, is_plausible
from streampca.privacy.randomness import encoded

#: Rows that are admitted at a time, so that a leaf of any size takes little memory.
_PIECE = 4096


@dataclass(frozen=True, eq=False)
class BlockGram:
    """The exact Gram matrix of a run of admitted rows. Curator only.

    Attributes
    ----------
    high, low : the packed upper triangle: units of 1, and units of 2**-40 in [0, 2**40).
    count : rows in it, bad ones that count as zero rows included.
    bad : how many of them were bad.
    first : place of its first row in the stream, from 1; None if it may go anywhere.
    gate : what admitted the rows, as `admission_mark` names it; "" if that is not checked.

    Notes
    -----
    The rewards of a block need no terms of their own: while one subspace V is
    in play, they add up to ``tr(V^T G V)`` (`rewards`), and a block that
    crosses no release has one V.
    """

    high: IntArray
    low: IntArray
    count: int
    bad: int = 0
    first: int | None = None
    gate: str = ""

    def __post_init__(self) -> None:
        for name in ("high", "low"):
            words = getattr(self, name)
            if not isinstance(words, np.ndarray) or words.dtype != np.int64 or words.ndim != 1:
                raise BadParameter(f"{name} must be a 1-D array of 64-bit integers; use BlockGram.of")
        if self.high.shape != self.low.shape or svec_size(self.n_features) != self.high.size:
            raise BadParameter(
                f"words of {self.high.size} and {self.low.size} entries are no packed Gram matrix; use BlockGram.of"
            )
        if self.count < 1 or not 0 <= self.bad <= self.count or (self.first is not None and self.first < 1):
            raise BadParameter(
                f"count={self.count}, bad={self.bad}, first={self.first}: a block has at least one row, "
                "no more bad rows than rows, and a place from 1"
            )
        if not is_plausible((self.high, self.low), self.count, self.n_features):
            raise BadRow(
                f"this is no Gram matrix of {self.count} rows of the unit ball; admit rows first (Stream.leaves)"
            )

    @classmethod
    def of(cls, rows: FloatArray, *, bad: int = 0, first: int | None = None, gate: str = "") -> BlockGram:
        """The block of admitted rows, (n, d) with n >= 1."""
        return cls(*GramSum.of(rows).words(), rows.shape[0], bad, first, gate)

    @property
    def n_features(self) -> int:
        """Length of the admitted rows, d."""
        return (math.isqrt(8 * self.high.size + 1) - 1) // 2

    @property
    def block_id(self) -> str:
        """Digest of place, number of rows and Gram matrix: the same whoever made the block, and out of what pieces.

        Curator only, as the block is.
        """
        head = f"{self.first}|{self.count}|{self.bad}|{self.gate}|".encode()
        return blake2b(head + self.high.tobytes() + self.low.tobytes(), digest_size=16).hexdigest()

    def then(self, other: BlockGram) -> BlockGram:
        """Join this block and the one after it. Exact and associative.

        Raises
        ------
        BadParameter
            If the other block is of other features, of another gate or from another place.
        """
        if other.high.size != self.high.size or other.gate != self.gate:
            raise BadParameter("blocks of other features or of another row gate cannot be joined")
        if (self.first is None) != (other.first is None) or (
            self.first is not None and other.first != self.first + self.count
        ):
            raise BadParameter(
                f"a block from row {other.first} cannot follow one of rows {self.first} to "
                f"{(self.first or 1) + self.count - 1}; join blocks in order"
            )
        low = self.low + other.low
        return replace(
            self,
            high=self.high + other.high + (low >> UNIT_BITS),
            low=low & LOW,
            count=self.count + other.count,
            bad=self.bad + other.bad,
        )

    def rewards(self, scoring: FloatArray) -> float:
        """Sum of ||V^T a||**2 over the rows, for a basis of d rows: that of one-by-one scoring up to rounding."""
        gram = unpack_entries(self.high + self.low * 2.0**-UNIT_BITS, self.n_features)
        return float(np.einsum("ij,ij->", scoring, gram @ scoring))


def admission_mark(admission: Admission) -> str:
    """A name for the map from rows to the unit ball: equal where every good row is admitted alike. Public.

    It names the version of admission too: executors with another one than the driver's might round otherwise.
    """
    return blake2b(encoded(admission.settings, admission.features), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Leaves:
    """Cuts rows into blocks that end where releases are due. Travels to other processes; `Stream.leaves` makes it.

    Attributes
    ----------
    gate : admits each row by itself; its features are settled.
    every : rows between releases.
    horizon : the last row, or None.
    """

    gate: Admission
    every: int
    horizon: int | None = None

    def due(self, rows: int) -> int:
        """How many rows the block after so many rows may have.

        Raises
        ------
        HorizonReached
            If none.
        """
        left = self.every - rows % self.every
        if self.horizon is not None:
            left = min(left, self.horizon - rows)
        if left < 1:
            raise HorizonReached(f"the horizon of {self.horizon} rows is reached: noise is calibrated for no more")
        return left

    def blocks(self, pieces: Iterable[FloatArray], rows: int) -> Iterator[BlockGram]:
        """Blocks of raw rows, given in pieces of any size, that come after the first ``rows`` rows of the stream.

        The first and the last block may be part of a leaf: what comes before
        or after them is exact, so it can be made elsewhere.

        Raises
        ------
        BadRow
            If a row is bad and the gate raises.
        HorizonReached
            If there are more rows than the horizon allows.
        """
        mark = admission_mark(self.gate)
        gram, first, bad = None, rows + 1, 0
        for piece in pieces:
            for start in range(0, len(piece), _PIECE):
                admitted, worse = self.gate.block(piece[start : start + _PIECE], rows + 1)
                at = 0
                while at < len(admitted):
                    take = min(len(admitted) - at, self.due(rows))
                    part = admitted[at : at + take]
                    bad += _bad_among(piece[start + at : start + at + take]) if worse else 0
                    gram = (gram or GramSum(part.shape[1])).add(part)
                    rows, at = rows + take, at + take
                    if rows == self.horizon or rows % self.every == 0:
                        yield BlockGram(*gram.words(), rows + 1 - first, bad, first, mark)
                        gram, first, bad = None, rows + 1, 0
        if gram is not None:
            yield BlockGram(*gram.words(), rows + 1 - first, bad, first, mark)


def _bad_among(rows: FloatArray) -> int:
    return int((~np.isfinite(np.asarray(rows, dtype=np.float64)).all(axis=1)).sum())
