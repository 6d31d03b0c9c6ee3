"""
Flights: the loadings settle
============================

The first component of each release, over time. Noise is large at first and
is soon smaller than what it hides. Signs and order are followed from one
release to the next.
"""

import streampca as sp

bounds = {
    "dep_delay": (-60, 240),
    "arr_delay": (-60, 240),
    "air_time": (0, 720),
    "distance": (0, 5000),
}
source = sp.sources.open_rows(
    sp.sources.flights.path(),
    columns=list(bounds),
    bounds=bounds,
)
stream = sp.Stream(
    sp.PrivateFPL(
        n_components=2,
        epsilon=1.0,
        delta=1e-6,
        release_every=200,
    ),
    features=list(bounds),
    bounds=bounds,
)
releases = stream.push_many(next(source.blocks())).releases
figure = releases[-1].plot("over-time", past=releases[:-1])
