"""Labels and reprs of configurations, computed from the fields that their dataclasses declare.

A label names a configuration in the key of the noise: two configurations that differ in a field have independent
noise under one seed. The repr is for people only.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np

from streampca.errors import BadParameterError, short

#: Changes whenever the label of a configuration changes, and with it every seeded release.
PREFIX = "streampca/label/2"


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
