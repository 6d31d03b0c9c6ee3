"""Common parts of stochastic ascents: a starting basis, orthonormal steps, and segments of rows.

An ascent steps ``W <- orth(W + eta * G)`` with G the gradient ``sum a a^T W`` of a minibatch, on (d, k) arrays only.

`DPPCA` cuts rows into public segments. A row is in one segment and each segment is one mechanism with the full budget.
By adaptive parallel composition all of them together satisfy that budget.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dgemm, dtrsm
from scipy.linalg.lapack import dpotrf

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs, orthonormal
from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import NoiseStream, Randomness
from streampca.processors.base import Processor
from streampca.release.release import Release
from streampca.state import State

LearningRate = Literal["adaptive"] | float | tuple[float, float]

#: Sums over rows and their noise are multiples of this, so that low bits hold no information.
GRID = 2.0**-30
#: Number of rows whose sum on the lattice is exact in float64, each number at most 1.
EXACT_ROWS = 2**23
#: c in steps of c / (rayleigh * t): contraction like t**(-4 gap / lambda), 16/7 of the least noise.
GAIN = 4.0
#: Largest ratio of the diagonal of R for which Cholesky QR is used.
_WELL_CONDITIONED = 1e3


def random_basis(n_features: int, n_components: int, noise: NoiseStream, index: int = 0) -> FloatArray:
    """Draw an orthonormal (d, k) basis of a uniformly random subspace. Independent of any row."""
    normals = noise.normal(index, n_features * n_components).reshape(n_features, n_components)
    return np.asfortranarray(orthonormal(normals))


def start_basis(n_features: int, n_components: int, start: bytes) -> FloatArray:
    """Draw the random basis of a run from the 16 bytes of its start, so that a resumed run has the same basis."""
    return random_basis(n_features, n_components, Randomness(start * 2).stream("start"))


def released(processor: Processor, basis: FloatArray, values: FloatArray, **details: Any) -> Release:
    """Release the subspace of a (d, k) basis, with its columns by descending values."""
    order = np.argsort(-values, kind="stable")
    return Release(
        t=processor.t, n_components=processor.algorithm.n_components, terms=processor.terms,
        basis=fix_signs(basis[:, order]), eigenvalues=values[order], details=details,
    )  # fmt: skip


def orthonormalise(matrix: FloatArray) -> FloatArray:
    """Return the Q of a QR factorization with a positive diagonal of R. Overwrites the column-major ``matrix``."""
    # Cholesky QR squares the condition number. After a step of Oja's update the basis is well conditioned, so the
    # factor of its Gram matrix is accurate. Otherwise Householder QR is used.
    factor, info = dpotrf(dgemm(1.0, matrix, matrix, trans_a=1), lower=0, overwrite_a=1)
    diagonal = factor.diagonal()
    if info != 0 or not diagonal.max() <= _WELL_CONDITIONED * diagonal.min():
        return np.asfortranarray(orthonormal(matrix))
    return dtrsm(1.0, factor, matrix, side=1, lower=0, overwrite_b=1)


def set_schedule(configuration: Any) -> None:
    """Set ``schedule`` of a frozen configuration to (c, offset) of steps of c / (offset + t), or None if adaptive.

    Raises
    ------
    BadParameterError
        If ``learning_rate`` is neither "adaptive", nor c > 0, nor a pair of c > 0 and offset >= 0.
    """
    rate = configuration.learning_rate
    if isinstance(rate, list):  # configurations are hashable
        object.__setattr__(configuration, "learning_rate", tuple(rate))
    if isinstance(rate, str) and rate == "adaptive":
        object.__setattr__(configuration, "schedule", None)
        return
    pair = rate if isinstance(rate, Sequence) and not isinstance(rate, str) else (rate, rate)
    try:
        c, offset = (float(part) for part in pair)
    except (TypeError, ValueError):
        c = offset = math.nan
    if not (0.0 < c < math.inf and 0.0 <= offset < math.inf):
        raise BadParameterError(
            f"learning_rate={rate!r}: expected 'adaptive', or (c, offset) with c > 0 and offset >= 0 "
            "for steps of c / (offset + t)."
        )
    object.__setattr__(configuration, "schedule", (c, offset))


Purpose = Literal["top", "range", "center", "mean", "compare", "norm", "inside", "across"]
#: Purposes of the last segment of a minibatch.
ENDS = ("mean", "compare", "across")
#: Rows added to a tally at a time, except for votes.
CHUNK = 64
#: The rows of a run before a minibatch, divided by the rows of the minibatch.
GROWTH = 2


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one purpose."""

    stop: int  # last row
    rows: int
    purpose: Purpose
    component: int
    candidate: int = 0
    step: int = 0  # number of the minibatch in its run, from 0
    used: int = 0  # rows of the run up to the end of the minibatch
    last: bool = False  # whether the minibatch ends the run


