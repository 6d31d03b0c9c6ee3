"""Common parts of stochastic ascents: a starting basis, orthonormal steps, and segments of rows.

An ascent steps ``W <- orth(W + eta * G)`` with G the gradient ``sum a a^T W`` of a minibatch.
Everything here works on (d, k) arrays: no d x d matrix exists.

`DPPCA` cuts rows into public segments. A row is in one segment and each segment is one mechanism
with the full budget, so all of them together cost that budget once: they compose in
parallel, adaptively, the segments being public.
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
#: Rows whose sum on the lattice is exact in float64, each number at most 1.
EXACT_ROWS = 2**23
#: c in steps of c / (rayleigh * t): contraction like t**(-4 gap / lambda), 16/7 of the least noise.
GAIN = 4.0
#: Ratio of the diagonal of R beyond which Householder QR replaces Cholesky QR.
_WELL_CONDITIONED = 1e3


def random_basis(n_features: int, n_components: int, noise: NoiseStream, index: int = 0) -> FloatArray:
    """Draw an orthonormal (d, k) basis of a uniformly random subspace. Independent of any row."""
    normals = noise.normal(index, n_features * n_components).reshape(n_features, n_components)
    return np.asfortranarray(orthonormal(normals))


def start_basis(n_features: int, n_components: int, start: bytes) -> FloatArray:
    """The random basis of a run: a public function of the 16 bytes of its start, so a resumed run has the same."""
    return random_basis(n_features, n_components, Randomness(start * 2).stream("start"))


def released(processor: Processor, basis: FloatArray, values: FloatArray, **details: Any) -> Release:
    """A release of the subspace of a (d, k) basis, with its columns by descending values."""
    order = np.argsort(-values, kind="stable")
    return Release(
        t=processor.t, n_components=processor.n_components, terms=processor.terms, basis=fix_signs(basis[:, order]),
        eigenvalues=values[order], details=details,
    )  # fmt: skip


def orthonormalise(matrix: FloatArray) -> FloatArray:
    """Orthonormal basis of the columns, with a positive diagonal of R: QR by Cholesky where that is safe.

    ``matrix`` is column-major and is overwritten. After Oja's update the basis is
    well conditioned, so the Gram matrix's factor is accurate; otherwise
    Householder QR is used.
    """
    factor, info = dpotrf(dgemm(1.0, matrix, matrix, trans_a=1), lower=0, overwrite_a=1)
    diagonal = factor.diagonal()
    if info != 0 or not diagonal.max() <= _WELL_CONDITIONED * diagonal.min():
        return np.asfortranarray(orthonormal(matrix))
    return dtrsm(1.0, factor, matrix, side=1, lower=0, overwrite_b=1)


def hashable(rate: Any) -> Any:
    """The learning rate, as a tuple if it is a list."""
    return tuple(rate) if isinstance(rate, list) else rate


def schedule_of(rate: object) -> tuple[float, float] | None:
    """(c, offset) of a learning rate ``c / (offset + t)``, None for ``"adaptive"``, or `BadParameterError`."""
    if isinstance(rate, str) and rate == "adaptive":
        return None
    pair = rate if isinstance(rate, Sequence) and not isinstance(rate, str) else (rate, rate)
    try:
        c, offset = (float(part) for part in pair)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        c = offset = math.nan
    if not (0.0 < c < math.inf and 0.0 <= offset < math.inf):
        raise BadParameterError(
            f"learning_rate={rate!r} must be 'adaptive', or (c, offset) for steps of c / (offset + t) "
            "with c > 0 and offset >= 0"
        )
    return c, offset


Purpose = Literal["top", "range", "center", "mean", "compare", "norm", "inside", "across"]
#: Purposes of the last segment of a minibatch.
ENDS = ("mean", "compare", "across")
#: Rows added to a tally at a time, unless votes determine it.
CHUNK = 64
#: A minibatch is one part in so many of all rows of its run before it.
GROWTH = 2


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one purpose: the ``rows`` rows up to row ``stop``.

    ``used`` counts the rows of its run up to the end of its minibatch, which
    is the run's ``step``-th from 0, and maybe its ``last``.
    """

    stop: int
    rows: int
    purpose: Purpose
    component: int
    candidate: int = 0
    step: int = 0
    used: int = 0
    last: bool = False


class Plan(ABC):
    """The public schedule of an ascent and its mechanisms. Fixed before any row.

    Attributes
    ----------
    budget : of each segment's mechanism.
    segments : the schedule.
    """

    budget: Budget
    segments: tuple[Segment, ...]

    @cached_property
    def mu(self) -> float:
        """Gaussian-DP parameter that spends the budget."""
        return self.budget.mu

    @abstractmethod
    def constants(self) -> tuple[object, ...]:
        """Every number the noise is made with."""

    @abstractmethod
    def begin(self, basis: FloatArray) -> Engine:
        """The ascent before the first row, from a (d, k) basis that is independent of all rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine(State, ABC):
    """State of an ascent: an immutable value.

    What subclasses add are private estimates.

    Attributes
    ----------
    plan : schedule and mechanisms.
    at : number of the segment in progress.
    tally : the exact statistic of the segment's rows so far. Curator only.
    fallbacks : how often each private mechanism had no answer. Publishable.
    """

    plan: Plan
    at: int
    tally: npt.NDArray[Any]
    fallbacks: dict[str, int]

    kept: ClassVar[tuple[str, ...]] = ("at", "tally", "fallbacks")

    @property
    def segment(self) -> Segment | None:
        """The segment in progress; None after the last."""
        segments = self.plan.segments
        return segments[self.at] if self.at < len(segments) else None

    @abstractmethod
    def chunk(self, segment: Segment) -> int:
        """Rows to take at a time."""

    @abstractmethod
    def take(self, segment: Segment, rows: FloatArray) -> Self:
        """The ascent with rows of the segment added to the tally."""

    @abstractmethod
    def close(self, segment: Segment, outlet: Outlet) -> Self:
        """Release the segment's tally once, update the ascent from the answer, and open the next segment."""

    @abstractmethod
    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Orthonormal (d, k) basis and (k,) mean rewards, largest first. Publishable."""

    @abstractmethod
    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        """The tally of no rows."""

    def opened(self, **changes: Any) -> Self:
        """The ascent with some values replaced, at the next segment."""
        after = replace(self, at=self.at + 1, **changes)
        following = after.segment
        return replace(after, tally=np.zeros(0) if following is None else after.empty(following))


def check_horizon(horizon: int, needed: int, smallest: int, margin: int) -> None:
    """Raise `BadParameterError` if the rows are too few.

    Parameters
    ----------
    horizon : rows.
    needed : rows that the mechanisms need.
    smallest : rows of the smallest minibatch.
    margin : how many times ``needed`` it takes until fewer than 1 run in 100 fails; 1 for a batch_size of the user's.
    """
    if horizon >= margin * needed:
        return
    why = f"{needed}" if margin == 1 else f"{margin * needed} for fewer than 1 run in 100 to fail"
    own = "" if margin == 1 else f"; with batch_size={smallest} it takes {needed}, and fails more often"
    raise BadParameterError(
        f"horizon={horizon} rows are too few for DPPCA: minibatches of {smallest} rows or more need {why}. "
        f"Pass more rows or a larger epsilon, or use GaussianCovariance or PrivateOja, which work at any n{own}"
    )


def batches(rows: int, smallest: int, growing: bool, at_least: int) -> Iterator[tuple[int, int]]:
    """Bounds of minibatches of one run: at least so many, the last one ending with it."""
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
