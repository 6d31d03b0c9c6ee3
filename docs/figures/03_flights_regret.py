"""
Flights: the regret, live
=========================

How far the released subspaces are from the best one in hindsight, for each
row. It is an exact function of raw rows, so it is for the curator only and is
never published. The bound is proved for the expected regret.
"""

import numpy as np
import streampca as sp
from streampca.views import plots

columns = ("distance", "air_time", "dep_delay", "arr_delay")
source = sp.sources.flights.rows(columns)
stream = sp.Stream(
    sp.PrivateFPL(
        n_components=2,
        epsilon=1.0,
        delta=1e-6,
        release_every=500,
        center=False,
    ),
    features=columns,
    bounds=source.bounds,
)
blocks = source.blocks()
for _ in range(4):
    stream.push_many(next(blocks))

history = stream.regret.to_frame()
t = history["t"].to_numpy(float)
data = {"t": t} | {
    name: history[name].to_numpy(float) / np.maximum(t, 1)
    for name in ("regret", "bound")
}
figure = plots.curves(
    data,
    [("bound", "proved bound"), ("regret", "measured")],
    log=True,
    title="Regret per row",
    mark="curator only",
)
