"""`PrivateFPL` on tables and streams that drift: smoothing, and what the design asks of it.

``python scenarios/solvers.py`` prints the sections of docs/utility.md, in some minutes; ``python scenarios/run.py
solvers`` checks the figures.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scenario import Context, load, run_scenario

from streampca.errors import StreamPCAWarning
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.stream.stream import Stream

sys.path.insert(0, str(Path(__file__).parent))
from real_tables import EPSILONS, markdown, regret_table, shuffled, streamed, table, write

#: Parameters of `PrivateFPL` that are compared, by name.
KINDS: dict[str, dict[str, Any]] = {
    "exact": {}, "tracking": {"solver": "tracking"}, "smoothed": {"solver": "smoothed"},
}  # fmt: skip


# -- made-up streams ------------------------------------------------------------------------------


def drift(name: str, n: int, draw: int = 0, d: int = 20) -> FloatArray:
    """Gaussian rows around a plane that turns, or jumps, into one orthogonal to it."""
    source, t = np.random.default_rng(1 + draw), np.arange(n) / n
    quarter = {
        "a quarter turn": t, "a full turn": 4.0 * t, "three jumps": np.floor(4.0 * t),
        "a jump at half": 1.0 * (t > 0.5), "a jump at a tenth": 1.0 * (t > 0.1),
    }[name]  # fmt: skip
    axes = np.linalg.qr(source.standard_normal((d, 4)))[0]
    cos, sin = np.cos(0.5 * np.pi * quarter)[:, None], np.sin(0.5 * np.pi * quarter)[:, None]
    plane = source.standard_normal((2, n, 1))
    rows = sum(plane[i] * (cos * axes[:, i] + sin * axes[:, i + 2]) for i in range(2))
    return onto_ball(0.4 * (rows + 0.2 * source.standard_normal((n, d))))


# -- measurements ---------------------------------------------------------------------------------


def solvers(context: Context) -> dict[str, dict[str, float]]:
    """Regret, as a share of OPT, and captured variance of ``KINDS`` on tables and drifts.

    ``all`` has, over real tables, the geometric mean of the regret of smoothed over exact (``smoothed_tables``), over
    drifts the same and the worst (``smoothed_drifts``, ``smoothed_drifts_worst``), and windows of smoothed over ring
    (``window``, ``window_worst``: of 1 - captured).
    """
    n, few = context.rows, context.rows < 4000
    draws, drift_draws = (1 if few else int(context.params[name]) for name in ("draws", "drift_draws"))
    found: dict[str, dict[str, float]] = {}

    def add(
        name: str, make: Callable[[int], FloatArray], k: int, kinds: tuple[str, ...], releases: int, draws: int
    ) -> None:
        for epsilon in EPSILONS[1:2] if few else EPSILONS:
            for kind in kinds:
                made = [streamed(make(i), k, epsilon, context.seed + i, releases, **KINDS[kind]) for i in range(draws)]
                regret, captured = np.mean(made, axis=0)
                found[f"{name}, {epsilon:g}, {kind}"] = {"regret": regret, "captured": captured}

    for name in context.params["tables"][: 1 if few else None]:
        rows = table(name, n)
        add(name, partial(shuffled, rows), min(3, rows.shape[1] - 1), ("exact", "smoothed"), 100, draws)
    for name, releases in itertools.product(context.params["drifts"][: 1 if few else None], (100, 400)):
        add(f"{name} ({releases} releases)", partial(drift, name, n), 2, tuple(KINDS), releases, drift_draws)
    windows = [
        _mean([_windows(drift(name, n, i), epsilon, context.seed + i) for i in range(drift_draws)])
        for name, epsilon in itertools.product(context.params["drifts"], (0.3, 1.0))
    ]
    overall = {"window": _mean(windows), "window_worst": max(windows)}
    # Regret of smoothed over exact; names of drifts have their number of releases.
    for what, is_drift in (("tables", False), ("drifts", True)):
        ratios = [
            values["regret"] / found[key.replace(", smoothed", ", exact")]["regret"]
            for key, values in found.items()
            if key.endswith(", smoothed") and ("releases" in key) is is_drift
        ]
        overall |= {f"smoothed_{what}": _mean(ratios), f"smoothed_{what}_worst": max(ratios)}
    return found | {"all": overall}


def _windows(rows: FloatArray, epsilon: float, seed: int) -> float:
    """Mean of 1 - captured of smoothed windows over that of rings, over all releases of full windows."""
    width, lost = len(rows) // 4, []
    for method in ("smoothed", "ring"):
        algorithm = SlidingWindowPCA(
            n_components=2, epsilon=epsilon, delta=1e-6, window=width, method=method, release_every=width // 25
        )  # fmt: skip
        stream, losses = Stream(algorithm, seed=seed, regret=None), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StreamPCAWarning)
            for release in stream.push_many(rows).releases:
                if release.t >= width:
                    gram = rows[release.t - width : release.t].T @ rows[release.t - width : release.t]
                    best = float(np.linalg.eigvalsh(gram)[-2:].sum())
                    losses.append(1.0 - release.subspace.captured(gram) / best)
        lost.append(float(np.mean(losses)))
    return lost[0] / lost[1]


def _mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0


# -- the sections -----------------------------------------------------------------------------------

#: What the design asks: the figure in words, its name in ``all``, and what it should be.
_ASKED = (
    ("smoothed over exact, tables, geometric mean of regret", "smoothed_tables", "at most 0.95"),
    ("the same, worst cell", "smoothed_tables_worst", ""),
    ("smoothed over exact, drifts, geometric mean", "smoothed_drifts", ""),
    ("the same, worst cell", "smoothed_drifts_worst", "at most 1.03"),
    ("windows that drift, smoothed over ring, geometric mean of 1 - captured", "window", "at most 0.75"),
    ("the same, worst cell", "window_worst", "at most 0.75"),
)


def page() -> str:
    """Sections of docs/utility.md."""
    found, params = run_scenario(load("solvers")).final, load("solvers").params
    overall = found["all"]
    cells = dict.fromkeys(tuple(key.split(", ")[:2]) for key in found if key.endswith(", smoothed"))
    parts = [
        "## Streams that drift: regret as a share of OPT / captured",
        "Two Gaussian directions of 20 that turn or jump once or more in 8000 rows. Cells are means of "
        f"{params['drift_draws']} runs (those of tables, of three); the noise of each solver is its "
        "own, so single cells differ by chance, too. "
        f"Smoothed has {overall['smoothed_drifts']:.3f} times the regret of exact here (geometric mean), and "
        f"{overall['smoothed_tables']:.3f} times on the tables; the worst cells are "
        f"{overall['smoothed_drifts_worst']:.2f} and {overall['smoothed_tables_worst']:.2f}. No rule from "
        "public parameters tells rows that turn fast from others, and smoothing has no regret bound: so the default is "
        '`solver="exact"`.',
        regret_table(found, tuple(KINDS), [(name, epsilon) for name, epsilon in cells if "releases" in name], "rows"),
        "## Acceptance",
        markdown(
            ["figure", "asked", "measured"], [[text, asked, f"{overall[name]:.4f}"] for text, name, asked in _ASKED]
        ),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write(page())
