"""The window exactly: what leaves it is subtracted again, row by row or leaf by leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.linalg.lattice import STEP, GramAccumulator
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.prefix_sums.window import LaggedTwin
from streampca.privacy.randomness import NoiseStream
from streampca.processors.window_engine import WindowEngine, WindowView


class RingEngine(WindowEngine):
    """Exact expiry from a ring of rows, or of leaves' Gram matrices where those are smaller; lagged-twin noise.

    Parameters
    ----------
    mechanism : noise of sums of the last leaves.
    n_features : side of the matrices.
    leaf : rows in a leaf; the window is ``mechanism.window`` leaves.
    noise : where the randomness comes from.
    """

    def __init__(self, mechanism: LaggedTwin, n_features: int, leaf: int, noise: NoiseStream) -> None:
        self._mechanism, self._leaf, self._leaves = mechanism, leaf, mechanism.window
        self._window = GramAccumulator(n_features)
        self._noise = mechanism.start(svec_size(n_features), noise)
        self._ring: _Rows | _Sums
        if leaf * n_features * 4 <= svec_size(n_features) * 16:
            self._ring = _Rows(self._leaves, leaf, n_features)
        else:
            self._ring = _Sums(self._leaves, n_features)
        self._filled = 0  # rows of the open leaf

    def add(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        place = self._noise.n % self._leaves
        if self._filled == 0 and self._noise.n >= self._leaves:
            self._window.add_gram(*self._ring.take_out(place))
        self._ring.put(place, self._filled, rows)
        self._window.add(rows)
        self._filled += rows.shape[0]

    def look(self, t: int) -> WindowView:
        """Close the leaf that ends at row t; the private Gram matrix of exactly the window."""
        self._filled = 0
        noise = self._noise.advance()
        std = self._mechanism.std(self._noise.n)
        first = max(1, t - self._leaves * self._leaf + 1)
        return WindowView(self._window.noisy(noise, std), std, first, {"window": [first, t]})

    @property
    def nbytes(self) -> int:
        """Bytes held for the ring and the exact sum."""
        return self._ring.nbytes + 16 * svec_size(self._window.n_features)

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {
            "window": self._window.state(),
            "noise": self._noise.state(),
            "filled": self._filled,
            "ring": self._ring.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._window.restore(state["window"])
        self._noise.restore(state["noise"])
        self._filled = int(state["filled"])
        self._ring.restore(state["ring"])


class _Rows:
    """A ring of leaves of rows, as 32-bit integers: rows are multiples of 2**-20 in [-1, 1]."""

    def __init__(self, leaves: int, leaf: int, n_features: int) -> None:
        self._rows: npt.NDArray[np.int32] = np.zeros((leaves, leaf, n_features), dtype=np.int32)

    def put(self, place: int, filled: int, rows: FloatArray) -> None:
        self._rows[place, filled : filled + rows.shape[0]] = rows * (1.0 / STEP)

    def take_out(self, place: int) -> tuple[IntArray, IntArray]:
        """The leaf's exact sum, negated."""
        leaf = GramAccumulator(self._rows.shape[2])
        leaf.add(self._rows[place] * STEP)
        high, low = leaf.words()
        return -high, -low

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def state(self) -> dict[str, Any]:
        return {"rows": self._rows.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self._rows[...] = state["rows"]


class _Sums:
    """A ring of leaves' exact Gram matrices."""

    def __init__(self, leaves: int, n_features: int) -> None:
        self._words: IntArray = np.zeros((leaves, 2, svec_size(n_features)), dtype=np.int64)
        self._open = GramAccumulator(n_features)

    def put(self, place: int, filled: int, rows: FloatArray) -> None:
        if filled == 0:
            self._open = GramAccumulator(self._open.n_features)
        self._open.add(rows)
        self._words[place] = self._open.words()

    def take_out(self, place: int) -> tuple[IntArray, IntArray]:
        """The leaf's exact sum, negated."""
        return -self._words[place, 0], -self._words[place, 1]

    @property
    def nbytes(self) -> int:
        return self._words.nbytes

    def state(self) -> dict[str, Any]:
        return {"words": self._words.copy(), "open": self._open.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._words[...] = state["words"]
        self._open.restore(state["open"])
