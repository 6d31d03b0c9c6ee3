"""Any mechanism, lifted into the stream: one release for each block of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from streampca.errors import BadParameter
from streampca.linalg.counts import check_count, use_plain_numbers
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor, chain_restored, chain_snapshot
from streampca.release import Release, Terms


@dataclass(frozen=True)
class Tumbling(Algorithm):
    """Release each block of rows once, by a mechanism; blocks do not overlap.

    A release speaks of its own block only. The rows of the block in progress
    are held until it is released and then forgotten.

    Parameters
    ----------
    mechanism : what makes the releases, e.g. `GaussianCovariance`.
    every : rows in a block.
    horizon : rows in the stream, if that is known; None for an endless one.
    keep_short : whether a shorter last block is released too, at the horizon
        or by `finish`. Public, like the number of rows.
    n_features : number of features; that of the mechanism, or of the first row, if left out.
    seed : for tests and scenarios; see `Stream`.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.

    Notes
    -----
    *Guarantee.* All releases together have that of one release (parallel
    composition, McSherry 2009): under zero-out and replace adjacency the
    positions of rows are public, so a row is in one block whatever its value.
    This fails under true addition and removal, which shift the rows that follow.
    """

    mechanism: Mechanism
    _: KW_ONLY
    every: int
    horizon: int | None = None
    keep_short: bool = False
    n_features: int | None = None
    seed: int | None = None
    #: Dimension to play with; before a mechanism that finds it has found it, the largest it looks for.
    n_components: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        mechanism = self.mechanism
        if not isinstance(mechanism, Mechanism):
            raise BadParameter(f"mechanism={mechanism!r} is not a mechanism; pass e.g. GaussianCovariance(...)")
        check_count("every", self.every)
        check_count("horizon", self.horizon, optional=True)
        check_count("n_features", self.n_features, optional=True)
        if mechanism.guarantee.adjacency not in ("zero-out", "replace", "none"):
            raise BadParameter(
                f"mechanism={mechanism!r} is private under {mechanism.guarantee.adjacency!r} adjacency, where a row "
                "moves those after it to other blocks; calibrate it for 'zero-out' or 'replace'"
            )
        if self.n_features is None:
            object.__setattr__(self, "n_features", mechanism.n_features)
        k = mechanism.n_components or int(getattr(mechanism, "max_components", None) or 1)
        object.__setattr__(self, "n_components", k)

    @property
    def guarantee(self) -> Guarantee:
        """That of one release, for all releases together."""
        one = self.mechanism.guarantee
        if not one.is_private:
            return one
        return replace(
            one,
            scope=f"all releases of the stream, one per block of {self.every} rows",
            theorem=f"{one.theorem}; parallel composition over disjoint blocks",
        )

    def check(self, n_features: int, *, appended: int = 0) -> None:
        """Raise `BadParameter` unless rows of so many features fit the parameters and the mechanism."""
        super().check(n_features, appended=appended)
        self.mechanism.check(n_features - appended)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Those of the mechanism."""
        return self.mechanism.constants(n_features)

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> TumblingProcessor:
        return TumblingProcessor(self, n_features, source, terms, source.first, 0, Rows(n_features))

    def _continued(
        self, n_features: int, source: NoiseSource, terms: Terms, snapshot: Mapping[str, Any]
    ) -> TumblingProcessor:
        chain, held = chain_restored(snapshot["chain"]), Rows.of(snapshot["held"])
        return TumblingProcessor(
            self, n_features, source, terms, chain, int(snapshot["t"]), held, bool(snapshot["finished"])
        )


class TumblingProcessor(Processor):
    """Where a run of `Tumbling` stands: the rows of the block in progress."""

    __slots__ = ("finished", "held")

    algorithm: Tumbling

    def __init__(
        self,
        algorithm: Tumbling,
        n_features: int,
        source: NoiseSource,
        terms: Terms,
        chain: Chain,
        t: int,
        held: Rows,
        finished: bool = False,
    ) -> None:
        super().__init__(algorithm, n_features, source, terms, chain, t)
        self.held = held
        self.finished = finished

    @property
    def rows_left(self) -> int | None:
        """How many more rows may be absorbed; None if endless."""
        if self.finished:
            return 0
        horizon = self.algorithm.horizon
        return None if horizon is None else horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """How many rows complete the block; 0 once the horizon is reached."""
        due, left = self.algorithm.every - self.held.count, self.rows_left
        return due if left is None else min(due, left)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[TumblingProcessor, Release | None]:
        """Hold the rows; release the block if they complete it."""
        algorithm = self.algorithm
        t, held = self.t + rows.shape[0], self.held.append(rows)
        if held.count == algorithm.every or (algorithm.keep_short and t == algorithm.horizon):
            release = algorithm.mechanism.released(held.array, outlet, self.terms, t)
            return self._next(outlet, t, Rows(self.n_features)), release
        return self._next(outlet, t, Rows(self.n_features) if t == algorithm.horizon else held), None

    def finish(self, outlet: Outlet) -> tuple[TumblingProcessor, Release | None]:
        """End the stream: release the last short block if ``keep_short``, else forget it.

        When to end must not depend on the rows. No rows are taken afterwards.
        """
        release = None
        if self.algorithm.keep_short and self.held.count:
            release = self.algorithm.mechanism.released(self.held.array, outlet, self.terms, self.t)
        return self._next(outlet, self.t, Rows(self.n_features), finished=True), release

    def _next(self, outlet: Outlet, t: int, held: Rows, finished: bool = False) -> TumblingProcessor:
        return TumblingProcessor(
            self.algorithm, self.n_features, self.source, self.terms, outlet.chain, t, held, finished
        )

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays that `Tumbling` continues from."""
        return {
            "t": self.t,
            "chain": chain_snapshot(self.chain),
            "held": self.held.array.copy(),
            "finished": self.finished,
        }
