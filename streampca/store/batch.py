"""What one commit will write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.blocks import BlockGram
from streampca.linalg.lattice import STEP
from streampca.linalg.types import FloatArray
from streampca.release import Release
from streampca.store.records import ReleaseRecords

Rows = npt.NDArray[np.int32]

#: Large records are cut into pieces of so many bytes.
PIECE = 2**18
_GROUP = 2**20  # of releases


@dataclass
class Batch:
    """Rows, releases and all else that goes into one commit.

    Attributes
    ----------
    pieces : rows as whole numbers of lattice steps, and blocks, in order.
    count, bad : rows in them, and how many were bad.
    kept : bytes that the pieces take in the log.
    size : bytes of memory in all.
    releases : the releases that the rows brought about.
    state : the state after the rows, if a snapshot is to be taken.
    config : the configuration, if it is not stored yet.
    epoch : a note to store, see `Store.in_one_commit`.
    """

    pieces: list[Rows | BlockGram] = field(default_factory=list)
    count: int = 0
    bad: int = 0
    kept: int = 0
    size: int = 0
    releases: list[Release] = field(default_factory=list)
    state: dict[str, Any] | None = None
    config: str | None = None
    epoch: dict[str, Any] | None = None

    def add_rows(self, rows: FloatArray, bad: int, releases: list[Release]) -> None:
        """Take admitted rows, and the releases they brought about."""
        if rows.shape[0]:
            words = np.empty(rows.shape, dtype=np.int32)
            np.multiply(rows, 1.0 / STEP, out=words, casting="unsafe")
            self.pieces.append(words)
        self.bad += bad
        self._count(rows.shape[0], 4 * rows.size, releases)

    def add_block(self, block: BlockGram, release: Release | None) -> None:
        """Take a block, and the release it brought about."""
        self.pieces.append(block)
        self._count(block.count, 2 * block.high.nbytes, [] if release is None else [release])

    def _count(self, rows: int, size: int, releases: list[Release]) -> None:
        self.count += rows
        self.kept += size
        self.releases += releases
        self.size += size + sum(map(_size, releases))

    def words(self) -> Iterator[npt.NDArray[Any]]:
        """What the pieces are made of, an array each."""
        for piece in self.pieces:
            yield np.stack([piece.high, piece.low]) if isinstance(piece, BlockGram) else piece

    def records(self, first: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """The pieces as records, each with its first row and its number of rows. ``first`` is the first row of all."""
        bad = self.bad
        for is_block, pieces in groupby(self.pieces, lambda piece: isinstance(piece, BlockGram)):
            if is_block:
                for block in pieces:
                    assert isinstance(block, BlockGram)
                    yield first, block.count, {"high": block.high, "low": block.low, "bad": block.bad}
                    first += block.count
            else:
                whole = np.concatenate(list(pieces))
                take = max(1, PIECE // (4 * max(1, whole.shape[1])))
                for start in range(0, len(whole), take):
                    rows = whole[start : start + take]
                    yield first, len(rows), {"rows": rows, "bad": bad}
                    first, bad = first + len(rows), 0

    def release_records(self, make: ReleaseRecords, features: tuple[str, ...] | None) -> Iterator[tuple[int, bytes]]:
        """The releases as records, each with the row of its last release."""
        group: list[Release] = []
        size = 0
        for release in self.releases:
            group.append(release)
            size += _size(release)
            if size >= _GROUP:
                yield release.t, make.group(group, features)
                group, size = [], 0
        if group:
            yield group[-1].t, make.group(group, features)


def _size(release: Release) -> int:
    return sum(array.nbytes for array in (release._packed, release._basis) if array is not None)
