"""Any mechanism as a streaming algorithm: one release of each block of rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar, Literal

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count, use_plain_numbers
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance, PastRelease
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor
from streampca.release.release import Release, Terms


@dataclass(frozen=True, repr=False)
class Tumbling(Algorithm):
    """Release each block of rows once, by a mechanism; blocks do not overlap.

    A release depends on its own block only. The rows of the block in progress
    are held until it is released and then dropped.

    Parameters
    ----------
    mechanism : what makes the releases, e.g. `GaussianCovariance`.
    release_every : rows in a block.
    horizon : rows in the stream, if known; no more are taken. None for an endless stream.
    keep_short : whether a shorter last block is released too, at the horizon
        or by `finish`. Public, like the number of rows.
    map_from : of `AdaptiveCovariance`: ``"block"`` chooses clipping and map from a first look at the block
        itself; ``"previous"`` from the release of the block before, so that all but 6 % of the
        budget goes to one look at the block's own rows. For blocks that resemble those before them.
    n_features : number of features; that of the mechanism, or of the first row, if left out.

    Notes
    -----
    *Guarantee.* All releases together have that of one release (parallel
    composition, McSherry 2009): under zero-out and replace adjacency the
    positions of rows are public, so a row is in one block whatever its value.
    This fails under true addition and removal, which shift the rows that follow.
    With ``map_from="previous"`` the mechanism of a block depends on past releases, and has its guarantee given these.
    """

    mechanism: Mechanism
    _: KW_ONLY
    release_every: int
    horizon: int | None = None
    keep_short: bool = False
    n_features: int | None = None
    map_from: Literal["block", "previous"] = field(default="block", repr=False)
    #: Dimension to play with; before a mechanism that finds it has found it, the largest it looks for.
    n_components: int = field(init=False, repr=False, compare=False)
    #: Whether the mechanism releases Gram matrices about the mean.
    center: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        mechanism = self.mechanism
        if not isinstance(mechanism, Mechanism):
            raise BadParameterError(f"mechanism={mechanism!r} is not a mechanism; pass e.g. GaussianCovariance(...)")
        check_count("release_every", self.release_every)
        check_count("horizon", self.horizon, optional=True)
        check_count("n_features", self.n_features, optional=True)
        if mechanism.guarantee.adjacency not in ("zero-out", "replace", "none"):
            raise BadParameterError(
                f"mechanism={mechanism!r} is private under {mechanism.guarantee.adjacency!r} adjacency, where a row "
                "moves those after it to other blocks; calibrate it for 'zero-out' or 'replace'"
            )
        if self.map_from not in ("block", "previous"):
            raise BadParameterError(f"map_from={self.map_from!r} is not known; use 'block' or 'previous'")
        if self.map_from == "previous" and not isinstance(mechanism, AdaptiveCovariance):
            raise BadParameterError(f"map_from='previous' is for AdaptiveCovariance, not {type(mechanism).__name__}")
        if self.n_features is None:
            object.__setattr__(self, "n_features", mechanism.n_features)
        k = mechanism.n_components or int(getattr(mechanism, "max_components", None) or 1)
        object.__setattr__(self, "n_components", k)
        object.__setattr__(self, "center", bool(getattr(mechanism, "center", False)))

    def centered(self) -> Tumbling:
        """The same with a mechanism that has ``center=True``; see `Algorithm.centered`."""
        if not isinstance(self.mechanism, GaussianCovariance):
            raise BadParameterError(
                f"center=True needs Tumbling of GaussianCovariance; {type(self.mechanism).__name__} does not center"
            )
        return replace(self, mechanism=replace(self.mechanism, center=True))

    @property
    def guarantee(self) -> Guarantee:
        """That of one release, for all releases together."""
        return self._of_all(self.mechanism.guarantee)

    def guarantee_for(self, n_features: int) -> Guarantee:
        """That of one release of rows with so many features, for all releases together."""
        return self._of_all(self.mechanism.guarantee_for(n_features))

    def _of_all(self, one: Guarantee) -> Guarantee:
        if not one.is_private:
            return one
        return replace(
            one,
            scope=f"all releases of the stream, one per block of {self.release_every} rows",
            theorem=f"{one.theorem}; parallel composition over disjoint blocks",
        )

    @property
    def square_bytes(self) -> float:
        """Those of the mechanism."""
        return self.mechanism.square_bytes

    def check(self, n_features: int) -> None:
        """Raise `BadParameterError` unless rows of so many features fit the parameters and the mechanism."""
        super().check(n_features)
        self.mechanism.check(n_features)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Those of the mechanism."""
        mechanism, constants = self.mechanism, self.mechanism.constants(n_features)
        if self.map_from == "previous" and isinstance(mechanism, AdaptiveCovariance):
            return (*constants, *mechanism.constants_after())
        return constants

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> TumblingProcessor:
        return TumblingProcessor(self, n_features, source, terms)


class TumblingProcessor(Processor):
    """State of a run of `Tumbling`.

    Attributes
    ----------
    held : rows of the block in progress.
    finished : True after `finish`.
    past : the release of the block before, with ``map_from="previous"``.
    """

    __slots__ = ("finished", "held", "past")
    kept = __slots__
    optional: ClassVar = {"past": PastRelease}

    algorithm: Tumbling

    def __init__(self, algorithm: Tumbling, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.held, self.finished = Rows(n_features), False
        self.past: PastRelease | None = None

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
        due, left = self.algorithm.release_every - self.held.count, self.rows_left
        return due if left is None else min(due, left)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[TumblingProcessor, Release | None]:
        """Hold the rows; release the block if they complete it."""
        algorithm = self.algorithm
        t, held = self.t + rows.shape[0], self.held.append(rows)
        if held.count == algorithm.release_every or (algorithm.keep_short and t == algorithm.horizon):
            release, past = self._released(held.array, outlet, t)
            return self.after(t, outlet.chain, held=Rows(self.n_features), past=past), release
        return self.after(t, outlet.chain, held=Rows(self.n_features) if t == algorithm.horizon else held), None

    def finish(self, outlet: Outlet) -> tuple[TumblingProcessor, Release | None]:
        """End the stream: release the last short block if ``keep_short``, else drop it.

        When to end must not depend on the rows. No rows are taken afterwards.
        """
        release = None
        if self.algorithm.keep_short and self.held.count:
            release, _ = self._released(self.held.array, outlet, self.t)
        return self.after(self.t, outlet.chain, held=Rows(self.n_features), finished=True), release

    def _released(self, rows: FloatArray, outlet: Outlet, t: int) -> tuple[Release, PastRelease | None]:
        """The release of a block, and what the next one takes from it."""
        mechanism = self.algorithm.mechanism
        if self.algorithm.map_from == "previous" and isinstance(mechanism, AdaptiveCovariance):
            return mechanism.released_after(rows, outlet, self.terms, t, self.past)
        return mechanism.released(rows, outlet, self.terms, t), None
