"""
Cells: too few rows for so many features
========================================

569 biopsies with 30 measurements. With so few rows, the release itself shows
how many directions it can tell from noise: the dashed line is what the noise
alone reaches.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from streampca.sklearn import PrivatePCA

# From the instrument's range, rounded up: mean, error and worst of each.
highest = np.concatenate(
    [
        [40, 50, 250, 3000, 0.3, 0.5, 0.6, 0.3, 0.5, 0.15],
        [4, 6, 30, 700, 0.05, 0.2, 0.5, 0.1, 0.1, 0.05],
        [50, 70, 350, 5000, 0.4, 1.5, 1.5, 0.4, 0.8, 0.3],
    ]
)
few = PrivatePCA(
    n_components=3,
    epsilon=1.0,
    bounds=(np.zeros(30), highest),
).fit(load_breast_cancer().data)
figure = few.release_.plot("scree")
