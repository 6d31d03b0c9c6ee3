"""Keys of the tenants of a `Fleet`: text, bytes or integers, or tuples of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from streampca.errors import BadParameterError

#: Types of a key, or of its parts, and their description.
PARTS, KEYS = {str, bytes, int}, "text, bytes (1 to 255 bytes) or an integer of 64 bits"


def keys_of(keys: Any) -> list[Any]:
    """Return a sequence or column of keys as a list."""
    if hasattr(keys, "to_pylist"):  # of Arrow
        return list(keys.to_pylist())
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise BadParameterError("keys", keys, f"a sequence of keys: {KEYS}")
    return list(keys.tolist() if hasattr(keys, "tolist") else keys)


def key_of(cell: Any) -> Any:
    """Return the key in a cell of a table."""
    cell = cell.item() if isinstance(cell, np.generic) else cell
    return int(cell) if type(cell) is float and cell.is_integer() and abs(cell) < 2.0**53 else cell


def no_key(key: Any, depth: int) -> BadParameterError:
    """Return the error for what cannot be a key."""
    return BadParameterError("keys", key, f"a tuple of {depth}: " * (depth > 1) + KEYS)


def plain_keys(keys: Iterable[Any], depth: int) -> list[Any]:
    """Return keys without types of numpy. Refuse what only equals a key, as True and Decimal(1) equal 1."""
    # Invariant: a key is stored as it is, so that a replay finds its tenant.
    found = []
    for key in keys:
        if type(key) not in PARTS and not (type(key) is tuple and PARTS.issuperset(map(type, key))):
            own = tuple(map(key_of, key)) if type(key) is tuple else key_of(key)
            if not PARTS.issuperset(map(type, own if type(own) is tuple else (own,))):
                raise no_key(key, depth)
            key = own
        found.append(key)
    return found


def is_part(part: Any) -> bool:
    """Return whether a value can be a part of a key."""
    if type(part) is str:
        try:
            part = part.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
    return 0 < len(part) < 256 if type(part) is bytes else type(part) is int and part.bit_length() < 64
