"""What is asked of the planner, validated. Public numbers and guesses only: no row is looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, Budget

#: Named guesses: the eigenvalues of the mean of a a^T, up to their sum.
SHAPES = ("decaying", "steep", "flat", "spiked")
#: Mean squared norm of rows, in units of row_norm**2, where nothing better is known.
TYPICAL_SQUARE = 0.5


@dataclass(frozen=True, eq=False)
class Question:
    """A stream to plan for.

    Attributes
    ----------
    n_rows, n_features, n_components : n, d and k.
    epsilon, delta, adjacency : the budget.
    window : rows in the window, or None for all rows.
    release_every : rows between releases, or None to let the planner choose.
    spectrum : (d,) guessed eigenvalues of the mean of a a^T, descending, in units of row_norm**2.
    row_norm : norm onto which longer rows are scaled.
    assumed : how the spectrum was come by.
    """

    n_rows: int
    n_features: int
    n_components: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    window: int | None
    release_every: int | None
    spectrum: FloatArray
    row_norm: float
    assumed: str

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

    @property
    def gap(self) -> float:
        """Eigenvalue k less eigenvalue k + 1, a row, in units of row_norm**2."""
        k = self.n_components
        return float(self.spectrum[k - 1] - (self.spectrum[k] if k < self.n_features else 0.0))


def ask(
    *,
    n_rows: int,
    n_features: int,
    n_components: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "zero-out",
    window: int | None = None,
    release_every: int | None = None,
    spectrum: str | Sequence[float] | FloatArray = "decaying",
    row_norm: float = 1.0,
    typical_norm: float | None = None,
) -> Question:
    """Validate a question. See `plan` for the parameters."""
    check_count("n_rows", n_rows)
    check_count("n_features", n_features)
    check_components(n_components, n_features)
    check_count("window", window, optional=True)
    check_count("release_every", release_every, optional=True)
    _ = Budget(epsilon, delta, adjacency).mu
    for name, value in (("row_norm", row_norm), ("typical_norm", typical_norm)):
        if value is not None and not (isinstance(value, (int, float)) and 0.0 < value < math.inf):
            raise BadParameter(f"{name}={value!r} must be a positive number")
    square = TYPICAL_SQUARE if typical_norm is None else min(1.0, (typical_norm / row_norm) ** 2)
    values, assumed = _spectrum(spectrum, n_features, n_components, square)
    if release_every is not None:
        release_every = min(release_every, n_rows)
    return Question(
        n_rows,
        n_features,
        n_components,
        epsilon,
        delta,
        adjacency,
        window,
        release_every,
        values,
        float(row_norm),
        assumed,
    )


def _spectrum(given: str | Sequence[float] | FloatArray, d: int, k: int, square: float) -> tuple[FloatArray, str]:
    if isinstance(given, str):
        if given not in SHAPES:
            raise BadParameter(f"spectrum={given!r} is not known; use one of {', '.join(SHAPES)}, or eigenvalues")
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
        raise BadParameter(f"spectrum={given!r} must be a name or numbers") from None
    if values.ndim != 1 or not 1 <= values.size <= d or not np.isfinite(values).all() or (values < 0.0).any():
        raise BadParameter(f"spectrum must be 1 to {d} eigenvalues that are finite and not negative")
    if not 0.0 < values.sum() <= 1.0 + 1e-9:
        raise BadParameter(
            f"the eigenvalues of spectrum sum to {values.sum():.4g}; those of the mean of a a^T, in units of "
            "row_norm**2, sum to the mean squared norm of a row: above 0, at most 1"
        )
    full = np.zeros(d)
    full[: values.size] = np.sort(values)[::-1]
    return full, "the given spectrum"
