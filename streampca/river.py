"""Private PCA as river transformers.

>>> from river import datasets
>>> from streampca.river import PrivatePCA
>>> model = PrivatePCA(n_components=3, epsilon=1.0, delta=1e-6, row_norm=500.0)
>>> for x, _ in datasets.ImageSegments():
...     model.learn_one(x)
>>> model.guarantee.epsilon
1.0

*Private*: ``components``, ``release`` and all values computed from them. *Not private*: scores from ``transform_one``,
which are those of a raw row and as sensitive, and a model that a pipeline trains on them. A previous step that learns
from rows, such as ``StandardScaler``, breaks the guarantee: one row changes all that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from river import base

from streampca.calendar import Calendar
from streampca.conversion import as_floats, frame_values, is_frame
from streampca.errors import BadParameterError, BadRowError, NoReleaseError, UsageError, short
from streampca.exclusive import Guard, exclusive
from streampca.linalg.scale import Bounds
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.configuration import for_missing
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.unit import Person
from streampca.processors.base import RELEASE_EVERY, Algorithm
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling
from streampca.release.release import Release
from streampca.rows.admission import Admission, Shares
from streampca.rows.names import NAME_THEM, refuse_values
from streampca.rows.report import AdmissionReport
from streampca.store.ledger import Account
from streampca.stream.stream import Stream

__all__ = ["PrivateBlockPCA", "PrivateOjaPCA", "PrivatePCA", "PrivateWindowPCA", "RiverAdapter"]


class _Feed:
    """A stream of rows with the features ``names``, for mappings whose features appear, disappear and change order."""

    def __init__(self, stream: Stream, names: tuple[Hashable, ...]) -> None:
        admission = stream.engine.now.admission
        self.stream, self.names = stream, names
        self.middle, scale = admission.middle, admission.ranges()[1]
        self.scale: Any = 1.0 if scale is None else scale  # without ranges, the middle is 0

    def row(self, x: Mapping[Any, Any]) -> list[Any]:
        """Return the values of one mapping, in order; nan for an absent feature."""
        return [x.get(name, math.nan) for name in self.names]

    def table(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the columns of a table, in order; nan for an absent feature."""
        # With two columns of one name, which one is the feature would depend on the order of the table.
        if not X.columns.is_unique:
            raise BadRowError(None, "two columns of the table have one name; names must differ")
        cells = {name: X[name] if name in X.columns else math.nan for name in self.names}
        return pd.DataFrame(cells, index=X.index)

    def seen(self, x: Mapping[Any, Any]) -> FloatArray:
        """Return one mapping in the units of the stream, neither clamped nor clipped, (d,). Missing values become 0."""
        values = self.row(x)
        try:
            scaled: FloatArray = (as_floats(values) - self.middle) * self.scale
        except (TypeError, ValueError, OverflowError):
            raise BadRowError(None, f"the row {short(values)} is not all numbers; drop or encode text first") from None
        return np.where(np.isnan(scaled), 0.0, scaled)


