"""One release of the same rows by every mechanism, at the same epsilon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scenario import Context

from streampca.linalg.eigen import top_eigh
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.papers.laplace import LaplaceCovariance
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.papers.wishart import WishartCovariance
from streampca.privacy.randomness import Randomness
from streampca.sources.synthetic import spiked

#: Measured for each mechanism, as means over the draws, and how the picture labels them.
MEASURES = {
    "captured_variance": "captured variance, share of the best",
    "subspace_error": "sine of the largest angle to the best",
    "spectral_error": "spectral norm of the noise",
    "seconds": "seconds a release",
}


def mechanisms(n_components: int, epsilon: float, delta: float) -> dict[str, Mechanism]:
    """Every mechanism that applies to any rows, with one budget (pure ones use no delta)."""
    k = n_components
    return {
        "gaussian": GaussianCovariance(n_components=k, epsilon=epsilon, delta=delta),
        "gaussian_psd": GaussianCovariance(n_components=k, epsilon=epsilon, delta=delta, project="psd"),
        "adaptive": AdaptiveCovariance(n_components=k, epsilon=epsilon, delta=delta),
        "wishart": WishartCovariance(n_components=k, epsilon=epsilon, delta=delta),
        "subspace_perturbation": SubspacePerturbation(n_components=k, epsilon=epsilon, delta=delta),
        "matrix_laplace": MatrixLaplaceCovariance(n_components=k, epsilon=epsilon),
        "laplace": LaplaceCovariance(n_components=k, epsilon=epsilon),
    }


def run(context: Context) -> dict[str, dict[str, float]]:
    """Release the same rows by every mechanism, a few times each.

    Measures: ``captured_variance`` (share of what the best subspace captures),
    ``subspace_error`` (sine of the largest angle to it), ``spectral_error``
    and its ratio to the expected ``spectral_error_predicted`` (where a matrix
    is released), ``seconds``. Curator only: exact functions of raw rows.
    """
    params, k = context.params, int(context.params["n_components"])
    source = spiked(context.rows, int(params["n_features"]), k, seed=context.seed)
    rows = onto_ball(np.concatenate(list(source.blocks())))
    gram = unpack_entries(GramSum.of(rows).packed(), rows.shape[1])
    best, truth = top_eigh(gram, k)
    randomness = Randomness.from_seed(context.seed)
    table = {}
    for name, mechanism in mechanisms(k, float(params["epsilon"]), float(params["delta"])).items():
        draws = [_measure(mechanism, rows, randomness, i, gram, truth) for i in range(int(params["draws"]))]
        means = {measure: float(np.mean([draw[measure] for draw in draws])) for measure in draws[0]}
        means["captured_variance"] /= float(best.sum())
        predicted = getattr(mechanism, "spectral_error", None)
        if predicted is not None and "spectral_error" in means:
            means["spectral_error_over_expected"] = means["spectral_error"] / predicted(rows.shape[1])
        table[name] = means
    if params.get("picture"):
        draw(table, Path(str(params["picture"])))
    return table


def _measure(
    mechanism: Mechanism, rows: FloatArray, randomness: Randomness, index: int, gram: FloatArray, truth: FloatArray
) -> dict[str, float]:
    started = time.perf_counter()
    release = mechanism.release(rows, randomness, t=len(rows) + index)
    subspace = release.subspace
    values = {
        "seconds": time.perf_counter() - started,
        "captured_variance": subspace.captured(gram),
        "subspace_error": float(np.linalg.norm(subspace.projector - truth @ truth.T, 2)),
    }
    if release.has_gram:
        values["spectral_error"] = float(np.abs(np.linalg.eigvalsh(release.gram - gram)).max())
    return values


def draw(table: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw the table as PNG, one panel a measure, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(15.0, 3.2), layout="constrained")
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    names = list(table)[::-1]
    for panel, (measure, label) in zip(panels, MEASURES.items(), strict=True):
        shown = [name for name in names if measure in table[name]]
        bars = panel.barh([names.index(name) for name in shown], [table[name][measure] for name in shown])
        panel.bar_label(bars, fmt="%.3g", padding=2)
        panel.set_xlabel(label)
        panel.margins(x=0.2)
    panels[0].set_yticks(range(len(names)), names)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
