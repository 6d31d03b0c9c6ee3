"""What a run was made of, as JSON: classes by name from a fixed registry, and their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from streampca.errors import BadParameter, StoreCorrupt
from streampca.processors.base import Algorithm

#: Every class that a stored run may name. Nothing else is ever built from a store.
REGISTRY = {
    "PrivateFPL": "streampca.processors.private_fpl",
    "PerturbedLeader": "streampca.processors.perturbed_leader",
    "SlidingWindowPCA": "streampca.processors.sliding_window",
    "Oja": "streampca.processors.oja",
    "PrivateOja": "streampca.processors.private_oja",
    "DPPCA": "streampca.processors.dp_pca",
    "Tumbling": "streampca.processors.tumbling",
    "GaussianCovariance": "streampca.mechanisms.gaussian",
    "LaplaceCovariance": "streampca.mechanisms.laplace",
    "WishartCovariance": "streampca.mechanisms.wishart",
    "MatrixLaplaceCovariance": "streampca.mechanisms.matrix_laplace",
    "SubspacePerturbation": "streampca.mechanisms.subspace_perturbation",
    "ExactSubspace": "streampca.mechanisms.exact_subspace",
    "ApproximateSubspace": "streampca.mechanisms.approximate_subspace",
}
_CLASS, _TUPLE, _ARRAY = "\x00class", "\x00tuple", "\x00array"


def dump(config: Mapping[str, Any]) -> str:
    """JSON of a configuration.

    Raises
    ------
    BadParameter
        If it holds something that could not be read back.
    """
    return json.dumps(_plain(dict(config)), separators=(",", ":"))


class Described:
    """An object of a configuration by name and parameters: what is shown of it, also if it is of another version."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name, self.parameters = name, parameters

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"


def load(text: str, *, build: bool = True) -> dict[str, Any]:
    """Inverse of `dump`. With ``build=False`` objects are not made, but `Described`.

    Raises
    ------
    StoreCorrupt
        If the text is not a configuration, or its parameters are refused.
    """
    try:
        config = _rebuilt(json.loads(text), build)
        if not isinstance(config, dict):
            raise TypeError("not a mapping")
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise StoreCorrupt(
            f"the configuration of the run cannot be read ({problem}); open it with the version that wrote it"
        ) from problem
    return config


@cache
def _class(name: str) -> type[Any]:
    if name not in REGISTRY:
        raise ValueError(f"no class {name!r}")
    found: type[Any] = getattr(import_module(REGISTRY[name]), name)
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {_ARRAY: value.astype(np.float64).tolist()}
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(inner) for inner in value]}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    name = type(value).__name__
    if name in REGISTRY and type(value) is _class(name):
        return {_CLASS: name, "with": {k: _plain(v) for k, v in _parameters(value).items()}}
    raise BadParameter(
        f"{name} cannot be kept in a store; it holds runs of {', '.join(list(REGISTRY)[:7])} and their parameters"
    )


def _parameters(value: Any) -> dict[str, Any]:
    if isinstance(value, Algorithm):
        # A seed is the key: it goes into the key file, never here.
        return {k: v for k, v in value.parameters().items() if k != "seed"}
    assert is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in fields(value) if field.init}


def _rebuilt(plain: Any, build: bool) -> Any:
    if isinstance(plain, list):
        return [_rebuilt(inner, build) for inner in plain]
    if not isinstance(plain, dict):
        return plain
    if _ARRAY in plain:
        return np.array(plain[_ARRAY], dtype=np.float64)
    if _TUPLE in plain:
        return tuple(_rebuilt(inner, build) for inner in plain[_TUPLE])
    if _CLASS in plain:
        given = {k: _rebuilt(v, build) for k, v in plain["with"].items()}
        return _class(plain[_CLASS])(**given) if build else Described(plain[_CLASS], given)
    return {k: _rebuilt(v, build) for k, v in plain.items()}
