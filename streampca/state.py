"""Labels and reprs of configurations, from the fields of their dataclasses; snapshots of states, by one rule.

A label names a configuration in the key of the noise: two configurations that differ in a field have independent
noise under one seed. The repr is for people only.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from streampca.errors import BadParameterError, short

#: Changes whenever the label of a configuration changes, and with it every seeded release.
PREFIX = "streampca/label/2"


class State:
    """An immutable value that changes during a run. Its snapshot holds what is kept, and no parameter and no key.

    Everything else follows from the configuration: a snapshot is restored into the value of the same run before its
    first row. What is kept is a number, a string, bytes, None, an array, a dictionary of numbers, a named tuple of
    these, or another state. Arrays are not copied: nothing may write to them.

    Attributes
    ----------
    kept : names of the attributes that change during a run; those of base classes are kept, too.
    optional : makes a named tuple that is None before the first row of its fields, by name.
    """

    __slots__ = ()
    kept: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def snapshot(self) -> dict[str, Any]:
        """Return plain values and arrays from which `restored` makes the same state. As secret as the rows."""
        return {name: _plain(getattr(self, name)) for name in _kept(type(self))}

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Self:
        """Return the state of a snapshot, from that of the same run before its first row.

        Parameters
        ----------
        snapshot : from `snapshot`.
        source : the keys, for noise that is drawn a second time.

        Raises
        ------
        BadParameterError
            If the snapshot is that of other parameters.
        """
        values, first = self.read(snapshot, source), cast(Any, self)
        if hasattr(self, "__dataclass_fields__"):
            return cast(Self, replace(first, **values))  # without what is cached
        made = copy.copy(self)
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def read(self, snapshot: Mapping[str, Any], source: Any) -> dict[str, Any]:
        """Return the values of a snapshot by name, each checked against that before the first row."""
        names = _kept(type(self))
        if snapshot.keys() != set(names):
            raise BadParameterError(
                f"the snapshot holds {', '.join(map(str, snapshot))} for {', '.join(names)}; "
                "restore with the parameters it was saved with"
            )
        out = {}
        for name in names:
            first, value = getattr(self, name), snapshot[name]
            make = self.optional.get(name)
            optional = make is not None and first is None and value is not None
            out[name] = make(**value) if optional else _read(name, first, value, source)  # type: ignore[misc]
        return out


def _kept(kind: type[State]) -> list[str]:
    return [name for base in reversed(kind.__mro__) for name in vars(base).get("kept", ())]


def _plain(value: Any) -> Any:
    if isinstance(value, State):
        return value.snapshot()
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, int) and value.bit_length() > 62:
        return {"high": value >> 60, "low": value & (1 << 60) - 1}  # a store holds 64 bits; of up to 122
    return value.hex() if isinstance(value, bytes) else value


def _read(name: str, first: Any, value: Any, source: Any) -> Any:
    """Return a value of a snapshot as it was; ``first`` is the one before the first row."""
    if isinstance(first, State):
        return first.restored(value, source)
    if hasattr(first, "_asdict"):
        return type(first)(**{part: _read(part, one, value[part], source) for part, one in first._asdict().items()})
    if isinstance(first, np.ndarray):
        value = np.asarray(value)
        # An array that is empty before the first row grows. One without rows has its columns already.
        grows = not first.size
        same = value.ndim != first.ndim or first.shape[0] > 0 or value.shape[1:] == first.shape[1:]
        if not (same if grows else value.shape == first.shape and value.dtype == first.dtype):
            raise BadParameterError(
                f"the snapshot holds {name} of shape {value.shape}, {first.shape} is expected; "
                "restore with the parameters it was saved with"
            )
        return np.asfortranarray(value) if first.flags.f_contiguous and not grows else value
    if isinstance(first, int) and isinstance(value, Mapping):
        return (value["high"] << 60) + value["low"]
    return bytes.fromhex(value) if isinstance(first, bytes) else value


def fields_of(configuration: Any) -> dict[str, Any]:
    """Return the parameters of a configuration by name: the fields that its constructor accepts.

    Raises
    ------
    BadParameterError
        If the configuration is not a dataclass.
    """
    if not is_dataclass(configuration) or isinstance(configuration, type):
        raise BadParameterError(f"{short(configuration)}: expected a dataclass. Declare its parameters as fields.")
    return {field.name: getattr(configuration, field.name) for field in fields(configuration) if field.init}


def label_of(configuration: Any) -> str:
    """Return the label of a configuration: canonical JSON of its class name and of the fields not at their default.

    The label depends neither on the repr nor on the order of fields. Configurations of one class that differ in a
    field have different labels, because a field that is omitted has its default. A field added later with a default
    changes no label.

    Raises
    ------
    BadParameterError
        If a field holds anything but None, numbers, strings, tuples, lists and dataclasses.
    """
    return f"{PREFIX} {_json(configuration)}"


def repr_of(configuration: Any) -> str:
    """Return the constructor call; parameters with ``repr=False`` only if they are not at their default."""
    values = [(field, getattr(configuration, field.name)) for field in fields(configuration) if field.init]
    shown = [f"{field.name}={value!r}" for field, value in values if field.repr or value != field.default]
    return f"{type(configuration).__qualname__}({', '.join(shown)})"


def _json(value: Any) -> str:
    """Canonical JSON of a value. Values of different type or content have different texts."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return json.dumps(value)
    if isinstance(value, float):
        # All 53 bits, under a key: a string field may hold the same digits.
        return f'{{"float":"{value.hex()}"}}'
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(_json, value))}]"
    kept = {"kind": json.dumps(type(value).__name__)}
    given = fields_of(value)
    for field in (field for field in fields(value) if field.init):
        text, default = _json(given[field.name]), field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        # Compared as texts, because 0 == False.
        if default is MISSING or text != _json(default):
            kept[field.name] = text
    return "{" + ",".join(f"{json.dumps(name)}:{kept[name]}" for name in sorted(kept)) + "}"
