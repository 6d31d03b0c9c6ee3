"""Private PCA as a scikit-learn transformer. Needs the extra ``sklearn``.

>>> import numpy as np
>>> from streampca.sklearn import PrivatePCA
>>> rows = np.random.default_rng(0).normal(size=(5_000, 6)) * [3, 2, 1, 0.3, 0.2, 0.1]
>>> pca = PrivatePCA(n_components=2, epsilon=1.0, delta=1e-6, row_norm=5.0).fit(rows)
>>> pca.transform(rows).shape
(5000, 2)

**What is private.** All attributes that end in an underscore; `get_covariance` and `get_precision`.
**What is not**: `admission`, and whatever takes rows. `transform`, `score_samples` and
`score` return functions of raw rows, as sensitive as the rows; so is a model that is trained on them further
down a pipeline, and so is what a grid search finds best by them.

**What would break it.** A step *before* this one that learns from rows, such
as ``StandardScaler``, lets one row change all others: the guarantee is then
about its output and no longer about your rows. Scale with public numbers:
``bounds=`` or ``row_norm=`` here, or a ``FunctionTransformer``.

**Every fit spends.** A grid search over 4 values with 5 folds fits 20 times, each
fold's rows in 16 of them. ``ledger=`` counts, and stops it when the budget is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np

from streampca.conversion import as_floats
from streampca.errors import BadParameterError, needs
from streampca.exclusive import Guard, exclusive
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency
from streampca.processors.base import Algorithm
from streampca.processors.private_fpl import PrivateFPL
from streampca.queries.answer import GramNoise
from streampca.queries.principal import pca
from streampca.release.release import Release
from streampca.rows.admission import Bounds
from streampca.rows.names import refuse_values
from streampca.rows.protocol import sparse_blocks
from streampca.rows.report import AdmissionReport
from streampca.store.ledger import LedgerFile
from streampca.stream.blocks import BlockCutter
from streampca.stream.stream import Stream

with needs("sklearn"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
    from sklearn.utils import Tags
    from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data

_DTYPES = [np.float64, np.float32]


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Private principal component analysis, all at once or in batches.

    `fit` makes one release of all rows, with the noise of the Gaussian
    mechanism, and keeps nothing that is not private. `partial_fit` makes one
    release a batch, all of them together under one budget, and keeps the
    exact sums it needs to go on.

    Parameters
    ----------
    n_components : number of components; or a share between 0 and 1: as many as have that share of the
        total variance by the release's own estimate (`streampca.Release.explained_variance_ratio`), chosen anew
        with every `partial_fit`; or None: as many as there are features. None of them costs more privacy.
    epsilon, delta : budget of one `fit`, or of all calls of `partial_fit` from the first on.
    row_norm : longer rows are scaled onto the ball of this radius. Public: never
        read it off the rows. At the default of 1, rows in other units are all cut to length 1.
    bounds : public ranges of the features, mapped into that ball: ``(lower,
        upper)``, numbers or arrays, or ``{feature: (lower, upper)}`` for tables with named columns.
        Components and variances are then those of the mapped features. ``"private"``, for `fit` alone: some of the
        rows, at most a quarter, spend their whole budget on finding them and serve for nothing else.
    whiten : divide scores by the standard deviations along their components, which are taken as no smaller
        than the noise lets them be known (the root of ``explained_variance_std_``).
    center : take the mean out, from the same private release: some 12 % more noise (`streampca.Stream`).
    adjacency : ``"zero-out"`` (one row against the zero row; the number of rows is public) or ``"replace"``.
    ledger, data_set : path of a ledger file and name of the data set whose
        budget pays, before the first row. Every `fit` pays; so do every clone and every copy that goes on.
    random_state : int or ``RandomState`` for tests: not private against whoever
        knows it. None draws a fresh key from the system, never from numpy's global state.

    Attributes
    ----------
    n_components_ : number of components found.
    components_ : (n_components_, n_features) array, by descending variance.
        Signs stay from one `partial_fit` to the next.
    explained_variance_ : (n_components_,) private estimates of the variances along them, not below 0.
    explained_variance_std_ : (n_components_,) sd of the noise in each of them, to first order.
        `explained_variance_interval` gives intervals that hold for all at once.
    explained_variance_ratio_ : (n_components_,) shares of the total variance along them, less the bias of the
        noise (`streampca.release.estimates`): never nan, with a sum of at most 1.
    noise_variance_ : mean variance along the other directions, debiased, for `get_covariance` and `score`; 0 if
        there are none. Not below its own standard deviation from the noise.
    mean_ : (n_features,) private mean, or what public bounds make of it if ``center=False``.
    scale_ : (n_features,) factors that public bounds imply; ones without.
    release_ : the latest release: Gram matrix, noise, details.
    guarantee_ : what is promised.
    n_samples_seen_ : rows learnt from, those that served for private bounds included. Public under either adjacency.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Raises
    ------
    BadParameterError
        A ``ValueError``: if a parameter does not fit the rows.
    BudgetExhaustedError
        If the ledger does not cover a fit. Nothing was learnt.

    Notes
    -----
    *Guarantee.* That of `PrivateFPL`, (epsilon, delta)-DP for one row; attributes are post-processing.

    *Copies.* The pickle of a fitted estimator holds what is publishable only. In the middle of
    `partial_fit` an estimator also holds exact sums and past noise, and so do its pickles: as secret as
    the rows. A copy goes on as another run, with noise of its own, which a ledger pays for before
    its next batch. Two runs on the same rows cost sqrt(2) times mu.

    After `fit`, `partial_fit` begins anew, on its own budget.
    """

    _parameter_constraints = {  # noqa: RUF012  scikit-learn's own convention
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0.0, 1.0, closed="neither"),
            None,
        ],
        "whiten": ["boolean"],
        "epsilon": [Interval(Real, 0.0, None, closed="neither")],
        "delta": [Interval(Real, 0.0, 1.0, closed="neither")],
        "row_norm": [Interval(Real, 0.0, None, closed="neither")],
        "bounds": [tuple, list, Mapping, StrOptions({"private"}), None],
        "center": ["boolean"],
        "adjacency": [StrOptions({"zero-out", "replace"})],
        "ledger": [str, PathLike, None],
        "data_set": [str, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        whiten: bool = False,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        row_norm: float = 1.0,
        bounds: Bounds | Literal["private"] | None = None,
        center: bool = True,
        adjacency: Adjacency = "zero-out",
        ledger: str | PathLike[str] | None = None,
        data_set: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
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

    @exclusive
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from all rows at once: one release. Forgets what was learnt before.

        Parameters
        ----------
        X : (n_rows, n_features) array, sparse matrix or table of finite numbers.
        y : ignored.
        """
        X = self._read(X, reset=True)
        n = X.shape[0]
        algorithm = PrivateFPL(
            n_components=self._most(), epsilon=float(self.epsilon), delta=float(self.delta),
            horizon=n, release_every=n, adjacency=self.adjacency,
        )  # fmt: skip
        stream = self._begun(algorithm)
        try:
            for block in _blocks(X):
                stream.push_many(block)
        finally:
            if stream.release is not None:  # also where a warning is an error
                self.__dict__.pop("_stream", None)
                self.__dict__.update(self._found(stream, None))
        return self

    @exclusive
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from one more batch: one more release. Sizes of batches must not depend on the rows.

        Parameters
        ----------
        X : (n_rows, n_features) array, sparse matrix or table of finite numbers; one row is enough.
        y : ignored.
        """
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is not None and not stream.t:
            stream = None  # a first batch was broken off or refused
        X = self._read(X, reset=stream is None)
        before = None if stream is None else getattr(self, "components_", None)
        if stream is None:
            if self.bounds == "private":
                raise BadParameterError("bounds='private' needs all rows at once: use fit, or give public bounds")
            algorithm = BatchFPL(
                n_components=self._most(), epsilon=float(self.epsilon), delta=float(self.delta),
                adjacency=self.adjacency,
            )  # fmt: skip
            stream = self._stream = self._begun(algorithm)
        try:
            push_batch(stream, X)
        finally:
            if stream.t:  # also where the batch was learnt from and something broke off after that
                self.__dict__.update(self._found(stream, before))
        return self

    @property
    def guard(self) -> Guard:
        """Lock and busy mark of `fit` and `partial_fit`. `__init__` sets parameters only."""
        guard: Guard = self.__dict__.setdefault("_own_guard", Guard("estimator"))
        return guard

    def _read(self, X: Any, *, reset: bool) -> Any:
        """What scikit-learn makes of rows, but that values which a masked array hides are missing."""
        if isinstance(X, np.ma.MaskedArray):
            X = as_floats(X)
        return validate_data(self, X, dtype=_DTYPES, accept_sparse="csr", reset=reset)

    def _most(self) -> int:
        """The number of components asked for; all of them where the release is to say how many."""
        d, k = int(self.n_features_in_), self.n_components
        if k is None or k < 1:
            return d
        if k > d:
            raise BadParameterError(f"n_components={k} exceeds n_features={d}; ask for fewer components")
        return int(k)

    def _begun(self, algorithm: Algorithm) -> Stream:
        names = getattr(self, "feature_names_in_", None)
        refuse_values(names if names is not None else (), "the table", "rename its columns, or pass X.to_numpy()")
        return Stream(
            algorithm,
            features=None if names is None else tuple(map(str, names)),
            row_norm=float(self.row_norm),
            bounds=tuple(self.bounds) if isinstance(self.bounds, list) else self.bounds,
            center=bool(self.center),
            regret=None,
            seed=self._seed(),
            ledger=LedgerFile.of(self.ledger, self.data_set),
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
        share = self.n_components
        if share is not None and share < 1:
            reached = np.cumsum(release.explained_variance_ratio) >= share
            release = release.replaced(n_components=int(reached.argmax()) + 1 if reached.any() else reached.size)
        assert release.eigenvalues is not None
        d = int(self.n_features_in_)
        middle, scale = stream.engine.now.admission.neutral(d), stream.engine.now.admission.ranges()[1]
        scale = np.ones(d) if scale is None else scale
        mean = release.details.get("mean", np.zeros(d))
        rows = _divisor(release, n)
        variances = np.maximum(release.eigenvalues / rows, 0.0)
        noise = GramNoise.of(release)
        assert noise is not None
        estimates, basis = release.estimates, release.subspace.basis
        others = release.n_features - release.n_components
        left = (float(np.trace(release.gram)) - float(estimates.variances.sum())) / rows
        left_std = noise.through(np.eye(release.n_features) - basis @ basis.T) / rows
        return {
            "n_components_": release.n_components,
            "components_": same_signs(basis, None if before is None else before.T).T,
            "n_samples_seen_": n,
            "_admission": stream.admission,
            "mean_": middle + np.asarray(mean, dtype=np.float64) / scale,
            "scale_": scale,
            "release_": release,
            "guarantee_": release.guarantee,
            "explained_variance_": variances,
            "explained_variance_std_": estimates.std / rows,
            "noise_variance_": max(left, left_std) / others if others else 0.0,
            "explained_variance_ratio_": release.explained_variance_ratio,
        }

    @property
    def admission(self) -> AdmissionReport | None:
        """What was done to the rows; None before the first, and in copies. Curator only: exact functions of raw rows.

        It has no underscore at its end: notebooks show the attributes that have one.
        """
        return self.__dict__.get("_admission")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_admission", "_own_guard")}

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
        """Scores of rows on the components, (n_rows, n_components_). **Not private**: as sensitive as the rows."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        scores = [self._seen(block) @ self.components_.T / self._divisors() for block in _blocks(X)]
        return np.concatenate(scores).astype(X.dtype, copy=False)

    def inverse_transform(self, X: Any) -> FloatArray:
        """Rows of the subspace that have these scores, (n_rows, n_features)."""
        check_is_fitted(self)
        scores = check_array(X, dtype=_DTYPES)
        rows: FloatArray = (scores * self._divisors()) @ self.components_ / self.scale_ + self.mean_
        return rows.astype(np.float32) if scores.dtype == np.float32 else rows

    def get_covariance(self) -> FloatArray:
        """Covariance by the model of probabilistic PCA, (n_features, n_features). Private, like the release.

        Debiased variances along the components (``release_.estimates``) and ``noise_variance_`` along all other
        directions, in the units of the rows given: those of bounds are undone. No variance is taken as smaller than
        ``noise_variance_`` or ``explained_variance_std_``, so that the matrix has an inverse.
        With ``center=False`` it is about ``mean_``, not about the mean of the rows.
        """
        check_is_fitted(self)
        units: FloatArray = np.outer(self.scale_, self.scale_)
        return self._of_variances(lambda variances: variances) / units

    def get_precision(self) -> FloatArray:
        """The inverse of `get_covariance`, (n_features, n_features). Private, like the release."""
        check_is_fitted(self)
        units: FloatArray = np.outer(self.scale_, self.scale_)
        return self._of_variances(lambda variances: 1.0 / variances) * units

    def score_samples(self, X: Any) -> FloatArray:
        """Log-likelihood of each row, (n_rows,), by the Gaussian model of `get_covariance`.

        **Not private**: each is a function of a raw row, and as sensitive as it is.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        variances, left = self._variances()
        d, others = self.components_.shape[1], self.components_.shape[1] - variances.size
        volume = d * math.log(2.0 * math.pi) + float(np.log(variances).sum() - 2.0 * np.log(self.scale_).sum())
        if others:
            volume += others * math.log(left)
        made = []
        for block in _blocks(X):
            seen = self._seen(block)
            along = seen @ self.components_.T
            distances = (along**2 / variances).sum(axis=1)
            if others:
                distances += ((seen - along @ self.components_) ** 2).sum(axis=1) / left
            made.append(-0.5 * (volume + distances))
        return np.concatenate(made)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of rows, as scikit-learn's model selection uses it.

        **Not private**: an exact function of the raw rows given. What a search chooses by it depends on them too.
        """
        return float(self.score_samples(X).mean())

    def _seen(self, rows: FloatArray) -> FloatArray:
        """Rows in the units of the components, less the mean."""
        return np.asarray((rows - self.mean_) * self.scale_, dtype=np.float64)

    def _divisors(self) -> FloatArray:
        """What scores are divided by, (n_components_,)."""
        std: FloatArray = np.sqrt(np.maximum(self.explained_variance_, self.explained_variance_std_))
        return std if self.whiten else np.ones_like(std)

    def _variances(self) -> tuple[FloatArray, float]:
        """Variances of the model along the components and along each other direction, in the components' units."""
        left, rows = float(self.noise_variance_), _divisor(self.release_, self.n_samples_seen_)
        least = np.maximum(self.explained_variance_std_, left)
        return np.maximum(self.release_.estimates.variances / rows, least), left

    def _of_variances(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """A function of the model's covariance matrix."""
        along, left = self._variances()
        V = self.components_.T
        matrix: FloatArray = (V * function(along)) @ V.T
        if V.shape[0] > V.shape[1]:
            matrix += function(np.array([left])) * (np.eye(V.shape[0]) - V @ V.T)
        return matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        """How many features `transform` makes."""
        return int(self.components_.shape[0])


def _blocks(X: Any) -> Iterator[FloatArray]:
    """Rows as dense blocks: an array as it is, a sparse matrix some rows at a time."""
    return sparse_blocks(X) if hasattr(X, "tocsr") else iter((X,))


def _divisor(release: Release, n: int) -> int:
    """What the sums of squares of n rows, less those of a warm-up, are divided by. Public."""
    return max(1, release.terms.count(1, n) - int(release.is_centered))


def same_signs(basis: FloatArray, towards: FloatArray | None) -> FloatArray:
    """The basis with each column's sign chosen to agree with the same column of another one, where it has one."""
    made = fix_signs(basis)
    if towards is not None:
        k = min(made.shape[1], towards.shape[1])
        made[:, :k] *= np.where(np.einsum("ij,ij->j", made[:, :k], towards[:, :k]) < 0.0, -1.0, 1.0)
    return made


@dataclass(frozen=True, kw_only=True)
class BatchFPL(PrivateFPL):
    """`PrivateFPL` with one leaf of the mechanism a batch, whatever its size: each block that is pushed is released.

    Where batches end must not depend on the rows; then a row is in one leaf,
    moves it by at most the sensitivity, and the guarantee is `PrivateFPL`'s.
    Few large batches have less noise than many small ones.
    """

    batches: ClassVar[bool] = True


def push_batch(stream: Stream, rows: Any) -> None:
    """Feed one batch, (n, d) with n >= 1, to a stream of `BatchFPL`: one block, and so one release."""
    admission = stream.engine.now.admission.fixed_by_block(next(_blocks(rows)))
    cutter = BlockCutter(admission, release_every=stream.t + rows.shape[0])
    for block in cutter.blocks(_blocks(rows), stream.t):
        stream.push_block(block)
