"""The ascent of DP-PCA: a function of private answers alone, so post-processing throughout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.linalg.types import FloatArray
from streampca.mechanisms.mean import ClippedMean

#: Smallest radius and bin: the lattice of the rows.
_FINEST = 2.0**-20
#: Bins are this many (estimated) standard deviations wide.
_WIDTH = 1.2
#: Steps are like c / t with c = 4 / lambda, which suits eigengaps above lambda / 8.
_GAIN = 4.0


class Ascent:
    """A direction on its way to an eigenvector, and what is known of the gradients there.

    Parameters
    ----------
    start : (d,) unit vector, independent of the rows.

    Attributes
    ----------
    direction : (d,) unit vector.
    value : latest private estimate of w^T E[a a^T] w.
    spread, range : private estimates of the gradients' top variance and of
        their largest squared distance from their mean; None where there was no answer.
    guess : gradient that earlier steps predict; ``doubt`` is its squared error, roughly.
    centre, radius : the ball that the next mean clips to.
    """

    def __init__(self, start: FloatArray) -> None:
        self.direction = start
        self.value = 0.0
        self.spread: float | None = None
        self.range: float | None = None
        self.guess = np.zeros(start.size)
        self.doubt = math.inf
        self.centre, self.radius = self.guess, 1.0

    @property
    def width(self) -> float:
        """Width of a bin of the centre's histograms."""
        square = self.spread
        if square is None:
            square = 1.0 if self.range is None else 4.0 * self.range / math.sqrt(self.guess.size)
        return max(_WIDTH * math.sqrt(square), _FINEST)

    def place(self, centre: FloatArray, found: npt.NDArray[np.bool_]) -> None:
        """Set the ball for the mean from a private centre.

        A coordinate keeps the predicted centre if that is believed to be the
        better one and its bin, or the next, is the popular one, or if no bin is.
        Without a range, the ball is the one that holds every gradient.
        """
        width, d = self.width, centre.size
        doubt = d * width**2 / 12.0
        if self.doubt < doubt:
            keep = ~found | (np.abs(centre - self.guess) <= 1.5 * width)
            centre, doubt = np.where(keep, self.guess, centre), self.doubt
        if self.range is None:
            self.centre, self.radius = np.zeros(d), 1.0
        else:
            self.centre, self.radius = centre, min(max(math.sqrt(self.range + doubt), _FINEST), 1.0)

    def move(
        self, gradient: FloatArray, mean: ClippedMean, step: int, used: int, rate: tuple[float, float] | None
    ) -> None:
        """Take a step on a private mean gradient.

        Parameters
        ----------
        gradient : (d,) array.
        mean : where it is from: its number of vectors and its noise.
        step : minibatches before it in this run; ``used``: rows up to its end.
        rate : (c1, c2) for a step of c1 / (c2 + t), or None for `_share`.
        """
        w = self.direction
        along = float(w @ gradient)
        if rate is not None:
            moved = w + gradient * (rate[0] / (rate[1] + step + 1))
        else:
            share = 1.0 if step == 0 else self._share(gradient, along, mean, used)
            moved = (1.0 - share) * along * w + share * gradient
        length = float(np.linalg.norm(moved))
        if length > 0.0:
            self.direction = moved / length
        self.value = along
        self.guess = along * self.direction
        # A gradient says little of one in another direction: after a large move, any guess is bad.
        overlap = float(w @ self.direction)
        strayed = float(np.sum((gradient - self.guess) ** 2) + np.sum(gradient**2) * (1.0 - overlap**2))
        self.doubt = strayed / overlap**2 if overlap > 0.5 else math.inf

    def _share(self, gradient: FloatArray, along: float, mean: ClippedMean, used: int) -> float:
        """How far to go from the direction to the gradient's: 1 is a step of the power method.

        At least ``c / (1 + c)`` with c = 4 times the minibatch's share of all
        rows so far; and as far as is best for a direction whose error is what
        the gradient's angle to it shows beyond the noise in the gradient.
        """
        across = float(gradient @ gradient) - along**2
        if along <= 0.0 or across <= 0.0:
            return 1.0
        noise = gradient.size * (mean.std / mean.count) ** 2 + (self.range or 0.0) / mean.count
        c = _GAIN * mean.count / used
        return max(c / (1.0 + c), 1.0 - noise / across)

    def state(self) -> dict[str, Any]:
        """Arrays and scalars; nan stands for no answer."""
        known = {"value": self.value, "doubt": self.doubt, "radius": self.radius}
        maybe = {"spread": self.spread, "range": self.range}
        arrays = {"direction": self.direction, "guess": self.guess, "centre": self.centre}
        return (
            known
            | {k: math.nan if v is None else v for k, v in maybe.items()}
            | {k: v.copy() for k, v in arrays.items()}
        )

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Ascent:
        """Rebuild from `state`."""
        made = cls(np.array(state["direction"], dtype=np.float64))
        for name in ("guess", "centre"):
            setattr(made, name, np.array(state[name], dtype=np.float64))
        for name in ("value", "doubt", "radius", "spread", "range"):
            number = float(state[name])
            setattr(made, name, None if math.isnan(number) else number)
        return made
