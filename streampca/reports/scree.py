"""Eigenvalues with the error that the noise makes. Post-processing of a release."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from streampca.dashboard.public import LARGE, eigenvalues_of, rows_in
from streampca.linalg.types import FloatArray
from streampca.release import Release
from streampca.reports.style import Style, figure, label, legend

_WIDE = 1.959963984540054


def spectrum(release: Release, most: int = 30) -> FloatArray | None:
    """The leading eigenvalues of the released matrix, descending, or None where none are released."""
    if release.has_gram and release.n_features <= LARGE:
        return np.asarray(np.linalg.eigvalsh(release.gram)[::-1][:most], dtype=np.float64)
    return release.eigenvalues


def scree(release: Release, style: Style) -> Figure | None:
    """Eigenvalues per row with 95 % bars, and the level under which all is noise; None without eigenvalues.

    Notes
    -----
    The noise is symmetric Gaussian with sd s on the diagonal and s / sqrt(2)
    off it, so for any fixed unit vector v, v^T N v has sd s: to first order,
    where neighbouring eigenvalues are further apart than the noise, an
    eigenvalue is off by N(0, s**2). The noise alone has its largest eigenvalue near s sqrt(2 d).
    """
    values = spectrum(release)
    if values is None or not len(values):
        return None
    rows = rows_in(release)
    made, axes = figure(style)
    at = np.arange(1, len(values) + 1)
    shown = values / rows
    k = release.n_components
    colours = [style.lines[0] if i < k else style.soft for i in range(len(values))]
    axes.bar(at, shown, width=0.62, color=colours, alpha=0.75)
    std = release.noise_std if release.has_gram else None
    if std is not None:
        axes.errorbar(at, shown, yerr=_WIDE * std / rows, fmt="none", ecolor=style.text, elinewidth=1.2, capsize=3)
        level = std * math.sqrt(2.0 * release.n_features) / rows
        axes.axhspan(-level, level, color=style.lines[1], alpha=0.14, linewidth=0, label="level of the noise alone")
        axes.axhline(level, color=style.lines[1], linewidth=1.2, linestyle="--")
        legend(axes, style, loc="upper right")
    axes.axhline(0.0, color=style.soft, linewidth=0.8)
    if len(values) <= 15:
        axes.set_xticks(at)
    bars = "; bars: 95 % of the noise, to first order" if std is not None else ""
    label(axes, style, title=eigenvalues_of(release) + bars, x=f"component (the first {k} span the subspace)",
          y="squared row norm")  # fmt: skip
    return made
