"""Private releases: publishable data, and the subspace in it.

`Release` holds the output of a mechanism or processor. Views render it through `streampca.tables`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np

from streampca.calendar import Calendar
from streampca.conversion import as_block, as_floats, is_frame
from streampca.errors import Answered, BadRowError, NoReleaseError, UsageError, reason
from streampca.linalg.centering import MeanNoise, longer_matrix
from streampca.linalg.completion import CompletedNoise, completing
from streampca.linalg.counts import check_share
from streampca.linalg.eigen import ritz_pairs, top_pairs
from streampca.linalg.svec import unpack_entries
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.release.clear import ONE, NoiseLaw, leading
from streampca.release.estimates import WIDE, Estimates
from streampca.release.subspace import Subspace
from streampca.release.terms import JSON, Terms, numbers
from streampca.tables import Picture, render

if TYPE_CHECKING:
    import pandas as pd

_NO_RELEASE = "not a release ({}); expected a line written by Release.to_json."
#: Attributes by parameter of the constructor. Those of other names are in units of row_norm = 1.
_ATTRIBUTES = {
    "t": "t", "n_components": "n_components", "terms": "terms", "packed_gram": "packed", "basis": "own_basis",
    "span": "own_span", "eigenvalues": "own_eigenvalues", "noise_std": "own_noise_std", "details": "_details",
    "packed_smoothed": "own_smoothed", "entry_std": "own_entry_std",
}  # fmt: skip


class Release(Answered):
    """Publishable output of a mechanism or processor. Immutable.

    All data reachable from a release is safe to publish under ``guarantee``. Eigenvectors are computed when first read.
    Arrays passed to the constructor become read-only.

    Parameters
    ----------
    t : number of rows of the stream up to the release.
    n_components : dimension of the subspace.
    terms : facts shared with the other releases of the run; or, in its place, ``guarantee``, ``row_norm`` and
        ``features``, as in `Terms`.
    packed_gram : packed upper triangle of the private Gram matrix, if any.
    basis : (d, k) orthonormal array, for releases without a Gram matrix.
    span : (d, k) orthonormal array, for releases whose subspace is not that of the top eigenvectors of the matrix.
    packed_smoothed : packed upper triangle of an estimate of the exact Gram matrix from this and earlier releases, for
        releases whose subspace is that of its top eigenvectors.
    eigenvalues : (k,) array, if the mechanism releases them separately.
    noise_std : standard deviation of a diagonal entry of the noise in `gram` (off-diagonal entries have
        ``noise_std / sqrt(2)``), if the noise has this law.
    details : further publishable facts, JSON values only.
    entry_std : packed upper triangle of the standard deviations of the noise between the eigenvectors of the matrix, in
        descending order (`Estimates`), if the noise is not alike in all entries.
    """

    __slots__ = (*_ATTRIBUTES.values(), "_gram", "_pair")

    packed: FloatArray | None
    own_basis: FloatArray | None
    own_span: FloatArray | None
    own_eigenvalues: FloatArray | None
    own_smoothed: FloatArray | None
    own_noise_std: float | None
    own_entry_std: FloatArray | None
    t: int
    n_components: int
    terms: Terms
    _details: Mapping[str, Any]
    _gram: FloatArray | None
    _pair: tuple[FloatArray | None, Subspace] | None

    def __init__(
        self, *, t: int, n_components: int, terms: Terms | None = None, guarantee: Guarantee | None = None,
        packed_gram: FloatArray | None = None, basis: FloatArray | None = None, span: FloatArray | None = None,
        eigenvalues: FloatArray | None = None, noise_std: float | None = None, row_norm: float = 1.0,
        features: Sequence[str] | None = None, details: Mapping[str, Any] | None = None,
        packed_smoothed: FloatArray | None = None, entry_std: FloatArray | None = None,
    ) -> None:  # fmt: skip
        if packed_gram is None and basis is None:
            raise UsageError("packed_gram, basis: expected one of them")
        if terms is None:
            if guarantee is None:
                raise UsageError("terms, guarantee: expected one of them")
            terms = Terms(guarantee, row_norm, None if features is None else tuple(features))
        # A writable array would let the caller change a release after its publication.
        for array in (packed_gram, packed_smoothed, entry_std, basis, span, eigenvalues):
            if array is not None:
                array.setflags(write=False)
        arrays = packed_gram, basis, span, eigenvalues
        values = t, n_components, terms, *arrays, noise_std, details or {}, packed_smoothed, entry_std, None, None
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a release is immutable. Release.replaced({name}=...) returns a changed one.")

    __delattr__ = None  # type: ignore[assignment]

    def own_parameters(self) -> dict[str, Any]:
        """Return the parameters of the constructor by name, of which the release is a function."""
        return {name: getattr(self, attribute) for name, attribute in _ATTRIBUTES.items()}

    def replaced(self, **changes: Any) -> Release:
        """Return a release that differs in some parameters of the constructor."""
        return Release(**self.own_parameters() | changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Release, **self.own_parameters()), ()

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of all releases of the run together."""
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
    def count(self) -> float | None:
        """Number of rows: the estimate in a centered release, else the public one; None if it is private."""
        count = float(self._details.get("count", 0.0)) or _rows_covered(self)
        return None if math.isinf(count) else count

    @property
    def period(self) -> tuple[datetime, datetime] | None:
        """Start and end of period `t` of the calendar, in UTC; None without a grid."""
        calendar = self.terms.calendar
        if calendar is None or calendar["start"] is None:
            return None
        grid = Calendar.of(calendar["release_every"], calendar["start"])
        return None if grid is None else grid.bounds(self.t)

    @property
    def details(self) -> dict[str, Any]:
        """Copy of further publishable facts."""
        return deepcopy(dict(self._details))

    @property
    def n_features(self) -> int:
        """Number of features."""
        if self.own_basis is not None:
            return int(self.own_basis.shape[0])
        assert self.packed is not None
        return math.isqrt(8 * self.packed.size + 1) // 2

    @property
    def is_centered(self) -> bool:
        """Whether `gram` is about the private mean (``center=True``)."""
        return bool(self._details.get("centered"))

    @property
    def middle(self) -> FloatArray:
        """Middle of the range of each feature, (d,); zeros without bounds. Components of raw sums are about it."""
        return np.zeros(self.n_features) if self.terms.middle is None else self.terms.middle

    @property
    def scale(self) -> FloatArray:
        """Half the range of each feature, (d,); without bounds ``row_norm / sqrt(d)``.

        A row x is ``middle + scale * sqrt(d) * a`` with a its vector in the unit ball, of which the release is.
        """
        d, factor = self.n_features, self.terms.scale
        return (self.row_norm if factor is None else 1.0 / factor) / math.sqrt(d) * np.ones(d)

    @property
    def mapped_mean(self) -> FloatArray:
        """Private mean of the rows as the bounds map them, (d,), in units of row_norm; zeros if not centered."""
        return np.asarray(self._details.get("mean", np.zeros(self.n_features)), dtype=np.float64)

    @property
    def mean(self) -> FloatArray:
        """Private mean of the rows in their own units, (d,); the middle of the ranges if not centered."""
        return self.middle + self.scale * math.sqrt(self.n_features) / self.row_norm * self.mapped_mean

    @property
    def components(self) -> FloatArray:
        """Components by descending variance, (k, d): orthonormal directions of the mapped rows, as in scikit-learn."""
        return self.subspace.basis.T

    @property
    def explained_variance(self) -> FloatArray:
        """Variances of a row along the components, (k,), in row_norm**2; debiased, so that they may be negative."""
        # Not debiased if the law of the noise is not stated.
        smoothed = self.own_smoothed is not None and "smoothed_noise_std" in self._details
        return (self.component_estimates if smoothed else self._estimates()).variances / rows_summed(self)

    @property
    def changes(self) -> FloatArray | None:
        """Movement of each feature, in its unit, for one standard deviation along each component, (d, k), or None."""
        if self.packed is None:
            return None
        width = self.scale * math.sqrt(self.n_features) / self.row_norm
        return self.subspace.basis * width[:, None] * np.sqrt(np.maximum(self.explained_variance, 0.0))

    @property
    def gram(self) -> FloatArray:
        """Private Gram matrix (d, d), in units of row_norm**2. Symmetric, not always PSD. `NoReleaseError` without."""
        gram = self._gram
        if gram is None:
            if self.packed is None:
                raise NoReleaseError("the release holds a subspace only, no Gram matrix. Use release.subspace")
            gram = unpack_entries(self.packed, self.n_features) * self.row_norm**2
            gram.flags.writeable = False
            object.__setattr__(self, "_gram", gram)
        return gram

    @property
    def smoothed(self) -> FloatArray | None:
        """Estimate of the exact Gram matrix (d, d) from this and earlier releases, in units of row_norm**2, or None.

        `subspace` and `eigenvalues` are those of this matrix. Its noise is a linear filter of that of the releases;
        its law is known: ``details["smoothed_noise_std"]``. Its bias depends on how the rows change and is unknown.
        `noise_std`, `estimates` and the error bars of queries refer to `gram`.
        """
        if self.own_smoothed is None:
            return None
        matrix = unpack_entries(self.own_smoothed, self.n_features) * self.row_norm**2
        matrix.flags.writeable = False
        return matrix

    @property
    def noise_std(self) -> float | None:
        """Standard deviation of a diagonal entry of the noise in `gram`; a bound for all directions if centered."""
        return None if self.own_noise_std is None else self.own_noise_std * self.terms.row_norm**2

    @property
    def noise_law(self) -> tuple[float, MeanNoise | None] | None:
        """Standard deviation of the isotropic part of the noise in `gram`, and that of the mean; None if unknown."""
        if self.noise_std is None:
            return None
        return self._law(float(self._details.get("joint_noise_std", self.noise_std)))

    def completed_noise(self, joint: float | None = None) -> CompletedNoise | None:
        """Return the noise in `gram` if it is completed, for row_norm = 1; None if not, or if its law is not stated."""
        # ``joint`` is the standard deviation before completion, None for that of the release. Error bars are of this
        # noise of privacy: which cells are missing is chance, too, which no error bar covers.
        details, unit = self._details, self.row_norm
        joint = details.get("joint_noise_std") if joint is None else joint
        if "present" not in details or joint is None:
            return None
        rows = float(details.get("count", 0.0)) or rows_summed(self)
        return CompletedNoise(
            self.gram / unit**2, self.mapped_mean / unit, np.array(details["present"]), rows, float(joint) / unit**2,
            self.terms.present == "private", self.is_centered,
        )  # fmt: skip

    def _law(self, joint: float) -> tuple[float, MeanNoise | None]:
        """Return the law of the noise in a matrix, about the mean if centered, from its std before centering."""
        # Centering adds the noise of the mean along one direction, so that the law is isotropic plus rank two.
        if "joint_noise_std" not in self._details or "present" in self._details:  # of completed ones: `completed_noise`
            return joint, None
        unit = self.row_norm
        isotropic, mean = MeanNoise.of(self.mapped_mean / unit, joint / unit**2, float(self._details["count"]))
        return isotropic * unit**2, mean

    @property
    def subspace(self) -> Subspace:
        """Private subspace."""
        return (self._pair or self._eigen())[1]

    def _eigen(self) -> tuple[FloatArray | None, Subspace]:
        """Compute and keep the eigenvalues, in units of row_norm = 1, and the subspace."""
        values, basis, span = self.own_eigenvalues, self.own_basis, self.own_span
        own = self.packed if self.own_smoothed is None else self.own_smoothed
        if basis is None and own is not None:
            # Rewards in later releases are computed from these bases. Their bits enter the noise key (`Outlet`), and
            # must be the same on every path: `plain` selects the one without compiled kernels.
            plain = "rewards" in self._details
            k = self.n_components
            values, basis = top_pairs(own, k, plain=plain) if span is None else ritz_pairs(own, span, plain=plain)
            basis.setflags(write=False)
            values.setflags(write=False)
        # Computed once, in one assignment below: threads may both compute it, and store equal bits.
        subspace = Subspace.__new__(Subspace)  # avoids a call of __init__ for each release
        object.__setattr__(subspace, "basis", basis)
        pair = values, subspace
        object.__setattr__(self, "_pair", pair)
        return pair

    @property
    def span(self) -> FloatArray:
        """Orthonormal basis of the subspace, (d, k): the cheapest to compute."""
        return self.subspace.basis if self.own_span is None else self.own_span

    @property
    def eigenvalues(self) -> FloatArray | None:
        """Top eigenvalues of `gram`, or of `smoothed`, descending, read-only; None if no spectrum is released."""
        values, unit = (self._pair or self._eigen())[0], self.terms.row_norm
        if values is None or unit == 1.0:
            return values
        scaled = values * unit**2
        scaled.setflags(write=False)
        return scaled

    @property
    def estimates(self) -> Estimates:
        """Debiased variances, quality of directions, shares, intervals and a shrunk matrix, from `gram`.

        They refer to the leading eigenvectors of `gram`, which span `subspace` unless a solver computes it otherwise.
        Each access computes in O(d^3). Raises `NoReleaseError` without a Gram matrix, or a stated law of its noise.
        """
        stated = self.own_noise_std is not None or self.own_entry_std is not None or self.completed_noise() is not None
        if self.packed is not None and not stated:
            raise NoReleaseError(
                "noise_std=None: the release does not state the law of its noise, so it supports no estimates. "
                "Use a Gaussian mechanism or processor"
            )
        return self._estimates()

    @property
    def component_estimates(self) -> Estimates:
        """Estimates for the components in `subspace`: of `smoothed` if there is one, else of `gram`.

        Those of a smoothed matrix cover its noise only: the bias of smoothing is unknown. Raises as `estimates` does.
        """
        # Without smoothing the subspace is that of `gram`, and so are its components.
        if self.own_smoothed is None:
            return self.estimates
        std = self._details.get("smoothed_noise_std")
        if std is None:
            raise NoReleaseError("the release does not state the law of the noise in its smoothed matrix")
        return self._estimates(self.smoothed, float(std))

    @property
    def n_clear(self) -> int | None:
        """Number of leading components that stand out from the noise of privacy; see `stands_out`."""
        return self.stands_out()

    def stands_out(self, alpha: float = ONE, *, adaptive: bool = False) -> int | None:
        """Return the number of leading components that stand out from the noise of privacy (`release.clear`).

        Post-processing. None if the release cannot tell: without a Gram matrix, without the law of its noise, or of
        more than 128 features with noise that is not Gaussian. Without privacy all components stand out.

        Parameters
        ----------
        alpha : maximum probability of more components than the rows span dimensions (about their mean, if centered).
        adaptive : whether rows may depend on earlier releases of the run.
        """
        check_share("alpha", alpha)
        basis, law, unit = self.subspace.basis, self._noise(), self.row_norm**2
        if law is None and not self.guarantee.is_private:
            return int(basis.shape[1])
        if law is None or not basis.size or math.isinf(law.quantile(1, self.n_features, alpha)):
            return None
        # Smoothed components are tested on the raw matrix: the bias of smoothing has no law.
        if self.own_smoothed is not None and "smoothed_noise_std" in self._details:
            quality = self.component_estimates.direction_quality
        else:
            quality = self._estimates(self.gram, law.std(self.n_features) * unit).direction_quality
        return leading(before_centering(self), basis, quality, law, alpha, adaptive=adaptive)

    def _noise(self) -> NoiseLaw | None:
        """Return the law of the noise in the matrix, before centering, for row_norm = 1; None if it is not stated."""
        law = self.terms.noise
        joint = self._details.get("joint_noise_std")
        if self.packed is None or (law is None and self.own_noise_std is None and joint is None):
            return None
        if law is None:
            return NoiseLaw("gaussian", self.own_noise_std if joint is None else float(joint) / self.row_norm**2)
        scale = self._details.get("noise_scale", law.scale)
        return None if scale is None else law._replace(scale=float(scale))

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Shares of the total variance along the leading eigenvectors of `gram`, (k,), with a sum of at most 1."""
        return self._estimates().explained_variance_ratio  # not debiased if the law of the noise is not stated

    def _estimates(self, gram: FloatArray | None = None, noise_std: float = 0.0) -> Estimates:
        # A decayed sum has the mass of fewer rows than `t`, but `rows` must not be below it.
        rows = max(1, self.t) if "decay_per_release" in self._details else _rows_covered(self)
        std, mean = (self.noise_law if gram is None else self._law(noise_std)) or (0.0, None)
        entry_std, completed = None, self.completed_noise(noise_std or None)
        if gram is None and self.own_entry_std is not None:
            entry_std = unpack_entries(self.own_entry_std, self.n_features) * self.row_norm**2
        k, gram = max(1, self.n_components), self.gram if gram is None else gram
        if completed is not None:
            completed = completed._replace(gram=gram / self.row_norm**2)
            entry_std, mean = completed.between(np.linalg.eigh(gram)[1][:, ::-1]) * self.row_norm**2, None
        return Estimates(
            gram=gram, noise_std=std, n_components=k, rows=rows, row_norm=self.row_norm, mean=mean,
            entry_std=entry_std,
        )  # fmt: skip

    def transform(self, rows: Any) -> FloatArray:
        """Return the scores of raw rows on the subspace, (n, k). Not private: a score is a function of its row.

        Rows are (n, d) in the units and order of the features, or a table with a column for each of them; `BadRowError`
        if they do not fit. They are neither clamped nor clipped. If the release is centered, its mean is subtracted.
        """
        rows = as_block(rows)
        if is_frame(rows) and self.features is not None:
            if missing := [name for name in self.features if name not in rows.columns]:
                raise BadRowError(None, f"the table lacks feature {missing[0]!r}; expected {', '.join(self.features)}")
            rows = rows[list(self.features)]
        try:
            values = as_floats(rows)
        except (TypeError, ValueError, OverflowError):
            raise BadRowError(None, "rows: expected an (n, d) array of numbers, or a table of the features") from None
        if values.ndim != 2 or values.shape[1] != self.n_features:
            raise BadRowError(None, f"rows of shape {values.shape}: expected (n, {self.n_features})")
        terms = self.terms
        if terms.scale is not None and terms.middle is not None:
            values = (values - terms.middle) * terms.scale
        # The map of the bounds comes before the mean, which is in its units.
        return (values - self.mapped_mean) @ self.subspace.basis

    def holding(self, share: float) -> Release:
        """Return the release of the fewest components that hold this share of the variance; 1 if none stands out."""
        # The released matrix does not depend on the number of components.
        reached = np.cumsum(self.replaced(n_components=self.n_features).explained_variance_ratio) >= share
        most = int(reached.argmax()) + 1 if reached.any() else reached.size
        return self.replaced(n_components=most if self.replaced(n_components=1).n_clear else 1)

    def to_frame(self) -> pd.DataFrame:
        """Return mean, ranges and components by feature, as a pandas frame in the units of the rows.

        ``mean``, ``middle`` and ``scale`` are those of the release. For each component, ``loading_i`` is its entry,
        ``error_i`` half an approximate 95 % interval around it for the noise of privacy, and ``change_i`` how far the
        feature moves for one standard deviation along the component. Columns without an estimate are left out.
        """
        import pandas as pd

        columns = {"mean": self.mean, "middle": self.middle, "scale": self.scale}
        errors: FloatArray | None = None
        changes = self.changes
        if self.noise_law is not None or self.own_entry_std is not None or self.completed_noise() is not None:
            errors = self.component_estimates.loading_std
        for i, direction in enumerate(self.components):
            columns[f"loading_{i + 1}"] = direction
            if errors is not None:
                columns[f"error_{i + 1}"] = np.minimum(1.0, WIDE * errors[:, i])
            if changes is not None:
                columns[f"change_{i + 1}"] = changes[:, i]
        names = self.features or [f"feature {j + 1}" for j in range(self.n_features)]
        return pd.DataFrame(columns, index=pd.Index(names, name="feature"))

    def to_json(self, *, gram: bool = True, terms: bool = True) -> str:
        """Return one line of JSON that `from_json` reads back with the same floats. `ValueError` if one is not finite.

        With ``gram``, it has the Gram matrix; with ``terms``, guarantee, features and units. Without them the line
        refers to a header that holds them (`streampca.read_releases`).
        """
        out: dict[str, Any] = {
            "t": self.t, "n_components": self.n_components, "basis": self.subspace.basis,
            "eigenvalues": self.eigenvalues, "noise_std": self.noise_std, "details": self._details,
        }  # fmt: skip
        if self.period is not None:
            out["period"] = [at.isoformat() for at in self.period]
        if gram and self.packed is not None:
            out["gram"] = self.packed * self.row_norm**2
            if self.own_smoothed is not None:
                out["smoothed"] = self.own_smoothed * self.row_norm**2
            if self.own_entry_std is not None:
                out["entry_std"] = self.own_entry_std * self.row_norm**2
        for name, value in out.items():
            if isinstance(value, np.ndarray):
                # msgspec writes numbers about 15 times as fast as json, but nan and inf as null.
                if not np.isfinite(value).all():
                    raise ValueError(f"{name}: expected finite numbers. JSON cannot express others.")
                out[name] = value.tolist()
            else:
                out[name] = msgspec.Raw(JSON.encode(value).encode())
        if terms:
            out |= {name: msgspec.Raw(text) for name, text in self.terms.encoded.items()}
        else:
            out["terms"] = self.terms.mark
        return msgspec.json.encode(out).decode()

    def save(self, path: str | PathLike[str]) -> None:
        """Write, or replace, a file that `streampca.read_releases` and ``streampca show`` read."""
        render("save", self, path)

    @classmethod
    def from_json(cls, text: str | bytes, terms: Terms | None = None) -> Release:
        """Read one line written by `to_json`; ``terms`` are those of the header that it refers to, if any.

        Raises `UsageError` if the text is not a release, or refers to other terms.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise UsageError(_NO_RELEASE.format(reason(problem))) from problem
        return cls.from_dict(data, terms)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], terms: Terms | None = None) -> Release:
        """Read the values of a line; see `from_json`."""
        try:
            if "guarantee" in data:
                terms = Terms.from_dict(data)
            elif terms is None or data["terms"] != terms.mark:
                raise ValueError(f"its header of terms {data['terms']} is missing. Read the file with read_releases.")
            # Lines are in the units of the rows, releases in units of row_norm = 1.
            square = terms.row_norm**2
            d, k = (len(data["basis"]), len(data["basis"][0]))
            std, details = data["noise_std"], dict(data["details"])
            JSON.encode(details)  # raises where a number is not finite
            return cls(
                t=int(data["t"]), n_components=int(data["n_components"]), terms=terms, details=details,
                packed_gram=numbers(data.get("gram"), square, d * (d + 1) // 2),
                basis=numbers(data["basis"], 1.0, d, k),
                eigenvalues=numbers(data["eigenvalues"], square, k),
                noise_std=None if std is None else float(numbers(std, square)),
                packed_smoothed=numbers(data.get("smoothed"), square, d * (d + 1) // 2),
                entry_std=numbers(data.get("entry_std"), square, d * (d + 1) // 2),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as problem:
            raise UsageError(_NO_RELEASE.format(reason(problem))) from problem

    def plot(
        self, kind: Literal["loadings", "biplot", "scree", "over-time", "motion"] = "loadings", *,
        past: Sequence[Release] = (),
    ) -> Picture:  # fmt: skip
        """Draw the release: a picture that notebooks show, with ``figure`` and ``save(path)``. Publishable.

        Components that do not stand out from the noise are hollow or faint, and the title names them. Needs the extra
        ``report``. Raises `NoReleaseError` if the release lacks the data of this kind.

        Parameters
        ----------
        kind : ``"loadings"`` (heat map), ``"biplot"``, or ``"scree"`` with the error that the noise causes; from the
            releases in ``past`` to this one, ``"over-time"`` (loadings) or ``"motion"`` (of the subspace).
        past : earlier releases of the run, in order. Those of other dimensions are ignored.
        """
        return cast(Picture, render("plot", self, kind, past=past))

    def _repr_html_(self) -> str:
        """Return the card of the release for notebooks. Publishable."""
        return str(render("card", self))

    def __repr__(self) -> str:
        k = self.subspace.basis.shape[1]
        # The test is an eigendecomposition, which a debugger does not want of a thousand features.
        clear = self.n_clear if self.n_features <= 200 else None
        stands = f"{k} components" if clear is None else f"{clear} of {k} components stand out"
        inputs = "rows" if self.terms.calendar is None else "periods"
        return f"Release: {self.t:,} {inputs}, {self.n_features:,} features, {stands}; {self.guarantee.brief}"


def before_centering(release: Release) -> FloatArray:
    """Return the private matrix before centering, that of longer rows with side d + 1, in units of row_norm = 1."""
    details, unit = release.details, release.row_norm
    matrix, present = unpack_entries(cast(FloatArray, release.packed), release.n_features), details.get("present")
    shares = 1.0 if present is None else np.asarray(present, dtype=np.float64)
    if "sums" in details:  # neither without a mean nor about one that was released before
        counts = float(details["noisy_count"]), float(details["count"])
        sums, std = np.asarray(details["sums"], dtype=np.float64), float(details["joint_noise_std"])
        matrix = longer_matrix(matrix, sums / unit, *counts, std / unit**2, shares)
    if present is not None:  # of the filled rows
        matrix = matrix / unpack_entries(completing(np.array(present), center="sums" in details), len(matrix))
    return matrix


def rows_summed(release: Release) -> float:
    """Return the number of rows to divide sums of a release by; 1 for a decayed sum, and without `Release.count`."""
    # Of a centered release, the released number of rows that are present. Of others, the public number of rows.
    return 1.0 if "decay_per_release" in release.details else release.count or 1.0


def _rows_covered(release: Release) -> float:
    """Return the public number of rows of the window, block or stream of a release, without those of a warm-up."""
    details, terms = release.details, release.terms
    window, block = details.get("window"), details.get("rows")
    if isinstance(window, list) and len(window) == 2:
        return terms.count(int(window[0]), int(window[1]))
    return block if isinstance(block, int) and block > 0 else terms.count(1, release.t)
