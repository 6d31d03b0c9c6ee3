"""Reading the arguments of queries: features by name or number, vectors as arrays or mappings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray, IntArray
from streampca.release import Release

Feature = int | str
Features = Collection[Feature] | Feature | npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]
Vector = npt.ArrayLike | Mapping[str, float]


def feature_index(release: Release, feature: Feature, name: str) -> int:
    """The position of a feature given by name or by (possibly negative) number."""
    if isinstance(feature, str):
        known = release.features or ()
        if feature not in known:
            listed = ", ".join(known) if known else "none: give numbers instead"
            raise BadParameter(f"{name}={feature!r} is not a feature of this release; its names are {listed}")
        return known.index(feature)
    d = release.n_features
    if isinstance(feature, bool) or not isinstance(feature, (int, np.integer)) or not -d <= feature < d:
        raise BadParameter(f"{name}={feature!r} must be the name or number of one of the {d} features")
    return int(feature) % d


def feature_indices(release: Release, features: Features, name: str) -> IntArray:
    """Sorted, distinct positions of several features (or of the True entries of a boolean mask)."""
    if isinstance(features, (str, int)):
        return feature_indices(release, [features], name)
    if isinstance(features, np.ndarray) and features.dtype == bool:
        if features.shape != (release.n_features,):
            raise BadParameter(f"{name} is a mask of shape {features.shape}; ({release.n_features},) expected")
        return np.flatnonzero(features).astype(np.int64)
    listed: list[Feature] = np.ravel(features).tolist() if isinstance(features, np.ndarray) else list(features)
    return np.array(sorted({feature_index(release, each, name) for each in listed}), dtype=np.int64)


def feature_vector(release: Release, vector: Vector, name: str) -> FloatArray:
    """A finite vector of n_features numbers; mappings give weights by feature name, others are 0."""
    d = release.n_features
    if isinstance(vector, Mapping):
        made = np.zeros(d)
        for key, weight in vector.items():
            made[feature_index(release, key, name)] = weight
    else:
        try:
            made = np.asarray(vector, dtype=np.float64)
        except (TypeError, ValueError) as problem:
            raise BadParameter(f"{name} is not a vector of numbers ({problem})") from problem
    if made.shape != (d,) or not np.isfinite(made).all():
        raise BadParameter(f"{name} of shape {made.shape} must be {d} finite numbers, one for each feature")
    return made


def check_size(name: str, value: int, largest: int) -> int:
    """An integer in [1, largest], or a `BadParameter`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= largest:
        raise BadParameter(f"{name}={value!r} must be an integer between 1 and {largest}")
    return int(value)
