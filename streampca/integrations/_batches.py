"""A release after every batch, for interfaces that are handed batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streampca.blocks import Leaves
from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.stream import Stream


@dataclass(frozen=True, kw_only=True)
class BatchFPL(PrivateFPL):
    """`PrivateFPL` with one leaf of the mechanism a batch, whatever its size: each block that is pushed is released.

    Where batches end must not depend on the rows; then a row is in one leaf,
    moves it by at most the sensitivity, and the guarantee is `PrivateFPL`'s.
    Few large batches have less noise than many small ones.
    """

    batches: ClassVar[bool] = True


def push_batch(stream: Stream, rows: FloatArray) -> None:
    """Feed one batch, (n, d) with n >= 1, to a stream of `BatchFPL`: one block, and so one release."""
    leaves = Leaves(stream.admission.settled_by_block(rows), every=stream.t + len(rows))
    for block in leaves.blocks([rows], stream.t):
        stream.push_block(block)
