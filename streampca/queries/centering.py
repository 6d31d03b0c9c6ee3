"""Centering of a release, by a constant feature in the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.svec import pack_entries
from streampca.linalg.types import FloatArray
from streampca.release.release import Release


def centered(release: Release) -> Release:
    """Turn a Gram matrix with a constant last feature into the centered Gram matrix.

    With rows ``[a; c]`` the Gram matrix holds sum a a^T, c sum a and c**2 n, so one release gives the private mean m,
    the private count n and

        sum (a - m)(a - m)^T  =  sum a a^T  -  (c sum a)(c sum a)^T / (c**2 n).

    Parameters
    ----------
    release : a release with a Gram matrix whose ``details["constant"]`` is c, the value of the last feature in the
        units of ``gram``. It is for rows that contain such a feature, and a number of rows that is not public; a stream
        with ``center=True`` centers at less noise (`linalg.centering`).

    Returns
    -------
    A release of the features without the constant, for every query. ``details`` gives ``"mean"`` (list, private) and
    ``"count"`` (noisy number of rows). The noise of a centered matrix is z^T E z with z = (x; -x^T m / c), to first
    order, so no direction's standard deviation exceeds ``noise_std = sigma (1 + ||m||**2 / c**2)``, which the result
    states: its error bars are conservative.

    Raises
    ------
    BadParameterError
        If there is no constant feature, or the noise leaves no positive count.
    """
    constant = release.details.get("constant")
    if not isinstance(constant, (int, float)) or not 0.0 < constant < np.inf or release.n_features < 2:
        raise BadParameterError(
            "the release has no constant last feature (details['constant'] is missing). Use a stream with center=True."
        )
    gram = release.gram
    last = float(gram[-1, -1])
    if last <= 0.0:
        raise BadParameterError(
            f"the noisy count of rows is {last / constant**2:.3g}. Centering needs more rows or more budget."
        )
    sums = gram[:-1, -1]
    ratio = sums / last  # m / c
    inner = gram[:-1, :-1] - np.outer(sums, ratio)
    square = release.row_norm**2
    noise_std, features = release.noise_std, release.terms.features
    details: dict[str, Any] = {k: v for k, v in release.details.items() if k != "constant"}
    details |= {"centered": True, "mean": (ratio * constant).tolist(), "count": last / constant**2}
    packed: FloatArray = pack_entries(0.5 * (inner + inner.T)) / square
    return release.replaced(
        n_components=min(release.n_components, release.n_features - 1),
        terms=replace(release.terms, features=None if features is None else features[:-1]),
        packed_gram=packed,
        basis=None,
        span=None,
        eigenvalues=None,
        noise_std=None if noise_std is None else noise_std / square * (1.0 + float(ratio @ ratio)),
        details=details,
    )
