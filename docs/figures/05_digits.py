"""
Digits: private components beside the exact ones
================================================

Components of 1797 handwritten digits, as images. Above: one private release
at epsilon = 4. Below: exact components, which are not private.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from streampca.sklearn import PrivatePCA

pixels = load_digits().data / 16.0  # 8 x 8 pixels, each from 0 to 1
private = PrivatePCA(n_components=4, epsilon=4.0, bounds=(0.0, 1.0)).fit(
    pixels
)
exact = PCA(n_components=4).fit(pixels)

figure = Figure(figsize=(7, 3.6), layout="constrained")
images = np.vstack([private.components_, exact.components_])
for axes, image in zip(figure.subplots(2, 4).flat, images, strict=True):
    axes.imshow(image.reshape(8, 8), cmap="RdBu", vmin=-0.4, vmax=0.4)
    axes.axis("off")
