"""Centring after the fact, from a constant feature in the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.svec import pack_entries
from streampca.linalg.types import FloatArray
from streampca.release import Release, Terms

#: Name of the constant feature.
CONSTANT = "1"


def centered(release: Release) -> Release:
    """Turn a Gram matrix with a constant last feature into the centred Gram matrix.

    With rows ``[a; c]`` the Gram matrix holds sum a a^T, c sum a and c**2 n, so
    one release gives the private mean m, the private count n and

        sum (a - m)(a - m)^T  =  sum a a^T  -  (c sum a)(c sum a)^T / (c**2 n).

    Post-processing: adjacency, unit, epsilon and delta are those of ``release.guarantee``.

    Parameters
    ----------
    release : a release with a Gram matrix whose ``details["constant"]`` is c,
        the value of the last feature in the rows' own units (those in which
        ``gram`` is released); a stream with ``center=True`` makes such releases.

    Returns
    -------
    A release of the features without the constant: every query takes it.
    ``details`` gives ``"mean"`` (list, private) and ``"count"`` (noisy number of
    rows). The noise of a centred matrix is z^T E z with z = (x; -x^T m / c), to
    first order, so no direction's sd exceeds ``noise_std = sigma (1 + ||m||**2 / c**2)``,
    which is what the result states: its error bars are conservative.

    Raises
    ------
    NoRelease
        If the release holds a subspace only.
    BadParameter
        If it has no constant feature, or the noise leaves no positive count.
    """
    constant = release.details.get("constant")
    if not isinstance(constant, (int, float)) or not 0.0 < constant < np.inf or release.n_features < 2:
        raise BadParameter(
            "the release has no constant last feature (details['constant'] is missing); "
            "make the stream with center=True"
        )
    gram = release.gram
    last = float(gram[-1, -1])
    if last <= 0.0:
        raise BadParameter(
            f"the noisy count of rows is {last / constant**2:.3g}; centring needs more rows or more budget"
        )
    sums = gram[:-1, -1]
    ratio = sums / last  # m / c
    inner = gram[:-1, :-1] - np.outer(sums, ratio)
    square = release.row_norm**2
    noise_std = release.noise_std
    details: dict[str, Any] = {k: v for k, v in release.details.items() if k != "constant"}
    details |= {"centered": True, "mean": (ratio * constant).tolist(), "count": last / constant**2}
    packed: FloatArray = pack_entries(0.5 * (inner + inner.T)) / square
    return release.replaced(
        n_components=min(release.n_components, release.n_features - 1),
        terms=_without_constant(release.terms),
        packed_gram=packed,
        basis=None,
        span=None,
        eigenvalues=None,
        noise_std=None if noise_std is None else noise_std / square * (1.0 + float(ratio @ ratio)),
        details=details,
    )


def centered_if_possible(release: Release, constant: float) -> Release:
    """`centered`, or the matrix about zero without the constant while the noisy count is not positive.

    Parameters
    ----------
    release : a release of rows with a constant last feature.
    constant : value of that feature in the rows' own units.

    Returns
    -------
    A release of the other features; ``details["centered"]`` says which it is.
    """
    if not release.has_gram:
        raise BadParameter("center=True needs an algorithm that releases Gram matrices, e.g. PrivateFPL")
    details = release.details
    if float(release.gram[-1, -1]) > 0.0:
        return centered(release.replaced(details={**details, "constant": constant}))
    inner: FloatArray = pack_entries(release.gram[:-1, :-1]) / release.row_norm**2
    return release.replaced(
        n_components=min(release.n_components, release.n_features - 1),
        terms=_without_constant(release.terms),
        packed_gram=inner,
        basis=None,
        span=None,
        eigenvalues=None,
        details={**details, "centered": False},
    )


def _without_constant(terms: Terms) -> Terms:
    return replace(terms, features=None if terms.features is None else terms.features[:-1])
