"""The spectral histogram of Upadhyay and Upadhyay (2021), Algorithm 6, on exact matrices. Not private."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.lattice import onto_ball
from streampca.linalg.psd import loewner_below
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee

CITATION = "Upadhyay, Upadhyay, ICML 2021"
#: Loewner comparisons allow for rounding by this much.
TOLERANCE = 1e-9


def delete_close(
    starts: list[int], items: list[FloatArray], gram: Callable[[FloatArray], FloatArray], eta: float
) -> None:
    """Algorithms 1 and 6 as printed: for each i, delete all before the last p < len - 1 that is still close to it.

    Parameters
    ----------
    starts, items : checkpoints, oldest first; changed in place.
    gram : of an item, the matrix K that is compared.
    eta : p is close to i if (1 - eta) K(i) <= K(p).
    """
    i = 0
    while i < len(starts) - 2:
        first = (1.0 - eta) * gram(items[i])
        close = [p for p in range(i + 1, len(starts) - 1) if loewner_below(first, gram(items[p]), TOLERANCE)]
        if close:
            del starts[i + 1 : close[-1]], items[i + 1 : close[-1]]
        i += 1


def expire(starts: list[int], items: list[FloatArray], t: int, window: int) -> None:
    """Drop the oldest checkpoint while the next one is at or before the window's start."""
    while len(starts) > 1 and starts[1] <= t - window + 1:
        del starts[0], items[0]


def check(window: int, eta: float) -> None:
    """Raise `BadParameter` unless the window is a count and 0 < eta < 1."""
    if window < 1:
        raise BadParameter(f"window={window!r} must be an integer of at least 1")
    if not 0.0 < eta < 1.0:
        raise BadParameter(f"eta={eta!r} must be between 0 and 1")


class StreamingSpectralHistogram:
    """Algorithm 6 on exact matrices: how well a histogram can do. Not private: curator only.

    With K(1) the matrix of the oldest checkpoint and S the exact Gram matrix
    of the window, ``S <= K(1) <= S / (1 - eta)``.

    Parameters
    ----------
    n_features : number of features.
    window : rows in the window.
    eta : checkpoints within a factor 1 - eta are merged.
    """

    def __init__(self, n_features: int, window: int, eta: float = 0.25) -> None:
        check(window, eta)
        self.n_features, self.window, self.eta = n_features, window, eta
        self.t = 0
        self.starts: list[int] = []
        self._grams: list[FloatArray] = []

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none("exact matrices: nothing is private", f"{CITATION}, Algorithm 6")

    def push(self, row: FloatArray) -> FloatArray:
        """Take a row; the matrix of the oldest checkpoint, (d, d). Raw data."""
        outer = _outer(row)
        self.t += 1
        for gram in self._grams:
            gram += outer
        self.starts.append(self.t)
        self._grams.append(outer)
        expire(self.starts, self._grams, self.t, self.window)
        delete_close(self.starts, self._grams, lambda gram: gram, self.eta)
        return self._grams[0].copy()


def _outer(row: FloatArray) -> FloatArray:
    admitted = onto_ball(np.atleast_2d(row))[0]
    return np.outer(admitted, admitted)
