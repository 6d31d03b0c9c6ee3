"""
Shuttle: a subspace in motion
=============================

Sensors of a NASA shuttle, nine integers a row, in the order in which they were
recorded. The window forgets: each release is of the last 10 000 rows.
"""

import numpy as np
import streampca as sp
from river import datasets

rows = [list(x.values()) for x, _ in datasets.Shuttle().take(25_000)]
window = sp.Stream(
    sp.SlidingWindowPCA(
        window=10_000,
        n_components=2,
        epsilon=4.0,
        delta=1e-6,
        release_every=250,
    ),
    bounds=(-130.0, 130.0),
    features=[f"sensor {i}" for i in range(1, 10)],
    regret=None,
)
releases = window.push_many(np.array(rows, dtype=float)).releases
figure = releases[-1].plot("motion", past=releases[:-1])
