"""
Spectra: what a fermentation changes
====================================

1629 infrared spectra of a fermenting broth, recorded on line. Features are the
slopes of each spectrum in 50 steps from 950 to 1500 per cm, which removes the
height of its baseline. The first private component, summed up again, is what
changes in the broth: the sharp peak at 1045 per cm is that of ethanol, and the
wide dip about it that of the sugar of which ethanol is made.
"""

import numpy as np
from chemotools.datasets import load_fermentation_test
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from streampca.sklearn import PrivatePCA

spectra, _ = load_fermentation_test()
wave = spectra.columns.to_numpy(float)
inside = np.flatnonzero((wave >= 950.0) & (wave <= 1500.0))[:408]
place = wave[inside].reshape(51, 8).mean(axis=1)
steps = spectra.to_numpy(float)[:, inside].reshape(-1, 51, 8).mean(axis=2)
slopes = np.diff(steps, axis=1)

broth = PrivatePCA(n_components=1, epsilon=4.0, row_norm=0.1).fit(slopes)
exact = PCA(n_components=1).fit(slopes)

figure = Figure(figsize=(6.4, 3.2), layout="constrained")
axes = figure.subplots()
private = broth.components_[0]
for component, style in ((private, "-"), (exact.components_[0], ":")):
    change = np.cumsum(component) * np.sign(component @ private)
    axes.plot(place[1:], change - change.mean(), style)
axes.legend(["private, epsilon 4", "exact (curator only)"])
axes.set(xlabel="wavenumber, per cm", ylabel="change of the spectrum")
