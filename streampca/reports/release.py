"""``release.plot()``: one picture of one release."""

from __future__ import annotations

from typing import Literal

from matplotlib.figure import Figure

from streampca.errors import BadParameter, NoRelease
from streampca.release import Release
from streampca.reports.loadings import biplot, heat_map
from streampca.reports.scree import scree
from streampca.reports.style import DARK, LIGHT

Kind = Literal["loadings", "biplot", "scree"]


def plot_release(release: Release, kind: Kind = "loadings", *, dark: bool = False) -> Figure:
    """A picture of a release: post-processing, publishable under its guarantee.

    Parameters
    ----------
    kind : ``"loadings"`` (heat map), ``"biplot"`` or ``"scree"``.
    dark : for a dark page.

    Raises
    ------
    BadParameter
        If the kind is not known.
    NoRelease
        If the release does not hold what is to be drawn.
    """
    style = DARK if dark else LIGHT
    if kind not in ("loadings", "biplot", "scree"):
        raise BadParameter(f"kind={kind!r} is not known; use 'loadings', 'biplot' or 'scree'")
    if kind == "scree":
        made = scree(release, style)
        if made is None:
            raise NoRelease("this release holds a subspace only, no eigenvalues; use kind='loadings'")
        return made
    if not release.subspace.n_components:
        raise NoRelease("this release holds the empty subspace: there is nothing to draw")
    return heat_map(release, style) if kind == "loadings" else biplot(release, style)
