"""Queries on any release with a Gram matrix: post-processing, which spends no budget.

Each takes the release first, and returns its answer with an error bar, from the noise of the release, and with the
release's ``guarantee``. A query raises `NoReleaseError` if the release holds a subspace only.
"""

from streampca.queries.answer import Answer, Components, GramNoise
from streampca.queries.derived import between, completed
from streampca.queries.linear import Regression, captured_variance, directional_variance, pca, regression
from streampca.queries.sparse import sparse_pca

__all__ = [
    "Answer", "Components", "GramNoise", "Regression", "between", "captured_variance", "completed",
    "directional_variance", "pca", "regression", "sparse_pca",
]  # fmt: skip
