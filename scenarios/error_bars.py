"""Coverage of every error bar: how often it holds what it is said to hold, over many runs with fresh noise.

``python scenarios/error_bars.py`` prints the table of docs/utility.md, in some minutes;
``python scenarios/run.py error_bars`` checks it. Rows are fixed, and public.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scenario import Context, load, run_scenario

from streampca import queries
from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretLog
from streampca.views.plots import WIDE

sys.path.insert(0, str(Path(__file__).parent))
from real_tables import fed, markdown, table, write

#: Rows of a table, at most.
_ROWS = 5000


def coverage(context: Context) -> dict[str, dict[str, float]]:
    """Share of the runs in which each error bar held at the level 0.95, centered and not.

    Of each table: ``fixed`` and ``adaptive`` (`Estimates.interval`, all components jointly), ``approximate`` (jointly),
    ``loadings`` (of the first component, each by itself, averaged), ``direction`` and ``captured`` (linear
    queries), ``pca`` (uniform), ``regret`` and ``regret_adaptive`` (`PrivateRegretRecord`). ``predicted`` and
    ``actual`` are means of what the release predicts to capture and of what it does. ``all`` has the least of each.
    """
    found: dict[str, dict[str, float]] = {}
    k = int(context.params["n_components"])
    for name, center in itertools.product(context.params["tables"], (False, True)):
        rows = table(name, _ROWS)
        label = f"{name}, {'centered' if center else 'about zero'}"
        held = pd.DataFrame(dict(_held(rows, k, center, context.seed + run)) for run in range(context.rows))
        found[label] = {str(measure): float(mean) for measure, mean in held.mean().items()}
    measures = {measure for values in found.values() for measure in values} - {"predicted", "actual"}
    least = {measure: min(values.get(measure, 1.0) for values in found.values()) for measure in sorted(measures)}
    off = {"prediction_off": max(abs(values["predicted"] - values["actual"]) for values in found.values())}
    return found | {"all": least | off}


def _held(rows: FloatArray, k: int, center: bool, seed: int) -> Iterator[tuple[str, float]]:
    n, d = rows.shape
    algorithm = PrivateFPL(
        n_components=k, epsilon=1.0, delta=1e-6, horizon=n, release_every=-(-n // 4), publish_regret=True
    )  # fmt: skip
    stream = fed(algorithm, rows, seed, RegretLog(), center=center)
    release = stream.release
    assert release is not None
    mean = rows.mean(axis=0) if center else np.zeros(d)
    gram = rows.T @ rows - n * np.outer(mean, mean)
    values, vectors = (part[..., ::-1] for part in np.linalg.eigh(gram))
    top, estimates = values[:k], release.estimates
    basis = np.linalg.eigh(release.gram)[1][:, ::-1][:, :k]
    along = np.einsum("ij,ij->j", basis, gram @ basis)
    yield "fixed", _inside(top, *estimates.interval())
    low, high = estimates.interval(adaptive=True)
    yield "adaptive", min(_inside(top, low, high), _inside(along, low, high))
    approximate = estimates.approximate_interval()
    yield "approximate", _inside(along, approximate.low, approximate.high)
    turned = basis[:, 0] * np.sign(basis[:, 0] @ vectors[:, 0]) - vectors[:, 0]
    yield "loadings", float((np.abs(turned) <= WIDE * estimates.loading_std[:, 0]).mean())
    # Linear queries; along the mean, where the noise of a centered release is largest.
    axis = np.eye(d)[0] if not mean.any() else mean / np.linalg.norm(mean)
    yield "direction", _inside(axis @ gram @ axis, *queries.directional_variance(release, axis).interval())
    plane = np.linalg.qr(np.column_stack([axis, np.eye(d)[:, 1]]))[0]
    yield "captured", _inside(np.vdot(plane, gram @ plane), *queries.captured_variance(release, plane).interval())
    low, high = queries.pca(release).interval()
    yield "pca", min(_inside(top, low, high), _inside(along, low, high))
    regret = stream.regret.now().regret
    yield "regret", _inside(regret, *PrivateRegretRecord.of(release).regret)
    yield "regret_adaptive", _inside(regret, *PrivateRegretRecord.of(release, rows="adaptive").regret)
    yield "predicted", estimates.predicted_captured
    yield "actual", float(along.sum() / top.sum())


def _inside(value: Any, low: Any, high: Any) -> float:
    return float(np.all((low <= value) & (value <= high)))


def page() -> str:
    """The section of docs/utility.md."""
    measured = run_scenario(load("error_bars")).final
    text = """## Coverage of every error bar at the level 0.95, 1000 runs

PrivateFPL at epsilon = 1 with `publish_regret=True`, four releases, 5000 rows at most (`scenarios/error_bars.py`).
Intervals for eigenvalues for rows fixed in advance and for any rows, approximate ones of variances along released
directions, loadings of the first component, linear queries along the mean, `queries.pca`, and intervals of the regret;
then what the release predicts to capture, and what it does, on average. Loadings are right to first order; on centered
digits the first two eigenvalues are 1.2 standard deviations of the noise apart.
"""
    measures = [name for name in measured["all"] if name != "prediction_off"]
    lines = []
    for name, values in measured.items():
        if name != "all":
            shown = [f"{values[measure]:.3f}" if measure in values else "" for measure in measures]
            lines.append([name, *shown, f"{values['predicted']:.4f} / {values['actual']:.4f}"])
    return f"{text}\n{markdown(['table', *measures, 'predicted / actual'], lines)}\n"


if __name__ == "__main__":
    write(page())
