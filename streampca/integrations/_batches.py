"""A release after every batch, for interfaces that are handed batches."""

from __future__ import annotations

from streampca.processors.private_fpl import PrivateFPL


class BatchFPL(PrivateFPL):
    """`PrivateFPL` with one leaf of the mechanism a batch, whatever its size.

    Where batches end must not depend on the rows; then a row is in one leaf,
    moves it by at most the sensitivity, and the guarantee is `PrivateFPL`'s.
    Few large batches have less noise than many small ones.
    """

    _due = 0

    def expect(self, rows: int) -> None:
        """Say how many rows the next batch has. They must follow at once."""
        self._due = self.t + rows

    @property
    def rows_until_release(self) -> int:
        """Rows left of the batch."""
        return self._due - self.t
