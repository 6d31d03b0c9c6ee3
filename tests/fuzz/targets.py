"""What must hold for any input: only errors of streampca, and no row lost or doubled.

Each target takes bytes and reads them as one input of its format: the bytes of
a file, or choices from which rows are made.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import tempfile
import warnings
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np

from streampca.errors import BadRow, StreamPCAError
from streampca.processors.oja import Oja
from streampca.regret import RegretLog
from streampca.rows import RowSource
from streampca.sources.csv_rows import from_csv
from streampca.sources.parquet import from_parquet
from streampca.stream import Stream

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
FILE = FOLDER / "input"


def stream(on_bad_row: Any = "raise") -> Stream:
    return Stream(Oja(n_components=1, release_every=3), regret=RegretLog(every=1000), seed=1, on_bad_row=on_bad_row)


def feed(source: RowSource) -> None:
    """Read a source twice, into a stream and as rows: the same rows up to the same problem."""
    rows, problem = 0, ""
    try:
        for block in source.blocks():
            assert block.dtype == np.float64
            assert block.ndim == 2
            assert block.shape[1] == len(source.features)
            assert block.shape[0] > 0
            rows += block.shape[0]
    except StreamPCAError as error:
        problem = str(error)
    fed = stream("zero")
    try:
        last = 0
        for step in fed.run(source):
            assert step.t == last + 1, "a row was lost or doubled"
            last = step.t
        assert not problem
    except StreamPCAError as error:
        again = str(error)
        assert again == problem
    assert fed.t == rows, f"{rows} rows were read, {fed.t} arrived"


def csv(data: bytes) -> None:
    """Any bytes as a CSV file; the first chooses options, packing and missing values."""
    choice, body = (data[0], data[1:]) if data else (0, b"")
    if choice & 3 == 1:
        body = gzip.compress(body, 1)
    elif choice & 3 == 2:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("rows.csv", body)
        body = packed.getvalue()
    if choice & 4 and body:
        body = body[: len(body) * (choice >> 3) // 32 + 1]
    FILE.write_bytes(body)
    try:
        source = from_csv(
            FILE,
            header=not choice & 8,
            missing="nan" if choice & 16 else "raise",
            encoding="utf-16" if choice & 224 == 224 else "utf-8",
            chunk_rows=1 + (choice >> 5),
            max_bytes=2**16,
        )
    except StreamPCAError:
        return
    feed(source)


def parquet(data: bytes) -> None:
    """A valid Parquet file with bytes changed, or any bytes."""
    if not data:
        return
    body = bytearray(_PARQUET[data[0] % len(_PARQUET)])
    for at in range(1, len(data) - 4, 5):
        place, value = struct.unpack_from("<IB", data, at)
        body[place % len(body)] = value
    FILE.write_bytes(body if data[0] < 250 else data[1:])
    try:
        source = from_parquet(FILE, missing="nan" if data[0] & 1 else "raise", chunk_rows=1 + data[0] % 5)
    except StreamPCAError:
        return
    if source.n_rows < 2**20:
        feed(source)


def _parquet_files() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = []
    for table, options in (
        ({"a": [1.0, 2.5, -3.0], "b": [4, 5, 6]}, {"compression": "none"}),
        ({"a": [1.0, None, math.nan], "b": [True, False, None]}, {"compression": "snappy"}),
        ({"a": list(range(40)), "b": ["x"] * 40}, {"compression": "gzip", "row_group_size": 7}),
    ):
        out = io.BytesIO()
        pq.write_table(pa.table(table), out, **options)
        made.append(out.getvalue())
    return made


_PARQUET: list[bytes] = []


class Choices:
    """Values drawn from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def number(self) -> float:
        """Any of the 2**64 floats: huge, denormal, NaN with any payload."""
        eight = bytes(self.byte() for _ in range(8))
        return float(struct.unpack("<d", eight)[0])

    def value(self) -> Any:
        kind = self.byte() % 24
        odd = (
            None, "", "1.5", "n/a", b"\0", "1\0", "\ud800", 10**400, -(2**63), 1 + 2j, math.nan, math.inf, [], [1.0],
            {}, True, np.float32(3e38), np.float64(5e-324), np.datetime64("2020"), object(), np.array(1.0),
        )  # fmt: skip
        return odd[kind] if kind < len(odd) else self.number()


