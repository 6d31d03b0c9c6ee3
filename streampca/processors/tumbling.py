"""Any mechanism as a streaming algorithm: one release of each block of rows."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

from streampca.errors import BadParameterError
from streampca.linalg.lattice import GramSum
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor
from streampca.release.clear import NoiseLaw
from streampca.release.release import Release
from streampca.release.terms import Terms


@dataclass(frozen=True)
class Tumbling(Algorithm):
    """A release of each disjoint block of rows, by any mechanism.

    A release depends on its own block only. The rows of the current block are held until its release.

    Parameters
    ----------
    mechanism : the mechanism of the releases, e.g. `GaussianCovariance`.
    release_every : rows in a block; or the period of a calendar, as for `PrivateFPL`, for `GaussianCovariance`.
    horizon : rows in the stream; None for an endless stream.
    keep_short : whether a shorter last block is released too, at the horizon or by `finish`. Public.

    Notes
    -----
    *Guarantee.* All releases together have the guarantee of one release by parallel composition (McSherry 2009).
    Under zero-out and replace adjacency the positions of rows are public, so a row is in one block for any value.
    This fails under true addition and removal, which shift the rows that follow. With ``GaussianCovariance(unit=...)``
    a person has one budget for all blocks.
    """

    mechanism: Mechanism
    _: KW_ONLY
    release_every: int | str
    horizon: Any = None  # rows or periods; a duration is converted
    keep_short: bool = False
    #: Dimension of the first scoring subspace. For a mechanism that chooses the dimension, the largest it considers.
    n_components: int = field(init=False, repr=False, compare=False)
    center: bool = field(init=False, repr=False, compare=False)
    square_bytes: float = field(init=False, repr=False, compare=False)

    is_gaussian = False

    def __post_init__(self) -> None:
        mechanism = self.mechanism
        if not isinstance(mechanism, Mechanism):
            raise BadParameterError("mechanism", mechanism, "a mechanism, such as GaussianCovariance(...)")
        if mechanism.guarantee.adjacency not in ("zero-out", "replace", "none"):
            # A row that is added moves the rows after it to other blocks.
            raise BadParameterError(
                "mechanism", mechanism, f"adjacency='zero-out' or 'replace', not {mechanism.guarantee.adjacency!r}"
            )
        vars(self).update(
            adjacency=mechanism.guarantee.adjacency, absorbs_periods=isinstance(mechanism, GaussianCovariance)
        )
        k = mechanism.n_components or int(getattr(mechanism, "max_components", None) or 1)
        vars(self).update(
            n_components=k, center=mechanism.center, unit=mechanism.unit, square_bytes=mechanism.square_bytes,
            completes=mechanism.completes, can_count_cells=mechanism.can_count_cells,
            counts_cells=mechanism.counts_cells,
        )  # fmt: skip
        super().__post_init__()

    def corrected(self, *, counting: bool) -> Self:
        return replace(self, mechanism=self.mechanism.corrected(counting=counting))

    @property
    def guarantee(self) -> Guarantee:
        return self.guarantee_for(None)

    def guarantee_for(self, n_features: int | None) -> Guarantee:
        # By parallel composition the guarantee of all releases equals that of one release.
        one = self.mechanism.guarantee if n_features is None else self.mechanism.guarantee_for(n_features)
        if not one.is_private:
            return one
        block = f"period ({self.release_every})" if self.has_calendar else f"block of {self.release_every} rows"
        scope, theorem = f"all releases of the stream, one per {block}", "parallel composition over disjoint blocks"
        if self.unit is not None:
            theorem = f"one budget a person for all blocks{' of a period' * (self.unit.period is not None)}"
            one = replace(one, contribution=self.unit.contribution(at_once=False))
        return self.dated(replace(one, scope=scope, theorem=f"{one.theorem}; {theorem}"))

    def check(self, n_features: int) -> None:
        super().check(n_features)
        self.mechanism.check(n_features)

    def noise_law(self, n_features: int) -> NoiseLaw | None:
        return self.mechanism.noise_law(n_features)

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.mechanism.constants(n_features)


class TumblingProcessor(Processor, of=Tumbling):
    """State of a run of `Tumbling`: the rows of the current block."""

    __slots__ = ("finished", "held")
    kept = __slots__

    algorithm: Tumbling

    def __init__(self, algorithm: Tumbling, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.held, self.finished = self.none, False

    @property
    def none(self) -> Rows:
        """No rows."""
        return Rows(self.n_features + self.further)

    @property
    def rows_left(self) -> int | None:
        return 0 if self.finished else super().rows_left

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[TumblingProcessor, Release | None]:
        algorithm = self.algorithm
        t, held = self.t + rows.shape[0], self.held.append(rows)
        # Rows are dropped at the horizon, too: a processor holds none that no release will cover.
        if held.count == algorithm.every or (algorithm.keep_short and t == algorithm.horizon):
            release = algorithm.mechanism.released(held.array, outlet, self.terms, t)
            return self.after(t, outlet.chain, held=self.none), release
        return self.after(t, outlet.chain, held=self.none if t == algorithm.horizon else held), None

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        t, mechanism = self.t + count, self.algorithm.mechanism
        assert isinstance(mechanism, GaussianCovariance)
        gram = GramSum(self.n_features, further=self.further).add_high_low(high, low)
        release = mechanism.released_gram(gram, math.inf, outlet, self.terms, t)
        return self.after(t, outlet.chain), release

    def finish(self, outlet: Outlet) -> tuple[TumblingProcessor, Release | None]:
        # Whether a short block is released is a public parameter, so the end of the stream shows nothing of its rows.
        release = None
        if self.algorithm.keep_short and self.held.count:
            release = self.algorithm.mechanism.released(self.held.array, outlet, self.terms, self.t)
        return self.after(self.t, outlet.chain, held=self.none, finished=True), release
