"""Pictures of a released subspace and of curves over time, as matplotlib figures.

A basis is (d, k), ``names`` are the names of the d features, ``times`` are n numbers of rows seen, and ``dark`` is for
a dark page. Needs the extra ``report``; matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from streampca.errors import BadParameterError, NoReleaseError, needs
from streampca.linalg.types import FloatArray
from streampca.release.release import Release, rows_summed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Features up to which a Gram matrix is unpacked for a picture.
LARGE = 1000
_COMPONENTS, _FEATURES, _ARROWS, _EIGENVALUES = 6, 40, 24, 30
#: Releases drawn at most, of many.
_RELEASES = 400
#: A normal variable lies within this number of standard deviations with probability 0.95.
WIDE = 1.959963984540054


class _Style(NamedTuple):
    """Colors and dashes of a picture."""

    background: str
    text: str
    soft: str
    grid: str
    lines: tuple[str, ...]
    dashes: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (4, 2, 1, 2, 1, 2)), (0, (8, 3)))


#: On a light page and on a dark one.
LIGHT = _Style("#ffffff", "#1a2230", "#566073", "#e1e5ec",
               ("#1f5fa8", "#b8610b", "#18794e", "#8a3ea8", "#b3243b", "#0b7285"))  # fmt: skip
DARK = _Style("#1a202b", "#e7ebf2", "#a3adbd", "#323b4a",
              ("#6cb2ff", "#ffb056", "#5fd39a", "#d9a0f2", "#ff8a98", "#5ccfe0"))  # fmt: skip


# -- values shared with the page ----------------------------------------------------


def feature_names(names: Sequence[str] | None, n_features: int) -> Sequence[str]:
    """Return the names of the features, by default ``feature 1, feature 2, ...``."""
    return names or [f"feature {i + 1}" for i in range(n_features)]


def heaviest(basis: FloatArray, most: int) -> list[int]:
    """Return the ascending indices of the ``most`` rows of largest norm of a basis."""
    return sorted(np.argsort(-(basis**2).sum(axis=1), kind="stable")[:most].tolist())


def has_drawable_gram(release: Release) -> bool:
    """Return True if the release holds a Gram matrix that is small enough to be unpacked for a chart."""
    return release.has_gram and release.n_features <= LARGE


def spectrum(release: Release) -> FloatArray | None:
    """Return the leading eigenvalues, descending: of the Gram matrix if it is drawable, else the released ones."""
    if not has_drawable_gram(release):
        return release.eigenvalues
    return np.asarray(np.linalg.eigvalsh(release.gram)[::-1][:_EIGENVALUES], dtype=np.float64)


def eigenvalue_title(release: Release) -> str:
    """Return the title of a chart of eigenvalues divided by `rows_summed`."""
    return "Eigenvalues of the decayed sum" if "decay_per_release" in release.details else "Eigenvalues per row"


def moving(bases: FloatArray) -> list[int]:
    """Return the ascending indices of the six features of largest mean squared length in bases (n, d, k)."""
    return sorted(np.argsort(-(bases**2).sum(axis=2).mean(axis=0), kind="stable")[:6].tolist())


def trails(bases: FloatArray) -> FloatArray:
    """Return projections of the features' axes onto the first two directions of the last of n bases, (n, d, 2)."""
    # Procrustes: each basis is rotated within its subspace to be closest to the last one.
    turns = np.linalg.svd(np.swapaxes(bases, 1, 2) @ bases[-1])
    plane: FloatArray = (bases @ (turns.U @ turns.Vh))[:, :, :2]
    return plane if plane.shape[2] == 2 else np.concatenate([plane, np.zeros_like(plane)], axis=2)


# -- signs and order of components over time ----------------------------------------


