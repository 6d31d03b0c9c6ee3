"""Private PCA as a scikit-learn transformer. Needs the extra ``sklearn``.

>>> import numpy as np
>>> from streampca.sklearn import PrivatePCA
>>> rows = np.random.default_rng(0).normal(size=(5_000, 6)) * [3, 2, 1, 0.3, 0.2, 0.1]
>>> pca = PrivatePCA(n_components=2, epsilon=1.0, delta=1e-6, row_norm=5.0).fit(rows)
>>> pca.transform(rows).shape
(5000, 2)

*Private*: all attributes that end in an underscore; `get_covariance` and `get_precision`. *Not private*: `admission`,
and the results of `transform`, `score_samples` and `score`, which are as sensitive as the rows; so are a model that a
pipeline trains on them and the choice of a grid search. A previous step that learns from rows, such as
``StandardScaler``, breaks the guarantee: one row changes all others. Every fit spends budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from streampca.conversion import as_floats
from streampca.errors import BadParameterError, UsageError, needs
from streampca.exclusive import Guard, exclusive
from streampca.linalg.counts import check_components, check_switch
from streampca.linalg.eigen import fix_signs, signs_like
from streampca.linalg.scale import Bounds
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.unit import Person
from streampca.processors.private_fpl import PrivateFPL
from streampca.queries.answer import GramNoise
from streampca.queries.linear import pca
from streampca.release.clear import IN_RUN, ONE
from streampca.release.release import Release
from streampca.rows.admission import Shares
from streampca.rows.names import refuse_values
from streampca.rows.owners import one_each
from streampca.rows.protocol import sparse_blocks
from streampca.rows.report import AdmissionReport, tell_curator
from streampca.store.ledger import Account
from streampca.stream.blocks import BlockCutter
from streampca.stream.stream import Stream

with needs("sklearn"):
    import joblib
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data

_DTYPES = [np.float64, np.float32]


@dataclass(eq=False, repr=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Private principal component analysis of a whole table or of batches.

    `fit` creates one release of all rows, with the noise of the Gaussian mechanism, and keeps only private results.
    `partial_fit` creates one release a batch, all of them under one budget, and keeps exact sums for the next batch.

    Parameters
    ----------
    n_components : number of components. A share between 0 and 1 selects the fewest components with that share of the
        total variance, by the release's own estimate, anew with every `partial_fit`; one if none stands out from the
        noise. None selects all. The choice costs no privacy.
    whiten : divide scores by the standard deviations along their components, which are bounded below by the standard
        deviation of their noise (the root of ``explained_variance_std_``).
    epsilon, delta : budget of one `fit`, or of all calls of `partial_fit` after it.
    bounds, row_norm : as in `streampca.Stream`; `fit` refuses unless exactly one is given. Bounds by name are for
        tables. Components and variances are those of the mapped features. ``"private"`` bounds, for `fit` only, spend
        the budget of at most a quarter of the rows.
    center : subtract a private mean, of the same release. Increases the noise by 12.5 %.
    adjacency : neighboring tables differ in one row, which is replaced by zero (``"zero-out"``; the number of rows is
        public) or by any row (``"replace"``).
    on_missing, missing_rates, correct : what becomes of missing cells, as in `streampca.Stream`; `partial_fit` takes
        public shares only.
    unit : a `Person` without ``column``: all rows of a person are protected together, by the names that ``fit(X,
        person=...)`` gets. None protects rows.
    ledger, data_set : ledger file, and name of the data set whose budget pays before the first row. Every `fit`, every
        clone and every copy that continues pays.
    random_state : for tests: not private against anyone who knows it. None draws a fresh key from the system.

    Attributes
    ----------
    n_components_ : number of components.
    components_ : (`n_components_`, n_features), by descending variance. Signs persist between calls of `partial_fit`.
    explained_variance_, explained_variance_std_ : private estimates of the variances along them, not below 0, and the
        standard deviation of their noise, to first order. `explained_variance_interval` is simultaneous.
    explained_variance_ratio_ : shares of the total variance, debiased: never nan, with a sum of at most 1. 0 for
        components that do not stand out from the noise.
    n_clear_ : number of leading components that stand out from the noise (`streampca.Release.stands_out`).
    noise_variance_ : mean variance along the other directions, debiased, but at least its own standard deviation from
        the noise; 0 if there are none.
    mean_, scale_ : private mean (if ``center=False``, the center of public bounds), and the factors of public bounds.
    release_, guarantee_ : the latest `Release` and its privacy guarantee.
    n_samples_seen_ : number of rows, including those for private bounds. Public under either adjacency.

    Notes
    -----
    *Guarantee.* That of `PrivateFPL`, (epsilon, delta)-DP for one row; attributes are post-processing. After `fit`,
    `partial_fit` starts anew, on a budget of its own.

    *Copies.* The pickle of an estimator after `fit` holds only publishable values. Between calls of `partial_fit`, an
    estimator and its pickles also hold exact sums and past noise, as secret as the rows. A copy continues as another
    run, with noise of its own, for which a ledger pays: two runs on the same rows cost sqrt(2) times mu.
    """

    n_components: int | float | None = 2
    _: KW_ONLY
    whiten: bool = False
    epsilon: float = 1.0
    delta: float = DELTA
    bounds: Bounds | Literal["private"] | None = None
    row_norm: float | None = None
    center: bool = True
    adjacency: Adjacency = "zero-out"
    on_missing: Literal["bad", "cell"] = "bad"
    missing_rates: Shares = None
    correct: bool = True
    ledger: str | PathLike[str] | None = None
    data_set: str | None = None
    unit: Person | None = None
    random_state: int | np.random.RandomState | None = None
    # Attributes of a fitted estimator, which type checkers know by these lines.
    n_components_: int = field(init=False)
    components_: FloatArray = field(init=False)
    explained_variance_: FloatArray = field(init=False)
    explained_variance_std_: FloatArray = field(init=False)
    explained_variance_ratio_: FloatArray = field(init=False)
    n_clear_: int | None = field(init=False)
    noise_variance_: float = field(init=False)
    mean_: FloatArray = field(init=False)
    scale_: FloatArray = field(init=False)
    release_: Release = field(init=False)
    guarantee_: Guarantee = field(init=False)
    n_samples_seen_: int = field(init=False)
    n_features_in_: int = field(init=False)
    feature_names_in_: npt.NDArray[Any] = field(init=False)

    @exclusive
    def fit(self, X: Any, y: Any = None, person: Any = None) -> Self:
        """Create one release of all rows, an array, sparse matrix or table. Discard previous results.

        ``person`` has the name of each row's person, for an estimator with a ``unit``.
        """
        X, names = self._read(X, reset=True), self._names(person, X)
        n = X.shape[0]
        if names is not None and self.bounds != "private":
            # All rows of a person are at hand: they count with one weight.
            values = np.concatenate([*_blocks(X)])
            release = GaussianCovariance(**self._settings()).release(
                values if self._columns is None else pd.DataFrame(values, columns=list(self._columns)), person=names,
                bounds=self.bounds, row_norm=self.row_norm, seed=self._seed(),
                account=Account.of(self.ledger, self.data_set), on_missing=self.on_missing,
                missing_rates=self.missing_rates, correct=self.correct,
            )  # fmt: skip
            self.__dict__.pop("_stream", None)
            self.__dict__.update(self._results(release, n, None, None))
            return self
        # One release after all rows: the tree and BLT mechanisms of one leaf are the Gaussian mechanism.
        stream = self._new_stream(PrivateFPL, horizon=n, release_every=n)
        try:
            for block in _blocks(X):
                stream.push_many(block, ... if names is None else names[stream.t : stream.t + len(block)])
        finally:
            # Also if a warning is raised as an error: the release exists, and its budget is spent.
            if stream.release is not None:
                for name in ("_stream", "_stream_of"):
                    self.__dict__.pop(name, None)
                self.__dict__.update(self._results(stream.release, stream.t, None, stream.admission))
        tell_curator(stream.admission)
        return self

    @exclusive
    def partial_fit(self, X: Any, y: Any = None, person: Any = None) -> Self:
        """Absorb one more batch, as in `fit`, and create one more release.

        Sizes of batches must not depend on the rows. One row is enough. If the first batch is interrupted, the next
        call with equal parameters continues the same run, which a ledger pays for once.
        """
        stream: Stream | None = self.__dict__.get("_stream")
        # A stream without rows is of a first batch that was interrupted or refused.
        before = None if stream is None or not stream.t else getattr(self, "components_", None)
        X = self._read(X, reset=stream is None or not stream.t)
        names = self._names(person, X)
        if stream is None or not stream.t:
            if self.bounds == "private":
                raise UsageError("bounds='private' needs all rows: use fit, or pass public bounds")
            # The ledger may have paid for that stream: unless a parameter or the features have changed, it continues.
            if stream is None or self._stream_of != self._configuration():
                # With a unit, a batch is a period, whose sum may have any number of rows.
                kind, schedule = (BatchFPL, {}) if names is None else (PrivateFPL, {"release_every": "manual"})
                stream = self._new_stream(kind, **schedule)
                # Hashed after a seed was drawn from `random_state`, which changes its state. One call sets both.
                self.__dict__.update(_stream=stream, _stream_of=self._configuration())
        try:
            if names is not None:
                stream.push_many(np.concatenate([*_blocks(X)]), names)
                stream.close_period()
                return self
            # One block a batch, hence one release: the cutter's block is as long as the batch.
            admission = stream.engine.now.admission.fixed_by_block(next(_blocks(X)))
            cutter = BlockCutter(admission, release_every=stream.t + X.shape[0])
            for block in cutter.blocks(_blocks(X), stream.t):
                stream.push_block(block)
        finally:
            # Also if an error follows the release: attributes always describe the latest one.
            if stream.t:
                period, release = stream.engine.now.period, stream.release
                assert release is not None
                n = stream.t if period is None else period.rows
                self.__dict__.update(self._results(release, n, before, stream.admission))
        return self

    @property
    def guard(self) -> Guard:
        """Lock and busy mark of `fit` and `partial_fit`. scikit-learn lets `__init__` set parameters only."""
        guard: Guard = self.__dict__.setdefault("_own_guard", Guard("estimator"))
        return guard

    def _read(self, X: Any, *, reset: bool) -> Any:
        # scikit-learn ignores masks, but masked values are missing.
        if isinstance(X, np.ma.MaskedArray):
            X = as_floats(X)
        # Bad values make bad rows: an exception would depend on the rows, and leave a budget spent.
        return validate_data(self, X, dtype=_DTYPES, accept_sparse="csr", ensure_all_finite=False, reset=reset)

    def _names(self, person: Any, X: Any) -> list[Any] | None:
        if (self.unit is None) != (person is None):
            given = "person" if self.unit is None else "unit"
            raise UsageError(f"{given}: expected both unit=Person() and the names of the rows, fit(X, person=names)")
        if (unit := Person.of(self.unit)) is not None and unit.column is not None:
            raise BadParameterError("unit.column", unit.column, "None", advice="Pass fit(X, person=X[column])")
        return None if person is None else one_each(person, X.shape[0])

    def _configuration(self) -> str:
        return str(joblib.hash([self.get_params(), self.n_features_in_, getattr(self, "feature_names_in_", None)]))

    def _settings(self) -> dict[str, Any]:
        d = int(self.n_features_in_)
        # A share is selected from a release of all components.
        k: Any = d if self.n_components is None or self._share is not None else self.n_components
        check_components(k, d)
        check_switch("whiten", self.whiten)
        if (names := self._columns) is not None:
            refuse_values(names, "the table", "rename its columns, or pass X.to_numpy()")
        return {
            "n_components": k, "epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency,
            "center": self.center, "unit": self.unit,
        }  # fmt: skip

    @property
    def _columns(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    def _seed(self) -> int | None:
        seed = self.random_state
        return int(seed.randint(2**31 - 1)) if isinstance(seed, np.random.RandomState) else seed

    def _new_stream(self, algorithm: type[PrivateFPL], **schedule: Any) -> Stream:
        columns = self._columns
        return Stream(
            algorithm(**self._settings(), **schedule), bounds=self.bounds, row_norm=self.row_norm,
            features=int(self.n_features_in_) if columns is None else columns, regret=None, seed=self._seed(),
            account=Account.of(self.ledger, self.data_set), on_missing=self.on_missing,
            missing_rates=self.missing_rates, correct=self.correct,
        )  # fmt: skip

    @property
    def _share(self) -> float | None:
        """Share of the total variance that selects the number of components, if any."""
        k = self.n_components
        return float(k) if isinstance(k, (float, np.floating)) and 0.0 < k < 1.0 else None

    def _results(
        self, release: Release, n: int, before: FloatArray | None, admission: AdmissionReport | None
    ) -> dict[str, Any]:
        """Return the attributes, computed from the latest release only: post-processing."""
        # ``before`` are components whose signs persist.
        # The number of components is post-processing: a share depends on the release only.
        if self._share is not None:
            release = release.holding(self._share)
        assert release.eigenvalues is not None
        d = int(self.n_features_in_)
        scale = np.ones(d) * (1.0 if release.terms.scale is None else release.terms.scale)
        rows, others = _divisor(release, n), d - release.n_components
        estimates, basis, noise = release.estimates, release.subspace.basis, GramNoise.of(release)
        assert noise is not None
        # Variance outside the components. Its noise is that of the trace of the complement's projection.
        left = (float(np.trace(release.gram)) - float(estimates.variances.sum())) / rows
        left_std = noise.through(np.eye(d) - basis @ basis.T) / rows
        # Post-processing: signs are chosen from releases only.
        signed = fix_signs(basis)
        components = (signed if before is None else signs_like(signed, before.T)).T
        # A share of noise is no share. scikit-learn's attributes hold no nan.
        clear = release.stands_out(ONE if before is None else IN_RUN)
        ratio = release.explained_variance_ratio.copy()
        ratio[clear:] = 0.0
        return {
            "n_components_": release.n_components, "components_": components, "n_samples_seen_": n,
            "mean_": release.middle + np.asarray(release.details.get("mean", 0.0), dtype=np.float64) / scale,
            "scale_": scale, "release_": release, "guarantee_": release.guarantee, "_admission": admission,
            "explained_variance_": np.maximum(release.eigenvalues / rows, 0.0),
            "explained_variance_std_": estimates.std / rows,
            "explained_variance_ratio_": ratio, "n_clear_": clear,
            "noise_variance_": max(left, left_std) / others if others else 0.0,
        }  # fmt: skip

    @property
    def admission(self) -> AdmissionReport | None:
        """Counts of clipped and zeroed rows; None before the first, and in copies. Curator only: exact counts."""
        # The name has no underscore at its end, because notebooks show the attributes that have one.
        return self.__dict__.get("_admission")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # Privacy hazard: counts of clipped rows are exact functions of raw rows. Pickles are passed around.
        return {name: value for name, value in state.items() if name not in ("_admission", "_own_guard")}

    def explained_variance_interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends, (n_components,) each, for the exact variances.

        With probability ``level`` they simultaneously cover the variances along `components_` and the leading
        eigenvalues of the exact covariance of the admitted (scaled, clipped) rows (Weyl; exact for ``center=False``, to
        first order in the noise of the mean otherwise).
        """
        check_is_fitted(self)
        # Intervals of sums of squares; the divisor is public.
        low, high = pca(self.release_).interval(level)
        rows = _divisor(self.release_, self.n_samples_seen_)
        return np.maximum(low / rows, 0.0), np.maximum(high / rows, 0.0)

    def transform(self, X: Any) -> Any:
        """Return scores of rows, (n_rows, `n_components_`). **Not private**: as sensitive as the rows."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        # Scale once the (d, k) axes in place of the (n, k) scores.
        axes = self.components_.T / self._divisors()
        scores = [((block - self.mean_) * self.scale_) @ axes for block in _blocks(X)]
        return np.concatenate(scores).astype(X.dtype, copy=False)

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return the rows of the subspace with these scores, (n_rows, n_features)."""
        check_is_fitted(self)
        scores = check_array(X, dtype=_DTYPES)
        rows: FloatArray = (scores * self._divisors()) @ self.components_ / self.scale_ + self.mean_
        return rows.astype(np.float32) if scores.dtype == np.float32 else rows

    def get_covariance(self) -> FloatArray:
        """Return the covariance of probabilistic PCA, (n_features, n_features). Private, like the release.

        It has debiased variances along the components (``release_.estimates``), at least ``noise_variance_`` and
        ``explained_variance_std_``, so that it has an inverse, and ``noise_variance_`` along all other directions, in
        the units of the rows. With ``center=False`` it is about ``mean_``, not about the mean of the rows.
        """
        check_is_fitted(self)
        rows, left, V = _divisor(self.release_, self.n_samples_seen_), self.noise_variance_, self.components_.T
        along = np.maximum(self.release_.estimates.variances / rows, np.maximum(self.explained_variance_std_, left))
        matrix = (V * along) @ V.T
        if V.shape[0] > V.shape[1]:
            # V V^T projects on the components, and its complement has the variance of each other direction.
            matrix += left * (np.eye(V.shape[0]) - V @ V.T)
        return np.asarray(matrix / np.outer(self.scale_, self.scale_), dtype=np.float64)

    def get_precision(self) -> FloatArray:
        """Return the inverse of `get_covariance`. Private, like the release."""
        return np.asarray(np.linalg.inv(self.get_covariance()), dtype=np.float64)

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of each row, (n_rows,), by the model of `get_covariance`. **Not private**."""
        P = self.get_precision()
        # 2 log density = log det P - d log 2 pi - (x - mean)^T P (x - mean)
        constant = float(np.linalg.slogdet(P)[1]) - len(P) * math.log(2.0 * math.pi)
        rows = (block - self.mean_ for block in _blocks(self._read(X, reset=False)))
        return np.concatenate([0.5 * (constant - ((block @ P) * block).sum(axis=1)) for block in rows])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of rows, for model selection. **Not private**, and so is its choice."""
        return float(self.score_samples(X).mean())

    def _divisors(self) -> FloatArray:
        std: FloatArray = np.sqrt(np.maximum(self.explained_variance_, self.explained_variance_std_))
        return std if self.whiten else np.ones_like(std)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])


def _blocks(X: Any) -> Iterator[FloatArray]:
    """Return rows as dense blocks: an array as one block, a sparse matrix in parts."""
    return sparse_blocks(X) if hasattr(X, "tocsr") else iter((X,))


def _divisor(release: Release, n: int) -> float:
    """Return the divisor of the sums of squares of n rows, without a warm-up. Publishable."""
    if release.is_centered:
        return max(1.0, float(release.details["count"]) - 1.0)
    return release.terms.count(1, n)


@dataclass(frozen=True, kw_only=True)
class BatchFPL(PrivateFPL):
    """`PrivateFPL` with one leaf of the mechanism a batch of any size: each pushed block is released.

    *Guarantee.* If the ends of batches do not depend on the rows, a row is in one leaf and moves it by at most the
    sensitivity, as in `PrivateFPL`. Few large batches have less noise than many small ones.
    """

    batches: ClassVar[bool] = True
    release_every: int = 1  # after any batch
