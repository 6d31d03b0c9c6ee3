"""
Flights: ten privacy budgets
============================

The share of the best plane's variance that one release captures, by epsilon.
Noise falls as epsilon grows. With 100 000 rows, little is lost long before
epsilon is 1. The exact share is a function of raw rows: curator only.
"""

from itertools import islice

import numpy as np
import streampca as sp
from matplotlib.figure import Figure

columns = ("distance", "air_time", "dep_delay", "arr_delay")
source = sp.sources.flights.rows(columns)
rows = np.concatenate(list(islice(source.blocks(), 3)))
low, high = source.bounds
middle, half = (low + high) / 2, (high - low) / 2
rows = (np.clip(rows, low, high) - middle) / half / 2.0  # norm at most 1
rows = np.nan_to_num(rows)

exact = rows.T @ rows
best = np.linalg.eigvalsh(exact)[-2:].sum()
epsilons = np.geomspace(0.003, 3.0, 10)
shares = []
for epsilon in epsilons:
    mechanism = sp.GaussianCovariance(
        n_components=2, epsilon=float(epsilon), center=False
    )
    shares.append(
        mechanism.release(rows, row_norm=1.0).subspace.captured(exact) / best
    )

figure = Figure(figsize=(6.4, 3.2), layout="constrained")
axes = figure.subplots()
axes.semilogx(epsilons, shares, "o-")
axes.set(
    xlabel="epsilon",
    ylabel="captured variance (curator only)",
    ylim=(0.0, 1.02),
)
