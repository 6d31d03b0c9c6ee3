"""A picture of who is traced: scores of contributors beside those of innocents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from streampca.attacks.fingerprinting import Evidence


def draw(path: Path, found: Mapping[str, Evidence], title: str) -> bool:
    """Draw the scores of every target as PNG; False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8.0, 0.9 + 1.0 * len(found)), dpi=150, layout="constrained")
    panels = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    most = max(float(evidence.contributors.max()) for evidence in found.values())
    bins = np.linspace(-4.5, max(4.5, most) + 0.5, 60)
    for axes, (name, evidence) in zip(panels, found.items(), strict=True):
        limit = float(np.quantile(evidence.innocents, 1.0 - evidence.rate))
        for scores, colour, label in (
            (evidence.innocents, "0.7", "innocents"),
            (evidence.contributors, "tab:red", "contributors"),
        ):
            axes.hist(
                scores.ravel(), bins=bins, density=True, histtype="stepfilled", alpha=0.7, color=colour, label=label
            )
        axes.axvline(limit, color="0.3", linewidth=1, linestyle=":")
        axes.set_yticks([])
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        axes.text(
            0.995, 0.86, f"{evidence.traced:.0%} of contributors accused", ha="right", va="top", fontsize=9,
            transform=axes.transAxes,
        )  # fmt: skip
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    panels[0].legend(frameon=False, loc="upper left", fontsize=8)
    rate = next(iter(found.values())).rate
    panels[-1].set_xlabel(
        f"score, in sds of an innocent's; right of the dotted line {rate:.0%} of innocents would be accused"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return True
