"""Pictures of a released subspace and of curves over time, as matplotlib figures.

A basis is (d, k), ``names`` are the names of the d features, and ``times`` are n numbers of rows seen. Needs the extra
``report``; matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.errors import BadParameterError, NoReleaseError, UsageError, needs
from streampca.linalg.types import FloatArray
from streampca.release.clear import IN_RUN, ONE
from streampca.release.estimates import WIDE
from streampca.release.release import Release, rows_summed
from streampca.tables import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Features up to which a Gram matrix is unpacked for a picture.
LARGE = 1000
_COMPONENTS, _FEATURES, _ARROWS, _EIGENVALUES = 6, 40, 24, 30
#: Releases drawn at most, of many.
_RELEASES = 400
#: Colors of pictures, which are drawn for a light page, and their counterparts on a dark one.
_BACKGROUND, _TEXT, _SOFT, _GRID = "#ffffff", "#1a2230", "#566073", "#e1e5ec"
_LINES = ("#1f5fa8", "#b8610b", "#18794e", "#8a3ea8", "#b3243b", "#0b7285")
_DARK_TEXT = "#e7ebf2"
_DARK = {
    _BACKGROUND: "#1a202b", _TEXT: _DARK_TEXT, _SOFT: "#a3adbd", _GRID: "#323b4a",
    **dict(zip(_LINES, ("#6cb2ff", "#ffb056", "#5fd39a", "#d9a0f2", "#ff8a98", "#5ccfe0"), strict=True)),
    "#000000": _DARK_TEXT,
}  # fmt: skip
_DASHES = ("-", "--", ":", "-.", (0, (4, 2, 1, 2, 1, 2)), (0, (8, 3)))
#: Heads of arrows at the end of a line, and a legend to the right of a chart.
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
_FAINT = _ARROW | {"arrowstyle": "->", "linestyle": "--", "alpha": 0.4}
_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}


# -- values shared with the page ----------------------------------------------------


def heaviest(basis: FloatArray, most: int) -> list[int]:
    """Return the ascending indices of the ``most`` rows of largest norm of a basis."""
    return sorted(np.argsort(-(basis**2).sum(axis=1), kind="stable")[:most].tolist())


def names_of(release: Release) -> Sequence[str]:
    """Return the names of the features, or numbers from 1 where they have none."""
    return release.features or [f"feature {i + 1}" for i in range(release.n_features)]


def has_drawable_gram(release: Release) -> bool:
    """Return True if the release holds a Gram matrix that is small enough to be unpacked for a chart."""
    return release.packed is not None and release.n_features <= LARGE


def spectrum(release: Release) -> FloatArray | None:
    """Return the leading eigenvalues, descending: of the Gram matrix if it is drawable, else the released ones."""
    if not has_drawable_gram(release):
        return release.eigenvalues
    return np.asarray(np.linalg.eigvalsh(release.gram)[::-1][:_EIGENVALUES], dtype=np.float64)


def eigenvalue_title(release: Release) -> str:
    """Return the title of a chart of eigenvalues divided by `rows_summed`."""
    return "Eigenvalues of the decayed sum" if "decay_per_release" in release.details else "Eigenvalues per row"


# -- components over time ------------------------------------------------------------


def aligned(bases: Sequence[FloatArray]) -> list[FloatArray]:
    """Reorder and sign the columns of bases over time, so that each column follows one component.

    The last basis is unchanged. Each earlier one is matched to its successor by the largest sum of absolute inner
    products of columns. Within a near-degenerate group eigenvectors turn freely, and no match is meaningful.
    """
    from scipy.optimize import linear_sum_assignment  # loads slowly

    # Backwards in time: the latest components are the ones that other views show.
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


# -- pictures -----------------------------------------------------------------------


def plot(
    release: Release, kind: str = "loadings", *, past: Sequence[Release] = (), clear: int | None = None
) -> Picture:
    """Draw a release; see `Release.plot`.

    Components beyond the first ``clear``, which stand out from the noise, are drawn hollow or faint; None to test it.
    """
    of_one, over_time = (
        {"loadings": _heat_map, "biplot": _biplot},
        {"over-time": _loadings_over_time, "motion": _motion},
    )
    known = *of_one, "scree", *over_time
    if kind not in known:
        raise BadParameterError("kind", kind, f"one of {', '.join(map(repr, known))}")
    basis, names = release.subspace.basis, names_of(release)
    if kind != "scree" and not basis.size:
        raise NoReleaseError("this release holds the empty subspace: there is nothing to draw")
    if clear is None and release.n_features <= LARGE:
        clear = release.stands_out(IN_RUN if past else ONE)
    clear = basis.shape[1] if clear is None else clear
    with _styled():
        if kind == "scree":
            return Picture(_scree(release, clear))
        if kind in of_one:
            return Picture(of_one[kind](basis, names, clear))
        same = [one for one in (*past, release) if one.subspace.basis.shape == basis.shape]
        if len(same) < 2:
            raise UsageError(f"kind={kind!r} needs earlier releases of the same dimensions: pass past=")
        # Evenly spread, and counted from the end, so that this release is always drawn.
        step = -(-len(same) // _RELEASES)
        same = same[(len(same) - 1) % step :: step]
        times, bases = [one.t for one in same], np.array(aligned([one.subspace.basis for one in same]))
        return Picture(over_time[kind](times, bases, names, clear))


def _hollow(clear: int, k: int) -> str:
    """Return the part of a title that names the components that do not stand out."""
    if clear >= k:
        return ""
    last = clear + 1 == k
    return f"\n{'component' if last else f'components {clear + 1} to'} {k} do{'es' * last} not stand out"


def _heat_map(basis: FloatArray, names: Sequence[str], clear: int) -> Figure:
    basis = basis[:, :_COMPONENTS]
    chosen = heaviest(basis, _FEATURES)
    shown = np.where(np.arange(basis.shape[1]) < clear, basis[chosen], np.nan)  # nan is an empty cell
    figure, (axes,) = _figure(1.9 + 0.85 * max(3, basis.shape[1]), 1.1 + 0.27 * max(4, len(chosen)))
    axes.grid(visible=False)
    image = axes.imshow(shown, cmap="RdBu", vmin=-1.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(basis.shape[1]), [str(i + 1) for i in range(basis.shape[1])])
    axes.set_yticks(range(len(chosen)), [_short(names[i]) for i in chosen])
    for (i, j), value in np.ndenumerate(shown[:, :clear]):
        color = "#fefefe" if abs(value) > 0.6 else "#1b2231"  # cells are as light on a dark page: see `darkened`
        axes.text(j, i, f"{value:.2f}".replace("-", "\u2212"), ha="center", va="center", fontsize=8, color=color)
    omitted = len(basis) - len(chosen)
    x = "component" + (f" ({omitted} lighter features omitted)" if omitted else "")
    axes.set(title="Loadings" + _hollow(clear, basis.shape[1]), xlabel=x)
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    bar.ax.tick_params(colors=_SOFT, labelsize=8)
    return figure


def _biplot(basis: FloatArray, names: Sequence[str], clear: int) -> Figure:
    """Draw the features as arrows in the plane of the first two components. Rows are private and never drawn."""
    basis = basis[:, :2]
    two = np.pad(basis, ((0, 0), (0, 2 - basis.shape[1])))
    reach = 1.18 * float(np.abs(two).max(initial=0.1))
    figure, (axes,) = _figure(5.2, 5.0)
    _cross(axes)
    named: list[tuple[float, float]] = []  # heads of arrows with a name: names do not overlap
    for i in sorted(heaviest(two, _ARROWS), key=lambda i: -float((two[i] ** 2).sum())):
        x, y = float(two[i, 0]), float(two[i, 1])
        arrow = _ARROW if clear >= basis.shape[1] else _FAINT
        axes.annotate("", (x, y), (0.0, 0.0), arrowprops=arrow | {"color": _LINES[0]})
        is_free = all(abs(x - a) > 0.3 * reach or abs(y - b) > 0.075 * reach for a, b in named)
        if is_free and max(abs(x), abs(y)) > 0.06 * reach:
            named.append((x, y))
            axes.annotate(
                _short(names[i]), (x, y), (5 if x >= 0 else -5, 4 if y >= 0 else -4), textcoords="offset points",
                ha="left" if x >= 0 else "right", va="bottom" if y >= 0 else "top", fontsize=9,
            )  # fmt: skip
    axes.set(xlim=(-reach * 1.15, reach * 1.15), ylim=(-reach * 1.15, reach * 1.15), aspect="equal")
    title = "Biplot of the features" + ("" if len(named) == len(names) else " (short or crowded ones unnamed)")
    title += _hollow(clear, basis.shape[1])
    axes.set(title=title, xlabel="component 1", ylabel="component 2" if basis.shape[1] > 1 else "")
    return figure


def _scree(release: Release, clear: int) -> Figure:
    """Draw eigenvalues per row with 95 % error bars, and the level of the noise; hollow from component ``clear`` on."""
    values, rows, k = spectrum(release), rows_summed(release), release.n_components
    if values is None or not len(values):
        raise NoReleaseError("this release holds a subspace only, no eigenvalues; use kind='loadings'")
    figure, (axes,) = _figure()
    at, shown, bars = np.arange(1, len(values) + 1), values / rows, ""
    colors = [_LINES[0] if i <= k else _SOFT for i in at]
    for bar in axes.bar(at, shown, width=0.62, color=colors, edgecolor=colors, alpha=0.75).patches[clear:k]:
        bar.set_fill(False)
    if release.packed is not None and (noise_std := release.noise_std) is not None:
        # The noise is symmetric Gaussian, with sd s on the diagonal and s / sqrt(2) off it, so v^T N v has sd s for any
        # fixed unit vector v. To first order, if neighboring eigenvalues are further apart than the noise, the error of
        # an eigenvalue is N(0, s**2). The largest eigenvalue of the noise is near s sqrt(2 d).
        bars = "; bars: 95 % of the noise, to first order"
        axes.errorbar(at, shown, yerr=WIDE * noise_std / rows, fmt="none", ecolor=_TEXT, elinewidth=1.2, capsize=3)
        level = noise_std * math.sqrt(2.0 * release.n_features) / rows
        axes.axhspan(-level, level, color=_LINES[1], alpha=0.14, linewidth=0, label="level of the noise")
        axes.axhline(level, color=_LINES[1], linewidth=1.2, linestyle="--")
        axes.legend(loc="upper right")
    axes.axhline(0.0, color=_SOFT, linewidth=0.8)
    if len(values) <= 15:
        axes.set_xticks(at)
    x = f"component (the first {k} span the subspace)"
    axes.set(title=eigenvalue_title(release) + bars + _hollow(clear, k), xlabel=x, ylabel="squared row norm")
    return figure


def _loadings_over_time(times: Sequence[int], bases: FloatArray, names: Sequence[str], clear: int) -> Figure:
    """Draw the five heaviest loadings of each of the first three components over `aligned` bases (n, d, k)."""
    count = min(3, bases.shape[2])
    figure, all_axes = _figure(7.2, 0.7 + 2.0 * count, "\n".join("ABC"[:count]), sharex=True)
    for j, axes in enumerate(all_axes):
        for i in np.argsort(-np.abs(bases[-1, :, j]), kind="stable")[:5]:
            axes.plot(times, bases[:, i, j], label=_short(names[i]), alpha=1.0 if j < clear else 0.3)
        title = f"Component {j + 1}: " + ("its five heaviest features" if j < clear else "not above the noise")
        axes.set(ylim=(-1.08, 1.08), title=title, xlabel="rows seen" if j == count - 1 else "", ylabel="loading")
        axes.legend(**_BESIDE)
    return figure


def _motion(times: Sequence[int], bases: FloatArray, names: Sequence[str], clear: int) -> Figure:
    """Draw the axes of features in the plane of at least two subspaces, angles to the last one, squared lengths."""
    from matplotlib.collections import LineCollection

    # The plane has the first two directions of the last basis. Procrustes: each other basis is rotated within its
    # subspace to be closest to the last one. With one component, the second coordinate is 0.
    last = bases[-1]
    turns = np.linalg.svd(np.swapaxes(bases, 1, 2) @ last)
    plane = (bases @ (turns.U @ turns.Vh))[:, :, :2]
    plane = np.pad(plane, ((0, 0), (0, 0), (0, 2 - plane.shape[2])))
    lengths = (bases**2).sum(axis=2)  # squared length of each axis in the subspace
    # The six features of largest mean squared length.
    chosen = sorted(np.argsort(-lengths.mean(axis=0), kind="stable")[:6].tolist())
    figure, (axes, angles, share) = _figure(9.6, 5.0, "AB\nAC", width_ratios=[1.25, 1.0])
    reach = 1.1 * max(0.1, float(np.abs(plane[:, chosen]).max()))
    _cross(axes)
    age = np.linspace(0.15, 1.0, len(times) - 1)
    for n, i in enumerate(chosen):
        color, trail = _LINES[n], plane[:, i]
        pieces = np.stack([trail[:-1], trail[1:]], axis=1)
        axes.add_collection(LineCollection(list(pieces), colors=color, alpha=age, linewidths=0.6 + 1.6 * age))
        axes.plot(*trail[0], "o", color=color, markersize=4, alpha=0.6)
        arrow = _ARROW if clear >= min(2, bases.shape[2]) else _FAINT
        axes.annotate("", tuple(trail[-1]), (0.0, 0.0), arrowprops=arrow | {"color": color})
        share.plot(times, lengths[:, i], label=_short(names[i]))
    x = "first direction of the last release (dot: first place, arrow: last)"
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel=x, ylabel="second")
    axes.set(title="Axes of features in the released plane" + _hollow(clear, bases.shape[2]))
    # Cosines of principal angles are singular values of V_t^T V_n. Rounding may take them above 1.
    cosines = np.clip(np.linalg.svd(np.swapaxes(bases, 1, 2) @ last, compute_uv=False), 0.0, 1.0)
    degrees = np.degrees(np.arccos(cosines))[:-1, ::-1]
    for j, column in enumerate(degrees.T[: len(_LINES)]):
        angles.plot(times[:-1], column, color=_SOFT if j else _TEXT, label=f"{j + 1}." if j else "largest")
    angles.set(ylim=(0.0, 93.0), title="Angles to the last subspace", ylabel="degrees")
    title = "How much of each feature the subspace holds"
    share.set(ylim=(0.0, 1.04), title=title, xlabel="rows seen", ylabel="squared length")
    for each in (angles, share):
        each.locator_params(axis="x", nbins=5)
        each.legend(**_BESIDE)
    return figure


def curves(
    data: Mapping[str, FloatArray], series: Sequence[tuple[str, str]], *, log: bool = False, title: str = "",
    unit: str = "", mark: str = "",
) -> Figure:  # fmt: skip
    """Draw curves over time: each of ``series`` is (column, label), and ``data`` has the columns, ``t`` among them.

    ``unit`` is of the y axis, in powers of ten with ``log``; ``mark`` is a line below the chart, within the picture.
    """
    with _styled():
        figure, (axes,) = _figure()
        marker = "o" if len(data["t"]) < 3 else ""
        for column, name in series:
            y = np.where(data[column] > 0.0, data[column], np.nan) if log else data[column]
            axes.plot(data["t"], y, marker=marker, label=name)
        if log and any(np.any(data[column] > 0.0) for column, _ in series):
            axes.set_yscale("log")
        axes.set(title=title, xlabel="rows seen", ylabel=unit)
        axes.legend(loc="best")
        if mark:
            figure.supxlabel(mark, fontsize=9, color=_LINES[1], x=0.99, ha="right")
        return figure


def encoded(figure: Figure) -> bytes:
    """Encode a picture as SVG. Equal pictures give equal bytes: no date, no random identifiers."""
    from matplotlib import rc_context

    out = io.BytesIO()
    with rc_context({"svg.hashsalt": "streampca", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, facecolor=figure.get_facecolor())
    return out.getvalue()


def darkened(svg: str) -> str:
    """Return a picture for a dark page, from an SVG for a light one."""
    # What matplotlib draws in black it mostly gives no color at all: it is inherited from the whole.
    svg = re.sub("#[0-9a-f]{6}", lambda found: _DARK.get(found[0], found[0]), svg)
    return svg.replace("<svg ", f'<svg fill="{_DARK_TEXT}" ', 1)


def _styled() -> AbstractContextManager[None]:
    """Return a context in which pictures are drawn in the colors and sizes of the module."""
    with needs("report"):
        from matplotlib import rc_context
        from matplotlib.rcsetup import cycler

    settings: Any = {
        "figure.facecolor": _BACKGROUND, "figure.constrained_layout.use": True, "text.color": _TEXT,
        "axes.facecolor": _BACKGROUND, "axes.edgecolor": _GRID, "axes.axisbelow": True, "axes.grid": True,
        "axes.spines.top": False, "axes.spines.right": False, "axes.labelcolor": _SOFT, "axes.labelsize": 9,
        "axes.titlecolor": _TEXT, "axes.titlesize": 11, "axes.titlelocation": "left",
        "axes.prop_cycle": cycler(color=_LINES, linestyle=_DASHES), "lines.linewidth": 1.6,
        "legend.frameon": False, "legend.fontsize": 8.5, "legend.labelcolor": _TEXT,
    }  # fmt: skip
    return rc_context(settings)


def _figure(width: float = 6.4, height: float = 4.0, places: str = "A", **options: Any) -> tuple[Figure, list[Axes]]:
    """Return an empty picture, its size in inches, with axes in named places."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    all_axes = list(figure.subplot_mosaic(places, **options).values())
    for axes in all_axes:
        # Ticks are created when they are drawn, after the settings of `_styled` have ended.
        axes.tick_params(colors=_SOFT, which="both", labelsize=9, grid_color=_GRID, grid_linewidth=0.7)
    return figure, all_axes


def _cross(axes: Axes) -> None:
    axes.axhline(0.0, color=_SOFT, linestyle="-", linewidth=0.8)
    axes.axvline(0.0, color=_SOFT, linestyle="-", linewidth=0.8)


def _short(name: str) -> str:
    name = name if len(name) <= 24 else name[:23] + "…"
    return name.replace("$", r"\$")  # matplotlib reads dollars as mathematics
