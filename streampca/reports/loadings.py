"""Pictures of a released subspace: heat map, biplot, loadings over time. Post-processing of releases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from streampca.dashboard.align import aligned
from streampca.linalg.types import FloatArray
from streampca.release import Release
from streampca.reports.style import Style, dress, figure, label, legend

#: Components and features drawn at most.
COMPONENTS, FEATURES, ARROWS = 6, 40, 24
#: Releases drawn at most over time.
POINTS = 100


def names_of(release: Release) -> list[str]:
    """Names of the features."""
    return list(release.features or (f"feature {i + 1}" for i in range(release.n_features)))


def heaviest(basis: FloatArray, most: int) -> list[int]:
    """The features that weigh most, in their own order."""
    return sorted(np.argsort(-(basis**2).sum(axis=1), kind="stable")[:most].tolist())


def heat_map(release: Release, style: Style) -> Figure:
    """Loadings as a heat map, a row a feature."""
    basis = release.subspace.basis[:, :COMPONENTS]
    chosen, names = heaviest(basis, FEATURES), names_of(release)
    shown = basis[chosen]
    made, axes = figure(style, 1.9 + 0.85 * max(3, basis.shape[1]), 1.1 + 0.27 * max(4, len(chosen)))
    axes.grid(visible=False)
    image = axes.imshow(shown, cmap="RdBu", vmin=-1.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(basis.shape[1]), [str(i + 1) for i in range(basis.shape[1])])
    axes.set_yticks(range(len(chosen)), [_short(names[i]) for i in chosen])
    for (i, j), value in np.ndenumerate(shown):
        dark = abs(value) > 0.6
        text = f"{value:.2f}".replace("-", "\u2212")
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "#1a2230")
    left_out = release.n_features - len(chosen)
    label(
        axes, style, title="Loadings", x="component" + (f" ({left_out} lighter features left out)" if left_out else "")
    )
    bar = made.colorbar(image, ax=axes, shrink=0.9)
    bar.ax.tick_params(colors=style.soft, labelsize=8)
    bar.outline.set_edgecolor(style.grid)
    return made


def biplot(release: Release, style: Style) -> Figure:
    """The features as arrows in the plane of the first two components. Rows are never drawn: they are private."""
    basis = release.subspace.basis
    two = basis[:, :2] if basis.shape[1] > 1 else np.column_stack([basis[:, 0], np.zeros(len(basis))])
    chosen, names = heaviest(two, ARROWS), names_of(release)
    reach = 1.18 * float(np.abs(two).max(initial=0.1))
    made, axes = figure(style, 5.2, 5.0)
    axes.axhline(0.0, color=style.soft, linewidth=0.8)
    axes.axvline(0.0, color=style.soft, linewidth=0.8)
    taken: list[tuple[float, float]] = []
    for i in sorted(chosen, key=lambda i: -float((two[i] ** 2).sum())):
        x, y = float(two[i, 0]), float(two[i, 1])
        arrow = {"arrowstyle": "-|>", "color": style.lines[0], "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, y), (0.0, 0.0), arrowprops=arrow)
        place = x, y
        clear = all(abs(place[0] - a) > 0.3 * reach or abs(place[1] - b) > 0.075 * reach for a, b in taken)
        if clear and max(abs(x), abs(y)) > 0.06 * reach:
            taken.append(place)
            axes.annotate(
                _short(names[i]), (x, y), (5 if x >= 0 else -5, 4 if y >= 0 else -4), textcoords="offset points",
                ha="left" if x >= 0 else "right", va="bottom" if y >= 0 else "top", fontsize=9, color=style.text,
            )  # fmt: skip
    axes.set(xlim=(-reach * 1.15, reach * 1.15), ylim=(-reach * 1.15, reach * 1.15), aspect="equal")
    title = "Biplot of the features" + ("" if len(taken) == len(names) else " (short or crowded ones unnamed)")
    label(axes, style, title=title, x="component 1", y="component 2" if basis.shape[1] > 1 else "")
    return made


def over_time(releases: Sequence[Release], style: Style) -> Figure:
    """Loadings of the leading components over time, each followed through changes of order and sign."""
    last = releases[-1].subspace.basis
    kept = [r for r in releases if r.subspace.basis.shape == last.shape]
    kept = kept[(len(kept) - 1) % (step := -(-len(kept) // POINTS)) :: step]
    bases, times = np.array(aligned([r.subspace.basis for r in kept])), [r.t for r in kept]
    count = min(3, last.shape[1])
    made = Figure(figsize=(7.2, 0.7 + 2.0 * count), layout="constrained", facecolor=style.background)
    for j, axes in enumerate(np.atleast_1d(made.subplots(count, 1, sharex=True))):
        dress(axes, style)
        for n, i in enumerate(np.argsort(-np.abs(last[:, j]), kind="stable")[:5]):
            axes.plot(
                times, bases[:, i, j], color=style.lines[n], linestyle=style.dashes[n], linewidth=1.5,
                label=_short(names_of(releases[-1])[i]),
            )  # fmt: skip
        axes.set_ylim(-1.08, 1.08)
        label(axes, style, title=f"Component {j + 1}: its five heaviest features", y="loading",
              x="rows seen" if j == count - 1 else "")  # fmt: skip
        legend(axes, style, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return made


def _short(name: str) -> str:
    """A name as plain text that fits: matplotlib reads dollars as mathematics."""
    name = name if len(name) <= 24 else name[:23] + "…"
    return name.replace("$", r"\$")
