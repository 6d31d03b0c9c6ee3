"""Records of a store as bytes: snapshots, entries of the log, and releases.

Records are msgpack. Reading one builds numbers, strings, lists, dictionaries and arrays of six types, and nothing else.
Records of entries are as secret as the rows, and sealed before they are written; releases are publishable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import reduce
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from streampca.errors import StoreCorruptError, UsageError, reason
from streampca.linalg.lattice import STEP
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.rows.admission import Counts
from streampca.store.row_digest import words_of
from streampca.stream.blocks import BlockGram, Entry

T = TypeVar("T")

#: Largest number of bytes of rows in a record of entries. A larger entry has a record of its own.
MOST_BYTES = 2**18
_RELEASE_BYTES = 2**20  # bytes of releases after which a record ends
_TYPES = ("<f8", "<i8", "<u8", "<i4", "|b1", "|u1")
_CODE = 1
# Everything that the decoders and constructors raise for damaged bytes.
_PROBLEMS = (
    msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


def damaged(what: str) -> StoreCorruptError:
    """Return the error for damage, with the advice that all of it shares."""
    return StoreCorruptError(f"{what}. Restore the newest copy")


def encode(value: Any) -> bytes:
    """Return nested dictionaries and lists of numbers, strings, bytes and arrays as bytes."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise UsageError(f"a value cannot be stored: {problem}") from problem


def decode(data: bytes) -> Any:
    """Return the value of a record: arrays are writable and in their original memory order, tuples become lists."""
    return read(_ANYTHING.decode, data, "a record of the store")


def read(decoder: Callable[[bytes], T], data: bytes, what: str) -> T:
    """Return what a decoder makes of a record. Raises `StoreCorruptError` for damage."""
    try:
        return decoder(data)
    except _PROBLEMS as problem:
        raise damaged(f"{what} cannot be read ({reason(problem)})") from problem


