"""What may leave: a private release and the subspace in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from streampca.errors import BadParameter, NoRelease
from streampca.linalg.eigen import principal_angles, ritz, top_eigh
from streampca.linalg.svec import pack_entries, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1
_JSON = json.JSONEncoder(allow_nan=False)


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


class Release:
    """One publishable output of a mechanism or processor.

    Everything reachable from a release is safe to publish under
    ``guarantee``. Eigenvectors are computed when first read.

    Parameters
    ----------
    t : rows seen when it was made.
    n_components : dimension of the subspace.
    guarantee : what is promised, for all releases of the stream together.
    packed_gram : packed upper triangle of the private Gram matrix, if there is one.
    basis : (d, k) orthonormal array, for releases without a Gram matrix.
    span : (d, k) orthonormal array, for releases whose subspace is not that of
        the top eigenvectors of their Gram matrix.
    eigenvalues : (k,) array, where the mechanism releases them apart.
    noise_std : sd of a diagonal entry of the noise in `gram` (off-diagonal
        entries have sd ``noise_std / sqrt(2)``), where that is the noise's law.
    row_norm : norm to which rows were clipped; `gram`, eigenvalues and
        noise_std are in units of its square.
    features : names of the features, in order.
    details : further publishable facts, JSON values only.
    """

    def __init__(
        self,
        *,
        t: int,
        n_components: int,
        guarantee: Guarantee,
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
        self.t = t
        self.n_components = n_components
        self.guarantee = guarantee
        self.row_norm = row_norm
        self.features = None if features is None else tuple(features)
        self.details: dict[str, Any] = dict(details or {})
        self._packed = packed_gram
        self._basis = basis
        self._span = span
        self._values = eigenvalues
        self._noise_std = noise_std

    @property
    def n_features(self) -> int:
        """Number of features."""
        if self._basis is not None:
            return int(self._basis.shape[0])
        return _side(self._packed)

    @property
    def has_gram(self) -> bool:
        """True if a private Gram matrix is part of the release."""
        return self._packed is not None

    @cached_property
    def gram(self) -> FloatArray:
        """The private Gram matrix (d, d), in units of row_norm**2. Symmetric, not always PSD.

        Raises
        ------
        NoRelease
            If the mechanism releases a subspace only.
        """
        if self._packed is None:
            raise NoRelease("this release holds a subspace only, no Gram matrix; use release.subspace")
        return unpack_entries(self._packed, self.n_features) * self.row_norm**2

    @property
    def noise_std(self) -> float | None:
        """Sd of a diagonal entry of the noise in `gram`, in units of row_norm**2."""
        return None if self._noise_std is None else self._noise_std * self.row_norm**2

    @cached_property
    def _eigen(self) -> tuple[FloatArray | None, FloatArray]:
        if self._basis is not None:
            return self._values, self._basis
        if self._packed is None:
            raise NoRelease("this release holds nothing")
        matrix = unpack_entries(self._packed, self.n_features)
        return top_eigh(matrix, self.n_components) if self._span is None else ritz(matrix, self._span)

    @cached_property
    def subspace(self) -> Subspace:
        """The private subspace."""
        basis = self._eigen[1]
        basis.flags.writeable = False
        return Subspace(basis)

    @property
    def span(self) -> FloatArray:
        """Some orthonormal basis of the subspace, (d, k): what is cheapest to give."""
        return self.subspace.basis if self._span is None else self._span

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Top eigenvalues of `gram`, descending, or None where no spectrum is released."""
        values = self._eigen[0]
        return None if values is None else values * self.row_norm**2

    def for_rows(self, row_norm: float, features: Sequence[str] | None) -> Release:
        """The same release, for rows of another norm bound and with feature names."""
        self.row_norm = row_norm
        self.features = None if features is None else tuple(features)
        return self

    def to_dict(self, *, gram: bool = True) -> dict[str, Any]:
        """JSON values. With ``gram=False`` the Gram matrix is left out."""
        out = {name: _listed(value) for name, value in self._fields(gram).items()}
        return out | {"guarantee": self.guarantee.to_dict()}

    def to_json(self, *, gram: bool = True) -> str:
        """One line of JSON that `from_json` reads back, every float as it was.

        Raises
        ------
        ValueError
            If it holds a number that is not finite, which JSON has no word for.
        """
        out: dict[str, Any] = {}
        for name, value in self._fields(gram).items():
            if isinstance(value, np.ndarray):
                # msgspec writes numbers some 15 times as fast as json, and what is not finite as null.
                if not np.isfinite(value).all():
                    raise ValueError(f"{name} is not all finite, and JSON has no words for that")
                out[name] = value.tolist()
            elif value is self.guarantee:
                out[name] = msgspec.Raw(_promise_text(self.guarantee))
            else:
                out[name] = msgspec.Raw(_JSON.encode(value).encode())
        return msgspec.json.encode(out).decode()

    def _fields(self, gram: bool) -> dict[str, Any]:
        """What is written, by name."""
        out: dict[str, Any] = {
            "t": self.t,
            "n_components": self.n_components,
            "basis": self.subspace.basis,
            "eigenvalues": self.eigenvalues,
            "noise_std": self.noise_std,
            "row_norm": self.row_norm,
            "features": None if self.features is None else list(self.features),
            "details": self.details,
            "guarantee": self.guarantee,
        }
        if gram and self._packed is not None:
            out["gram"] = self._packed * self.row_norm**2
        return out

    @classmethod
    def from_json(cls, text: str | bytes) -> Release:
        """Read one line written by `to_json`.

        Raises
        ------
        BadParameter
            If the text is not a release.
        """
        try:
            data = json.loads(text)
            square = float(data["row_norm"]) ** 2
            values, std, packed = data["eigenvalues"], data["noise_std"], data.get("gram")
            made = cls(
                t=int(data["t"]),
                n_components=int(data["n_components"]),
                guarantee=Guarantee.from_dict(data["guarantee"]),
                packed_gram=None if packed is None else np.asarray(packed, dtype=np.float64) / square,
                basis=np.asarray(data["basis"], dtype=np.float64),
                eigenvalues=None if values is None else np.asarray(values, dtype=np.float64) / square,
                noise_std=None if std is None else float(std) / square,
                row_norm=float(data["row_norm"]),
                features=data["features"],
                details=data["details"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadParameter(f"not a release ({problem}); expected a line written by Release.to_json") from problem
        return made

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


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


#: The guarantee last written and its text: all releases of a stream share one.
_last_promise: tuple[Guarantee | None, bytes] = None, b""


def _promise_text(guarantee: Guarantee) -> bytes:
    global _last_promise
    known, text = _last_promise  # one object, so that threads see a pair that belongs together
    if known is not guarantee:
        text = _JSON.encode(guarantee.to_dict()).encode()
        _last_promise = guarantee, text
    return text


def _side(packed: FloatArray | None) -> int:
    if packed is None:
        raise NoRelease("this release holds nothing")
    return int((np.sqrt(8.0 * packed.size + 1.0) - 1.0) / 2.0 + 0.5)
