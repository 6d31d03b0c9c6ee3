"""The window once: released at one known row, with the noise of one release."""

from __future__ import annotations

from typing import Any

from streampca.linalg.lattice import GramAccumulator
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream
from streampca.processors.window_engine import WindowEngine, WindowView


class OnceEngine(WindowEngine):
    """Adds up the last rows before a known end; one Gaussian mechanism, nothing composes.

    The start of the window is public arithmetic on public numbers; it is never picked by looking at data.

    Parameters
    ----------
    n_features : side of the matrix.
    first, last : rows of the window.
    sigma : sd of the noise, sensitivity / mu.
    noise : where the randomness comes from.
    """

    def __init__(self, n_features: int, first: int, last: int, sigma: float, noise: NoiseStream) -> None:
        self._gram = GramAccumulator(n_features)
        self._first, self._last, self._sigma, self._noise = first, last, sigma, noise
        self._t = 0

    def add(self, rows: FloatArray) -> None:
        """Take admitted rows; those before the window are passed over."""
        skip = min(max(self._first - 1 - self._t, 0), rows.shape[0])
        self._t += rows.shape[0]
        if skip < rows.shape[0]:
            self._gram.add(rows[skip:])

    def look(self, t: int) -> WindowView:
        """The private Gram matrix of the window, at its end."""
        noise = self._sigma * self._noise.normal(0, svec_size(self._gram.n_features))
        return WindowView(self._gram.noisy(noise, self._sigma), self._sigma, self._first, {"window": [self._first, t]})

    @property
    def nbytes(self) -> int:
        """Bytes held for the sum."""
        return 16 * svec_size(self._gram.n_features) + 8 * self._gram.n_features**2

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {"gram": self._gram.state(), "t": self._t}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._gram.restore(state["gram"])
        self._t = int(state["t"])
