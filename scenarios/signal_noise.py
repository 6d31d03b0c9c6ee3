"""DP-PCA beside Private Oja and the Gaussian mechanism, on Example 4.1 of LKJO22.

Rows are plus or minus one direction, plus noise of standard deviation sigma. Sines at n = 1 000 000 (geometric
means of 3 repetitions, d = 50, epsilon = 1, delta = 1e-5, zero-out)::

    sigma               0.3      0.1      0.03     0.01     0.003    0.001
    DP-PCA             2.54e-03 8.85e-04 2.65e-04 8.87e-05 2.86e-05 9.62e-06
    Private Oja        2.60e-03 9.06e-04 3.02e-04 1.60e-04 1.34e-04 1.19e-04
    Gaussian mechanism 2.09e-03 6.70e-04 2.01e-04 8.02e-05 4.50e-05 4.51e-05
    not private        2.08e-03 6.64e-04 1.99e-04 6.63e-05 1.99e-05 6.63e-06

The Gaussian mechanism is best down to sigma = 0.01 here, to 0.02 at n = 200 000
and to 0.07 at n = 20 000: down to where its own error, sqrt(d / 2) / (mu n gap),
is about two thirds of the sampling error.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scenario import Context

import streampca as sp
from streampca.linalg.lattice import onto_ball

BLOCK = 4096
#: Public bound on the rows; a longer row is scaled back.
ROW_NORM = 1.5


def signal_noise(context: Context) -> dict[str, dict[str, float]]:
    """Compare at several sigmas.

    Measures: the sine of the angle to the true direction at each sigma (geometric mean over
    repetitions), ``slope`` of log sine against log sigma, ``low_slope`` of those up to sigma = ``low``.
    """
    sigmas = np.array(context.params["sigmas"])
    # One row a repetition and sigma, one column an algorithm: means of logarithms are geometric means.
    sines = pd.DataFrame(
        {"sigma": sigma, **sines_of(context, sigma, i)} for sigma in sigmas for i in range(context.params["repeats"])
    )
    logs = sines.set_index("sigma").transform("log").groupby("sigma").mean().loc[sigmas]
    table: dict[str, dict[str, float]] = {}
    for name, means in logs.items():
        table[str(name)] = {f"sine_{sigma:g}": float(np.exp(mean)) for sigma, mean in means.items()}
        for slope, largest in (("slope", np.inf), ("low_slope", float(context.params["low"]))):
            kept = sigmas <= largest
            table[str(name)][slope] = float(np.polyfit(np.log(sigmas[kept]), means.to_numpy()[kept], 1)[0])
    return table


def sines_of(context: Context, sigma: float, i: int) -> dict[str, float]:
    """Sine of the angle to the true direction, of all algorithms and of PCA without privacy, on the same rows."""
    rows, d, seed = context.rows, int(context.params["n_features"]), context.seed + i
    budget = {
        "n_components": 1,
        "horizon": rows,
        "epsilon": context.params["epsilon"],
        "delta": context.params["delta"],
    }
    algorithms = {
        "dp_pca": sp.DPPCA(**budget),
        "private_oja": sp.PrivateOja(**budget),
        # With a single release at the end this is the Gaussian mechanism.
        "gaussian": sp.PrivateFPL(**budget, release_every=rows),
    }
    streams = {name: sp.Stream(it, row_norm=ROW_NORM, regret=None, seed=seed) for name, it in algorithms.items()}
    random, gram = np.random.default_rng([context.seed, i]), np.zeros((d, d))
    truth = random.standard_normal(d)
    truth /= np.linalg.norm(truth)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        block = random.choice([-1.0, 1.0], size=(count, 1)) * truth + sigma * random.standard_normal((count, d))
        clipped = onto_ball(block / ROW_NORM)
        gram += clipped.T @ clipped
        for stream in streams.values():
            stream.push_many(block)
    bases = {name: stream.engine.subspace.basis[:, 0] for name, stream in streams.items()}
    bases["exact"] = np.linalg.eigh(gram)[1][:, -1]
    return {name: float(np.linalg.norm(basis - truth * (truth @ basis))) for name, basis in bases.items()}
