"""
Genes: error bars on loadings
=============================

Expression of 103 genes in 2417 yeast experiments, with values from -1 to 1.
The heat map shows the forty heaviest.
"""

import numpy as np
from river import datasets
from streampca.sklearn import PrivatePCA

genes = np.array([list(x.values()) for x, _ in datasets.Yeast()], dtype=float)
yeast = PrivatePCA(n_components=3, epsilon=4.0, row_norm=1.5).fit(genes)
figure = yeast.release_.plot("loadings")

# %%
# The squared cosine of each direction to the exact one, as the release itself
# estimates it:

print(yeast.release_.estimates.direction_quality.round(2))
