"""
Stocks: one market, and what is beside it
=========================================

Daily returns of ten stocks over five years, clipped to 10 % either way. One
release of the whole table.
"""

import numpy as np
import streampca as sp
from river import datasets

days = [x for x, _ in datasets.SP500Stocks()]
prices = np.array([list(day.values()) for day in days], dtype=float)
returns = np.diff(np.log(np.maximum(prices, 1e-9)), axis=0)
mechanism = sp.GaussianCovariance(n_components=2, epsilon=2.0, delta=1e-6)
market = sp.Stream(
    sp.Tumbling(mechanism, release_every=len(returns)),
    features=list(days[0]),
    bounds=(-0.1, 0.1),
    regret=None,
)
figure = market.push_many(returns).releases[-1].plot("biplot")