def signs_like(basis: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the basis with the signs that bring each column closest to the same column of the reference."""
    k = min(basis.shape[1], reference.shape[1])
    turned: FloatArray = basis.copy()
    if basis.shape[0] == reference.shape[0]:
        turned[:, :k] *= np.where(np.einsum("ij,ij->j", basis[:, :k], reference[:, :k]) < 0.0, -1.0, 1.0)
    return turned


def aligned(bases: Sequence[FloatArray]) -> list[FloatArray]:
    """Reorder and sign the columns of bases over time, so that each column follows one component.

    The last basis is unchanged. Each earlier one is matched to its successor by the largest sum of absolute inner
    products of columns. Within a near-degenerate group eigenvectors turn freely, and no match is meaningful.
    """
    from scipy.optimize import linear_sum_assignment  # loads slowly

    out = list(bases)
    for i in range(len(out) - 2, -1, -1):
        after, now = out[i + 1], out[i]
        if now.shape != after.shape or not now.shape[1]:
            continue
        overlap = after.T @ now
        order = linear_sum_assignment(-np.abs(overlap))[1]
        signs = np.where(overlap[np.arange(len(order)), order] < 0.0, -1.0, 1.0)
        out[i] = now[:, order] * signs
    return out


def followed(releases: Sequence[Release], most: int) -> tuple[list[int], FloatArray]:
    """Return times (n,) and aligned bases (n, d, k) of at most ``most`` releases, evenly spread, with the last."""
    shape = releases[-1].subspace.basis.shape
    same = [release for release in releases if release.subspace.basis.shape == shape]
    step = -(-len(same) // most)
    shown = same[(len(same) - 1) % step :: step]
    return [release.t for release in shown], np.array(aligned([release.subspace.basis for release in shown]))


# -- pictures -----------------------------------------------------------------------


def plot(release: Release, kind: str = "loadings", *, past: Sequence[Release] = (), dark: bool = False) -> Figure:
    """Draw a release; see `Release.plot`."""
    if kind == "scree":
        return scree(release, dark=dark)
    if kind not in ("loadings", "biplot", "over-time", "motion"):
        known = "'loadings', 'biplot', 'scree', 'over-time' or 'motion'"
        raise BadParameterError(f"kind={kind!r} is not known; use {known}")
    if not release.subspace.n_components:
        raise NoReleaseError("this release holds the empty subspace: there is nothing to draw")
    if kind in ("over-time", "motion"):
        times, bases = followed([*past, release], _RELEASES)
        if len(times) < 2:
            raise BadParameterError(f"kind={kind!r} needs earlier releases of the same dimensions: pass past=")
        return (motion if kind == "motion" else loadings_over_time)(times, bases, release.features, dark=dark)
    draw = heat_map if kind == "loadings" else biplot
    return draw(release.subspace.basis, release.features, dark=dark)


def heat_map(basis: FloatArray, names: Sequence[str] | None = None, *, dark: bool = False) -> Figure:
    """Draw loadings as a heat map, a row a feature."""
    style = DARK if dark else LIGHT
    names, basis = feature_names(names, len(basis)), basis[:, :_COMPONENTS]
    chosen = heaviest(basis, _FEATURES)
    shown = basis[chosen]
    figure, (axes,) = _figure(style, 1.9 + 0.85 * max(3, basis.shape[1]), 1.1 + 0.27 * max(4, len(chosen)))
    axes.grid(visible=False)
    image = axes.imshow(shown, cmap="RdBu", vmin=-1.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(basis.shape[1]), [str(i + 1) for i in range(basis.shape[1])])
    axes.set_yticks(range(len(chosen)), [_short(names[i]) for i in chosen])
    for (i, j), value in np.ndenumerate(shown):
        color = "white" if abs(value) > 0.6 else "#1a2230"
        axes.text(j, i, f"{value:.2f}".replace("-", "\u2212"), ha="center", va="center", fontsize=8, color=color)
    omitted = len(basis) - len(chosen)
    _label(axes, style, "Loadings", "component" + (f" ({omitted} lighter features omitted)" if omitted else ""))
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    bar.ax.tick_params(colors=style.soft, labelsize=8)
    bar.outline.set_edgecolor(style.grid)
    return figure


def biplot(basis: FloatArray, names: Sequence[str] | None = None, *, dark: bool = False) -> Figure:
    """Draw the features as arrows in the plane of the first two components. Rows are private and never drawn."""
    style, names = DARK if dark else LIGHT, feature_names(names, len(basis))
    two = basis[:, :2] if basis.shape[1] > 1 else np.column_stack([basis[:, 0], np.zeros(len(basis))])
    reach = 1.18 * float(np.abs(two).max(initial=0.1))
    figure, (axes,) = _figure(style, 5.2, 5.0)
    axes.axhline(0.0, color=style.soft, linewidth=0.8)
    axes.axvline(0.0, color=style.soft, linewidth=0.8)
    named: list[tuple[float, float]] = []  # heads of arrows with a name: names do not overlap
    for i in sorted(heaviest(two, _ARROWS), key=lambda i: -float((two[i] ** 2).sum())):
        x, y = float(two[i, 0]), float(two[i, 1])
        arrow = {"arrowstyle": "-|>", "color": style.lines[0], "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, y), (0.0, 0.0), arrowprops=arrow)
        clear = all(abs(x - a) > 0.3 * reach or abs(y - b) > 0.075 * reach for a, b in named)
        if clear and max(abs(x), abs(y)) > 0.06 * reach:
            named.append((x, y))
            axes.annotate(
                _short(names[i]), (x, y), (5 if x >= 0 else -5, 4 if y >= 0 else -4), textcoords="offset points",
                ha="left" if x >= 0 else "right", va="bottom" if y >= 0 else "top", fontsize=9, color=style.text,
            )  # fmt: skip
    axes.set(xlim=(-reach * 1.15, reach * 1.15), ylim=(-reach * 1.15, reach * 1.15), aspect="equal")
    title = "Biplot of the features" + ("" if len(named) == len(names) else " (short or crowded ones unnamed)")
    _label(axes, style, title, "component 1", "component 2" if basis.shape[1] > 1 else "")
    return figure


def scree(release: Release, *, dark: bool = False) -> Figure:
    """Draw eigenvalues per row with 95 % error bars, and the level of the noise.

    Raises `NoReleaseError` if there are no eigenvalues.

    Notes
    -----
    The noise is symmetric Gaussian with standard deviation s on the diagonal and s / sqrt(2) off it, so v^T N v has
    standard deviation s for any fixed unit vector v. To first order, if neighboring eigenvalues are further apart than
    the noise, the error of an eigenvalue is N(0, s**2). The largest eigenvalue of the noise is near s sqrt(2 d).
    """
    values, rows, k = spectrum(release), rows_summed(release), release.n_components
    if values is None or not len(values):
        raise NoReleaseError("this release holds a subspace only, no eigenvalues; use kind='loadings'")
    style = DARK if dark else LIGHT
    figure, (axes,) = _figure(style)
    at, shown = np.arange(1, len(values) + 1), values / rows
    colors = [style.lines[0] if i < k else style.soft for i in range(len(values))]
    axes.bar(at, shown, width=0.62, color=colors, alpha=0.75)
    bars = ""
    if release.has_gram and (noise_std := release.noise_std) is not None:
        bars = "; bars: 95 % of the noise, to first order"
        axes.errorbar(at, shown, yerr=WIDE * noise_std / rows, fmt="none", ecolor=style.text, elinewidth=1.2, capsize=3)
        level = noise_std * math.sqrt(2.0 * release.n_features) / rows
        axes.axhspan(-level, level, color=style.lines[1], alpha=0.14, linewidth=0, label="level of the noise")
        axes.axhline(level, color=style.lines[1], linewidth=1.2, linestyle="--")
        _legend(axes, style, loc="upper right")
    axes.axhline(0.0, color=style.soft, linewidth=0.8)
    if len(values) <= 15:
        axes.set_xticks(at)
    x = f"component (the first {k} span the subspace)"
    _label(axes, style, eigenvalue_title(release) + bars, x, "squared row norm")
    return figure


def loadings_over_time(
    times: Sequence[int], bases: FloatArray, names: Sequence[str] | None = None, *, dark: bool = False
) -> Figure:
    """Draw the five heaviest loadings of each of the first three components over `aligned` bases (n, d, k)."""
    style, names = DARK if dark else LIGHT, feature_names(names, bases.shape[1])
    count = min(3, bases.shape[2])
    figure, all_axes = _figure(style, 7.2, 0.7 + 2.0 * count, count)
    for j, axes in enumerate(all_axes):
        for n, i in enumerate(np.argsort(-np.abs(bases[-1, :, j]), kind="stable")[:5]):
            axes.plot(
                times, bases[:, i, j], color=style.lines[n], linestyle=style.dashes[n], linewidth=1.5,
                label=_short(names[i]),
            )  # fmt: skip
        axes.set_ylim(-1.08, 1.08)
        last = j == count - 1
        _label(axes, style, f"Component {j + 1}: its five heaviest features", "rows seen" if last else "", "loading")
        _legend(axes, style, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def motion(
    times: Sequence[int], bases: FloatArray, names: Sequence[str] | None = None, *, dark: bool = False
) -> Figure:
    """Draw the axes of features in the plane of at least two subspaces, angles to the last one, squared lengths."""
    with needs("report"):
        from matplotlib.collections import LineCollection

    style, names = DARK if dark else LIGHT, feature_names(names, bases.shape[1])
    last, plane, chosen = bases[-1], trails(bases), moving(bases)
    held = (bases**2).sum(axis=2)  # squared length of each axis in the subspace
    figure, (axes, angles, share) = _figure(style, 9.6, 5.0, places=[["plane", "angles"], ["plane", "share"]])
    reach = 1.1 * max(0.1, float(np.abs(plane[:, chosen]).max()))
    axes.axhline(0.0, color=style.soft, linewidth=0.8)
    axes.axvline(0.0, color=style.soft, linewidth=0.8)
    old = np.linspace(0.15, 1.0, len(times) - 1)
    for n, i in enumerate(chosen):
        color, trail = style.lines[n], plane[:, i]
        pieces = np.stack([trail[:-1], trail[1:]], axis=1)
        axes.add_collection(LineCollection(list(pieces), colors=color, alpha=old, linewidths=0.6 + 1.6 * old))
        axes.plot(*trail[0], "o", color=color, markersize=4, alpha=0.6)
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", tuple(trail[-1]), (0.0, 0.0), arrowprops=arrow)
        share.plot(times, held[:, i], color=color, linestyle=style.dashes[n], linewidth=1.6, label=_short(names[i]))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    x = "first direction of the last release (dot: first place, arrow: last)"
    _label(axes, style, "Axes of features in the released plane", x, "second")
    cosines = np.clip(np.linalg.svd(np.swapaxes(bases, 1, 2) @ last, compute_uv=False), 0.0, 1.0)
    degrees = np.degrees(np.arccos(cosines))[:-1]
    for j in range(min(degrees.shape[1], len(style.lines))):
        name = "largest" if j == 0 else f"{j + 1}."
        column, color = degrees[:, degrees.shape[1] - 1 - j], style.text if j == 0 else style.soft
        angles.plot(times[:-1], column, color=color, linestyle=style.dashes[j], label=name)
    angles.set_ylim(0.0, 93.0)
    _label(angles, style, "Angles to the last subspace", "", "degrees")
    share.set_ylim(0.0, 1.04)
    _label(share, style, "How much of each feature the subspace holds", "rows seen", "squared length")
    for each in (angles, share):
        each.locator_params(axis="x", nbins=5)
        _legend(each, style, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def curves(
    data: Mapping[str, FloatArray],
    series: Sequence[tuple[str, str]],
    *,
    band: tuple[str, str, str] | None = None,
    log: bool = False,
    title: str = "",
    unit: str = "",
    mark: str = "",
    dark: bool = False,
) -> Figure:
    """Draw curves over time, and a shaded interval.

    Parameters
    ----------
    data : columns of equal length, ``t`` (rows seen) among them; nan if there is no value.
    series : (column, label) of each curve.
    band : (low column, high column, label) of the interval.
    log : draw the positive values, on an axis in powers of ten.
    title, unit : of the picture, and of the y axis.
    mark : line below the chart, within the picture.
    dark : for a dark page.
    """
    style = DARK if dark else LIGHT
    figure, (axes,) = _figure(style)
    t = data["t"]
    marker = "o" if len(t) < 3 else ""
    for i, (column, name) in enumerate(series):
        y = np.where(data[column] > 0.0, data[column], np.nan) if log else data[column]
        axes.plot(
            t, y, color=style.lines[i % 6], linestyle=style.dashes[i % 6], marker=marker, linewidth=1.7, label=name
        )
    if band is not None:
        low, high = data[band[0]], data[band[1]]
        axes.fill_between(t, low, high, color=style.lines[0], alpha=0.25, linewidth=0, label=band[2])
        axes.plot(t, low, t, high, color=style.lines[0], linewidth=1.2, marker=marker)
        late = t >= t[-1] / 2.0  # intervals are wide at first
        ends = np.concatenate([low[late], high[late], [0.0]])
        room = 0.1 * float(np.nanmax(ends) - np.nanmin(ends)) or 1.0
        axes.set_ylim(float(np.nanmin(ends)) - room, float(np.nanmax(ends)) + room)
    if log and any(np.any(data[column] > 0.0) for column, _ in series):
        axes.set_yscale("log")
    _label(axes, style, title, "rows seen", unit)
    _legend(axes, style, loc="best")
    if mark:
        figure.supxlabel(mark, fontsize=9, color=style.lines[1], x=0.99, ha="right")
    return figure


def encoded(figure: Figure, kind: Literal["svg", "png"]) -> bytes:
    """Encode a picture. Equal pictures give equal bytes: no date, no random identifiers."""
    from matplotlib import rc_context

    out = io.BytesIO()
    with rc_context({"svg.hashsalt": "streampca", "svg.fonttype": "none"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, dpi=150, metadata=metadata, facecolor=figure.get_facecolor())
    return out.getvalue()


def _figure(
    style: _Style, width: float = 6.4, height: float = 4.0, count: int = 1, places: Any = None
) -> tuple[Figure, list[Axes]]:
    """An empty picture, with axes one below the other or in named places. Sizes in inches."""
    with needs("report"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=style.background)
    if places is None:
        all_axes = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    else:
        all_axes = list(figure.subplot_mosaic(places, width_ratios=[1.25, 1.0]).values())
    for axes in all_axes:
        axes.set_facecolor(style.background)
        axes.tick_params(colors=style.soft, which="both", labelsize=9)
        for name, spine in axes.spines.items():
            spine.set_visible(name in ("left", "bottom"))
            spine.set_color(style.grid)
        axes.grid(color=style.grid, linewidth=0.7)
        axes.set_axisbelow(True)
    return figure, all_axes


def _label(axes: Axes, style: _Style, title: str, x: str = "", y: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=11, color=style.text)
    axes.set_xlabel(x, color=style.soft, fontsize=9)
    axes.set_ylabel(y, color=style.soft, fontsize=9)


def _legend(axes: Axes, style: _Style, **where: Any) -> None:
    axes.legend(frameon=False, fontsize=8.5, labelcolor=style.text, **where)


def _short(name: str) -> str:
    name = name if len(name) <= 24 else name[:23] + "…"
    return name.replace("$", r"\$")  # matplotlib reads dollars as mathematics
