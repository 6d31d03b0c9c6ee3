"""Private releases: what may be published, and the subspace in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np

from streampca.conversion import as_block, as_floats, is_frame
from streampca.errors import BadParameterError, BadRowError, NoReleaseError, reason
from streampca.linalg import fast
from streampca.linalg.centering import CONSTANT, MeanNoise, centered
from streampca.linalg.eigen import principal_angles, ritz_pairs, top_pairs
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import pack_entries, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.release.estimates import Estimates
from streampca.rendering import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_JSON = json.JSONEncoder(allow_nan=False)


_SCORE_GRID = 2.0**30


@dataclass(frozen=True, eq=False)
class Subspace:
    """A k-dimensional subspace of feature space.

    Attributes
    ----------
    basis : (n_features, n_components) array with orthonormal columns, by
        descending eigenvalue where there are eigenvalues. The entry of
        largest magnitude of each column is positive.
    """

    basis: FloatArray

    @property
    def n_features(self) -> int:
        """Dimension of the space around it."""
        return int(self.basis.shape[0])

    @property
    def n_components(self) -> int:
        """Dimension of the subspace."""
        return int(self.basis.shape[1])

    @property
    def projector(self) -> FloatArray:
        """The orthogonal projector, (n_features, n_features)."""
        return self.basis @ self.basis.T

    def captured(self, gram: FloatArray) -> float:
        """Energy of a Gram matrix captured by the subspace, tr(V^T G V), in the units of G."""
        return float(np.vdot(self.basis, gram @ self.basis))

    def angles(self, other: Subspace) -> FloatArray:
        """Principal angles to another subspace, in radians, ascending."""
        return principal_angles(self.basis, other.basis)

    @classmethod
    def first_axes(cls, n_features: int, n_components: int) -> Subspace:
        """The span of the first coordinate axes: the subspace in play before the first release."""
        return cls(np.eye(n_features, n_components))


def scoring_basis(basis: FloatArray) -> FloatArray:
    """Round a basis to multiples of 2**-30: products with lattice rows are then exact, for every block size."""
    kernels = fast.kernels
    if kernels is not None and basis.ndim == 2 and basis.flags.f_contiguous:
        out = np.empty(basis.shape)
        kernels.rounded(basis.T, _SCORE_GRID, out)
        return out
    return np.rint(np.ascontiguousarray(basis) * _SCORE_GRID) * (1.0 / _SCORE_GRID)


class Scoring(NamedTuple):
    """Subspace and mean that score admitted rows, rounded by `scoring_basis`.

    The reward of a row a is ``||a||**2`` less its loss, the squared distance ``||(I - V V^T)(a - m)||**2`` from the
    subspace in play through the mean in play. Without centering, m is 0 and the reward ``||V^T a||**2``.

    Attributes
    ----------
    basis : (d, k) basis of the subspace. For centered streams a row of zeros is below it.
    linear : None, or for centered streams (d + 1,) such that the reward is ``||V^T a||**2 + 2 linear . [a; c]``,
        with c the constant of `linalg.centering`.
    """

    basis: FloatArray
    linear: FloatArray | None = None

    @classmethod
    def of(cls, basis: FloatArray, mean: FloatArray | None = None) -> Scoring:
        """Scoring of a subspace, and of a mean in units of row_norm = 1 for centered streams."""
        if mean is None:
            return cls(scoring_basis(basis))
        across = mean - basis @ (basis.T @ mean)
        linear = np.append(across, float(across @ across) * (-0.5 / CONSTANT))
        return cls(scoring_basis(np.vstack([basis, np.zeros(basis.shape[1])])), scoring_basis(linear))

    @classmethod
    def of_release(cls, release: Release) -> Scoring:
        """Scoring of the subspace, and of the mean, of a release."""
        return cls.of(release.span, release.mean / release.row_norm if release.is_centered else None)

    @classmethod
    def first(cls, n_features: int, n_components: int, *, center: bool) -> Scoring:
        """Scoring of the first coordinate axes, through 0, for admitted rows of ``n_features`` numbers."""
        d = n_features - int(center)
        return cls.of(Subspace.first_axes(d, n_components).basis, np.zeros(d) if center else None)


def score(rows: FloatArray, scoring: Scoring) -> FloatArray:
    """Rewards of admitted rows, (n,), in units of row_norm = 1: the same bits with and without compiled kernels.

    Curator only.
    """
    products = rows @ scoring.basis
    scores: FloatArray = np.vecdot(products, products)
    if scoring.linear is not None:
        scores += 2.0 * (rows @ scoring.linear)
    return scores


def rewarded(rows: FloatArray, scoring: Scoring, reward: float = 0.0) -> tuple[FloatArray, float]:
    """`score` up to rounding, and ``reward`` with the rewards added, one by one, so that blocks cannot change a bit."""
    kernels = fast.kernels
    if kernels is not None and scoring.linear is None:
        scores = np.empty(rows.shape[0])
        return scores, kernels.score(rows, scoring.basis, reward, scores)
    scores = score(rows, scoring)
    if scores.size == 1:
        return scores, reward + float(scores[0])
    return scores, float(np.add.accumulate(np.concatenate(([reward], scores)))[-1])


@dataclass(frozen=True, eq=False)
class Terms:
    """Public facts that all releases of a run share.

    Attributes
    ----------
    guarantee : privacy guarantee of all of them together.
    row_norm : norm to which rows were clipped; Gram matrices, eigenvalues and noise are in units of its square.
    features : names of the features, in order; None if rows are not named.
    middle, scale : (d,) arrays: rows were seen as ``(row - middle) * scale``, by public
        bounds; None where they were not scaled.
    warmup : rows from the first on that served to find these bounds and are no part of the Gram matrix.
    """

    guarantee: Guarantee
    row_norm: float = 1.0
    features: tuple[str, ...] | None = None
    middle: FloatArray | None = None
    scale: FloatArray | None = None
    warmup: int = 0

    def count(self, first: int, last: int) -> int:
        """Rows ``first`` to ``last`` of the stream without those of the warm-up; at least 1."""
        return max(1, last - max(first - 1, self.warmup))

    def of_unit(self, std: float | None) -> float | None:
        """A standard deviation in units of row_norm**2 = 1 in those of the rows."""
        return None if std is None else std * self.row_norm**2

    @cached_property
    def encoded(self) -> dict[str, bytes]:
        """JSON of each value, by name."""
        values = {
            "row_norm": self.row_norm,
            "features": None if self.features is None else list(self.features),
            "guarantee": self.guarantee.to_dict(),
        }
        if self.middle is not None and self.scale is not None:
            values |= {"middle": self.middle.tolist(), "scale": self.scale.tolist()}
        if self.warmup:
            values["warmup"] = self.warmup
        return {name: _JSON.encode(value).encode() for name, value in values.items()}

    @cached_property
    def mark(self) -> str:
        """A name: equal for terms of equal values, and for no others."""
        return blake2b(b"|".join(self.encoded.values()), digest_size=8).hexdigest()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Terms:
        """The terms among the JSON values of a release or of a header."""
        features, middle, scale = data["features"], data.get("middle"), data.get("scale")
        row_norm = float(data["row_norm"])
        if not 1e-150 < row_norm < 1e150:
            raise ValueError(f"row_norm={row_norm} must be a positive finite number")
        return cls(
            Guarantee.from_dict(data["guarantee"]),
            row_norm,
            None if features is None else tuple(str(name) for name in features),
            None if middle is None else _numbers(middle, 1.0, *np.shape(middle)),
            None if scale is None else _numbers(scale, 1.0, *np.shape(scale)),
            int(data.get("warmup", 0)),
        )


def centered_fields(
    packed: FloatArray, count: float, std: float, terms: Terms, details: Mapping[str, Any], smoothed: FloatArray | None
) -> dict[str, Any]:
    """Fields of a `Release` about the mean, from a private Gram matrix of rows with the constant of `linalg.centering`.

    Parameters
    ----------
    packed, count, std : as `linalg.centering.centered` takes them.
    terms, details : of the release; details gain ``"centered"``, ``"mean"``, ``"count"`` and ``"joint_noise_std"``,
        the standard deviation of a diagonal entry of the noise before the mean was taken out, from which
        `Release.noise_law` follows.
    smoothed : packed estimate of the exact matrix, in which rows have weights that add up to its own count.
    """
    about = centered(packed, count, std)
    mean = (about.mean * terms.row_norm).tolist()
    if "rewards" in details:  # what intervals for the regret are computed from
        sums = {"rows": (about.sums * terms.row_norm).tolist(), "noise_std": std * terms.row_norm**2}
        details = {**details, "rewards": {**details["rewards"], **sums}}
    if smoothed is not None:
        smoothed = centered(smoothed, float(smoothed[-1]) / CONSTANT**2, 0.0).packed
    return {
        "packed_gram": about.packed,
        "noise_std": about.noise_std,
        "details": {
            **details,
            "centered": True,
            "mean": mean,
            "count": count,
            "joint_noise_std": std * terms.row_norm**2,
        },
        "packed_smoothed": smoothed,
    }


class Release:
    """One publishable output of a mechanism or processor. Immutable.

    Everything reachable from a release is safe to publish under
    ``guarantee``. Eigenvectors are computed when first read.

    Parameters
    ----------
    t : rows seen when it was made.
    n_components : dimension of the subspace.
    terms : what it shares with the other releases of its run; or, in its place,
        ``guarantee``, ``row_norm`` and ``features``, as in `Terms`.
    packed_gram : packed upper triangle of the private Gram matrix, if there is one.
    basis : (d, k) orthonormal array, for releases without a Gram matrix.
    span : (d, k) orthonormal array, for releases whose subspace is not that of
        the top eigenvectors of their Gram matrix.
    packed_smoothed : packed upper triangle of an estimate of the exact Gram matrix from this and earlier releases,
        for releases whose subspace is that of its top eigenvectors.
    eigenvalues : (k,) array, where the mechanism releases them apart.
    noise_std : standard deviation of a diagonal entry of the noise in `gram` (off-diagonal
        entries have standard deviation ``noise_std / sqrt(2)``), where that is the noise's law.
    details : further publishable facts, JSON values only.

    Notes
    -----
    Arrays given to a release become read-only.
    """

    __slots__ = (
        "_details", "_gram", "_pair", "n_components",
        "own_basis", "own_eigenvalues", "own_noise_std", "own_smoothed", "own_span", "packed", "t", "terms",
    )  # fmt: skip

    #: What was given, in units of row_norm = 1. `gram`, `eigenvalues` and `noise_std` are in those of the rows.
    packed: FloatArray | None
    own_basis: FloatArray | None
    own_span: FloatArray | None
    own_eigenvalues: FloatArray | None
    own_smoothed: FloatArray | None
    own_noise_std: float | None
    t: int
    n_components: int
    terms: Terms
    _details: Mapping[str, Any]
    _gram: FloatArray | None
    _pair: tuple[FloatArray | None, Subspace] | None

    def __init__(
        self,
        *,
        t: int,
        n_components: int,
        terms: Terms | None = None,
        guarantee: Guarantee | None = None,
        packed_gram: FloatArray | None = None,
        basis: FloatArray | None = None,
        span: FloatArray | None = None,
        eigenvalues: FloatArray | None = None,
        noise_std: float | None = None,
        row_norm: float = 1.0,
        features: Sequence[str] | None = None,
        details: Mapping[str, Any] | None = None,
        packed_smoothed: FloatArray | None = None,
    ) -> None:
        if packed_gram is None and basis is None:
            raise BadParameterError("a release needs packed_gram or basis")
        if terms is None:
            if guarantee is None:
                raise BadParameterError("a release needs terms or a guarantee")
            terms = Terms(guarantee, row_norm, None if features is None else tuple(features))
        for array in (packed_gram, packed_smoothed, basis, span, eigenvalues):
            if array is not None:
                array.setflags(write=False)
        put = object.__setattr__
        put(self, "t", t)
        put(self, "n_components", n_components)
        put(self, "terms", terms)
        put(self, "packed", packed_gram)
        put(self, "own_basis", basis)
        put(self, "own_span", span)
        put(self, "own_smoothed", packed_smoothed)
        put(self, "own_eigenvalues", eigenvalues)
        put(self, "own_noise_std", noise_std)
        put(self, "_details", details or {})
        put(self, "_gram", None)
        put(self, "_pair", None)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a release cannot be changed; Release.replaced({name}=...) makes another one")

    __delattr__ = None  # type: ignore[assignment]

    def replaced(self, **changes: Any) -> Release:
        """Another release that differs in some parameters of the constructor."""
        return Release(**{**self._given(), **changes})

    def _given(self) -> dict[str, Any]:
        """The parameters of the constructor."""
        return {
            "t": self.t,
            "n_components": self.n_components,
            "terms": self.terms,
            "packed_gram": self.packed,
            "basis": self.own_basis,
            "span": self.own_span,
            "eigenvalues": self.own_eigenvalues,
            "noise_std": self.own_noise_std,
            "details": dict(self._details),
            "packed_smoothed": self.own_smoothed,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._given(),)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases of the run together."""
        return self.terms.guarantee

    @property
    def row_norm(self) -> float:
        """Norm to which rows were clipped."""
        return self.terms.row_norm

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features, in order; None if rows are not named."""
        return self.terms.features

    @property
    def details(self) -> dict[str, Any]:
        """Further publishable facts: a copy."""
        return {name: _copied(value) for name, value in self._details.items()}

    @property
    def n_features(self) -> int:
        """Number of features."""
        if self.own_basis is not None:
            return int(self.own_basis.shape[0])
        return _side(self.packed)

    @property
    def is_centered(self) -> bool:
        """True if `gram` is about the private mean (a stream with ``center=True``)."""
        return bool(self._details.get("centered"))

    @property
    def mean(self) -> FloatArray:
        """The private mean of the rows as they were seen (scaled by bounds), (d,); zeros if not centered."""
        return np.asarray(self._details.get("mean", np.zeros(self.n_features)), dtype=np.float64)

    @property
    def has_gram(self) -> bool:
        """True if a private Gram matrix is part of the release."""
        return self.packed is not None

    @property
    def gram(self) -> FloatArray:
        """The private Gram matrix (d, d), in units of row_norm**2. Symmetric, not always PSD.

        Raises
        ------
        NoReleaseError
            If the mechanism releases a subspace only.
        """
        gram = self._gram
        if gram is None:
            if self.packed is None:
                raise NoReleaseError("this release holds a subspace only, no Gram matrix; use release.subspace")
            gram = unpack_entries(self.packed, self.n_features) * self.row_norm**2
            gram.flags.writeable = False
            object.__setattr__(self, "_gram", gram)
        return gram

    @property
    def smoothed(self) -> FloatArray | None:
        """Estimate of the exact Gram matrix (d, d) from this and earlier releases, in units of row_norm**2.

        None where there is none. `subspace` and `eigenvalues` are those of this matrix. Its noise is a linear filter
        of that of the releases, so its law is known (``details["smoothed_noise_std"]``); its bias is not, since it
        depends on how the rows change. `noise_std`, `estimates` and the error bars of queries are those of `gram`.
        """
        if self.own_smoothed is None:
            return None
        matrix = unpack_entries(self.own_smoothed, self.n_features) * self.row_norm**2
        matrix.flags.writeable = False
        return matrix

    @property
    def noise_std(self) -> float | None:
        """Standard deviation of a diagonal entry of the noise in `gram`, in units of row_norm**2.

        Of a centered release it is a bound, for all directions: `noise_law` has what holds along each.
        """
        return None if self.own_noise_std is None else self.own_noise_std * self.terms.row_norm**2

    @property
    def noise_law(self) -> tuple[float, MeanNoise | None] | None:
        """Standard deviation of the isotropic part of the noise in `gram`, and what the mean adds to it, if centered.

        In units of row_norm**2. None if the law is not stated.
        """
        if self.noise_std is None or "joint_noise_std" not in self._details:
            return None if self.noise_std is None else (self.noise_std, None)  # once, centered ones had the bound only
        return self._centered_law(float(self._details["joint_noise_std"]))

    def _centered_law(self, joint: float) -> tuple[float, MeanNoise | None]:
        """The law of the noise in a matrix about the mean, from its sd before the mean was taken out."""
        if "joint_noise_std" not in self._details:
            return joint, None
        unit = self.row_norm
        isotropic, mean = MeanNoise.of(self.mean / unit, joint / unit**2, float(self._details["count"]))
        return isotropic * unit**2, mean

    @property
    def subspace(self) -> Subspace:
        """The private subspace."""
        return (self._pair or self._eigen())[1]

    def _eigen(self) -> tuple[FloatArray | None, Subspace]:
        """Eigenvalues, in units of row_norm = 1, and the subspace; computed when first asked for."""
        values, basis, span = self.own_eigenvalues, self.own_basis, self.own_span
        own = self.packed if self.own_smoothed is None else self.own_smoothed
        if basis is None and own is not None:
            # The rewards in later releases are computed from these bases: their bits are hidden, and stay the same.
            plain = "rewards" in self._details
            k = self.n_components
            values, basis = top_pairs(own, k, plain=plain) if span is None else ritz_pairs(own, span, plain=plain)
            basis.setflags(write=False)
        subspace = Subspace.__new__(Subspace)  # this runs once a release: no call of __init__
        object.__setattr__(subspace, "basis", basis)
        pair = values, subspace
        object.__setattr__(self, "_pair", pair)
        return pair

    @property
    def span(self) -> FloatArray:
        """Some orthonormal basis of the subspace, (d, k): the one that costs least to compute."""
        return self.subspace.basis if self.own_span is None else self.own_span

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Top eigenvalues of `gram`, or of `smoothed`, descending; None where no spectrum is released."""
        values = (self._pair or self._eigen())[0]
        return None if values is None else values * self.terms.row_norm**2

    @property
    def estimates(self) -> Estimates:
        """Debiased variances, quality of directions, shares, intervals and a shrunk matrix, from `gram`.

        They are for the leading eigenvectors of `gram`, which are those of `subspace` unless a solver
        reads it off something else. Computed anew each time, in O(d^3): keep the object to ask it more than once.

        Raises
        ------
        NoReleaseError
            If there is no Gram matrix, or the law of its noise is not stated.
        """
        if self.packed is not None and self.own_noise_std is None:
            raise NoReleaseError(
                "the release does not state the law of its noise (noise_std is None), so nothing can be estimated "
                "from it; ask a release of a Gaussian mechanism or processor"
            )
        return self._estimates()

    @property
    def component_estimates(self) -> Estimates:
        """`estimates` for the components in `subspace`: of `smoothed` where there is one, and else of `gram`.

        Those of a smoothed matrix are of its noise only. The bias of smoothing depends on how the rows
        change, and cannot be computed from the releases.

        Raises
        ------
        NoReleaseError
            If there is no Gram matrix, or the law of its noise is not stated.
        """
        if self.own_smoothed is None:
            return self.estimates
        std = self._details.get("smoothed_noise_std")
        if std is None:
            raise NoReleaseError("the release does not state the law of the noise in its smoothed matrix")
        return self._estimates(self.smoothed, float(std))

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Shares of the total variance along the leading eigenvectors of `gram`, (k,): a sum of at most 1, never nan.

        See `Estimates.explained_variance_ratio`. Not debiased if the law of the noise is not stated.

        Raises
        ------
        NoReleaseError
            If there is no Gram matrix.
        """
        return self._estimates().explained_variance_ratio

    def _estimates(self, gram: FloatArray | None = None, noise_std: float = 0.0) -> Estimates:
        # A decayed sum has the mass of fewer rows than were seen.
        decayed = "decay_per_release" in self._details
        rows = max(1, self.t) if decayed else rows_summed(self)
        k = max(1, self.n_components)
        law = self.noise_law if gram is None else self._centered_law(noise_std)
        std, mean = law or (0.0, None)
        gram = self.gram if gram is None else gram
        return Estimates(gram=gram, noise_std=std, n_components=k, rows=rows, row_norm=self.row_norm, mean=mean)

    def transform(self, rows: Any) -> FloatArray:
        """Scores of raw rows on the released subspace. Not private: a score is a function of its row.

        Parameters
        ----------
        rows : (n, d) array in the units and order of the features, or a table with a column
            for each of them. Rows are neither clamped nor clipped.

        Returns
        -------
        (n, k) array. If the release was centered, scores are of rows less its private mean.

        Raises
        ------
        BadRowError
            If the rows do not fit the features.
        """
        rows = as_block(rows)
        if is_frame(rows) and self.features is not None:
            missing = [name for name in self.features if name not in rows.columns]
            if missing:
                raise BadRowError(
                    f"the table lacks feature {missing[0]!r}; the features are {', '.join(self.features)}"
                )
            rows = rows[list(self.features)]
        try:
            values = as_floats(rows)
        except (TypeError, ValueError, OverflowError):
            raise BadRowError("rows must be an (n, d) array of numbers, or a table with a column a feature") from None
        if values.ndim != 2 or values.shape[1] != self.n_features:
            raise BadRowError(f"rows of shape {values.shape} given; (n, {self.n_features}) expected")
        terms = self.terms
        if terms.scale is not None and terms.middle is not None:
            values = (values - terms.middle) * terms.scale
        if "mean" in self._details:
            values = values - np.asarray(self._details["mean"], dtype=np.float64)
        scores: FloatArray = values @ self.subspace.basis
        return scores

    def to_dict(self, *, gram: bool = True) -> dict[str, Any]:
        """JSON values. With ``gram=False``, without the Gram matrix."""
        out: dict[str, Any] = json.loads(self.to_json(gram=gram))
        return out

    def to_json(self, *, gram: bool = True, terms: bool = True) -> str:
        """One line of JSON that `from_json` reads back, every float as it was.

        Parameters
        ----------
        gram : write the Gram matrix.
        terms : write guarantee, features and units. Without them the line refers to a
            header that holds them (`streampca.read_releases`).

        Raises
        ------
        ValueError
            If it holds a number that is not finite, which JSON cannot express.
        """
        out: dict[str, Any] = {
            "t": self.t,
            "n_components": self.n_components,
            "basis": self.subspace.basis,
            "eigenvalues": self.eigenvalues,
            "noise_std": self.noise_std,
            "details": self._details,
        }
        if gram and self.packed is not None:
            out["gram"] = self.packed * self.row_norm**2
            if self.own_smoothed is not None:
                out["smoothed"] = self.own_smoothed * self.row_norm**2
        for name, value in out.items():
            if isinstance(value, np.ndarray):
                # msgspec writes numbers some 15 times as fast as json, and what is not finite as null.
                if not np.isfinite(value).all():
                    raise ValueError(f"{name} is not all finite, which JSON cannot express")
                out[name] = value.tolist()
            else:
                out[name] = msgspec.Raw(_JSON.encode(value).encode())
        if terms:
            out |= {name: msgspec.Raw(text) for name, text in self.terms.encoded.items()}
        else:
            out["terms"] = self.terms.mark
        return msgspec.json.encode(out).decode()

    @classmethod
    def from_json(cls, text: str | bytes, terms: Terms | None = None) -> Release:
        """Read one line written by `to_json`.

        Parameters
        ----------
        text : the line.
        terms : those of the header, for a line that refers to one.

        Raises
        ------
        BadParameterError
            If the text is not a release, or the terms are not those that it refers to.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise BadParameterError(
                f"not a release ({reason(problem)}); expected a line written by Release.to_json"
            ) from problem
        return cls.from_dict(data, terms)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], terms: Terms | None = None) -> Release:
        """`from_json` of values that were read already."""
        try:
            if "guarantee" in data:
                terms = Terms.from_dict(data)
            elif terms is None or data["terms"] != terms.mark:
                raise ValueError(
                    f"its guarantee is in a header of terms {data['terms']}; read the whole file with read_releases"
                )
            square = terms.row_norm**2
            d, k = (len(data["basis"]), len(data["basis"][0]))
            std, details = data["noise_std"], dict(data["details"])
            _JSON.encode(details)  # raises where a number is not finite
            return cls(
                t=int(data["t"]),
                n_components=int(data["n_components"]),
                terms=terms,
                packed_gram=_numbers(data.get("gram"), square, d * (d + 1) // 2),
                basis=_numbers(data["basis"], 1.0, d, k),
                eigenvalues=_numbers(data["eigenvalues"], square, k),
                noise_std=None if std is None else float(_numbers(std, square)),
                details=details,
                packed_smoothed=_numbers(data.get("smoothed"), square, d * (d + 1) // 2),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as problem:
            raise BadParameterError(
                f"not a release ({reason(problem)}); expected a line written by Release.to_json"
            ) from problem

    @classmethod
    def of_gram(cls, gram: FloatArray, **fields: Any) -> Release:
        """A release from a full symmetric matrix instead of a packed one."""
        return cls(packed_gram=pack_entries(gram), **fields)

    def plot(
        self,
        kind: Literal["loadings", "biplot", "scree", "over-time", "motion"] = "loadings",
        *,
        past: Sequence[Release] = (),
        dark: bool = False,
    ) -> Figure:
        """A picture of the release, as a matplotlib Figure; publishable like the release. Needs the extra ``report``.

        Parameters
        ----------
        kind : ``"loadings"`` (heat map), ``"biplot"``, or ``"scree"`` with the error that the noise makes; from the
            releases in ``past`` to this one, ``"over-time"`` (loadings) or ``"motion"`` (of the subspace).
        past : earlier releases of the run, in order. Those of other dimensions are ignored.
        dark : for a dark page.

        Raises
        ------
        BadParameterError
            If the kind is not known, or needs ``past`` and has none.
        NoReleaseError
            If the release does not hold what is to be drawn.
        """
        figure: Figure = render("plot", self, kind, past=past, dark=dark)
        return figure

    def _repr_html_(self) -> str:
        """The card of the release, for notebooks. Publishable."""
        html: str = render("card", self)
        return html

    def __repr__(self) -> str:
        return f"Release(t={self.t}, n_features={self.n_features}, n_components={self.n_components})"


def rows_summed(release: Release) -> int:
    """Number of rows in the sum of a release: of its window or block, if any, else of the stream; 1 for a decayed sum.

    The rows of the warm-up are in none.
    """
    details, terms = release.details, release.terms
    if "decay_per_release" in details:
        return 1
    window, block = details.get("window"), details.get("rows")
    if isinstance(window, list) and len(window) == 2:
        return terms.count(int(window[0]), int(window[1]))
    return block if isinstance(block, int) and block > 0 else terms.count(1, release.t)


def _rebuilt(given: dict[str, Any]) -> Release:
    return Release(**given)


def _numbers(values: Any, unit: float, *shape: int) -> Any:
    """Values that were read, as a finite array of a shape, in other units; None stays None."""
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64) / unit
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected finite numbers of shape {shape}")
    return array


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _side(packed: FloatArray | None) -> int:
    if packed is None:
        raise NoReleaseError("this release holds nothing")
    return math.isqrt(8 * packed.size + 1) // 2
