"""Configuration of a run as JSON, and the label that shows whether two places draw the same noise.

A configuration holds the names and parameters of public algorithms and mechanisms, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from hashlib import blake2b
from importlib import import_module
from typing import Any

import numpy as np

from streampca import state
from streampca.errors import BadParameterError, StoreCorruptError, reason, short
from streampca.matrix_factorization.noises import Noise
from streampca.mechanisms.base import Mechanism
from streampca.privacy import outlet, randomness
from streampca.processors.base import Algorithm
from streampca.processors.solvers import Solver
from streampca.regret.private_regret import PrivateRegret
from streampca.regret.regret import RegretLog
from streampca.rows import admission as rows_admission
from streampca.rows.admission import Admission
from streampca.rows.bounds import PrivateBounds
from streampca.store.keys import RunKey
from streampca.stream.engine import Engine
from streampca.stream.replay import restore
from streampca.stream.stream import Stream

_CLASS, _TUPLE, _ARRAY = "\x00class", "\x00tuple", "\x00array"


def dump(config: Mapping[str, Any]) -> str:
    """Return a configuration as JSON. Raises `BadParameterError` if it holds values that `load` cannot read."""
    return json.dumps(_plain(dict(config)), separators=(",", ":"))


def load(text: str) -> dict[str, Any]:
    """Return the configuration in JSON. Raises `StoreCorruptError` if the text or its parameters are invalid."""
    try:
        config = _rebuilt(json.loads(text))
        if not isinstance(config, dict):
            raise TypeError("not a mapping")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as problem:
        raise StoreCorruptError(
            f"the configuration of the run cannot be read ({str(problem)[:80]}). Open it with the version that wrote it"
        ) from problem
    return config


def storable(name: Any) -> type[Any] | None:
    """Return the public algorithm, mechanism or strategy of this name; None for any other name."""
    # Security: `load` builds objects of these classes only.
    package = import_module("streampca")  # by name, because the package imports this module
    # The papers load much of scipy, so they are imported for their own names only.
    room = package if name in package.__all__ else package.papers
    kind = getattr(room, name) if name in room.__all__ else None
    kinds = (Algorithm, Mechanism, Noise, Solver)
    return kind if isinstance(kind, type) and issubclass(kind, kinds) and is_dataclass(kind) else None


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
    if storable(name) is type(value):
        return {_CLASS: name, "with": {k: _plain(v) for k, v in state.fields_of(value).items()}}
    raise BadParameterError(
        f"{name} cannot be kept in a store, which holds public algorithms and mechanisms of streampca and their "
        "parameters"
    )


def public_parameters(algorithm: Algorithm, *, row_norm: float, center: bool, bounds: Any) -> dict[str, Any]:
    """Return the public parameters of a run, for its file of releases; ``bounds`` as (lower, upper) or as given."""
    # Privacy: no seed, no key and no value that depends on rows may be added.
    return {
        "processor": type(algorithm).__name__,
        **{
            name: value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
            for name, value in state.fields_of(algorithm).items()
        },
        "row_norm": row_norm,
        "center": center,
        "bounds": [np.asarray(side, dtype=np.float64).tolist() for side in bounds]
        if isinstance(bounds, (tuple, list))
        else bounds,
    }


def _rebuilt(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_rebuilt(inner) for inner in plain]
    if not isinstance(plain, dict):
        return plain
    if _ARRAY in plain:
        return np.array(plain[_ARRAY], dtype=np.float64)
    if _TUPLE in plain:
        return tuple(_rebuilt(inner) for inner in plain[_TUPLE])
    if _CLASS in plain:
        kind = storable(plain[_CLASS])
        if kind is None:
            raise ValueError(f"{short(plain[_CLASS])} is not an algorithm or mechanism")
        return kind(**{k: _rebuilt(v) for k, v in plain["with"].items()})
    return {k: _rebuilt(v) for k, v in plain.items()}


def config_of(engine: Engine) -> dict[str, Any]:
    """Return the public configuration of a stream, without its key."""
    admission, log, private = engine.now.admission, engine.regret_log, engine.private_log
    return {
        "processor": engine.algorithm,
        "row_norm": admission.row_norm,
        "bounds": "private" if isinstance(admission.bounds, PrivateBounds) else admission.bounds,
        "warmup": admission.bounds.warmup if isinstance(admission.bounds, PrivateBounds) else None,
        "features": admission.features,
        "n_features": admission.n_features,
        "on_bad_row": admission.on_bad_row,
        "center": admission.center,
        "regret": None if log is None else {"every": log.every, "window": log.window},
        "private_regret": None
        if private is None
        else {"confidence": private.confidence, "every": private.every, "rows": private.rows},
    }


def stream_of(config: dict[str, Any], key: RunKey, start: bytes, kind: type[Stream]) -> Stream:
    """Return a stream before its first row from the value of `config_of`."""
    try:
        log, private = config["regret"], config["private_regret"]
        stream = kind(
            config["processor"],
            row_norm=config["row_norm"],
            bounds=config["bounds"],
            warmup=config["warmup"],
            features=config["features"],
            on_bad_row=config["on_bad_row"],
            center=config["center"],
            regret=None if log is None else RegretLog(every=log["every"], window=log["window"]),
            private_regret=None if private is None else PrivateRegret(**private),
            key=key.key,
        )
        known = {"features": config["features"], "n_features": config["n_features"], "processor": None}
        stream.engine.randomness.is_seeded = key.seeded
        stream.engine.start_id = start
        restore(stream.engine, known, None, copied=False)
    except (BadParameterError, KeyError, TypeError) as problem:
        raise StoreCorruptError(
            f"the configuration of the run is refused ({reason(problem)}). Open it with the version that wrote it"
        ) from problem
    return stream


def label_of(algorithm: Algorithm, admission: Admission) -> dict[str, Any]:
    """Return the parameters that determine the noise of a run, with its key, start, fresh bytes and rows. Public."""
    d = admission.admitted_features
    return {
        "noise scheme": outlet.SCHEME,
        "version of the sampler": randomness.VERSION,
        "version of admission": rows_admission.VERSION,
        "algorithm": state.label_of(algorithm),
        "admission": None if d is None else _digest(admission.settings),
        "constants": None if d is None else _digest(algorithm.constants(d)),
    }


def check_label(stored: Any, engine: Engine, path: str) -> None:
    """Raise `StoreCorruptError` unless this process draws the noise of the run that was stored."""
    label = label_of(engine.algorithm, engine.now.admission)
    differs = [name for name in label if not isinstance(stored, dict) or stored.get(name) != label[name]]
    if differs == ["constants"]:
        # Only floating-point results differ: another processor, LAPACK or scipy.
        raise StoreCorruptError(
            f"{path}: the standard deviations and mixes of the noise differ from those that were stored. "
            "Resume the run on the machine and with the versions that wrote it"
        )
    if differs:
        raise StoreCorruptError(
            f"{path} was written by another version of streampca ({', '.join(differs)} differ). "
            "Resume it with the version that wrote it"
        )


def _digest(values: tuple[object, ...]) -> str:
    return blake2b(randomness.encoded(values), digest_size=16).hexdigest()
