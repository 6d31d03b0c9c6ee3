"""Questions to the planner, validated. Public numbers and guesses only: no row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.centering import MEAN_WEIGHT
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, Budget

#: Named guesses: the eigenvalues of the mean of a a^T, up to their sum.
SHAPES = ("decaying", "steep", "flat", "spiked")
#: Mean squared norm of rows, in units of row_norm**2, where nothing better is known.
TYPICAL_SQUARE = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """A stream to plan for.

    Parameters
    ----------
    n_rows, n_features, n_components : n, d and k.
    epsilon, delta, adjacency : the budget.
    window : rows in the window, for a subspace of the last rows; by default of all rows.
    release_every : rows between releases; by default the planner chooses. At
        least ``n_rows`` means one release, of all rows.
    center : whether algorithms that can take the mean out (`linalg.centering`) do, as on the command line.
    guess : eigenvalues of the mean of a a^T in units of row_norm**2, with ``center`` about the mean
        (descending; the rest are 0), or a guess by name: ``"decaying"`` (1/j),
        ``"steep"`` (1/j**2), ``"flat"`` or ``"spiked"`` (k equal ones over a tenth of the variance).
    row_norm : norm onto which rows will be scaled.
    typical_norm : public guess of the norm of a typical row, for advice on
        row_norm, for the scale of a named spectrum and, where eigenvalues are given, for the length of the mean.

    Attributes
    ----------
    spectrum : (d,) guessed eigenvalues of the mean of a a^T, descending, in units of row_norm**2.
    assumed : where they come from, in words.
    """

    n_rows: int
    n_features: int
    n_components: int
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"
    window: int | None = None
    release_every: int | None = None
    center: bool = True
    guess: str | Sequence[float] | FloatArray = "decaying"
    row_norm: float = 1.0
    typical_norm: float | None = None
    spectrum: FloatArray = field(init=False)
    assumed: str = field(init=False)

    def __post_init__(self) -> None:
        check_count("n_rows", self.n_rows)
        check_count("n_features", self.n_features)
        check_components(self.n_components, self.n_features)
        check_count("window", self.window, optional=True)
        check_count("release_every", self.release_every, optional=True)
        _ = self.budget.mu
        for name, value in (("row_norm", self.row_norm), ("typical_norm", self.typical_norm)):
            if value is not None and not (isinstance(value, (int, float)) and 0.0 < value < math.inf):
                raise BadParameterError(f"{name}={value!r} must be a positive number")
        square = TYPICAL_SQUARE if self.typical_norm is None else min(1.0, (self.typical_norm / self.row_norm) ** 2)
        values, assumed = _spectrum(self.guess, self.n_features, self.n_components, square)
        if float(values[: self.n_components].sum()) <= 0.0:
            raise BadParameterError("the spectrum leaves nothing to capture")
        every = None if self.release_every is None else min(self.release_every, self.n_rows)
        for name, made in {"spectrum": values, "assumed": assumed, "release_every": every}.items():
            object.__setattr__(self, name, made)

    @property
    def settings(self) -> dict[str, Any]:
        """Keywords that every private algorithm takes."""
        return {name: getattr(self, name) for name in ("n_components", "epsilon", "delta", "adjacency")}

    @property
    def centered_settings(self) -> dict[str, Any]:
        """The same for those that can take the mean out."""
        return {**self.settings, "center": True} if self.center else self.settings

    @property
    def mean_square(self) -> float:
        """Squared length of the mean that is taken out, in units of row_norm**2: what the spectrum lacks; 0 if unknown.

        It is known where eigenvalues and a typical norm are given.
        """
        if not self.center or self.typical_norm is None or isinstance(self.guess, str):
            return 0.0
        return max(0.0, min(1.0, self.typical_norm / self.row_norm) ** 2 - float(self.spectrum.sum()))

    def spread(self, std: float | FloatArray, count: float | FloatArray) -> FloatArray:
        """Standard deviation of the noise about the mean of `count` rows, on average over directions of the mean.

        That of an entry for unit vectors x, y is in `linalg.centering.MeanNoise`; the mean of ``(u . x)**2`` is
        ``|u|**2 / d``. Without ``center`` it is ``std``.
        """
        if not self.center:
            return np.asarray(std, dtype=np.float64)
        own = np.square(std) / (MEAN_WEIGHT**2 * np.asarray(count))  # sd**2 of an entry of the mean, times the rows
        of_mean = 4.0 * self.mean_square / (MEAN_WEIGHT**2 * self.n_features)
        return np.asarray(np.sqrt(np.square(std) * (1.0 + of_mean) + 2.0 * own**2), dtype=np.float64)

    def mean_and_rows(self, count: float) -> tuple[float, float] | None:
        """Length of the mean, and number of rows, if the mean of `count` rows is subtracted."""
        return (math.sqrt(self.mean_square), count) if self.center else None

    @property
    def purpose(self) -> Literal["stream", "window", "once"]:
        """A subspace of all rows again and again, of the last rows, or of all rows once."""
        return "window" if self.window is not None else "once" if self.release_every == self.n_rows else "stream"

    @property
    def budget(self) -> Budget:
        """The target budget."""
        return Budget(self.epsilon, self.delta, self.adjacency)

    @property
    def rows(self) -> int:
        """Rows that a subspace is learnt from: those of the window, or all."""
        return self.n_rows if self.window is None else min(self.window, self.n_rows)

    @property
    def best(self) -> float:
        """Reward a row that the best subspace earns, in units of row_norm**2."""
        return float(self.spectrum[: self.n_components].sum())


def _spectrum(given: str | Sequence[float] | FloatArray, d: int, k: int, square: float) -> tuple[FloatArray, str]:
    if isinstance(given, str):
        if given not in SHAPES:
            raise BadParameterError(f"spectrum={given!r} is not known; use one of {', '.join(SHAPES)}, or eigenvalues")
        place = np.arange(1.0, d + 1.0)
        shape = {
            "decaying": 1.0 / place,
            "steep": 1.0 / place**2,
            "flat": np.ones(d),
            "spiked": np.where(place <= k, 1.0, 0.1 * k / d),
        }[given]
        values = square * shape / shape.sum()
        return (
            values,
            f"a {given!r} spectrum of rows with mean squared norm {square:g} row_norm**2, for want of a better guess",
        )
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadParameterError(f"spectrum={given!r} must be a name or numbers") from None
    if values.ndim != 1 or not 1 <= values.size <= d or not np.isfinite(values).all() or (values < 0.0).any():
        raise BadParameterError(f"spectrum must be 1 to {d} eigenvalues that are finite and not negative")
    if not 0.0 < values.sum() <= 1.0 + 1e-9:
        raise BadParameterError(
            f"the eigenvalues of spectrum sum to {values.sum():.4g}; those of the mean of a a^T, in units of "
            "row_norm**2, sum to the mean squared norm of a row: above 0, at most 1"
        )
    full = np.zeros(d)
    full[: values.size] = np.sort(values)[::-1]
    return full, "the given spectrum"
