"""Checks of the parameters of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from streampca.errors import BadParameterError, UsageError

Strategy = TypeVar("Strategy")


def check_strategy(configuration: Any, name: str, kinds: Mapping[str, type[Strategy]], base: type[Strategy]) -> None:
    """Replace a string that is short for a strategy by it, in a frozen dataclass. `BadParameterError` for others."""
    value = getattr(configuration, name)
    if isinstance(value, str) and value in kinds:
        object.__setattr__(configuration, name, kinds[value]())
    elif not isinstance(value, base):
        raise BadParameterError(name, value, f"one of {', '.join(map(repr, kinds))}")


def use_plain_numbers(configuration: Any) -> None:
    """Convert numbers in a frozen dataclass: NumPy scalars to Python ones, integers of float fields to floats."""
    # Equal configurations then have equal reprs, for all types of their numbers, and a store reads what it wrote. A
    # switch that is neither True nor False raises `BadParameterError`.
    for field in fields(configuration):
        value = getattr(configuration, field.name, None)
        plain = value.item() if isinstance(value, np.generic) else value
        if str(field.type).startswith("float") and isinstance(plain, int) and not isinstance(plain, bool):
            plain = float(plain)
        if field.type == "bool" and field.init:
            plain = check_switch(field.name, plain)
        if plain is not value:
            object.__setattr__(configuration, field.name, plain)


def check_switch(name: str, value: object) -> bool:
    """Return a value of True, False, 0 or 1 as a boolean, or raise `BadParameterError`."""
    if not isinstance(value, (int, np.bool_)) or value not in (0, 1):
        raise BadParameterError(name, value, "True or False")
    return bool(value)


def check_count(name: str, value: object, *, most: int | None = None, optional: bool = False) -> None:
    """Raise `BadParameterError` unless the value is an integer from 1 to ``most`` (or None, if optional)."""
    if optional and value is None:
        return
    # True is an integer in Python, but no count.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= (most or value):
        domain = "an integer >= 1" if most is None else f"an integer from 1 to {most}"
        raise BadParameterError(name, value, domain + " or None" * optional)


def check_share(name: str, value: object) -> None:
    """Raise `BadParameterError` unless the value is a number between 0 and 1, both excluded."""
    if not (isinstance(value, (int, float)) and 0.0 < value < 1.0):
        raise BadParameterError(name, value, "a number between 0 and 1, both excluded")


def check_components(n_components: int | None, n_features: int | None = None, *, optional: bool = False) -> None:
    """Raise `UsageError` unless 1 <= n_components <= n_features (None: not known yet)."""
    # With ``optional``, n_components may be None, too: the mechanism estimates it.
    check_count("n_components", n_components, optional=optional)
    if n_features is not None and n_components is not None and n_components > n_features:
        raise UsageError(f"n_components={n_components} exceeds n_features={n_features}")
