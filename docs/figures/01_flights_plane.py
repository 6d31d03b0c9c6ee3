"""
Flights: which columns move together
====================================

Six columns of 336 776 flights, as two private components. The public range of
each column is given and never looked up. Arrows are the columns in the
released plane: those that point the same way rise together. No row is drawn.
"""

import streampca as sp

bounds = {
    "dep_delay": (-60, 240),
    "arr_delay": (-60, 240),
    "air_time": (0, 720),
    "distance": (0, 5000),
    "sched_dep_time": (0, 2400),
    "sched_arr_time": (0, 2400),
}
source = sp.sources.open_rows(
    sp.sources.flights.path(),
    columns=list(bounds),
    bounds=bounds,
)
algorithm = sp.PrivateFPL(
    n_components=2,
    epsilon=1.0,
    delta=1e-6,
    horizon=sp.sources.flights.N_ROWS,
    release_every=20_000,
)
stream = sp.Stream(algorithm, features=list(bounds), bounds=bounds)
for step in stream.run(source):
    ...
figure = stream.release.plot("biplot")
