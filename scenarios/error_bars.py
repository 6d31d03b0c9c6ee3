"""Coverage of every error bar: how often it holds what it is said to hold, over many runs with fresh noise.

``python scenarios/error_bars.py`` prints the table of docs/utility, in some minutes;
``python scenarios/run.py error_bars`` checks it. Rows are fixed, and public.
"""

import itertools
from typing import Any

import numpy as np
import pandas as pd
from real_tables import Found, fed, markdown, measured, table
from scenario import Context

import streampca as sp
from streampca import queries
from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretLog
from streampca.release.estimates import WIDE

#: Rows of a table, at most.
_ROWS = 5000
#: Tables, epsilons and most draws of `variances`.
_BARS, _EPSILONS, _DRAWS = ("digits", "segments", "phishing", "stocks"), (0.3, 1.0), 300


def coverage(context: Context) -> Found:
    """Share of the runs in which each error bar held at the level 0.95, centered and not.

    Of each table: ``fixed`` and ``adaptive`` (`Estimates.interval`, all components jointly), ``loadings`` (of the first
    component, each by itself, averaged), ``direction`` and ``captured`` (linear queries), ``pca`` (uniform), ``regret``
    and ``regret_adaptive`` (`PrivateRegretRecord`). ``predicted`` and ``actual`` are means of what the release predicts
    to capture and of what it does. ``all`` has the least of each, and the least of `variances`.
    """
    found: dict[str, Any] = {}
    k = int(context.params["n_components"])
    for name, center in itertools.product(context.params["tables"], (False, True)):
        rows = table(name, _ROWS)
        held = pd.DataFrame(_held(rows, k, center, context.seed + run) for run in range(context.rows))
        found[f"{name}, {'centered' if center else 'about zero'}"] = dict(held.mean().items())
    runs = pd.DataFrame(found).T
    least = dict(runs.drop(columns=["predicted", "actual"]).min().sort_index())
    off = float((runs["predicted"] - runs["actual"]).abs().max())
    bars = variances(min(context.rows, _DRAWS), context.seed)
    return found | {"all": least | {"prediction_off": off, "variances": min(min(of.values()) for of in bars.values())}}


def variances(draws: int, seed: int) -> Found:
    """Share of releases in which 1.96 `Estimates.std` cover the variance along a component, the worst of three.

    By table and epsilon, about zero and centered.
    """
    found: Found = {}
    for name, epsilon in itertools.product(_BARS, _EPSILONS):
        rows = table(name)
        cell = found[f"{name}, {epsilon:g}"] = {}
        for center in (False, True):
            about = rows - rows.mean(axis=0) if center else rows
            gram, held = about.T @ about, np.zeros(3)
            mechanism = sp.GaussianCovariance(n_components=3, epsilon=epsilon, center=center)
            for i in range(seed, seed + draws):
                release = mechanism.release(rows, row_norm=1.0, seed=i)
                basis = np.linalg.eigh(release.gram)[1][:, :-4:-1]
                off = np.abs(release.estimates.variances - np.einsum("ij,ij->j", basis, gram @ basis))
                held += off <= WIDE * release.estimates.std
            cell["centered" if center else "about zero"] = float(held.min()) / draws
    return found


def _held(rows: FloatArray, k: int, center: bool, seed: int) -> dict[str, float]:
    n, d = rows.shape
    algorithm = PrivateFPL(
        n_components=k, epsilon=1.0, delta=1e-6, horizon=n, release_every=-(-n // 4), publish_regret=True, center=center
    )  # fmt: skip
    stream = fed(algorithm, rows, seed, RegretLog())
    release = stream.release
    assert release is not None
    mean = rows.mean(axis=0) if center else np.zeros(d)
    gram = rows.T @ rows - n * np.outer(mean, mean)
    values, vectors = (part[..., ::-1] for part in np.linalg.eigh(gram))
    top, estimates = values[:k], release.estimates
    basis = np.linalg.eigh(release.gram)[1][:, ::-1][:, :k]
    along = np.einsum("ij,ij->j", basis, gram @ basis)
    turned = basis[:, 0] * np.sign(basis[:, 0] @ vectors[:, 0]) - vectors[:, 0]
    # Linear queries along the mean, where the noise of a centered release is largest.
    axis = np.eye(d)[0] if not mean.any() else mean / np.linalg.norm(mean)
    plane = np.linalg.qr(np.column_stack([axis, np.eye(d)[:, 1]]))[0]
    adaptive, pca = estimates.interval(adaptive=True), queries.pca(release).interval()
    regret = stream.regret.now().regret
    return {
        "fixed": _inside(top, *estimates.interval()),
        "adaptive": min(_inside(top, *adaptive), _inside(along, *adaptive)),
        "loadings": float((np.abs(turned) <= WIDE * estimates.loading_std[:, 0]).mean()),
        "direction": _inside(axis @ gram @ axis, *queries.directional_variance(release, axis).interval()),
        "captured": _inside(np.vdot(plane, gram @ plane), *queries.captured_variance(release, plane).interval()),
        "pca": min(_inside(top, *pca), _inside(along, *pca)),
        "regret": _inside(regret, *PrivateRegretRecord.of(release).regret),
        "regret_adaptive": _inside(regret, *PrivateRegretRecord.of(release, rows="adaptive").regret),
        "predicted": float(estimates.variances.sum() / estimates.eigenvalues.sum()),
        "actual": float(along.sum() / top.sum()),
    }


def _inside(value: Any, low: Any, high: Any) -> float:
    return float(np.all((low <= value) & (value <= high)))


if __name__ == "__main__":
    found = measured("error_bars", coverage)
    measures = [name for name in found["all"] if name != "prediction_off"]
    lines = [
        [name, *(f"{values[one]:.3f}" for one in measures), f"{values['predicted']:.4f} / {values['actual']:.4f}"]
        for name, values in found.items()
        if name != "all"
    ]
    print(
        "Coverage of every error bar at the level 0.95, 1000 runs",
        f"""PrivateFPL at epsilon = 1 with `publish_regret=True`, four releases, 5000 rows at most. Intervals
for eigenvalues for rows fixed in advance and for any rows, loadings of the first component, linear queries along the
mean, `queries.pca`, and intervals of the regret; then what the release predicts to capture, and what it does, on
average. Loadings are right to first order; on centered digits the first two eigenvalues are 1.2 standard deviations
of the noise apart.

{markdown(["table", *measures, "predicted / actual"], lines)}""",
        sep="\n\n",
    )
    bars = [
        [*cell.split(", "), *(f"{share:.3f}" for share in of.values())] for cell, of in variances(_DRAWS, 0).items()
    ]
    print(f"\n{markdown(['table', 'epsilon', 'about zero', 'centered'], bars)}")
