"""Private PCA as a scikit-learn transformer. Needs the extra ``sklearn``.

>>> import numpy as np
>>> from streampca.integrations.sklearn import PrivatePCA
>>> rows = np.random.default_rng(0).normal(size=(5_000, 6)) * [3, 2, 1, 0.3, 0.2, 0.1]
>>> pca = PrivatePCA(n_components=2, epsilon=1.0, delta=1e-6, row_norm=5.0).fit(rows)
>>> pca.transform(rows).shape
(5000, 2)

**What is private.** All attributes that end in an underscore. What `transform`
returns are scores of raw rows, as sensitive as the rows, and so is a model
that is trained on them further down a pipeline.

**What would break it.** A step *before* this one that learns from rows, such
as ``StandardScaler``, lets one row change all others: the guarantee is then
about its output and no longer about your rows. Scale with public numbers:
``bounds=`` or ``row_norm=`` here, or a ``FunctionTransformer``.

**Every fit spends.** A grid search over 4 values with 5 folds fits 20 times, each
fold's rows in 16 of them. ``ledger=`` counts, and stops it when the budget is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from streampca.admission import Bounds
from streampca.errors import BadParameter
from streampca.integrations._batches import BatchFPL, push_batch
from streampca.integrations._ledger import account
from streampca.integrations._scaling import Scaling, same_signs
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency
from streampca.processors.base import Algorithm
from streampca.processors.private_fpl import PrivateFPL
from streampca.queries.principal import pca
from streampca.release import Release
from streampca.stream import Stream


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Private principal component analysis, all at once or in batches.

    `fit` makes one release of all rows, with the noise of the Gaussian
    mechanism, and keeps nothing that is not private. `partial_fit` makes one
    release a batch, all of them together under one budget, and keeps the
    exact sums it needs to go on.

    Parameters
    ----------
    n_components : number of components.
    epsilon, delta : budget of one `fit`, or of all calls of `partial_fit` from the first on.
    row_norm : longer rows are scaled onto the ball of this radius. Public: never
        read it off the rows. At the default of 1, rows in other units are all cut to length 1.
    bounds : public ranges of the features, mapped into that ball: ``(lower,
        upper)``, numbers or arrays, or ``{feature: (lower, upper)}`` for tables with named columns.
        Components and variances are then those of the mapped features.
    center : take the mean out, from the same private release. Doubles the noise.
    adjacency : ``"zero-out"`` (one row against the zero row; the number of rows is public) or ``"replace"``.
    ledger, data_set : path of a ledger file and name of the data set whose
        budget pays, before the first row. Every `fit` pays; so do every clone and every copy that goes on.
    random_state : int or ``RandomState`` for tests: not private against whoever
        knows it. None draws a fresh key from the system, never from numpy's global state.

    Attributes
    ----------
    components_ : (n_components, n_features) array, by descending variance.
        Signs stay from one `partial_fit` to the next.
    explained_variance_ : (n_components,) private estimates of the variances along them, not below 0.
    explained_variance_std_ : sd of the noise in each of them, to first order.
        `explained_variance_interval` gives intervals that hold for all at once.
    explained_variance_ratio_ : the same as shares of the private total variance.
    mean_ : (n_features,) private mean, or what public bounds make of it if ``center=False``.
    scale_ : (n_features,) factors that public bounds imply; ones without.
    release_ : the latest release: Gram matrix, noise, details.
    guarantee_ : what is promised.
    n_samples_seen_ : rows learnt from. Public under either adjacency.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Raises
    ------
    BadParameter
        A ``ValueError``: if a parameter does not fit the rows.
    BudgetExhausted
        If the ledger does not cover a fit. Nothing was learnt.

    Notes
    -----
    *Guarantee.* That of `PrivateFPL`, (epsilon, delta)-DP for one row; attributes are post-processing.

    *Copies.* A fitted estimator holds what is publishable only. In the middle of
    `partial_fit` it also holds exact sums and past noise, and so do its pickles: as secret as
    the rows. A copy goes on as another run, with noise of its own, which a ledger pays for before
    its next batch. Two runs on the same rows cost sqrt(2) times mu.

    After `fit`, `partial_fit` begins anew, on its own budget.
    """

    _parameter_constraints = {  # noqa: RUF012  scikit-learn's own convention
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "epsilon": [Interval(Real, 0.0, None, closed="neither")],
        "delta": [Interval(Real, 0.0, 1.0, closed="neither")],
        "row_norm": [Interval(Real, 0.0, None, closed="neither")],
        "bounds": [tuple, list, Mapping, None],
        "center": ["boolean"],
        "adjacency": [StrOptions({"zero-out", "replace"})],
        "ledger": [str, PathLike, None],
        "data_set": [str, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        center: bool = True,
        adjacency: Adjacency = "zero-out",
        ledger: str | PathLike[str] | None = None,
        data_set: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.bounds = bounds
        self.center = center
        self.adjacency = adjacency
        self.ledger = ledger
        self.data_set = data_set
        self.random_state = random_state

    # -- learning -------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from all rows at once: one release. Forgets what was learnt before.

        Parameters
        ----------
        X : (n_rows, n_features) array or table of finite numbers.
        y : ignored.
        """
        X = validate_data(self, X, dtype=np.float64)
        n = X.shape[0]
        algorithm = PrivateFPL(
            n_components=int(self.n_components), epsilon=float(self.epsilon), delta=float(self.delta),
            horizon=n, release_every=n, adjacency=self.adjacency,
        )  # fmt: skip
        stream = self._begun(algorithm)
        stream.push_many(X)
        found = self._found(stream, None)
        self.__dict__.pop("_stream", None)
        self.__dict__.update(found)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from one more batch: one more release. Sizes of batches must not depend on the rows.

        Parameters
        ----------
        X : (n_rows, n_features) array or table of finite numbers; one row is enough.
        y : ignored.
        """
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is not None and not stream.t:
            stream = None  # a first batch was broken off or refused
        X = validate_data(self, X, dtype=np.float64, reset=stream is None)
        before = None if stream is None else getattr(self, "components_", None)
        if stream is None:
            algorithm = BatchFPL(
                n_components=int(self.n_components), epsilon=float(self.epsilon), delta=float(self.delta),
                adjacency=self.adjacency,
            )  # fmt: skip
            stream = self._stream = self._begun(algorithm)
        try:
            push_batch(stream, X)
        finally:
            if stream.t:  # also where the batch was learnt from and something broke off after that
                self.__dict__.update(self._found(stream, before))
        return self

    def _begun(self, algorithm: Algorithm) -> Stream:
        d = int(self.n_features_in_)
        names = getattr(self, "feature_names_in_", None)
        if self.n_components > d:
            raise BadParameter(f"n_components={self.n_components} exceeds n_features={d}; ask for fewer components")
        return Stream(
            algorithm,
            features=None if names is None else tuple(map(str, names)),
            row_norm=float(self.row_norm),
            bounds=tuple(self.bounds) if isinstance(self.bounds, list) else self.bounds,
            center=bool(self.center),
            regret=None,
            seed=self._seed(),
            ledger=account(self.ledger, self.data_set),
        )

    def _seed(self) -> int | None:
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31 - 1))
        return None if self.random_state is None else int(self.random_state)

    def _found(self, stream: Stream, before: FloatArray | None) -> dict[str, Any]:
        """The attributes, read off the latest release. Post-processing.

        ``before`` are components whose signs are to be kept.
        """
        release, n = stream.release, stream.t
        assert release is not None
        assert release.eigenvalues is not None
        scaling = Scaling.of(stream.admission, int(self.n_features_in_))
        mean = release.details.get("mean", np.zeros(self.n_features_in_))
        rows = _divisor(release, n)
        variances = np.maximum(release.eigenvalues / rows, 0.0)
        std = np.nan if release.noise_std is None else release.noise_std / rows
        total = float(np.trace(release.gram)) / rows
        shares = variances / total if total > 0.0 else np.full(release.n_components, np.nan)
        return {
            "components_": same_signs(release.subspace.basis, None if before is None else before.T).T,
            "n_samples_seen_": n,
            "mean_": scaling.middle + np.asarray(mean, dtype=np.float64) / scaling.scale,
            "scale_": scaling.scale,
            "release_": release,
            "guarantee_": release.guarantee,
            "explained_variance_": variances,
            "explained_variance_std_": np.full(release.n_components, std),
            "explained_variance_ratio_": np.minimum(shares, 1.0),
        }

    # -- using ----------------------------------------------------------------------

    def explained_variance_interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, (n_components,) each, for the exact variances.

        With probability ``level`` they cover, all at once, the variances along
        `components_` and the leading eigenvalues of the exact covariance of the admitted (scaled, clipped) rows
        (Weyl; exact for ``center=False``, to first order in the noise of the mean otherwise).
        """
        check_is_fitted(self)
        low, high = pca(self.release_).interval(level)
        rows = _divisor(self.release_, self.n_samples_seen_)
        return np.maximum(low / rows, 0.0), np.maximum(high / rows, 0.0)

    def transform(self, X: Any) -> Any:
        """Scores of rows on the components, (n_rows, n_components). As sensitive as the rows."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return ((X - self.mean_) * self.scale_) @ self.components_.T

    def inverse_transform(self, X: Any) -> FloatArray:
        """Rows of the subspace that have these scores, (n_rows, n_features)."""
        check_is_fitted(self)
        rows: FloatArray = np.asarray(X, dtype=np.float64) @ self.components_ / self.scale_ + self.mean_
        return rows

    @property
    def _n_features_out(self) -> int:
        """How many features `transform` makes."""
        return int(self.components_.shape[0])


def _divisor(release: Release, n: int) -> int:
    """What the sums of squares of n rows are divided by. Public."""
    return max(1, n - int(bool(release.details.get("centered"))))