@dataclass(eq=False, repr=False)
class RiverAdapter(base.MiniBatchTransformer):
    """Base class of the transformers: their common parameters, features by name, one stream, scores of rows.

    Parameters
    ----------
    n_components : number of components.
    epsilon, delta : privacy budget of all releases of the stream.
    bounds, row_norm : as in `streampca.Stream`, with public bounds only. The first row is refused unless exactly one is
        given.
    features : names of the features, in order. By default, those of the first row in alphabetical order. Name them if
        the set of features of a row is itself a secret. Others are ignored. An absent one is a missing
        cell; a row in which one is no number is a bad row and counts for nothing (`streampca.Stream`).
    align : turn each basis within its subspace towards the previous one, so that scores neither flip nor swap. They
        are then not sorted by variance; `components` is. False uses the eigenvectors.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    on_missing, missing_rates, correct : what becomes of missing cells, as in `streampca.Stream`.
    unit : ``Person(column=...)``: all rows of a person are protected together. The column is a key of each mapping, and
        no feature.
    start : start of the first period of a calendar, as in `streampca.Stream`, for a ``release_every`` or ``block`` such
        as ``"1d"``. A row then counts in the period in which it is learned, by the clock, and `features` must be given.
    ledger, data_set : path of a ledger file, and name of the data set whose budget pays before the first row. A clone
        or copy that learns pays, too.
    seed : for tests: not private against anyone who knows it. None draws a fresh key from the system.

    Notes
    -----
    Scores are linear in the row, which is scaled by ``bounds``, but neither clamped nor clipped. In scores a missing
    value counts as 0, the middle of its bounds.

    *Copies.* A pickle or a deep copy of a model that has absorbed rows holds exact sums of raw rows and the keys of
    past noise: it is as secret as the rows. It continues as another run, with noise of its own (the same, if seeded).
    Two runs on the same rows cost sqrt(2) times mu. ``clone()`` starts a second run, too.

    *Interrupts.* After any exception in `learn_one` the model has absorbed the row or has not; ``t`` is the number of
    rows absorbed, or of closed periods. `learn_many` may stop between releases.
    """

    algorithm_of: ClassVar[Callable[..., Algorithm]]

    n_components: int = 2
    epsilon: float = 1.0
    delta: float = DELTA
    _: KW_ONLY
    bounds: Bounds | None = None
    row_norm: float | None = None
    features: Sequence[Hashable] | None = None
    align: bool = True
    adjacency: Adjacency = "zero-out"
    on_missing: Literal["bad", "cell"] = "bad"
    missing_rates: Shares = None
    correct: bool = True
    ledger: str | None = None
    data_set: str | None = None
    unit: Person | None = None
    start: Any = None
    seed: int | None = None

    def __post_init__(self) -> None:
        # The algorithm accepts the budget and the parameters that a subclass adds, under the same names.
        accepted = {"n_components", "epsilon", "delta", "adjacency", "unit"}
        shared = {field.name for field in fields(RiverAdapter)} - accepted
        names = [field.name for field in fields(self) if field.name not in shared]
        self._algorithm = self.algorithm_of(**{name: getattr(self, name) for name in names})
        unit = self._algorithm.unit
        self._columns: tuple[str, ...] = () if unit is None else unit.columns
        if unit is not None and not (self._columns and {*self._columns}.isdisjoint(self.features or ())):
            raise BadParameterError("unit.column", unit.column, "the name of a key that is no feature")
        # Raises for bad features or bounds before the first row.
        named = None if self.features is None else tuple(map(str, self._names(self.features)))
        norm = 1.0 if self.row_norm is None else self.row_norm
        admission = Admission(
            row_norm=norm, bounds=self.bounds, features=named, on_missing=self.on_missing,
            missing_rates=self.missing_rates, correct=self.correct,
        )  # fmt: skip
        for_missing(self._algorithm, admission.present)
        if Calendar.of(getattr(self._algorithm, "release_every", None), self.start) is not None and named is None:
            raise BadParameterError("features", None, "names: with a calendar, the first row must not determine them")
        self._account = Account.of(self.ledger, self.data_set)
        self.guard = Guard("model")
        self._feed: _Feed | None = None
        # Post-processing: alignment depends on releases only, and costs no privacy.
        self._scoring: tuple[int, FloatArray] | None = None  # t of a release, and the basis used for its scores
        self._labels = [f"pc{j}" for j in range(self.n_components)]

    def _names(self, features: Collection[Hashable]) -> tuple[Hashable, ...]:
        """Return the features that the caller fixed, or else those of the first row, in alphabetical order."""
        if self.features is not None:
            names = tuple(self.features)
        else:  # sorted, so that the order within the first row carries no information
            refuse_values(features, "the first row", NAME_THEM)
            names = tuple(sorted(features, key=lambda name: (str(name), type(name).__name__)))
        if len(names) < self.n_components:
            raise UsageError(
                f"n_components={self.n_components} exceeds the {len(names)} features {list(names)}; ask for fewer "
                "components, or pass features="
            )
        ordered = self.bounds is not None and not isinstance(self.bounds, Mapping) and np.ndim(self.bounds[0])
        if ordered and self.features is None:
            raise UsageError("bounds of several numbers need features= for their order; or pass bounds by name")
        return names

    def _begun(self, first: Collection[Hashable]) -> _Feed:
        """Return the stream and its features; before the first row, for these features or those that are fixed."""
        feed = self._feed
        if feed is not None and feed.stream.t:
            return feed
        names = self._names(first)
        # The ledger may have paid for a first row that was interrupted: the next row enters the same stream.
        if feed is None or feed.names != names:
            stream = Stream(
                self._algorithm, features=tuple(map(str, names)), bounds=self.bounds, row_norm=self.row_norm,
                regret=None, seed=self.seed, account=self._account, on_missing=self.on_missing,
                missing_rates=self.missing_rates, correct=self.correct, start=self.start,
            )  # fmt: skip
            self._feed = feed = _Feed(stream, names)
        return feed

    @exclusive
    def learn_one(self, x: dict[Any, Any]) -> None:
        """Absorb one row: a mapping from feature to number, or to text of a number. An error changes no state."""
        x, person = _mapping(x), cast(Any, ...)
        if names := self._columns:
            person = x.get(names[0]) if len(names) == 1 else tuple(map(x.get, names))
            x = {name: value for name, value in x.items() if name not in names}
        if not (x or self.t or self.features is not None):
            return  # an empty row does not fix the features
        feed = self._begun(x)
        feed.stream.push(feed.row(x), person)

    @exclusive
    def learn_many(self, X: Any) -> None:
        """Absorb a pandas or polars frame of rows, with the releases of `learn_one`, bit for bit."""
        X, person = _pandas(X), cast(Any, ...)
        if names := self._columns:
            if missing := [name for name in names if name not in X.columns]:
                raise BadRowError(None, f"the table lacks the columns {missing} of the unit")
            values = [list(X[name]) for name in names]
            person, X = values[0] if len(names) == 1 else list(zip(*values, strict=True)), X.drop(columns=list(names))
        if len(X):
            # A table's columns are features of its first row, too.
            feed = self._begun(X.columns)
            feed.stream.push_many(feed.table(X), person)

    @exclusive
    def tick(self, now: Any = None) -> None:
        """Close the periods of the calendar that are due at a time, by default now. See `streampca.Stream.tick`."""
        self._with_periods().tick(now)

    @exclusive
    def close_period(self) -> None:
        """Close the period of a calendar with ``release_every="manual"``, at a time that does not depend on rows."""
        self._with_periods().close_period()

    def _with_periods(self) -> Stream:
        """Return the stream, also before its first row."""
        if not self._algorithm.has_calendar:
            raise UsageError("release_every counts rows: there are no periods to close. Use '1d', for example")
        return self._begun(()).stream

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, Any]:
        """Return the scores of a row, ``{"pc0": ..., ...}``; 0 before the first release. As sensitive as the row."""
        x, feed, basis = _mapping(x), self._feed, self._basis()
        scores = np.zeros(self.n_components) if feed is None or basis is None else feed.seen(x) @ basis
        return dict(zip(self._labels, scores.tolist(), strict=True))

    def transform_many(self, X: Any) -> Any:
        """Return the scores of a frame of rows, as a frame of its kind and index. As sensitive as the rows."""
        table, feed, basis = _pandas(X), self._feed, self._basis()
        scores = np.zeros((len(table), self.n_components))
        if feed is not None and basis is not None:
            # The stream knows features as text, river as any hashable label.
            columns = dict(zip(map(str, feed.names), feed.names, strict=True))
            given = frame_values(feed.table(table), columns, BadRowError)
            try:
                cells = as_floats(given)
            except (TypeError, ValueError, OverflowError):
                raise BadRowError(None, "a column does not hold numbers; drop or encode text first") from None
            values = (cells - feed.middle) * feed.scale
            scores = np.where(np.isnan(values), 0.0, values) @ basis
        if table is not X:
            return type(X)(dict(zip(self._labels, scores.T, strict=True)))
        return pd.DataFrame(scores, index=X.index, columns=self._labels)

    def seen_one(self, x: dict[Any, Any]) -> FloatArray:
        """Return a row in the units of the stream, neither clamped nor clipped, (d,). As sensitive as the row."""
        return self._released()[0].seen(_mapping(x))

    def _basis(self) -> FloatArray | None:
        """Return the basis for scores of the latest release, or None before the first."""
        release, scoring = self.release, self._scoring
        if release is None:
            return None
        if scoring is None or scoring[0] != release.t:
            basis = release.subspace.basis
            if self.align and scoring is not None:
                # Orthogonal Procrustes: with B^T B' = U S W^T, the basis of span(B) closest to B' is B U W^T.
                left, _, right = np.linalg.svd(basis.T @ scoring[1])
                basis = basis @ (left @ right)
            self._scoring = scoring = release.t, basis
        return scoring[1]

    @property
    def t(self) -> int:
        """Number of rows absorbed, or of closed periods of a calendar."""
        return 0 if self._feed is None else self._feed.stream.t

    @property
    def admission(self) -> AdmissionReport | None:
        """Counts of clipped and zeroed rows; None before the first. Curator only: exact functions of raw rows."""
        return None if self._feed is None else self._feed.stream.admission

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of all releases, known before any row."""
        guarantee = self._algorithm.guarantee
        return guarantee if self.seed is None else guarantee.seeded()

    @property
    def release(self) -> Release | None:
        """Latest release, or None before the first. Publishable."""
        return None if self._feed is None else self._feed.stream.release

    @property
    def components(self) -> pd.DataFrame:
        """Components of the latest release by descending eigenvalue, a row each. Publishable."""
        feed, release = self._released()
        return pd.DataFrame(release.subspace.basis.T, index=self._labels, columns=list(feed.names))

    @property
    def explained_variance_ratio(self) -> pd.Series:
        """Shares of the total variance along the components, see `streampca.Release`. Publishable."""
        return pd.Series(self._released()[1].explained_variance_ratio, index=self._labels)

    def _released(self) -> tuple[_Feed, Release]:
        feed, release = self._feed, self.release
        if feed is None or release is None:
            raise NoReleaseError("no release yet; learn from more rows, or lower release_every")
        return feed, release


def _mapping(x: Any) -> Any:
    """Return a row as a mapping; raise `BadRowError` if it is none."""
    if isinstance(x, pd.Series):
        return x.to_dict()
    if isinstance(x, Mapping):
        return x
    raise BadRowError(None, f"a row of type {type(x).__name__}: expected a mapping from feature to number")


def _pandas(X: Any) -> pd.DataFrame:
    """Return a frame of another library, such as polars, as one of pandas."""
    if isinstance(X, pd.DataFrame):
        return X
    if not is_frame(X):
        raise BadRowError(None, f"rows of type {type(X).__name__}: expected a pandas or polars frame")
    # Column by column: the conversion of polars needs pyarrow.
    return pd.DataFrame({name: X[name].to_numpy() for name in X.columns})


@dataclass(eq=False, repr=False)
class PrivatePCA(RiverAdapter):
    """Private PCA of all rows so far (`streampca.PrivateFPL`); further parameters as `RiverAdapter`.

    Parameters
    ----------
    horizon : number of rows for which the noise is calibrated; None for an endless stream, with about 20 % more noise.
        With a calendar, a number of periods or a duration such as ``"365d"``.
    release_every : rows between releases. Noise and running time decrease as it increases. Or the period of a calendar.
    center : subtract a private mean, which increases the noise by 12.5 %. Scores are of the uncentered row. False is
        the form of the papers.
    """

    _: KW_ONLY
    horizon: int | str | None = None
    release_every: int | str = RELEASE_EVERY
    center: bool = True
    algorithm_of = PrivateFPL


@dataclass(eq=False, repr=False)
class PrivateWindowPCA(RiverAdapter):
    """Private PCA of the last rows of an endless stream (`streampca.SlidingWindowPCA`); else as `PrivatePCA`.

    Parameters
    ----------
    window : rows in the window, followed by the default method of `SlidingWindowPCA`; or periods, such as ``"30d"``.
    release_every : rows between releases, as in `SlidingWindowPCA`: 100 if None, where the window allows it. Or the
        period of a calendar.
    center : as in `PrivatePCA`, with the mean of the window.
    """

    _: KW_ONLY
    window: int | str = 1000
    release_every: int | str | None = None
    center: bool = True
    algorithm_of = SlidingWindowPCA


@dataclass(eq=False, repr=False)
class PrivateBlockPCA(RiverAdapter):
    """Private PCA of each block of rows independently (`streampca.Tumbling` of `streampca.GaussianCovariance`).

    `streampca.river_monitors.SubspaceDrift` tests from its releases whether the subspace has changed. Further
    parameters are those of `RiverAdapter`.

    Parameters
    ----------
    block : rows in a block, or the period of a calendar.
    center : subtract a private mean, which increases the noise by 12.5 %.
    """

    _: KW_ONLY
    block: int | str = 1000
    center: bool = True

    @staticmethod
    def algorithm_of(*, block: int | str, **parameters: Any) -> Tumbling:
        """Return the algorithm of these parameters."""
        return Tumbling(GaussianCovariance(**parameters), release_every=block)


@dataclass(eq=False, repr=False)
class PrivateOjaPCA(RiverAdapter):
    """Private PCA for thousands of features (`streampca.PrivateOja`); further parameters as `RiverAdapter`.

    Parameters
    ----------
    horizon : maximum number of rows, if known.
    batch_size : rows in a step; ``"auto"`` lengthens the steps. Every step adds the same noise, independent of its
        length. A release follows every step.
    """

    _: KW_ONLY
    horizon: int | None = None
    batch_size: int | Literal["auto"] = "auto"
    algorithm_of = PrivateOja
