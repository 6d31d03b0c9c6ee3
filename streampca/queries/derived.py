"""Releases computed from releases: `between`, the rows between two releases of one run, and `completed`.

Release n of `PrivateFPL` holds ``X_n + R_n z`` in every coordinate of svec, with X_n the exact sum up to it, R_n row n
of the matrix B of the noise (`matrix_factorization.base`), and z standard normal. For releases a < b of one run,

    (X_b - X_a) + (R_b - R_a) z

is the Gram matrix of the rows between them with svec-GOE noise of standard deviation ``||R_b - R_a||`` on the diagonal.
It is post-processing. The noise of the two releases is correlated: as that of independent ones it would be stated as
``sqrt(||R_a||**2 + ||R_b||**2)``, which is up to 2.6 times as large.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from streampca.errors import BadParameterError, NoReleaseError, UsageError, reason
from streampca.linalg.svec import pack_entries
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.noises import FACTORIZATIONS
from streampca.release.release import Release, before_centering, rows_summed
from streampca.release.terms import gram_fields
from streampca.rows.admission import Shares, shares_of

#: Largest relative difference of the noise that a release states from that of its factorization: rounding.
_ROUNDING = 1e-9


class Between:
    """Release of the rows after the release ``earlier`` up to the release ``later`` of one run of `PrivateFPL`.

    It has the matrix, subspace, error bars and marks of any release, about the mean of the interval if the run is
    centered, and may be passed to every query. ``details["window"]`` holds the first and the last of its rows. Its
    matrix is the difference of the raw ones: a smoothed estimate, which is not additive, is not used.

    Both may be read from a file (`read_releases`). The guarantee is that of the run, which covers everything computed
    from its releases. Raises `UsageError` for releases of two runs or copies of one, of other algorithms, or in the
    wrong order, and `NoReleaseError` for one without its Gram matrix.

    *Error bars.* The law of the noise is exact, as that of any release is. With noise `BLT` an interval has .5 to
    1.3 times the largest noise of a release of all rows so far. `Release.stands_out` holds for one interval by itself;
    the noise of several is correlated (`covariance`).
    """

    def __call__(self, earlier: Release, later: Release) -> Release:
        for name, release in (("earlier", earlier), ("later", later)):
            _check(name, release)
        if earlier.terms.mark != later.terms.mark:
            raise UsageError(
                "earlier, later: releases of two runs, whose noise is independent. Pass two releases of one run; a "
                "copy of a stream is another run"
            )
        if earlier.t >= later.t:
            raise UsageError(
                f"earlier, later: releases after {earlier.t} and {later.t} rows. Pass the one after fewer rows first"
            )
        terms, details = later.terms, {"window": [earlier.t + 1, later.t]}
        mechanism, _, a = _noise(earlier)
        std = mechanism.difference_std(a, _noise(later)[2])
        # Matrices about two means do not add up, so the mean of the interval is taken out after the difference.
        packed = pack_entries(before_centering(later) - before_centering(earlier))
        rows = terms.count(earlier.t + 1, later.t)
        if terms.present == "private":
            counts = [np.array(one.details["cells_present"]) for one in (later, earlier)]
            packed = np.append(packed, counts[0] - counts[1])
        fields = gram_fields(packed, std, terms, details, rows if later.is_centered else None, None, rows)
        return Release(t=later.t, n_components=later.n_components, terms=terms, **fields)

    def covariance(self, x: Release, y: Release) -> float:
        """Return the covariance of the noise in a diagonal entry of two intervals or releases of one run.

        Off the diagonal it is half of that. In units of row_norm**4; for ``x = y`` the variance. Of centered releases,
        it is the covariance before the mean is taken out.
        """
        if x.terms.run is None or x.terms.mark != y.terms.mark:
            raise UsageError("x, y: expected intervals or releases of one run of PrivateFPL")
        # Vectors of noise after the end of the shorter one are in one of the two only.
        rows = [mechanism.difference(a, b) for mechanism, a, b in (_noise(x), _noise(y))]
        length = min(map(len, rows))
        return float(rows[0][:length] @ rows[1][:length]) * x.row_norm**4


#: The one `Between`: ``between(earlier, later)``, and ``between.covariance(x, y)``.
between = Between()


def _check(name: str, release: Release) -> None:
    """Raise unless a release holds a running sum whose noise is known."""
    if not isinstance(release, Release) or release.terms.run is None or "window" in release.details:
        raise BadParameterError(
            name, ..., "a release of PrivateFPL with noise BLT or Tree, of all rows so far",
            advice="The matrix of a window, an interval or a block of Tumbling is that of its own rows, and the epochs "
            "of DoublingFPL have separate noise",
        )  # fmt: skip
    if release.packed is None:
        raise NoReleaseError(f"{name}: the release was written without its Gram matrix. Write the file with it")
    mechanism, _, n = _noise(release)
    stated = float(release.details.get("joint_noise_std", release.noise_std or 0.0)) / release.row_norm**2
    # A file of another version, or a changed one, may have other noise than this version computes.
    if not math.isclose(stated, mechanism.std(n), rel_tol=_ROUNDING):
        raise UsageError(f"{name}: the noise of the release differs from that of its run, {mechanism!r}")


def _noise(release: Release) -> tuple[MatrixFactorization, int, int]:
    """Return the factorization of a run, and the numbers a, b of a release: it has the noise R_b - R_a, R_0 = 0."""
    run, window = release.terms.run or {}, release.details.get("window", [1, release.t])
    try:
        every, horizon = int(run["release_every"]), run["horizon"]
        # The last release is at the horizon, also after fewer rows than between the others.
        a, b = (-(-t // every) if t == horizon else t // every for t in (int(window[0]) - 1, int(window[1])))
        return FACTORIZATIONS[run["factorization"]](**run["constants"]), a, b
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as problem:
        raise UsageError(f"the terms of the release do not describe its noise ({reason(problem)})") from problem


def completed(release: Release, present: Shares) -> Release:
    """Return the release that ``on_missing="cell"`` with ``missing_rates=present`` would have been.

    For a release with ``correct=False``. Its guarantee is that of the release: post-processing. Error bars are of the
    noise of privacy, entry by entry and to first order (`linalg.completion`).

    Parameters
    ----------
    release : of a Gaussian mechanism or processor.
    present : public shares of cells present from .05 to 1: a number, one for each feature or a mapping by name.

    Raises
    ------
    UsageError, NoReleaseError
        If the shares do not fit, the release is corrected already, or it has no matrix with a stated noise.
    """
    shares = shares_of("cell", present, True, release.features, release.n_features, parameter="present")
    if release.terms.present is not None or not isinstance(shares, tuple):
        raise UsageError("present: expected public shares, for a release that is not corrected (correct=False)")
    details, std = release.details, release.noise_std
    if release.packed is None or std is None or (release.is_centered and "sums" not in details):
        raise NoReleaseError("the release has no matrix with a stated noise before the mean was taken out")
    terms, joint = replace(release.terms, present=shares), float(details.get("joint_noise_std", std))
    fields = gram_fields(
        pack_entries(before_centering(release)), joint / release.row_norm**2, terms, details,
        rows_summed(release) if release.is_centered else None,
    )  # fmt: skip
    return Release(t=release.t, n_components=release.n_components, terms=terms, **fields)
