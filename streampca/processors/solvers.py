"""Solvers of `PrivateFPL`, which compute a subspace from the released matrices.

A solver receives released matrices and public numbers only, never the exact sums, so it is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streampca.errors import UsageError
from streampca.linalg.counts import use_plain_numbers
from streampca.linalg.eigen import power_step
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.smoothing import SmoothedSum, Smoothing
from streampca.privacy.guarantee import check_number
from streampca.state import State


class Reading(State):
    """State of a solver after some releases: an immutable value. Publishable, because it is a function of releases."""

    __slots__ = ()
    name: ClassVar[str | None] = None  # of the solver, for the details of a release
    noise_std: float | None = None  # standard deviation of the noise in each svec coordinate of the estimate
    estimate: FloatArray | None = None  # of the exact sum, packed; None if it is the latest release
    span: FloatArray | None = None  # (d, k) basis of the latest subspace; None if it is that of the estimate

    def observe(self, packed: FloatArray, share: float) -> Reading:
        """Return the state after a released matrix; ``share`` is below 1 for a last leaf with fewer rows."""
        return self

    def follow(self, packed_gram: FloatArray, shift: float, *, plain: bool) -> Reading:
        """Return the state after the matrix of the release, about the mean if that is released.

        ``shift`` is the size of the eigenvalues of its noise. With ``plain``, the bits are those of plain numpy.
        """
        return self


class Solver:
    """The `solver` of `PrivateFPL`: a frozen configuration."""

    bounded: ClassVar[bool] = False  # whether the regret bound of the paper is proved for it

    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        """Return the state before the first release, for the factorization that releases the sums.

        ``every`` are the rows between releases, ``size`` the coordinates of a released matrix. `Exact` keeps nothing.
        """
        return Reading()


@dataclass(frozen=True)
class Exact(Solver):
    """Top eigenvectors of each released matrix, to which the regret bound applies. O(d^3) a release."""

    bounded: ClassVar[bool] = True


@dataclass(frozen=True)
class Tracking(Solver):
    """One step of subspace iteration a release, from the subspace before: O(d^2 k).

    It averages noise over releases and follows change slowly. Its regret is below that of `Exact` where noise is
    large, and up to five times that of `Exact` where noise is small.
    """

    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        # The first axes, as those that score the rows before the first release.
        return Tracked(np.asfortranarray(np.eye(n_features, k)))


@dataclass(eq=False)
class Tracked(Reading):
    """State of `Tracking`: the latest span."""

    kept = ("span",)
    name = "tracking"

    span: FloatArray

    def follow(self, packed_gram: FloatArray, shift: float, *, plain: bool) -> Tracked:
        # The shift keeps negative eigenvalues of the noise from leading the iteration.
        return Tracked(power_step(packed_gram, self.span, shift, plain=plain))


@dataclass(frozen=True)
class Smoothed(Solver):
    """Top eigenvectors of the best linear estimate of the exact matrix from all releases so far.

    The released matrix does not change; the estimate is `Release.smoothed`. Noise `BLT` only. ``docs/utility``
    compares its regret with that of `Exact`.

    Parameters
    ----------
    drift : rate of change of the mean square of rows in the model. Its variance grows by ``drift / t`` a row, relative
        to that of rows of full norm; 0 for rows of one distribution.
    """

    drift: float = 1.0

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_number("drift", self.drift)

    def smoothing(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int) -> Smoothing:
        """Return the filter of the releases of a mechanism."""
        if not isinstance(mechanism, (GeometricBLT, AnytimeBLT)):
            raise UsageError("solver=Smoothed(): expected noise=BLT()")
        return Smoothing.of_grams(mechanism, n_features, k, every, self.drift)

    def start(self, mechanism: MatrixFactorization, n_features: int, k: int, every: int, size: int) -> Reading:
        # The filter knows the law of the noise and a model of the rows, both public, and no row.
        return SmoothedReading(self.smoothing(mechanism, n_features, k, every).start(size))


@dataclass(eq=False)
class SmoothedReading(Reading):
    """State of `Smoothed`: the estimate from all releases so far."""

    kept = ("sums",)
    name = "smoothed"

    sums: SmoothedSum

    def __post_init__(self) -> None:
        self.estimate = self.sums.sum
        # Exact for the noise of the releases. The rest of its error is its bias, which depends on the exact inputs.
        self.noise_std = math.sqrt(max(float(self.sums.response[-1, -1]), 0.0))

    def observe(self, packed: FloatArray, share: float) -> SmoothedReading:
        return SmoothedReading(self.sums.after(packed, share))


#: Strings that are short for a solver.
SOLVERS: dict[str, type[Solver]] = {"exact": Exact, "tracking": Tracking, "smoothed": Smoothed}