class _Names(dict):  # type: ignore[type-arg]
    """A mapping whose values cannot be had."""

    def __getitem__(self, key: object) -> Any:
        raise KeyError(key)


def mappings(data: bytes) -> None:
    """Rows as mappings, named tuples and sequences of anything."""
    choices = Choices(data)
    fed = stream("zero" if choices.byte() & 1 else "raise")
    taken = 0
    while choices.left:
        kind, width = choices.byte() % 8, choices.byte() % 4
        names = [("a", "b", "c", "\0", "", 1, None, "a\n")[choices.byte() % 8] for _ in range(width)]
        values = [choices.value() for _ in range(width)]
        row: Any = dict(zip(names, values, strict=True))
        if kind == 1:
            row = values
        elif kind == 2:
            row = namedtuple("Row", ["x", "y"])(choices.value(), choices.value())
        elif kind == 3:
            row = choices.value()
        elif kind == 4:
            row = {"a": choices.number(), "b": choices.number()}
        elif kind == 5:
            row = _Names(row)
        taken += _one(fed, row, taken)
    assert fed.t == taken


def arrays(data: bytes) -> None:
    """Rows and blocks as arrays of every type and shape."""
    choices = Choices(data)
    fed = stream("zero" if choices.byte() & 1 else "raise")
    taken = 0
    while choices.left:
        kind = choices.byte()
        n, d = choices.byte() % 5, choices.byte() % 4
        block: Any = np.array([[choices.number() for _ in range(d)] for _ in range(n)]).reshape(n, d)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            types = ("f8", ">f8", "f4", "i8", "u1", "b1", "c16", "M8[s]", "O", "S4", "U4", "f2")
            block = block.astype(types[kind % len(types)])
        if kind & 64:
            block = np.asfortranarray(block)
        if kind & 128:
            taken += _one(fed, block[0] if n else block, taken)
            continue
        try:
            steps = fed.push_many(block)
        except StreamPCAError:
            assert fed.t == taken, "a refused block left rows behind"
            continue
        assert len(steps) == n
        taken += n
    assert fed.t == taken


def _one(fed: Stream, row: Any, taken: int) -> int:
    """Push a row; return 1 if it was taken."""
    try:
        step = fed.push(row)
    except BadRow:
        assert fed.t == taken, "a refused row left a trace"
        return 0
    except StreamPCAError:
        assert fed.t == taken
        return 0
    assert step.t == taken + 1
    return 1


def prepare() -> None:
    """Make what targets need."""
    if not _PARQUET:
        _PARQUET.extend(_parquet_files())


TARGETS = {"csv": csv, "parquet": parquet, "mappings": mappings, "arrays": arrays}

#: Inputs to start from.
SEEDS: dict[str, list[bytes]] = {
    "csv": [
        b"\x00a,b\n1,2\n3,4\n", b"\x01a,b\n1,2\n3,nan\n", b"\x02a\tb\n1e308,5e-324\n", b"\x10a,b\n,1\n2,\n",
        b"\x08" + b"1,2\r\n3,4\r5,6\n", b'\x00"a","b"\n"1","2"\n', b"\x00a,a\n1,2\n", b"\x00a,\xff\n1,2\n",
        b"\x00a,b\n1,2\x00\n", b"\xe0" + "a,b\n1,2\n".encode("utf-16"), b"\x00" + b"a" + b"," * 200 + b"\n",
        b"\x01" + b"a,b\n" + b"1,2\n" * 150, b"\x00a,b\n-0,+1\n0x1,1_0\n", b'\x00a,b\n"1\n",2\n3,4\n',
    ],
    "parquet": [b"\x00", b"\x01", b"\x02", b"\xfaPAR1", b"\x00\x04\x00\x00\x00\xff", b"\x01\x20\x00\x00\x00\x00"],
    "mappings": [bytes([1, 4, 2, *range(20)] * 4), bytes([0, 0, 2, 0, 1, 21, *range(8), 22, *range(8)] * 3)],
    "arrays": [bytes([1, 0, 3, 2, *range(64)] * 3), bytes([0, 128, 1, 3, *range(24)] * 3)],
}  # fmt: skip
