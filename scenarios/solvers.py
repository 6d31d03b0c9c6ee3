"""`PrivateFPL` on streams that drift: what each solver, and smoothed windows, lose.

``python scenarios/solvers.py`` prints the section of docs/utility, in some minutes; ``python scenarios/run.py
solvers`` checks the figures.
"""

import itertools
from typing import Any

import numpy as np
from real_tables import REGRET, SOLVERS, Found, cells_table, fed, measured, relative, streamed, top
from scenario import Context, load

from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.processors.sliding_window import SlidingWindowPCA


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


def solvers(context: Context) -> Found:
    """Regret, as a share of OPT, and captured variance of each solver on drifts, about the mean.

    ``all`` has the geometric mean of the regret of smoothed over exact (``smoothed_relative``), and of windows of
    smoothed over ring the same of 1 - captured (``window``, ``window_worst``).
    """
    n, few, params = context.rows, context.rows < 4000, context.params
    draws = range(1 if few else params["draws"])
    names = params["drifts"][: 1 if few else None]
    found: Found = {}
    for name, releases, epsilon in itertools.product(names, (100, 400), (0.3,) if few else (0.1, 0.3, 1.0, 3.0)):
        for solver in SOLVERS:
            rows = (drift(name, n, i) for i in draws)
            run = streamed(rows, 2, epsilon, context.seed, solver, releases)
            found[f"{name} ({releases} releases), {epsilon:g}, {solver}"] = run
    windows = [
        np.exp(np.mean([np.log(_windows(drift(name, n, i), epsilon, context.seed + i)) for i in draws]))
        for name, epsilon in itertools.product(names, (0.3, 1.0))
    ]
    overall = {"window": float(np.exp(np.mean(np.log(windows)))), "window_worst": float(max(windows))}
    return found | {"all": relative(found, "exact", "regret") | overall}


def _windows(rows: FloatArray, epsilon: float, seed: int) -> float:
    """Mean of 1 - captured of smoothed windows over that of rings, over releases of full windows."""
    width = len(rows) // 4
    lost: dict[Any, float] = {"smoothed": 0.0, "ring": 0.0}
    for method in lost:
        algorithm = SlidingWindowPCA(
            n_components=2, epsilon=epsilon, window=width, method=method, release_every=width // 25
        )  # fmt: skip
        stream = fed(algorithm, rows[: width - 1], seed)
        for release in stream.push_many(rows[width - 1 :]).releases:
            gram, best = top(rows[release.t - width : release.t], 2)
            lost[method] += 1.0 - release.subspace.captured(gram) / best
    return lost["smoothed"] / lost["ring"]


if __name__ == "__main__":
    found = measured("solvers", solvers)
    print(
        "Two Gaussian directions of 20 that turn or jump once or more in 8000 rows. Cells are means of "
        f"{load('solvers').params['draws']} runs; the noise of each solver is its own, so single cells differ by "
        f"chance, too. Smoothed has {found['all']['smoothed_relative']:.3f} times the regret of exact (geometric "
        "mean). Smoothed sliding windows lose (1 - captured) "
        f"{found['all']['window']:.3f} times what rings do, at worst {found['all']['window_worst']:.3f} times. No rule "
        "from public parameters tells rows that turn fast from others, and smoothing has no regret bound: so the "
        f"default is `Exact()`.\n\n{cells_table(found, SOLVERS, REGRET, 'rows')}",
    )
