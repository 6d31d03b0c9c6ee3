"""`PrivateFPL` on tables and streams that drift: scaling by norms, smoothing, and what the design asks of both.

``python scenarios/solvers.py`` prints the sections of docs/utility.md, in some minutes; ``python scenarios/run.py
solvers`` checks the figures.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scenario import Context, load, run_scenario

from streampca.errors import StreamPCAWarning
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Budget
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.stream import Stream

sys.path.insert(0, str(Path(__file__).parent))
from real_tables import EPSILONS, markdown, regret_table, shuffled, streamed, table, write

#: Parameters of `PrivateFPL` that are compared, by name.
KINDS: dict[str, dict[str, Any]] = {
    "exact": {}, "tracking": {"solver": "tracking"}, "smoothed": {"solver": "smoothed"}, "norm": {"scaling": "norm"},
}  # fmt: skip


# -- made-up streams ------------------------------------------------------------------------------


def drift(name: str, n: int, seed: int = 1, d: int = 20) -> FloatArray:
    """Gaussian rows around a plane that turns, or jumps, into one orthogonal to it."""
    source, t = np.random.default_rng(seed), np.arange(n) / n
    quarter = {
        "a quarter turn": t, "a full turn": 4.0 * t, "three jumps": np.floor(4.0 * t),
        "a jump at half": 1.0 * (t > 0.5), "a jump at a tenth": 1.0 * (t > 0.1),
    }[name]  # fmt: skip
    axes = np.linalg.qr(source.standard_normal((d, 4)))[0]
    cos, sin = np.cos(0.5 * np.pi * quarter)[:, None], np.sin(0.5 * np.pi * quarter)[:, None]
    plane = source.standard_normal((2, n, 1))
    rows = sum(plane[i] * (cos * axes[:, i] + sin * axes[:, i + 2]) for i in range(2))
    return onto_ball(0.4 * (rows + 0.2 * source.standard_normal((n, d))))


def uneven(n: int, seed: int, d: int = 100, buckets: int = 4) -> FloatArray:
    """Gaussian rows times a uniform matrix, of norms 2**(k + 1 - N) with weights 1 / (k + 1)**3 (arXiv 2205.14324)."""
    source = np.random.default_rng(seed)
    rows = source.standard_normal((n, d)) @ source.random((d, d))
    weights = 1.0 / np.arange(1.0, buckets + 1.0) ** 3
    norms = 2.0 ** (source.choice(buckets, n, p=weights / weights.sum()) + 1 - buckets)
    return onto_ball(rows * (norms / np.linalg.norm(rows, axis=1))[:, None])


def full_ball(n: int, seed: int, d: int = 100, k: int = 5) -> FloatArray:
    """Rows of norm 1 around a subspace of k dimensions."""
    source = np.random.default_rng(seed)
    basis = np.linalg.qr(source.standard_normal((d, k)))[0]
    rows = source.standard_normal((n, k)) @ basis.T + 0.1 * source.standard_normal((n, d))
    return onto_ball(rows / np.linalg.norm(rows, axis=1)[:, None])


def outliers(n: int, seed: int, d: int = 50) -> FloatArray:
    """Rows of norm .1 without a direction, but for one in twenty: of norm 1, in a plane."""
    source = np.random.default_rng(seed)
    basis = np.linalg.qr(source.standard_normal((d, 2)))[0]
    long = source.standard_normal((n, 2)) @ basis.T
    rows = 0.1 * source.standard_normal((n, d)) / np.sqrt(d)
    chosen = source.random(n) < 0.05
    rows[chosen] = (long / np.linalg.norm(long, axis=1)[:, None])[chosen]
    return onto_ball(rows)


SETS: dict[str, tuple[Callable[[int, int], FloatArray], int]] = {
    "uneven norms": (uneven, 5), "full ball": (full_ball, 5), "outliers": (outliers, 2),
}  # fmt: skip


# -- measurements ---------------------------------------------------------------------------------


def solvers(context: Context) -> dict[str, dict[str, float]]:
    """Regret, as a share of OPT, and captured variance of ``KINDS`` on tables, drifts and made-up sets.

    ``all`` has, over real tables, the geometric mean of the regret of smoothed and norm over exact
    (``smoothed_tables``, ``norm_tables``), over drifts the same and the worst (``smoothed_drifts``,
    ``smoothed_drifts_worst``), windows of smoothed over ring (``window``, ``window_worst``: of 1 - captured), and of
    ``SETS`` what the design asks.
    """
    n, few = context.rows, context.rows < 4000
    draws, drift_draws = (1 if few else int(context.params[name]) for name in ("draws", "drift_draws"))
    found: dict[str, dict[str, float]] = {}

    def add(
        name: str, make: Callable[[int], FloatArray], k: int, kinds: tuple[str, ...], releases: int, draws: int
    ) -> None:
        for epsilon in EPSILONS[1:2] if few else EPSILONS:
            for kind in kinds:
                if kind == "norm" and 120.0 / Budget(epsilon, 1e-6).mu > len(make(0)):
                    continue  # norms would be measured on more than a tenth of the rows
                made = [streamed(make(i), k, epsilon, context.seed + i, releases, **KINDS[kind]) for i in range(draws)]
                regret, captured = np.mean(made, axis=0)
                found[f"{name}, {epsilon:g}, {kind}"] = {"regret": regret, "captured": captured}

    for name in context.params["tables"][: 1 if few else None]:
        rows = table(name, n)
        add(name, partial(shuffled, rows), min(3, rows.shape[1] - 1), ("exact", "smoothed", "norm"), 100, draws)
    for name in context.params["drifts"][: 1 if few else None]:
        for releases in (100, 400):
            kinds = ("exact", "tracking", "smoothed")
            add(
                f"{name} ({releases} releases)", lambda i, name=name: drift(name, n, 1 + i), 2, kinds, releases,  # type: ignore[misc]
                drift_draws,
            )  # fmt: skip
    for name, (make, k) in SETS.items():
        add(name, partial(make, 20_000 if not few else n), k, ("exact", "norm"), 100, draws)
    windows = [
        _mean([_windows(drift(name, n, 1 + i), epsilon, context.seed + i) for i in range(drift_draws)])
        for name in context.params["drifts"]
        for epsilon in (0.3, 1.0)
    ]
    return found | {"all": _overall(found) | {"window": _mean(windows), "window_worst": max(windows)}}


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


def _ratios(found: Mapping[str, Mapping[str, float]], kind: str, chosen: Callable[[str], bool]) -> list[float]:
    return [
        values["regret"] / found[key.replace(f", {kind}", ", exact")]["regret"]
        for key, values in found.items()
        if key.endswith(f", {kind}") and chosen(key)
    ]


def _overall(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    drifts = _ratios(found, "smoothed", lambda key: "releases" in key)
    stationary = _ratios(found, "smoothed", lambda key: "releases" not in key)
    scaled = _ratios(found, "norm", lambda key: key.split(", ")[0] not in SETS)
    balls = [
        found[f"full ball, {epsilon:g}, norm"]["regret"] - found[f"full ball, {epsilon:g}, exact"]["regret"]
        for epsilon in EPSILONS
        if f"full ball, {epsilon:g}, norm" in found
    ]
    made = {
        "smoothed_tables": _mean(stationary), "smoothed_tables_worst": max(stationary),
        "smoothed_drifts": _mean(drifts), "smoothed_drifts_worst": max(drifts),
        "norm_tables": _mean(scaled), "full_ball": max(balls, default=0.0),
    }  # fmt: skip
    if "uneven norms, 0.3, norm" in found:
        made |= {f"uneven_{name}": value for name, value in found["uneven norms, 0.3, norm"].items()}
    if "outliers, 1, norm" in found:
        made["outliers_captured"] = found["outliers, 1, norm"]["captured"]
    return made


# -- the sections -----------------------------------------------------------------------------------

#: What the design asks: the figure in words, its name in ``all``, and what it should be.
_ASKED = (
    ("smoothed over exact, tables, geometric mean of regret", "smoothed_tables", "at most 0.95"),
    ("the same, worst cell", "smoothed_tables_worst", ""),
    ("smoothed over exact, drifts, geometric mean", "smoothed_drifts", ""),
    ("the same, worst cell", "smoothed_drifts_worst", "at most 1.03"),
    ("windows that drift, smoothed over ring, geometric mean of 1 - captured", "window", "at most 0.75"),
    ("the same, worst cell", "window_worst", "at most 0.75"),
    ('scaling="norm" over "none", tables, geometric mean of regret', "norm_tables", ""),
    ("uneven norms, epsilon = .3: captured", "uneven_captured", "at least 0.95"),
    ("uneven norms, epsilon = .3: regret", "uneven_regret", "at most 0.15"),
    ("full ball: more regret, worst epsilon", "full_ball", "at most 0.02"),
    ("outliers, epsilon = 1: captured", "outliers_captured", "at least 0.95"),
)


def page() -> str:
    """Sections of docs/utility.md."""
    found = run_scenario(load("solvers")).final
    parts = [
        '## `scaling="norm"`: regret as a share of OPT / captured by the last of some 100 releases',
        "At most 8000 rows of each table, 20 000 of the made-up sets (`scenarios/solvers.py`); left out where norms "
        "would be measured on more than a tenth of the rows. It gains where most rows are short, in proportion to the "
        "square of their norm, and loses the rows that norms are measured on. Where noise is small the bias of "
        "clipping may leave less captured at the end.",
        _cells(found, ("exact", "norm"), lambda name: "releases" not in name),
        "## Streams that drift: regret as a share of OPT / captured",
        "Two Gaussian directions of 20 that turn or jump once or more in 8000 rows. Cells are means of "
        f"{load('solvers').params['drift_draws']} runs (those of tables, of three); the noise of each solver is its "
        "own, so single cells differ by chance, too. "
        f"Smoothed has {found['all']['smoothed_drifts']:.3f} times the regret of exact here (geometric mean), and "
        f"{found['all']['smoothed_tables']:.3f} times on the tables; the worst cells are "
        f"{found['all']['smoothed_drifts_worst']:.2f} and {found['all']['smoothed_tables_worst']:.2f}. No rule from "
        "public parameters tells rows that turn fast from others, and smoothing has no regret bound: so the default is "
        '`solver="exact"`, and `solver="auto"`, which smooths from 200 releases on, is to be asked for.',
        _cells(found, ("exact", "tracking", "smoothed"), lambda name: "releases" in name),
        "## Acceptance",
        markdown(
            ["figure", "asked", "measured"],
            [[text, asked, f"{found['all'][name]:.4f}"] for text, name, asked in _ASKED],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(found: Mapping[str, Mapping[str, float]], kinds: tuple[str, ...], chosen: Callable[[str], bool]) -> str:
    cells = dict.fromkeys(tuple(key.split(", ")[:2]) for key in found if key.endswith(f", {kinds[-1]}"))
    return regret_table(found, kinds, [(name, epsilon) for name, epsilon in cells if chosen(name)], "rows")


if __name__ == "__main__":
    write(page())
