"""Solvers of `PrivateFPL`: how a subspace is computed from the released matrices. Post-processing.

A solver is given released matrices and public numbers only, never the exact sums.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.counts import use_plain_numbers
from streampca.linalg.eigen import power_step
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.smoothing import InputModel, SmoothedSum, Smoothing
from streampca.state import State


class Reading(State):
    """State of a solver after some releases: an immutable value. Publishable, because it is a function of releases.

    Attributes
    ----------
    name : of the solver, for the details of a release; None for the default.
    observes : whether `observe` changes it.
    estimate : of the exact sum, packed; None where it is the latest release.
    noise_std : standard deviation of the noise in each svec coordinate of the estimate.
    span : (d, k) basis of the latest subspace; None where it is that of the estimate, and `follow` does not change it.
    """

    __slots__ = ()
    name: ClassVar[str | None] = None
    observes: ClassVar[bool] = False
    noise_std: float | None = None
    estimate: FloatArray | None = None
    span: FloatArray | None = None

    def observe(self, packed: FloatArray, share: float) -> Reading:
        """Return the state after a released matrix; ``share`` is below 1 for a last leaf with fewer rows."""
        return self

    def follow(self, packed_gram: FloatArray, shift: float, *, plain: bool) -> Reading:
        """Return the state after the matrix of the release is known, about the mean if that is released.

        Parameters
        ----------
        packed_gram : the matrix.
        shift : size of the eigenvalues of its noise.
        plain : whether the span must have the same bits without compiled kernels.
        """
        return self


class Solver(ABC):
    """The `solver` of `PrivateFPL`: a frozen configuration.

    Attributes
    ----------
    bounded : whether the regret bound of the paper is proved for it.
    """

    bounded: ClassVar[bool] = False

    @abstractmethod
    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        """Return the state before the first release.

        Parameters
        ----------
        mechanism : what releases the sums.
        n_features, k : d and the dimension of the subspace.
        every : rows between releases.
        size : coordinates of a released matrix, with those of the mean where it is centered.
        """


@dataclass(frozen=True)
class Exact(Solver):
    """The top eigenvectors of each released matrix, to which the regret bound applies. O(d^3) a release."""

    bounded: ClassVar[bool] = True

    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        """Return a state that holds nothing."""
        return Reading()


@dataclass(frozen=True)
class Tracking(Solver):
    """One step of subspace iteration a release, from the subspace before: O(d^2 k).

    It averages noise over releases and follows change slowly, so its regret is below that of `Exact` where noise is
    large and up to five times it where noise is small.
    """

    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        """Return the state with the first axes."""
        return Tracked(np.asfortranarray(np.eye(n_features, k)))


class Tracked(Reading):
    """State of `Tracking`: the latest span."""

    __slots__ = ("span",)
    kept = __slots__
    name = "tracking"

    def __init__(self, span: FloatArray) -> None:
        self.span = span

    def follow(self, packed_gram: FloatArray, shift: float, *, plain: bool) -> Tracked:
        """See `Reading.follow`. The shift keeps negative eigenvalues of the noise from leading the iteration."""
        assert self.span is not None
        made = Tracked.__new__(Tracked)  # this runs once a release: no call of __init__
        made.span = power_step(packed_gram, self.span, shift, plain=plain)
        return made


@dataclass(frozen=True)
class Smoothed(Solver):
    """The top eigenvectors of the best linear estimate of the exact matrix from all releases so far.

    The released matrix stays as it is; the estimate is `Release.smoothed`. Noise `BLT` only. Regret over that of
    `Exact`, at epsilon = .1, .3, 1 and 3: .93 on twelve tables (geometric mean; worst cell 1.25), .96 on streams that
    turn or jump (worst 1.30). ``docs/utility.md`` has them all.

    Parameters
    ----------
    drift : how fast the mean square of rows is taken to change. Its variance grows by ``drift / t`` a row, relative
        to that of rows of full norm; 0 for rows that keep to one distribution.
    """

    drift: float = 1.0

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        if isinstance(self.drift, bool) or not isinstance(self.drift, float) or not 0.0 <= self.drift < math.inf:
            raise BadParameterError(f"drift={self.drift!r} must be a finite number, at least 0")

    def smoothing(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int) -> Smoothing:
        """Return the filter."""
        if not isinstance(mechanism, (GeometricBLT, AnytimeBLT)):
            raise BadParameterError("solver=Smoothed() needs noise=BLT()")
        return Smoothing(mechanism, InputModel.of_grams(n_features, k, every, self.drift))

    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        """Return the state with the estimate before the first release."""
        return SmoothedReading(self.smoothing(mechanism, n_features, k, every).start(size))


class SmoothedReading(Reading):
    """State of `Smoothed`: the estimate from all releases so far."""

    __slots__ = ("sums",)
    kept = __slots__
    name = "smoothed"
    observes = True

    def __init__(self, sums: SmoothedSum) -> None:
        self.sums = sums

    @property
    def estimate(self) -> FloatArray:  # type: ignore[override]
        """Estimate of the exact sum, packed."""
        return self.sums.sum

    def observe(self, packed: FloatArray, share: float) -> SmoothedReading:
        """See `Reading.observe`."""
        return SmoothedReading(self.sums.after(packed, share))

    @property
    def noise_std(self) -> float:  # type: ignore[override]
        """Standard deviation of the noise in each svec coordinate of the estimate."""
        return self.sums.noise_std


#: Strings that are short for a solver.

SOLVERS: dict[str, type[Solver]] = {"exact": Exact, "tracking": Tracking, "smoothed": Smoothed}
