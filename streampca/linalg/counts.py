"""Checks of parameters, for configurations everywhere."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from streampca.errors import BadParameter


def use_plain_numbers(configuration: Any) -> None:
    """Make Python's own numbers of the parameters of a frozen dataclass, and floats of integers given for floats.

    Equal configurations then have equal texts, whatever numbers they were given, and a store reads back what it wrote.
    """
    for field in fields(configuration):
        value = getattr(configuration, field.name, None)
        plain = value.item() if isinstance(value, np.generic) else value
        if str(field.type).startswith("float") and isinstance(plain, int) and not isinstance(plain, bool):
            plain = float(plain)
        if plain is not value:
            object.__setattr__(configuration, field.name, plain)


def check_count(name: str, value: object, *, optional: bool = False) -> None:
    """Raise `BadParameter` unless the value is an integer of at least 1 (or None, if optional)."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise BadParameter(f"{name}={value!r} must be an integer of at least 1{' or None' if optional else ''}")


def check_components(n_components: int | None, n_features: int | None = None, *, optional: bool = False) -> None:
    """Raise `BadParameter` unless 1 <= n_components <= n_features (None: not known yet).

    With ``optional``, n_components may be None too: the mechanism finds it.
    """
    check_count("n_features", n_features, optional=True)
    if optional and n_components is None:
        return
    check_count("n_components", n_components)
    if n_features is not None and n_components is not None and n_components > n_features:
        raise BadParameter(f"n_components={n_components} exceeds n_features={n_features}; ask for fewer components")
