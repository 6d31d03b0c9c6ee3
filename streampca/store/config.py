"""Configuration of a run as bytes, and the label that shows whether two places draw the same noise.

A configuration holds the names and parameters of public algorithms and mechanisms, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from hashlib import blake2b
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from streampca import state
from streampca.errors import StoreCorruptError, UsageError, reason, short
from streampca.matrix_factorization.noises import Noise
from streampca.mechanisms.base import Mechanism
from streampca.privacy import outlet, randomness
from streampca.privacy.configuration import Configuration
from streampca.privacy.unit import Person
from streampca.processors.base import Algorithm
from streampca.processors.solvers import Solver
from streampca.regret.private_regret import PrivateRegret
from streampca.regret.regret import RegretLog
from streampca.rows import admission as rows_admission
from streampca.rows.admission import Admission
from streampca.rows.bounds import PrivateBounds
from streampca.store.keys import RunKey
from streampca.store.records import array, encode, read
from streampca.stream.engine import Engine
from streampca.stream.stream import Stream

_CLASS = 2  # type of an extension of msgpack: a configuration, as its name and parameters


def load(data: bytes) -> dict[str, Any]:
    """Return the configuration in bytes. Raises `StoreCorruptError` if the bytes or its parameters are invalid."""
    return read(_DECODER.decode, data, "the configuration of the run, perhaps of another version,")


def storable(name: Any) -> type[Any] | None:
    """Return the public algorithm, mechanism or strategy of this name; None for any other name."""
    # Security: `load` builds objects of these classes only.
    package = import_module("streampca")  # by name, because the package imports this module
    # The papers load much of scipy, so they are imported for their own names only.
    room = package if name in package.__all__ else package.papers
    kind = getattr(room, name) if name in room.__all__ else None
    kinds = (Algorithm, Mechanism, Noise, Solver, RegretLog, PrivateRegret, Person)
    return kind if isinstance(kind, type) and issubclass(kind, kinds) and is_dataclass(kind) else None


def plain(value: Any) -> Any:
    """Return a configuration as values for msgpack; `UsageError` for an object that `load` would not build."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if not is_dataclass(value):
        return value
    name = type(value).__name__
    if storable(name) is not type(value):
        raise UsageError(f"{name} cannot be kept in a store, which holds public algorithms and mechanisms only")
    return msgspec.msgpack.Ext(_CLASS, encode([name, plain(state.fields_of(value))]))


def _rebuilt(code: int, data: memoryview) -> Any:
    if code != _CLASS:
        return array(code, data)
    name, values = _DECODER_OF_PARTS.decode(data)
    kind = storable(name)
    if kind is None:
        raise ValueError(f"{short(name)} is not an algorithm or mechanism")
    # Sequences of a configuration are tuples, which msgpack does not distinguish from lists.
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


_DECODER = msgspec.msgpack.Decoder(dict[str, Any], ext_hook=_rebuilt)
_DECODER_OF_PARTS = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]], ext_hook=_rebuilt)


def public_parameters(algorithm: Configuration, *, row_norm: float, bounds: Any) -> dict[str, Any]:
    """Return the public parameters of a run, for its file of releases; ``bounds`` as (lower, upper) or as given."""
    # Privacy: no seed, no key and no value that depends on rows may be added.
    if isinstance(bounds, (tuple, list)):
        bounds = [np.asarray(side, dtype=np.float64).tolist() for side in bounds]
    own = {
        name: value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
        for name, value in state.fields_of(algorithm).items()
    }
    more = {"row_norm": row_norm, "center": algorithm.center, "bounds": bounds}
    return {"processor": type(algorithm).__name__} | own | more


def config_of(engine: Engine, more: Mapping[str, Any] | None = None) -> bytes:
    """Return the public configuration of a stream, its parameters without the key and ``more``, as `load` reads it."""
    admission = engine.now.admission
    private = admission.bounds if isinstance(admission.bounds, PrivateBounds) else None
    config = {
        "algorithm": engine.algorithm, "row_norm": admission.row_norm if admission.bounds is None else None,
        "bounds": admission.bounds if private is None else "private",
        "warmup": None if private is None else private.warmup,
        "features": admission.features or admission.n_features,
        "regret": engine.regret_log, "private_regret": engine.private_log, "on_missing": admission.on_missing,
        "missing_rates": admission.missing_rates, "correct": admission.correct,
        "start": None if engine.calendar is None else engine.calendar.terms()["start"],
    }  # fmt: skip
    return encode(plain(config | dict(more or {})))


def stream_of(config: dict[str, Any], key: RunKey, start: bytes, kind: type[Stream]) -> Stream:
    """Return a stream before its first row from its `config_of`."""
    try:
        bounds = config["bounds"]  # the store has no tuples, and a list would be a pair for each feature
        stream = kind(**config | {"bounds": tuple(bounds) if isinstance(bounds, list) else bounds}, key=key.key)
        stream.engine.randomness.is_seeded = key.seeded
        stream.engine.start_id = start
    except (UsageError, KeyError, TypeError, AttributeError) as problem:
        raise StoreCorruptError(
            f"the configuration of the run is refused ({reason(problem)}). Open it with the version that wrote it"
        ) from problem
    return stream


def label_of(algorithm: Algorithm, admission: Admission) -> dict[str, Any]:
    """Return the parameters that determine the noise of a run, with its key, start, fresh bytes and rows. Public."""
    d = admission.admitted_features
    known = {} if d is None else {"admission": admission.settings, "constants": algorithm.constants(d)}
    return {
        "noise scheme": outlet.SCHEME,
        "version of the sampler": randomness.VERSION,
        "version of admission": rows_admission.VERSION,
        "algorithm": state.label_of(algorithm),
        "admission": None,
        "constants": None,
        **{name: blake2b(randomness.encoded(value), digest_size=16).hexdigest() for name, value in known.items()},
    }


def check_label(stored: Any, engine: Engine, path: str) -> None:
    """Raise `StoreCorruptError` unless this process draws the noise of the run that was stored."""
    # The label holds all that the noise is a function of, besides key, start, fresh bytes and rows.
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
