"""Records of a store, as bytes and back: snapshots, entries of the log, fresh bytes of noise, and releases.

Records are msgpack. Reading one builds numbers, strings, lists, dictionaries and
arrays of six types, and nothing else. Records of entries are as secret as the
rows, and sealed before they are written; releases are publishable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from streampca.errors import BadParameterError, StoreCorruptError, reason
from streampca.linalg.lattice import STEP
from streampca.release.release import Release, Terms
from streampca.rows.admission import Counts
from streampca.store.row_digest import words_of
from streampca.stream.blocks import BlockGram, Entry

T = TypeVar("T")

#: Bytes of rows in a record of entries, at most, except where one entry takes more.
MOST_BYTES = 2**18
_RELEASE_BYTES = 2**20  # after so many bytes of releases, a record ends
_TYPES = ("<f8", "<i8", "<u8", "<i4", "|b1", "|u1")
_CODE = 1
_PROBLEMS = (
    msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


# -- plain values and arrays --------------------------------------------------------


def encode(value: Any) -> bytes:
    """Bytes of nested dictionaries and lists of numbers, strings, bytes and arrays.

    Raises `BadParameterError` if something else is in it.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadParameterError(f"this cannot be stored: {problem}") from problem


def decode(data: bytes) -> Any:
    """Inverse of `encode`. Arrays are fresh, writable and in the memory order they had; tuples come back as lists.

    Raises `StoreCorruptError` if the bytes are not a record.
    """
    return _read(_ANYTHING.decode, data, "a record of the store")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a value of type {type(value).__name__}")
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in _TYPES:
        raise TypeError(f"an array of type {value.dtype}")
    order: Literal["C", "F"] = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    flat = little.ravel(order).view(np.uint8).data
    return msgspec.msgpack.Ext(_CODE, _ENCODER.encode((little.dtype.str, value.shape, order, flat)))


def _array(code: int, data: memoryview) -> Any:
    dtype, shape, order, flat = _PARTS.decode(data)
    if code != _CODE or dtype not in _TYPES:
        raise ValueError("not an array")
    found = np.frombuffer(flat, dtype) if len(flat) else np.empty(0, dtype)
    native = np.dtype(dtype).newbyteorder("=")
    return found.reshape(shape, order=order).astype(native, order="K", copy=True)


def _read(decoder: Callable[[bytes], T], data: bytes, what: str) -> T:
    try:
        return decoder(data)
    except _PROBLEMS as problem:
        raise StoreCorruptError(f"{what} cannot be read ({reason(problem)}); restore the newest copy") from problem


# -- entries of the log -------------------------------------------------------------


class _EntryRecord(msgspec.Struct):
    """Entries of rows that follow each other, or one other entry. A stream gives the same bits however rows are cut."""

    kind: str
    counts: list[Any]
    fresh: list[bytes]
    link: bytes
    rows: Any = None  # whole numbers of lattice steps, (count, d), int32
    high: Any = None
    low: Any = None


def size_of(entry: Entry) -> int:
    """Bytes that the rows of an entry take in a record."""
    if entry.rows is not None:
        return 4 * entry.rows.size
    return 0 if entry.block is None else 2 * entry.block.high.nbytes