def plain(value: Any) -> Any:
    """Return a number or an array of numpy for msgpack."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a value of type {type(value).__name__}")
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in _TYPES:
        raise TypeError(f"an array of type {value.dtype}")
    # The order in memory decides the rounding of products, so a resumed run needs the original one.
    order: Literal["C", "F"] = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    flat = little.ravel(order).view(np.uint8).data
    return msgspec.msgpack.Ext(_CODE, _ENCODER.encode((little.dtype.str, value.shape, order, flat)))


def array(code: int, data: memoryview) -> Any:
    """Return the array of `plain`."""
    dtype, shape, order, flat = _PARTS.decode(data)
    if code != _CODE or dtype not in _TYPES:
        raise ValueError("not an array")
    values = np.frombuffer(flat, dtype) if len(flat) else np.empty(0, dtype)  # numpy refuses an empty buffer
    native = np.dtype(dtype).newbyteorder("=")
    return values.reshape(shape, order=order).astype(native, order="K", copy=True)


class _EntryRecord(msgspec.Struct):
    """Consecutive entries of rows, or one other entry. Joining entries is exact: releases do not depend on blocks."""

    first: int
    count: int
    kind: str
    counts: list[Any]
    fresh: list[bytes]
    link: bytes
    rows: Any = None  # whole numbers of lattice steps, (count, d), int32
    high: Any = None
    low: Any = None


def size_of(entry: Entry) -> int:
    """Return the bytes of the rows of an entry in a record."""
    if entry.rows is not None:
        return 4 * entry.rows.size
    return 0 if entry.block is None else 2 * entry.block.high.nbytes


def groups_of(entries: Iterable[Entry]) -> Iterator[tuple[list[Entry], Any]]:
    """Yield the entries of each record, and their rows in whole numbers of lattice steps, None if there are none."""
    # A record holds consecutive entries of rows up to `MOST_BYTES`, or one other entry.
    groups: list[list[Entry]] = []
    size = 0
    for entry in entries:
        if entry.rows is None or not groups or groups[-1][0].rows is None or size + size_of(entry) > MOST_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += size_of(entry)
    for group in groups:
        rows = [entry.rows for entry in group if entry.rows is not None]
        yield group, words_of(rows[0] if len(rows) == 1 else np.concatenate(rows)) if rows else None


def record_of(group: Sequence[Entry], words: Any) -> bytes:
    """Return the record of a group of entries and its words, both of `groups_of`."""
    last, count = group[-1], sum(entry.count for entry in group)
    fresh = [name for entry in group for name in entry.fresh]
    # Joined entries give the same releases: each uses the fresh bytes that the rows before it have left.
    counts = reduce(Counts.plus, (entry.counts for entry in group))
    record = _EntryRecord(group[0].first, count, last.kind, counts.plain(), fresh, last.link, words)
    if last.block is not None:
        record.high, record.low = last.block.high, last.block.low
    return encode(record)


def entry_of(data: bytes) -> Entry:
    """Return the entry that replays a record. Raises `StoreCorruptError` for damage."""

    def entry(data: bytes) -> Entry:
        record = _ENTRY.decode(data)
        counts = Counts.of_plain(record.counts)
        block = None if record.high is None else BlockGram(record.high, record.low, record.count, counts)
        # Exact: the step is a power of two, and words have 32 bits.
        rows = None if record.rows is None else record.rows * STEP
        # Rows of an open period count when it closes.
        counted = record.kind.partition(" ")[0] not in ("open", "close")
        if block is None and counted and (0 if rows is None else len(rows)) != record.count:
            raise ValueError("wrong number of rows")
        fresh = tuple(record.fresh)
        return Entry(record.first, record.count, rows, block, counts, fresh, record.link, None, record.kind)

    return read(entry, data, "an entry of the log")


class _ReleaseRecord(msgspec.Struct, array_like=True):
    """The parameters of a `Release`; ``terms`` is an index into the list of terms."""

    terms: int
    t: int
    n_components: int
    packed_gram: Any
    basis: Any
    span: Any
    eigenvalues: Any
    noise_std: float | None
    details: dict[str, Any] | None
    packed_smoothed: Any = None
    entry_std: Any = None


class _Releases(msgspec.Struct):
    terms: list[dict[str, Any]]
    each: list[_ReleaseRecord]


def release_records(releases: Sequence[Release]) -> Iterator[tuple[int, bytes]]:
    """Yield records of about `_RELEASE_BYTES`, each with the row of its last release."""
    # Releases of a run mostly share one object of terms, which takes more bytes than a small release.
    record, places, size, t = _Releases([], []), dict[int, int](), 0, 0
    for one in releases:
        terms, t = one.terms, one.t
        # Identifiers are unique here, because the releases keep their terms alive.
        place = places.setdefault(id(terms), len(places))
        if place == len(record.terms):
            shared = {field.name: getattr(terms, field.name) for field in fields(Terms)[1:]}
            record.terms.append(shared | {"guarantee": terms.guarantee.to_dict()})
        values = one.own_parameters()
        record.each.append(_ReleaseRecord(**values | {"terms": place, "details": values["details"] or None}))
        size += release_size(one)
        if size >= _RELEASE_BYTES:
            yield t, encode(record)
            record, places, size = _Releases([], []), {}, 0
    if record.each:
        yield t, encode(record)


def release_size(release: Release) -> int:
    """Return the bytes of the arrays of a release."""
    arrays = release.packed, release.own_smoothed, release.own_entry_std, release.own_basis, release.own_span
    return sum(array.nbytes for array in arrays if array is not None)


def releases_of(data: bytes) -> list[Release]:
    """Return the releases of a record, bit for bit. Raises `StoreCorruptError` for damage."""

    def releases(data: bytes) -> list[Release]:
        record = _RELEASES.decode(data)
        terms = [Terms.from_dict(shared) for shared in record.terms]
        return [Release(**msgspec.structs.asdict(one) | {"terms": terms[one.terms]}) for one in record.each]

    return read(releases, data, "a release in the store")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=plain)
_ANYTHING = msgspec.msgpack.Decoder(ext_hook=array)
_PARTS = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], Literal["C", "F"], memoryview])
_ENTRY = msgspec.msgpack.Decoder(_EntryRecord, ext_hook=array)
_RELEASES = msgspec.msgpack.Decoder(_Releases, ext_hook=array)
