"""The approximate spectral histogram: which starts of windows to remember.

A window of an endless stream is ``K(i) = P - P_i``, the sum now less the sum
before checkpoint i. Keeping every start costs W matrices. If (1 - eta/2) K(i) is
already below K(j), every start in between is nearly K(i), and is
forgotten; few starts remain (Upadhyay and Upadhyay 2021, after Braverman et al. 2020).

Here the P_i are *private* sums, published as far as privacy is concerned, so all of
this is post-processing: nothing is needed for privacy, and the slack serves accuracy only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streampca.linalg.psd import negative_direction
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.linalg.words import Words, copy, difference, zero

#: A remembered direction counts as a violation if it shows one this large, relative to the matrix.
_CLEAR = 1e-9


class Kept:
    """A whole private sum, in exact words."""

    def __init__(self, words: Words) -> None:
        self.words = words
        #: Bound on the spectral norm of what was left out of it.
        self.error = 0.0

    def since(self, now: Words) -> FloatArray:
        """Packed entries of the sum now less this one."""
        return difference(now, self.words)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.words[0].nbytes + self.words[1].nbytes


class SpectralHistogram:
    """Checkpoints of a stream of private running sums.

    Parameters
    ----------
    n_features : side of the matrices.
    window : rows in the window; the oldest checkpoint is at or before its start.
    eta : deletion keeps a factor 1 - eta/2.
    slack : of a number of rows: additive slack of the deletion test for checkpoints so far apart.
    pin_every : checkpoints at starts 1, 1 + pin_every, ... are never deleted, which bounds how
        far before the window the oldest one may lie.
    """

    def __init__(self, n_features: int, window: int, eta: float, slack: Callable[[int], float], pin_every: int) -> None:
        self.n_features = n_features
        self.starts: list[int] = [1]
        self._window, self._keep, self._slack, self._pin = window, 1.0 - eta / 2.0, slack, pin_every
        self._now = zero(svec_size(n_features))
        self._sums: list[Kept] = [Kept(zero(svec_size(n_features)))]
        # For a checkpoint: the next-but-one start it was compared with, and a direction that forbade deletion.
        self._witness: dict[int, tuple[int, FloatArray]] = {}

    def advance(self, t: int, words: Words) -> None:
        """Take the private sum of the first t rows, and drop what no window needs any more."""
        self._now = words
        while len(self.starts) > 1 and self.starts[1] <= t - self._window + 1:
            self._drop(0)

    def mark(self, t: int) -> None:
        """Remember a checkpoint that starts at row t + 1, and delete those that are no longer needed."""
        self.starts.append(t + 1)
        self._sums.append(self._sum(t + 1))
        self._prune()

    def view(self, i: int) -> FloatArray:
        """K(i): packed entries of the private sum since checkpoint i."""
        return self._sums[i].since(self._now)

    @property
    def error(self) -> float:
        """Bound on the spectral norm of what K(1) misses: 0 if whole sums are kept."""
        return self._sums[0].error

    def is_pinned(self, start: int) -> bool:
        """Whether the checkpoint at this start is never deleted."""
        return (start - 1) % self._pin == 0

    def _sum(self, start: int) -> Kept:
        """The sum now, in the form in which checkpoints keep it."""
        return Kept(copy(self._now))

    def _prune(self) -> None:
        # From the newest backwards: afterwards no three neighbours allow a deletion.
        for i in range(len(self.starts) - 3, -1, -1):
            first = self.view(i)
            while i + 2 < len(self.starts) and not self.is_pinned(self.starts[i + 1]) and self._is_close(i, first):
                self._witness.pop(self.starts[i], None)
                self._drop(i + 1)

    def _drop(self, i: int) -> None:
        self._witness.pop(self.starts[i], None)
        del self.starts[i], self._sums[i]

    def _is_close(self, i: int, first: FloatArray) -> bool:
        """Whether (1 - eta/2) K(i) - slack I is below K(i + 2)."""
        start, other = self.starts[i], self.starts[i + 2]
        gap = unpack_entries(self.view(i + 2) - self._keep * first, self.n_features)
        gap[np.diag_indices_from(gap)] += self._slack(other - start)
        if start in self._witness:
            known, x = self._witness[start]
            # A direction that forbade deletion before most often still does: d**2 work instead of d**3.
            if known == other and float(x @ gap @ x) < -_CLEAR * float(np.abs(np.diagonal(gap)).max()):
                return False
        direction = negative_direction(gap)
        if direction is None:
            return True
        self._witness[start] = (other, direction)
        return False

    @property
    def nbytes(self) -> int:
        """Bytes held for checkpoints."""
        return sum(kept.nbytes for kept in self._sums)

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues. Public, as far as the rows are concerned."""
        return {
            "starts": np.array(self.starts, dtype=np.int64),
            "now": np.array(self._now),
            "sums": np.array([kept.words for kept in self._sums]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.starts = [int(start) for start in state["starts"]]
        self._now = (np.array(state["now"][0]), np.array(state["now"][1]))
        self._sums = [Kept((np.array(high), np.array(low))) for high, low in state["sums"]]
        self._witness = {}
