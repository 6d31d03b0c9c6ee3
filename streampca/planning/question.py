"""Questions to the planner, validated. Public numbers and guesses only: no row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT, MEAN_WEIGHT
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import DELTA, Adjacency, Budget
from streampca.privacy.randomness import Randomness

#: Names of guesses: the eigenvalues of the mean of a a^T, up to their sum.
SHAPES = ("decaying", "steep", "flat", "spiked")
#: Default mean squared norm of rows, in units of row_norm**2, where a spectrum is given.
TYPICAL_SQUARE = 0.5
#: Without a guess, the spectra and the norms of typical rows that predictions cover. The middle norm is the default.
GUESSES, NORMS = ("flat", "decaying", "steep"), (0.3, 0.6, 1.0)
#: Product of the columns of two releases that are far apart, of `BLT` over 64 to 1024 of them: .24 on average.
_APART = 0.25
_SEED = 20240607


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """A stream to plan for.

    Parameters
    ----------
    n_rows, n_features, n_components : int
        n, d and k.
    epsilon, delta : float
        Privacy budget.
    adjacency : {"zero-out", "replace"}, default="zero-out"
    window : int or None, default=None
        Rows in the window, for a subspace of the last rows. None means all rows.
    release_every : int or None, default=None
        Rows between releases. If None, the planner chooses. A value of at least `n_rows` means one release.
    center : bool, default=True
        Whether algorithms that can subtract a private mean (`linalg.centering`) do so.
    guess : str, sequence of float or None, default=None
        Eigenvalues of the mean of a a^T in units of row_norm**2, about the mean if `center`; missing ones are 0. Or a
        guess by name: "decaying" (1/j), "steep" (1/j**2), "flat" or "spiked" (k equal ones over a tenth of the
        variance); if `center`, the mean has half of the energy. None means no guess: predictions are for `GUESSES`
        and, without a `typical_norm`, for `NORMS`.
    row_norm : float, default=1.0
        Norm to which longer rows are scaled.
    typical_norm : float or None, default=None
        Public guess of the norm of a typical row. It is used for advice on `row_norm` and for the scale of a named
        spectrum. If eigenvalues are given, it determines the length of the mean; None means row_norm / sqrt(2).
    rows_per_person : float or None, default=None
        Public guess of the mean number of rows of a person: plan for ``unit=Person(...)`` with a budget of one row, and
        multiply the energy of rows by the share of their weight that counts. For uneven numbers of rows the guess was
        1 to 8 % too high (`scenarios/people.py`); for 2 to 32 rows of each person it was 0 to 27 % too low. None
        protects rows.
    """

    n_rows: int
    n_features: int
    n_components: int
    epsilon: float
    delta: float = DELTA
    adjacency: Adjacency = "zero-out"
    window: int | None = None
    release_every: int | None = None
    center: bool = True
    guess: str | Sequence[float] | FloatArray | None = None
    row_norm: float = 1.0
    typical_norm: float | None = None
    rows_per_person: float | None = None
    #: (d,) guessed eigenvalues of the mean of a a^T, descending; of people, times `weight`
    spectrum: FloatArray = field(init=False)
    assumed: str = field(init=False)  #: origin of the spectrum, in words
    #: A subspace of all rows after each release, of the last rows, or of all rows once.
    purpose: Literal["stream", "window", "once"] = field(init=False)
    rows: int = field(init=False)  #: from which a subspace is estimated: those of the window, or all
    best: float = field(init=False)  #: reward a row of the best subspace, in units of row_norm**2
    #: Squared norm of the subtracted mean, in the same units: the energy that the spectrum lacks. 0 if not `center`.
    mean_square: float = field(init=False)
    typical_square: float = field(init=False)  #: mean squared norm of a row, in the same units
    weight: float = field(init=False)  #: mean weight of a row, 1 without people
    settings: dict[str, Any] = field(init=False)  #: keywords of every private algorithm
    centered_settings: dict[str, Any] = field(init=False)  #: and of those that can subtract a mean

    def __post_init__(self) -> None:
        for name in ("n_rows", "n_features"):
            check_count(name, getattr(self, name))
        check_components(self.n_components, self.n_features)
        for name in ("window", "release_every"):
            check_count(name, getattr(self, name), optional=True)
        _ = Budget(self.epsilon, self.delta, self.adjacency).mu  # checked
        for name in ("row_norm", "typical_norm", "rows_per_person"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0.0 < value < math.inf):
                raise BadParameterError(name, value, "a positive number")
        if self.rows_per_person is not None and self.rows_per_person < 1.0:
            raise BadParameterError("rows_per_person", self.rows_per_person, "a number from 1 on")
        typical = None if self.typical_norm is None else min(1.0, self.typical_norm / self.row_norm) ** 2
        square = (NORMS[1] ** 2 if self.guess is None else TYPICAL_SQUARE) if typical is None else typical
        guess = GUESSES[1] if self.guess is None else self.guess
        # Without eigenvalues, half of the energy of the rows is assigned to their mean.
        about = 0.5 * square if self.center and isinstance(guess, str) else square
        spectrum, assumed = _spectrum(guess, self.n_features, self.n_components, about)
        if self.guess is None:
            norms = "/".join(f"{norm:g}" for norm in (NORMS if typical is None else (math.sqrt(typical),)))
            assumed = f"nothing: {'/'.join(GUESSES)} spectra of rows of norm {norms} row_norm; give spectrum="
        every = None if self.release_every is None else min(self.release_every, self.n_rows)
        settings = {name: getattr(self, name) for name in ("n_components", "epsilon", "delta", "adjacency")}
        mean_square, purpose = max(0.0, square - float(spectrum.sum())) if self.center else 0.0, "stream"
        if self.window is not None or every == self.n_rows:
            purpose = "once" if self.window is None else "window"
        weight = 1.0
        if self.rows_per_person is not None:
            full = rows_in_full(spectrum, mean_square, center=self.center, at_once=purpose == "once")
            # The rows of a person beyond the first are assumed to be exponentially distributed, and to count up to
            # the number at which the budget is spent.
            more = self.rows_per_person - 1.0
            weight = 1.0 if not more else (1.0 - more * math.expm1((1.0 - full) / more)) / (1.0 + more)
        # The fields of a frozen class are entries of its dictionary.
        vars(self).update(
            spectrum=weight * spectrum, assumed=assumed, release_every=every, purpose=purpose, weight=weight,
            rows=min(self.window or self.n_rows, self.n_rows), mean_square=weight * mean_square,
            best=weight * float(spectrum[: self.n_components].sum()), settings=settings,
            typical_square=max(square, float(spectrum.sum())),
            centered_settings={**settings, "center": self.center},
        )  # fmt: skip

    def mean(self, draw: int) -> FloatArray:
        """Return the subtracted mean, (d,) in the eigenvectors of the spectrum, with a direction drawn at random."""
        direction = Randomness.from_seed(_SEED).stream("mean").normal(draw, self.n_features)
        return direction * math.sqrt(self.mean_square / float(direction @ direction))

    def spread(self, std: float | FloatArray, count: float | FloatArray) -> FloatArray:
        """Return the standard deviation of the noise about the mean of `count` rows, averaged over directions of it."""
        if not self.center:
            return np.asarray(std, dtype=np.float64)
        # `linalg.centering.MeanNoise` has that of an entry for orthonormal x, y. Over directions of them the mean of
        # (u . x)**2 is |u|**2 / d, and that of (u . x)**2 (u . y)**2 is |u|**4 / (d (d + 2)).
        count = np.asarray(count) * self.weight
        own = np.square(std) / (MEAN_WEIGHT**2 * count)  # variance of an entry of the mean, times the rows
        d, ratio = self.n_features, self.mean_square / self.weight / MEAN_WEIGHT**2
        of_mean = 4.0 * ratio / d + 8.0 * ratio**2 / (d * (d + 2.0))
        return np.asarray(np.sqrt(np.square(std) * (1.0 + of_mean) + 2.0 * own**2), dtype=np.float64)


def rows_in_full(
    spectrum: FloatArray, mean_square: float, *, center: bool, at_once: bool, budget: float = 1.0
) -> float:  # fmt: skip
    """Return the number of rows of a person whose joint effect is expected to be her budget.

    M rows of weight 1 cost ``M own + M (M - 1) pair`` in `streampca.rows.people`, of a budget of ``(budget u)**2``.
    """
    energy, c = float(spectrum.sum()) + mean_square, CONSTANT**2 if center else 0.0
    # Means of (y . y)**2 and (y . y')**2 for rows y of one distribution, with the constant if centered.
    own = (energy + c) ** 2
    squares = float(spectrum @ spectrum) + mean_square * (mean_square + 2.0 * float(spectrum.mean()))
    pair = (squares + 2.0 * c * mean_square + c * c) * (1.0 if at_once else _APART)
    linear = own - pair
    return (math.sqrt(linear * linear + 4.0 * pair * (budget * (1.0 + c)) ** 2) - linear) / (2.0 * pair)


def _spectrum(guess: str | Sequence[float] | FloatArray, d: int, k: int, square: float) -> tuple[FloatArray, str]:
    if isinstance(guess, str):
        place = np.arange(1.0, d + 1.0)
        shapes = (1.0 / place, 1.0 / place**2, np.ones(d), np.where(place <= k, 1.0, 0.1 * k / d))
        shape = dict(zip(SHAPES, shapes, strict=True)).get(guess)
        if shape is None:
            raise BadParameterError("spectrum", guess, f"one of {', '.join(SHAPES)}, or eigenvalues")
        assumed = f"a {guess!r} spectrum of total {square:g} row_norm**2, without a better guess"
        return square * shape / shape.sum(), assumed
    try:
        values = np.asarray(guess, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadParameterError("spectrum", guess, "a name or numbers") from None
    if values.ndim != 1 or not 1 <= values.size <= d or not np.isfinite(values).all() or (values < 0.0).any():
        raise BadParameterError("spectrum", ..., f"1 to {d} eigenvalues, finite and not negative")
    if not 0.0 < values.sum() <= 1.0 + 1e-9:
        raise BadParameterError(
            "spectrum", ..., "eigenvalues of the mean of a a^T, in units of row_norm**2",
            advice=f"Their sum is the mean squared norm of a row, above 0 and at most 1, not {values.sum():.4g}"
        )  # fmt: skip
    full = np.zeros(d)
    full[: values.size] = np.sort(values)[::-1]
    return full, "the given spectrum"
