"""What may leave: a private release and the subspace in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from streampca.errors import BadParameter, BadRow, NoRelease
from streampca.linalg.eigen import principal_angles, ritz, top_eigh
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import mirror, pack_entries, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee

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
        """How much of a Gram matrix lies in the subspace: tr(V^T G V), in its units."""
        return float(np.vdot(self.basis, gram @ self.basis))

    def angles(self, other: Subspace) -> FloatArray:
        """Principal angles to another subspace, in radians, ascending."""
        return principal_angles(self.basis, other.basis)

    @classmethod
    def first_axes(cls, n_features: int, n_components: int) -> Subspace:
        """The span of the first coordinate axes: what is played before anything is known."""
        return cls(np.eye(n_features, n_components))


def scoring_basis(basis: FloatArray) -> FloatArray:
    """Round a basis to multiples of 2**-30: products with lattice rows are then exact, whatever the block size."""
    return np.rint(np.ascontiguousarray(basis) * _SCORE_GRID) * (1.0 / _SCORE_GRID)


def score(rows: FloatArray, scoring: FloatArray) -> FloatArray:
    """Rewards ||V^T a||**2 of admitted rows, (n,), on a basis from `scoring_basis`. Curator only."""
    products = rows @ scoring
    scores: FloatArray = np.vecdot(products, products)
    return scores


@dataclass(frozen=True, eq=False)
class Terms:
    """What all releases of a run have in common. Public.

    Attributes
    ----------
    guarantee : what is promised for all of them together.
    row_norm : norm to which rows were clipped; Gram matrices, eigenvalues and noise are in units of its square.
    features : names of the features, in order; None if rows are not named.
    middle, scale : (d,) arrays: rows were seen as ``(row - middle) * scale``, by public
        bounds; None where they were seen as they are.
    """

    guarantee: Guarantee
    row_norm: float = 1.0
    features: tuple[str, ...] | None = None
    middle: FloatArray | None = None
    scale: FloatArray | None = None

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
        return {name: _JSON.encode(value).encode() for name, value in values.items()}

    @cached_property
    def mark(self) -> str:
        """A name: equal for terms of equal values, and for no others."""
        return blake2b(b"|".join(self.encoded.values()), digest_size=8).hexdigest()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Terms:
        """The terms among the JSON values of a release or of a header."""
        features, middle, scale = data["features"], data.get("middle"), data.get("scale")
        return cls(
            Guarantee.from_dict(data["guarantee"]),
            float(data["row_norm"]),
            None if features is None else tuple(str(name) for name in features),
            None if middle is None else np.asarray(middle, dtype=np.float64),
            None if scale is None else np.asarray(scale, dtype=np.float64),
        )


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
    eigenvalues : (k,) array, where the mechanism releases them apart.
    noise_std : sd of a diagonal entry of the noise in `gram` (off-diagonal
        entries have sd ``noise_std / sqrt(2)``), where that is the noise's law.
    details : further publishable facts, JSON values only.

    Notes
    -----
    Arrays given to a release become read-only.
    """

    __slots__ = (
        "_details", "_gram", "_pair", "_subspace", "n_components",
        "own_basis", "own_eigenvalues", "own_noise_std", "own_span", "packed", "t", "terms",
    )  # fmt: skip

    #: What was given, in units of row_norm = 1. `gram`, `eigenvalues` and `noise_std` are in those of the rows.
    packed: FloatArray | None
    own_basis: FloatArray | None
    own_span: FloatArray | None
    own_eigenvalues: FloatArray | None
    own_noise_std: float | None
    t: int
    n_components: int
    terms: Terms
    _details: Mapping[str, Any]
    _gram: FloatArray | None
    _pair: tuple[FloatArray | None, FloatArray] | None
    _subspace: Subspace | None

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
    ) -> None:
        if packed_gram is None and basis is None:
            raise BadParameter("a release needs packed_gram or basis")
        if terms is None:
            if guarantee is None:
                raise BadParameter("a release needs terms or a guarantee")
            terms = Terms(guarantee, row_norm, None if features is None else tuple(features))
        for array in (packed_gram, basis, span, eigenvalues):
            if array is not None:
                array.flags.writeable = False
        put = object.__setattr__
        put(self, "t", t)
        put(self, "n_components", n_components)
        put(self, "terms", terms)
        put(self, "packed", packed_gram)
        put(self, "own_basis", basis)
        put(self, "own_span", span)
        put(self, "own_eigenvalues", eigenvalues)
        put(self, "own_noise_std", noise_std)
        put(self, "_details", details or {})
        put(self, "_gram", None)
        put(self, "_pair", None)
        put(self, "_subspace", None)

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
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._given(),)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for all releases of the run together."""
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
    def has_gram(self) -> bool:
        """True if a private Gram matrix is part of the release."""
        return self.packed is not None

    @property
    def gram(self) -> FloatArray:
        """The private Gram matrix (d, d), in units of row_norm**2. Symmetric, not always PSD.

        Raises
        ------
        NoRelease
            If the mechanism releases a subspace only.
        """
        gram = self._gram
        if gram is None:
            if self.packed is None:
                raise NoRelease("this release holds a subspace only, no Gram matrix; use release.subspace")
            gram = unpack_entries(self.packed, self.n_features) * self.row_norm**2
            gram.flags.writeable = False
            object.__setattr__(self, "_gram", gram)
        return gram

    @property
    def noise_std(self) -> float | None:
        """Sd of a diagonal entry of the noise in `gram`, in units of row_norm**2."""
        return None if self.own_noise_std is None else self.own_noise_std * self.terms.row_norm**2

    @property
    def subspace(self) -> Subspace:
        """The private subspace."""
        subspace = self._subspace
        if subspace is None:
            subspace = Subspace.__new__(Subspace)  # this runs once a release: no call of __init__
            object.__setattr__(subspace, "basis", (self._pair or self._eigen())[1])
            object.__setattr__(self, "_subspace", subspace)
        return subspace

    def _eigen(self) -> tuple[FloatArray | None, FloatArray]:
        """Eigenvalues, in units of row_norm = 1, and basis; computed when first asked for."""
        packed, span = self.packed, self.own_span
        if self.own_basis is not None or packed is None:
            pair = self.own_eigenvalues, self.own_basis
        else:
            d = math.isqrt(8 * packed.size + 1) // 2  # `_side`, without a call
            matrix = packed.take(mirror(d))
            pair = top_eigh(matrix, self.n_components) if span is None else ritz(matrix, span)
            pair[1].flags.writeable = False
        object.__setattr__(self, "_pair", pair)
        return pair  # type: ignore[return-value]

    @property
    def span(self) -> FloatArray:
        """Some orthonormal basis of the subspace, (d, k): what is cheapest to give."""
        return self.subspace.basis if self.own_span is None else self.own_span

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Top eigenvalues of `gram`, descending, or None where no spectrum is released."""
        values = (self._pair or self._eigen())[0]
        return None if values is None else values * self.terms.row_norm**2

    def transform(self, rows: Any) -> FloatArray:
        """Scores of raw rows on the released subspace. Not private: a score is a function of its row.

        Parameters
        ----------
        rows : (n, d) array in the units and order of the features, or a table with a column
            for each of them. Rows are neither clamped nor clipped.

        Returns
        -------
        (n, k) array. If the release was centred, scores are of rows less its private mean.

        Raises
        ------
        BadRow
            If the rows do not fit the features.
        """
        if hasattr(rows, "columns") and self.features is not None:
            missing = [name for name in self.features if name not in rows.columns]
            if missing:
                raise BadRow(f"the table lacks feature {missing[0]!r}; the features are {', '.join(self.features)}")
            rows = rows[list(self.features)]
        try:
            values = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadRow("rows must be an (n, d) array of numbers, or a table with a column a feature") from None
        if values.ndim != 2 or values.shape[1] != self.n_features:
            raise BadRow(f"rows of shape {values.shape} given; (n, {self.n_features}) expected")
        terms = self.terms
        if terms.scale is not None and terms.middle is not None:
            values = (values - terms.middle) * terms.scale
        if "mean" in self._details:
            values = values - np.asarray(self._details["mean"], dtype=np.float64)
        scores: FloatArray = values @ self.subspace.basis
        return scores

    def to_dict(self, *, gram: bool = True) -> dict[str, Any]:
        """JSON values. With ``gram=False`` the Gram matrix is left out."""
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
            If it holds a number that is not finite, which JSON has no word for.
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
        for name, value in out.items():
            if isinstance(value, np.ndarray):
                # msgspec writes numbers some 15 times as fast as json, and what is not finite as null.
                if not np.isfinite(value).all():
                    raise ValueError(f"{name} is not all finite, and JSON has no words for that")
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
        BadParameter
            If the text is not a release, or the terms are not those that it refers to.
        """
        try:
            data = json.loads(text)
        except ValueError as problem:
            raise BadParameter(f"not a release ({problem}); expected a line written by Release.to_json") from problem
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
            values, std, packed = data["eigenvalues"], data["noise_std"], data.get("gram")
            return cls(
                t=int(data["t"]),
                n_components=int(data["n_components"]),
                terms=terms,
                packed_gram=None if packed is None else np.asarray(packed, dtype=np.float64) / square,
                basis=np.asarray(data["basis"], dtype=np.float64),
                eigenvalues=None if values is None else np.asarray(values, dtype=np.float64) / square,
                noise_std=None if std is None else float(std) / square,
                details=dict(data["details"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadParameter(f"not a release ({problem}); expected a line written by Release.to_json") from problem

    @classmethod
    def of_gram(cls, gram: FloatArray, **fields: Any) -> Release:
        """A release from a full symmetric matrix instead of a packed one."""
        return cls(packed_gram=pack_entries(gram), **fields)

    def plot(self, kind: Literal["loadings", "biplot", "scree"] = "loadings", *, dark: bool = False) -> Figure:
        """A picture of the release, as a matplotlib Figure; publishable like the release. Needs the extra ``report``.

        Parameters
        ----------
        kind : ``"loadings"`` (heat map), ``"biplot"``, or ``"scree"`` with the error that the noise makes.
        dark : for a dark page.

        Raises
        ------
        NoRelease
            If the release does not hold what is to be drawn.
        """
        from streampca.reports.release import plot_release

        return plot_release(self, kind, dark=dark)

    def __repr__(self) -> str:
        return f"Release(t={self.t}, n_features={self.n_features}, n_components={self.n_components})"


def _rebuilt(given: dict[str, Any]) -> Release:
    return Release(**given)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _side(packed: FloatArray | None) -> int:
    if packed is None:
        raise NoRelease("this release holds nothing")
    return math.isqrt(8 * packed.size + 1) // 2
