"""Plain values and arrays as bytes, and back: what a store writes instead of pickles.

A record is a JSON head and the raw bytes of its arrays. Reading one can build
numbers, strings, lists, dictionaries and arrays of six types, and nothing else.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameter, StoreCorrupt

_MAGIC = b"SPR1"
_HEAD = struct.Struct("<4sI")
_TYPES = {"f8": "<f8", "i8": "<i8", "u8": "<u8", "i4": "<i4", "b1": "|b1", "u1": "|u1"}
_ARRAY = "\x00array"

Part = bytes | memoryview


def encode(value: Any) -> bytes:
    """Bytes of nested dictionaries and lists of scalars, strings and arrays.

    Raises
    ------
    BadParameter
        If something else is in it.
    """
    return b"".join(parts_of(value))


def parts_of(value: Any) -> list[Part]:
    """What `encode` joins. Arrays are not copied: nothing may change them before the parts are written."""
    arrays: list[Part] = []
    head = json.dumps(_plain(value, arrays), separators=(",", ":")).encode()
    return [_HEAD.pack(_MAGIC, len(head)), head, *arrays]


def in_pieces(parts: Iterable[Part], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size; the last may be shorter. Never more than a piece is copied at once."""
    piece: list[memoryview] = []
    room = size
    for part in parts:
        rest = memoryview(part)
        while len(rest) >= room:
            yield b"".join((*piece, rest[:room]))
            piece, rest, room = [], rest[room:], size
        piece.append(rest)
        room -= len(rest)
    if room < size:
        yield b"".join(piece)


def decode(data: bytes) -> Any:
    """Inverse of `encode`. Arrays are fresh, writable and in the memory order they had.

    Raises
    ------
    StoreCorrupt
        If the bytes are not a record.
    """
    try:
        magic, size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("wrong magic")
        end = _HEAD.size + size
        value, used = _rebuilt(json.loads(data[_HEAD.size : end]), data, end)
        if used != len(data):
            raise ValueError("wrong length")
    except (struct.error, ValueError, TypeError, KeyError, RecursionError) as problem:
        raise StoreCorrupt(f"a record of the store cannot be read ({problem}); restore it from a backup") from problem
    return value


def _plain(value: Any, arrays: list[Part]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        name = f"{value.dtype.kind}{value.dtype.itemsize}"
        if name not in _TYPES:
            raise BadParameter(f"an array of type {value.dtype} cannot be stored")
        order: Literal["C", "F"] = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        whole = value.astype(_TYPES[name], copy=False)
        arrays.append(np.ascontiguousarray(whole.T if order == "F" else whole).reshape(-1).view(np.uint8).data)
        return {_ARRAY: [name, list(value.shape), order]}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise BadParameter("only dictionaries with string keys can be stored")
        return {key: _plain(inner, arrays) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, arrays) for inner in value]
    raise BadParameter(f"a value of type {type(value).__name__} cannot be stored")


def _rebuilt(plain: Any, data: bytes, at: int) -> tuple[Any, int]:
    """The value, and where its arrays end."""
    if isinstance(plain, list):
        items = []
        for inner in plain:
            item, at = _rebuilt(inner, data, at)
            items.append(item)
        return items, at
    if not isinstance(plain, dict):
        return plain, at
    if _ARRAY in plain:
        name, shape, order = plain[_ARRAY]
        dtype = np.dtype(_TYPES[name])
        count = math.prod(int(n) for n in shape)
        array = np.frombuffer(data, dtype, count, at).reshape(shape, order=order)
        native = array.astype(dtype.newbyteorder("="), order="K", copy=True)
        return native, at + count * dtype.itemsize
    out: dict[str, Any] = {}
    for key, inner in plain.items():
        out[key], at = _rebuilt(inner, data, at)
    return out, at
