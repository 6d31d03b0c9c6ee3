"""Queries on any release with a Gram matrix: post-processing, which spends no budget.

Each takes the release first, and returns its answer with an error bar, from the noise of the release. Adjacency, unit,
epsilon and delta are those of the release's ``guarantee``, which the answer carries. A query raises `NoReleaseError` if
the release holds a subspace only, and `BadParameterError` if an argument is outside its domain or does not fit the
features.
"""

from streampca.queries.answer import Answer, Components, GramNoise
from streampca.queries.intervals import between
from streampca.queries.linear import captured_variance, directional_variance, pca
from streampca.queries.regression import Regression, regression
from streampca.queries.sparse import sparse_pca

__all__ = [
    "Answer",
    "Components",
    "GramNoise",
    "Regression",
    "between",
    "captured_variance",
    "directional_variance",
    "pca",
    "regression",
    "sparse_pca",
]