def groups_of(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries of each record: rows up to a size together, all others alone."""
    group: list[Entry] = []
    size = 0
    for entry in entries:
        if group and (entry.rows is None or size + size_of(entry) > MOST_BYTES):
            yield group
            group, size = [], 0
        if entry.rows is None:
            yield [entry]
        else:
            group.append(entry)
            size += size_of(entry)
    if group:
        yield group


def record_of(group: Sequence[Entry]) -> bytes:
    """One record of the entries of a group."""
    last, rows = group[-1], [entry.rows for entry in group if entry.rows is not None]
    fresh = [name for entry in group for name in entry.fresh]
    counts = reduce(Counts.plus, (entry.counts for entry in group))
    record = _EntryRecord(last.kind, counts.plain(), fresh, last.link)
    if last.block is not None:
        record.high, record.low = last.block.high, last.block.low
    elif rows:
        record.rows = words_of(rows[0] if len(rows) == 1 else np.concatenate(rows))
    return encode(record)


def entry_of(first: int, count: int, data: bytes) -> Entry:
    """The entry that a record is replayed as. Raises `StoreCorruptError` if it is not a record of entries."""

    def read(data: bytes) -> Entry:
        record = _ENTRY.decode(data)
        counts = Counts.of_plain(record.counts)
        block = None if record.high is None else BlockGram(record.high, record.low, count, counts)
        rows = None if record.rows is None else record.rows * STEP
        if block is None and (0 if rows is None else len(rows)) != count:
            raise ValueError("wrong number of rows")
        return Entry(first, count, rows, block, counts, tuple(record.fresh), record.link, None, record.kind)

    return _read(read, data, f"the rows from {first} on")


# -- fresh bytes --------------------------------------------------------------------


def trace_of(entries: Iterable[Entry]) -> list[tuple[int, str, list[bytes]]]:
    """The fresh bytes of the noise of some entries, as (last row that they served, kind of entry, fresh bytes).

    Kept when the rows are folded into a snapshot, so that all rows can be replayed by who has them.
    """
    trace: list[tuple[int, str, list[bytes]]] = []
    for entry in entries:
        if entry.fresh or entry.kind != "rows":
            fresh = list(entry.fresh)
            if trace and trace[-1][1] == entry.kind == "rows":
                fresh = trace.pop()[2] + fresh
            trace.append((entry.first + entry.count - 1, entry.kind, fresh))
    return trace


def read_trace(data: bytes) -> list[tuple[int, str, list[bytes]]]:
    """Inverse of ``encode(trace_of(...))``."""
    return _read(_TRACE.decode, data, "the fresh bytes of the noise")


# -- releases -----------------------------------------------------------------------


class _ReleaseRecord(msgspec.Struct, array_like=True):
    """The parameters of a `Release`; ``terms`` is a place in the list of terms."""

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


class _Releases(msgspec.Struct):
    terms: list[dict[str, Any]]
    each: list[_ReleaseRecord]


def release_records(releases: Iterable[Release]) -> Iterator[tuple[int, bytes]]:
    """Releases as records, each with the row of its last release. Those of a commit share few records."""
    group: list[Release] = []
    size = 0
    for release in releases:
        group.append(release)
        size += release_size(release)
        if size >= _RELEASE_BYTES:
            yield release.t, _release_record(group)
            group, size = [], 0
    if group:
        yield group[-1].t, _release_record(group)


def release_size(release: Release) -> int:
    """Bytes of its arrays."""
    arrays = release.packed, release.own_smoothed, release.own_basis, release.own_span
    return sum(array.nbytes for array in arrays if array is not None)


def _release_record(group: Sequence[Release]) -> bytes:
    places: dict[int, int] = {}
    record = _Releases([], [])
    for one in group:
        terms = one.terms
        place = places.setdefault(id(terms), len(places))
        if place == len(record.terms):
            shared = {name: getattr(terms, name) for name in ("row_norm", "features", "middle", "scale", "warmup")}
            record.terms.append(shared | {"guarantee": terms.guarantee.to_dict()})
        record.each.append(
            _ReleaseRecord(
                place, one.t, one.n_components, one.packed, one.own_basis, one.own_span, one.own_eigenvalues,
                one.own_noise_std, one.details or None, one.own_smoothed,
            )
        )  # fmt: skip
    return encode(record)


def releases_of(data: bytes) -> list[Release]:
    """The releases of a record, in order, bit for bit. Raises `StoreCorruptError` if it is not a record of releases."""

    def read(data: bytes) -> list[Release]:
        record = _RELEASES.decode(data)
        terms = [Terms.from_dict(shared) for shared in record.terms]
        return [Release(**msgspec.structs.asdict(one) | {"terms": terms[one.terms]}) for one in record.each]

    return _read(read, data, "a release in the store")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_ANYTHING = msgspec.msgpack.Decoder(ext_hook=_array)
_PARTS = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], Literal["C", "F"], memoryview])
_ENTRY = msgspec.msgpack.Decoder(_EntryRecord, ext_hook=_array)
_TRACE = msgspec.msgpack.Decoder(list[tuple[int, str, list[bytes]]])
_RELEASES = msgspec.msgpack.Decoder(_Releases, ext_hook=_array)