class Plan(ABC):
    """The public schedule of an ascent and its mechanisms. Fixed before any row."""

    budget: Budget  # of each segment's mechanism
    segments: tuple[Segment, ...]

    @cached_property
    def mu(self) -> float:
        """Gaussian-DP parameter that spends the budget."""
        return self.budget.mu

    @abstractmethod
    def constants(self) -> tuple[object, ...]:
        """Return every number that the noise depends on."""

    @abstractmethod
    def begin(self, basis: FloatArray) -> Engine:
        """Return the ascent before the first row, from a (d, k) basis that is independent of all rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine(State, ABC):
    """State of an ascent: an immutable value. All but the tally is computed from released values."""

    plan: Plan
    at: int  # number of the current segment
    tally: npt.NDArray[Any]  # the exact statistic of the segment's rows so far; curator only
    fallbacks: dict[str, int]  # number of fallbacks of each private mechanism; publishable

    kept: ClassVar[tuple[str, ...]] = ("at", "tally", "fallbacks")

    @property
    def segment(self) -> Segment | None:
        """The current segment; None after the last."""
        segments = self.plan.segments
        return segments[self.at] if self.at < len(segments) else None

    @abstractmethod
    def chunk(self, segment: Segment) -> int:
        """Number of rows that `take` receives at a time."""

    @abstractmethod
    def take(self, segment: Segment, rows: FloatArray) -> Self:
        """Add rows of the segment to the tally."""

    @abstractmethod
    def close(self, segment: Segment, outlet: Outlet) -> Self:
        """Release the segment's tally once, update the ascent from the answer, and open the next segment."""

    @abstractmethod
    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Return an orthonormal (d, k) basis and (k,) mean rewards, largest first. Publishable."""

    @abstractmethod
    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        """Return the tally of no rows."""

    def opened(self, **changes: Any) -> Self:
        """Return the ascent at the next segment, with other values of some attributes."""
        after = replace(self, at=self.at + 1, **changes)
        following = after.segment
        return replace(after, tally=np.zeros(0) if following is None else after.empty(following))


def minibatch(
    batch_size: int | Literal["auto"], smallest: int, steps: int, horizon: int, margin: int, budget: Budget,
    n_features: int, further: int = 0,
) -> int:  # fmt: skip
    """Return the rows of the shortest minibatch, or raise `BadParameterError` if it or the horizon is too short.

    The mechanisms need ``steps`` minibatches and ``further`` rows. With ``margin`` times these fewer than 1 run in 100
    fails. The margin is 1 if the user sets ``batch_size``.
    """
    own, least, needed = "", smallest, steps * smallest + further
    if batch_size != "auto":
        least, needed, margin = batch_size, steps * batch_size + further, 1
    if least < smallest:
        raise BadParameterError(
            f"batch_size={batch_size}: expected at least {smallest} or 'auto' at epsilon={budget.epsilon:g}, "
            f"delta={budget.delta:g} and {n_features} features."
        )
    if horizon >= margin * needed:
        return least
    why = f"{needed}"
    if margin > 1:
        why = f"{margin * needed} for fewer than 1 run in 100 to fail"
        own = f" With batch_size={least} it needs {needed}, and fails more often."
    raise BadParameterError(
        f"horizon={horizon} rows are too few for DPPCA: minibatches of {least} rows or more need {why}. "
        f"Pass more rows or a larger epsilon, or use GaussianCovariance or PrivateOja, which work at any n.{own}"
    )


def step_size(noise: float, energy: float, rows: int, used: int) -> float:
    """Return the step size that is best for a gradient of this energy and noise, relative to the power method's."""
    # At least c / (1 + c), as for steps of c / t.
    c = GAIN * rows / used
    return max(c / (1.0 + c), 1.0 - noise / energy)


def batches(rows: int, smallest: int, growing: bool, at_least: int) -> Iterator[tuple[int, int]]:
    """Return the bounds of the minibatches of a run of ``rows`` rows, at least ``at_least`` if there is room."""
    # Counted back from the end, so that the last minibatch, which has the least noise, is a full one.
    bounds = [rows]
    while True:
        end, before = bounds[0], bounds[0] - smallest
        if growing:
            spared = (at_least - len(bounds)) * smallest
            before = min(before, max(end * GROWTH // (GROWTH + 1), spared))
        if before < smallest:
            break
        bounds.insert(0, before)
    return itertools.pairwise([0, *bounds])
