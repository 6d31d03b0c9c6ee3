"""Correction of a release of rows whose missing cells were filled, by public shares: `completed`."""

from __future__ import annotations

from dataclasses import replace

from streampca.errors import NoReleaseError, UsageError
from streampca.linalg.svec import pack_entries
from streampca.release.release import Release, before_centering, rows_summed
from streampca.release.terms import gram_fields
from streampca.rows.admission import Shares, shares_of


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
    shares = shares_of("cell", present, True, release.features, release.n_features)
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
