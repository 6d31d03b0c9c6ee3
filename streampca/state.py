"""Labels and reprs of configurations from their dataclass fields, and snapshots of states from declared fields.

A label names a configuration in the key of the noise: two configurations that differ in a field draw independent noise
under one seed. The repr is for people only.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from streampca.errors import BadParameterError, UsageError

#: Version of the labels. Every seeded release depends on it.
PREFIX = "streampca/label/3"


class State:
    """Base of immutable values that succeed each other during a run.

    A snapshot holds the attributes in `kept`, but no parameter and no key, which follow from the configuration. It is
    restored into the value of the same run before its first row. A kept attribute is a number, string, bytes, None,
    array, dictionary of numbers, named tuple of these, tuple of numbers or arrays, or another state. Arrays are not
    copied: nothing may write to them.
    """

    __slots__ = ()
    #: Attributes that change during a run, in addition to those of the base classes. A list has records, which the
    #: state's ``make`` creates from their form in a snapshot.
    kept: ClassVar[tuple[str, ...]] = ()
    #: Parameters of the constructor that do not change; its others are `kept`. None if kept attributes are set on a
    #: copy, because nothing is computed from them.
    fixed: ClassVar[tuple[str, ...] | None] = None

    def snapshot(self) -> dict[str, Any]:
        """Return the kept attributes as plain values and arrays, for `restored`. As secret as the rows."""
        return {name: _plain(getattr(self, name)) for name in _kept(type(self))}

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Self:
        """Return the state of a snapshot; ``self`` is the state of the same run before its first row.

        ``source`` holds the keys, for noise that is drawn again. `UsageError` for other parameters.
        """
        # Everything that is not kept follows from the configuration, so that a snapshot holds no parameter and no key.
        values, first = self.read(snapshot, source), cast(Any, self)
        if hasattr(self, "__dataclass_fields__"):
            return cast(Self, replace(first, **values))  # unlike a copy, without cached properties
        if self.fixed is not None:
            return type(self)(**{name: getattr(self, name) for name in self.fixed}, **values)
        state = copy.copy(self)
        for name, value in values.items():
            setattr(state, name, value)
        return state

    def read(self, snapshot: Mapping[str, Any], source: Any) -> dict[str, Any]:
        """Return the values of a snapshot by name, each checked against its value before the first row."""
        # Names are compared as sets: a missing or an extra one is another configuration.
        names = _kept(type(self))
        if snapshot.keys() != set(names):
            raise UsageError(
                f"the snapshot holds {', '.join(map(str, snapshot))} for {', '.join(names)}. Restore with the "
                "parameters it was saved with"
            )
        values = {name: _read(name, getattr(self, name), snapshot[name], source) for name in names}
        for name in names:
            if isinstance(getattr(self, name), list):
                values[name] = [cast(Any, self).make(record) for record in values[name]]
        return values


def _kept(kind: type[State]) -> list[str]:
    return [name for base in reversed(kind.__mro__) for name in vars(base).get("kept", ())]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [record.to_json() if hasattr(record, "to_json") else [*vars(record).values()] for record in value]
    if isinstance(value, State):
        return value.snapshot()
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, int) and value.bit_length() > 62:
        return {"high": value >> 60, "low": value & (1 << 60) - 1}  # a store holds 64 bits
    return value.hex() if isinstance(value, bytes) else value


def _read(name: str, first: Any, value: Any, source: Any) -> Any:
    if isinstance(first, State):
        return first.restored(value, source)
    if hasattr(first, "_asdict"):
        return type(first)(**{part: _read(part, one, value[part], source) for part, one in first._asdict().items()})
    if isinstance(first, np.ndarray):
        value = np.asarray(value)
        # Only an array that is empty before the first row may grow. Without rows, its columns are known.
        grows = not first.size
        same = value.ndim != first.ndim or first.shape[0] > 0 or value.shape[1:] == first.shape[1:]
        if not (same if grows else value.shape == first.shape and value.dtype == first.dtype):
            raise UsageError(
                f"the snapshot holds {name} of shape {value.shape}, {first.shape} is expected. Restore with the "
                "parameters it was saved with"
            )
        return np.asfortranarray(value) if first.flags.f_contiguous and not grows else value
    if isinstance(first, tuple):
        return tuple(value)
    if isinstance(first, int) and isinstance(value, Mapping):
        return (value["high"] << 60) + value["low"]
    return bytes.fromhex(value) if isinstance(first, bytes) else value


def fields_of(configuration: Any) -> dict[str, Any]:
    """Return the parameters of a configuration by name: the fields that its constructor accepts."""
    if not is_dataclass(configuration) or isinstance(configuration, type):
        raise BadParameterError("configuration", configuration, "a dataclass with its parameters as fields")
    return {field.name: getattr(configuration, field.name) for field in fields(configuration) if field.init}


def label_of(configuration: Any) -> str:
    """Return canonical JSON of the class name and of the fields of a configuration that are not at their default.

    The label depends neither on the repr nor on the order of fields. Configurations of one class that differ in a field
    have different labels, because an omitted field has its default. A field added later with a default changes no
    label. Fields may hold None, numbers, strings, tuples, lists and dataclasses; others raise `BadParameterError`.
    """
    return f"{PREFIX} {_json(configuration)}"


def _json(value: Any) -> str:
    """Return canonical JSON of a value. Values of different type or content have different texts."""
    # A NumPy scalar and the Python number of its value configure the same noise.
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return json.dumps(value)
    if isinstance(value, float):
        # The hexadecimal form has all 53 bits. The key separates it from a string of the same digits.
        return f'{{"float":"{value.hex()}"}}'
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(_json, value))}]"
    texts = {"kind": json.dumps(type(value).__name__)}
    parameters = fields_of(value)
    for field in (field for field in fields(value) if field.init):
        text, default = _json(parameters[field.name]), field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        # Texts are compared, because 0 == False.
        if default is MISSING or text != _json(default):
            texts[field.name] = text
    return "{" + ",".join(f"{json.dumps(name)}:{texts[name]}" for name in sorted(texts)) + "}"
