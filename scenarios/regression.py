"""Every linear regression from one private Gram matrix."""

from __future__ import annotations

import numpy as np
from scenario import Context

from streampca import queries
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.release.release import Release

PREDICTORS, RESPONSES, CONSTANT = 6, 2, 0.5


def joint_rows(n_rows: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows [a; b; 1], the coefficients and the intercepts behind them; the constant is c = 0.5."""
    coefficients = rng.normal(size=(PREDICTORS, RESPONSES)) * 0.3
    intercepts = np.array([0.1, -0.05])
    a = rng.uniform(-0.3, 0.3, size=(n_rows, PREDICTORS)) + 0.05
    b = a @ coefficients + intercepts + 0.05 * rng.normal(size=(n_rows, RESPONSES))
    return np.hstack([a, b, np.full((n_rows, 1), CONSTANT)]), coefficients, intercepts


def run(context: Context) -> dict[str, dict[str, float]]:
    """Regress two responses on six predictors, from private releases at several budgets.

    One run for each epsilon, over ``draws`` releases. Measures: ``error`` (root mean square
    distance of coefficients to the exact least squares), ``stated`` (root mean square of the stated standard
    deviations), ``coverage`` (share of 95 % intervals that contain the exact coefficient), ``r_squared`` (of
    the first release, on the raw rows, over both responses), ``slope_error`` (largest distance of a centered
    slope to the true one), ``intercept_error`` (largest, of the first release).
    Curator only: exact functions of raw rows.
    """
    params = context.params
    raw, slopes, intercepts = joint_rows(context.rows, np.random.default_rng(context.seed))
    rows = onto_ball(raw)
    outputs = list(range(PREDICTORS, PREDICTORS + RESPONSES))
    truth = queries.regression(_exact(rows), outputs, ridge=0.0).coefficients
    measured = {}
    for epsilon in params["epsilons"]:
        mechanism = GaussianCovariance(n_components=3, epsilon=float(epsilon), delta=float(params["delta"]))
        releases = [mechanism.release(rows, Randomness.from_seed(context.seed + i)) for i in range(params["draws"])]
        found = [queries.regression(release, outputs) for release in releases]
        errors = np.array([each.coefficients - truth for each in found])
        stds = np.array([each.std for each in found])
        with_constant = releases[0].replaced(details={"constant": CONSTANT})
        centered = queries.regression(queries.centered(with_constant), outputs).coefficients
        residuals = rows[:, outputs] - np.delete(rows, outputs, axis=1) @ found[0].coefficients
        deviations = rows[:, outputs] - rows[:, outputs].mean(axis=0)
        measured[f"epsilon_{epsilon:g}"] = {
            "error": float(np.sqrt(np.mean(errors**2))),
            "stated": float(np.sqrt(np.mean(stds**2))),
            "coverage": float(np.mean(np.abs(errors) <= 1.959964 * stds)),
            "r_squared": 1.0 - float(np.sum(residuals**2) / np.sum(deviations**2)),
            "slope_error": float(np.abs(centered - slopes).max()),
            "intercept_error": float(np.abs(found[0].coefficients[-1] * CONSTANT - intercepts).max()),
        }
    return measured


def _exact(rows: FloatArray) -> Release:
    """The exact Gram matrix in the form that queries take. Curator only."""
    return Release(
        packed_gram=GramSum.of(rows).packed(), t=len(rows), n_components=1, noise_std=0.0,
        guarantee=Guarantee.none("exact rows, for comparison"),
    )  # fmt: skip
