"""The ascent of one direction: a function of private answers alone, so post-processing throughout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streampca.linalg.types import FloatArray
from streampca.processors.oja_steps import GAIN

#: Smallest radius and bin: the lattice of the rows.
_FINEST = 2.0**-20
#: Bins are this many (estimated) standard deviations wide.
_WIDTH = 1.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Ascent:
    """A direction on its way to an eigenvector, and what is known of the gradients there: an immutable value.

    Attributes
    ----------
    direction : (d,) unit vector.
    guess : gradient that earlier steps predict; ``doubt`` is its squared error, roughly.
    centre, radius : the ball that the next mean clips to.
    value : latest private estimate of w^T E[a a^T] w.
    spread, range : private estimates of the gradients' top variance and of
        their largest squared distance from their mean; None where there was no answer.
    """

    direction: FloatArray
    guess: FloatArray
    centre: FloatArray
    radius: float = 1.0
    doubt: float = math.inf
    value: float = 0.0
    spread: float | None = None
    range: float | None = None

    @classmethod
    def start(cls, direction: FloatArray) -> Ascent:
        """The ascent from a unit vector that is independent of the rows."""
        nowhere = np.zeros(direction.size)
        return cls(direction=direction, guess=nowhere, centre=nowhere)

    @property
    def width(self) -> float:
        """Width of a bin of the centre's histograms."""
        square = self.spread
        if square is None:
            square = 1.0 if self.range is None else 4.0 * self.range / math.sqrt(self.guess.size)
        return max(_WIDTH * math.sqrt(square), _FINEST)

    def placed(self, centre: FloatArray, found: npt.NDArray[np.bool_]) -> Self:
        """The ascent with the ball for the mean set from a private centre.

        A coordinate keeps the predicted centre if that is believed to be the
        better one and its bin, or the next, is the popular one, or if no bin is.
        Without a range, the ball is the one that holds every gradient.
        """
        width, d = self.width, centre.size
        doubt = d * width**2 / 12.0
        if self.range is None:
            return replace(self, centre=np.zeros(d), radius=1.0)
        if self.doubt < doubt:
            keep = ~found | (np.abs(centre - self.guess) <= 1.5 * width)
            centre, doubt = np.where(keep, self.guess, centre), self.doubt
        return replace(self, centre=centre, radius=min(max(math.sqrt(self.range + doubt), _FINEST), 1.0))

    def moved(
        self, gradient: FloatArray, std: float, count: int, step: int, used: int, rate: tuple[float, float] | None
    ) -> Self:
        """The ascent after a step on a private mean gradient.

        Parameters
        ----------
        gradient : (d,) array.
        std, count : sd of the noise in the sum it is the mean of, and the number of vectors in it.
        step : minibatches before it in this run; ``used``: rows up to its end.
        rate : (c1, c2) for a step of c1 / (c2 + t), or None for `_share`.
        """
        w = self.direction
        along = float(w @ gradient)
        if rate is not None:
            moved = w + gradient * (rate[0] / (rate[1] + step + 1))
        else:
            share = 1.0 if step == 0 else self._share(gradient, along, std, count, used)
            moved = (1.0 - share) * along * w + share * gradient
        length = float(np.linalg.norm(moved))
        direction = moved / length if length > 0.0 else w
        guess = along * direction
        # A gradient says little of one in another direction: after a large move, any guess is bad.
        overlap = float(w @ direction)
        strayed = float(np.sum((gradient - guess) ** 2) + np.sum(gradient**2) * (1.0 - overlap**2))
        doubt = strayed / overlap**2 if overlap > 0.5 else math.inf
        return replace(self, direction=direction, value=along, guess=guess, doubt=doubt)

    def _share(self, gradient: FloatArray, along: float, std: float, count: int, used: int) -> float:
        """How far to go from the direction to the gradient's: 1 is a step of the power method.

        At least ``c / (1 + c)`` with c = 4 times the minibatch's share of all
        rows so far; and as far as is best for a direction whose error is what
        the gradient's angle to it shows beyond the noise in the gradient.
        """
        across = float(gradient @ gradient) - along**2
        if along <= 0.0 or across <= 0.0:
            return 1.0
        noise = gradient.size * (std / count) ** 2 + (self.range or 0.0) / count
        c = GAIN * count / used
        return max(c / (1.0 + c), 1.0 - noise / across)

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays that `restored` continues from."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any]) -> Ascent:
        """The ascent of a snapshot."""
        return cls(**snapshot)
