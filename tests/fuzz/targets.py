"""What must hold for any input: only errors of streampca, each one short sentence, and no row lost or doubled.

Each target takes bytes and reads them as one input of its format: the bytes of
a file, choices from which rows are made, or places of a whole file to change.
"""

import contextlib
import gzip
import io
import itertools
import math
import os
import sqlite3
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shapes import SHAPES, records_of, releases_of as releases_of_shape

from streampca.errors import StreamPCAError, StreamPCAWarning
from streampca.privacy.budget import Budget
from streampca.processors.oja import Oja
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.regret import RegretLog
from streampca.release.file import Header, read_releases
from streampca.release.release import Release
from streampca.rows.protocol import RowSource
from streampca.sources.csv_rows import from_csv
from streampca.sources.ndjson_rows import from_ndjson
from streampca.sources.parquet import from_parquet
from streampca.store.config import load
from streampca.store.database import _PAGE, Database
from streampca.store.keys import read_key
from streampca.store.ledger import Balance, Ledger
from streampca.store.reading import check_witness, verify
from streampca.store.records import decode, encode, entry_of, releases_of
from streampca.store.store import Store
from streampca.stream.stream import Stream

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
FILE = FOLDER / "input"


def stream(features: Sequence[str] | None = None) -> Stream:
    log = RegretLog(every=1000)
    return Stream(Oja(n_components=1, release_every=3), row_norm=1.0, regret=log, seed=1, features=features)


#: Most characters of a message, without the name of the file, and of the data in it.
MOST_SAID, MOST_ECHOED = 500, 80


def told(problem: StreamPCAError, data: bytes = b"") -> str:
    message = str(problem).replace(str(FOLDER), "")
    assert message.isprintable(), f"not one printable line: {message!r}"
    assert 10 < len(message) <= MOST_SAID, f"{len(message)} characters: {message[:1000]}"
    text = data.decode("utf-8", "replace")
    size = MOST_ECHOED + 1
    if len(text) >= size:
        assert not any(message[at : at + size] in text for at in range(len(message) - size + 1)), message
    return message


def feed(source: RowSource, data: bytes = b"") -> None:
    rows, problem = 0, ""
    try:
        for block in source.blocks():
            assert block.dtype == np.float64
            assert block.ndim == 2
            assert block.shape[1] == len(source.features)
            assert block.shape[0] > 0
            rows += block.shape[0]
    except StreamPCAError as error:
        problem = told(error, data)
    if zlib.crc32(data) & 7:  # a stream takes ten times as long as reading
        return
    fed = stream()
    try:
        last = 0
        for step in fed.run(source):
            assert step.t == last + 1, "a row was lost or doubled"
            last = step.t
        assert not problem
    except StreamPCAError as error:
        again = told(error)
        assert again == problem, f"{problem!r} the first time, {again!r} the second"
    assert fed.t == rows, f"{rows} rows were read, {fed.t} arrived"


def opened(read: Callable[[], RowSource], data: bytes) -> None:
    try:
        source = read()
    except StreamPCAError as error:
        told(error, data)
    else:
        if getattr(source, "n_rows", 0) < 2**20:
            feed(source, data)


def csv(data: bytes) -> None:
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
    options: dict[str, Any] = {
        "header": (None, True, False)[choice % 3] if choice & 8 else None,
        "quoting": "none" if choice & 12 == 12 else "csv",
        "encoding": "utf-16" if choice & 224 == 224 else "utf-8",
    }
    opened(lambda: from_csv(FILE, **options, chunk_rows=1 + (choice >> 5), max_bytes=2**16, columns="all"), body)


def ndjson(data: bytes) -> None:
    choice, body = (data[0], data[1:]) if data else (0, b"")
    FILE.write_bytes(gzip.compress(body, 1) if choice & 3 == 1 else body)
    options: dict[str, Any] = {"columns": ("a", "b") if choice & 4 else None}
    opened(lambda: from_ndjson(FILE, **options, chunk_rows=1 + (choice >> 5), max_bytes=2**16), body)


def releases(data: bytes) -> None:
    FILE.write_bytes(data)
    made = []
    try:
        for release in read_releases(FILE):
            made.append(release)
            text = release.to_json()
            assert Release.from_json(text).to_json() == text
            with contextlib.suppress(StreamPCAError):
                assert release.subspace.basis.shape[0] == release.n_features
    except StreamPCAError as error:
        told(error, data)
    if not zlib.crc32(data) & 7:
        with contextlib.suppress(StreamPCAError):
            assert len(list(read_releases(FILE))) >= len(made)


def parquet(data: bytes) -> None:
    if len(data) < 2:
        return
    FILE.write_bytes(_damaged(_FILES[data[0] % len(_FILES)], data) if data[0] < 250 else data[1:])
    opened(lambda: from_parquet(FILE if data[1] & 1 else "raise", chunk_rows=1 + data[1] % 5), data)


def _column_files() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = pa.table({"a": [1.0, 2.5, -3.0], "b": [4, 5, 6]})
    nulls = pa.table({"a": [1.0, None, math.nan], "b": [True, False, None]})
    text = pa.table({"a": list(range(40)), "b": ["x"] * 40})
    types = [pa.int8(), pa.uint64(), pa.float32(), pa.float16(), pa.decimal128(21, 2), pa.timestamp("us"), pa.bool_()]
    mixed = pa.table({f"c{at}": pa.array([0, 1, None, 1] * 5).cast(kind) for at, kind in enumerate(types)})
    nested = pa.table({"a": [[1.0], [], None], "b": [{"x": 1}, {"x": 2}, None], "c": [1.0, 2.0, 3.0]})
    coded = pa.table({"a": pa.array([1.0, 2.0] * 30).dictionary_encode(), "b": [0.1 * at for at in range(60)]})
    wide = pa.table({f"c{at}": [float(at)] * 2 for at in range(60)})
    tables = (plain, nulls, text, mixed, nested, coded, wide)
    for table, options in itertools.product(
        tables,
        (
            {"compression": "none"},
            {"compression": "snappy", "data_page_version": "2.0", "use_dictionary": False},
            {"compression": "gzip", "row_group_size": 2, "write_page_index": True},
            {"compression": "zstd", "data_page_size": 16, "store_schema": False, "write_page_checksum": True},
        ),
    ):
        out = io.BytesIO()
        with contextlib.suppress(pa.ArrowException):  # no half floats there
            pq.write_table(table, out, **options)
            _FILES.append(out.getvalue())


_FILES: list[bytes] = []
_DEBIT = PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False)

#: Stores as they were closed, as a crash leaves them, and with statements of SQL run on them: folder, and the files by
#: their names. Ledgers in the same way.
_STORES: list[tuple[Path, dict[str, bytes]]] = []
_LEDGERS: list[bytes] = []
_BALANCE: list[Balance] = []
_RELEASES: list[tuple[int, bytes]] = []
_RECORDS: list[tuple[Callable[[bytes], object], bytes]] = []


def _made_stores() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2)) / 3.0
    for crashed in (False, True):
        folder = Path(tempfile.mkdtemp(dir=FOLDER))
        store = Store(folder / "run.db", commit_every=10, snapshot_every="1h")
        fed = Stream(
            PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=4), row_norm=1.0, seed=1, store=store
        )
        for start in range(0, 40, 10):
            fed.push_many(rows[start : start + 10])
        if not crashed:
            store.close()
        files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name[-3:] != "shm"}
        database = Database(str(folder / "run.db"), write=False)
        _RELEASES[:] = _bits(database)
        store.close()
        if not crashed:
            records = [record for (record,) in database.db.execute("SELECT record FROM releases")]
            _RECORDS.extend([(releases_of, records[0]), (_config_of, database.fact("config"))])
        database.close()
        _STORES.append((_own_folder(files), files))


def _own_folder(files: dict[str, bytes]) -> Path:
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder


def _edited(whole: bytes) -> Iterator[bytes]:
    path = Path(tempfile.mkdtemp(dir=FOLDER)) / "edited.db"

    def after(*statements: str) -> bytes:
        path.write_bytes(whole)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            for statement in statements:
                with contextlib.suppress(sqlite3.IntegrityError):
                    db.execute(statement)
        return path.read_bytes()

    path.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        columns = {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}
    yield after("PRAGMA user_version = 99")
    yield after("PRAGMA user_version = 1")
    for table in tables:
        first = columns[table][0]
        yield after(f"DELETE FROM {table}")
        for order in ("ASC", "DESC"):
            one = f"(SELECT {first} FROM {table} ORDER BY {first} {order} LIMIT 1)"
            yield after(f"DELETE FROM {table} WHERE {first} = {one}")
            for column in columns[table]:
                where = f"WHERE {first} = {one}"
                other = f"(SELECT {column} FROM {table} ORDER BY {first} LIMIT 1 OFFSET 1)"
                values = (other, "NULL", "0", "-1", "x'00'", "'x'", "1e999", f"{column} + 1", f"{column} || x'00'")
                for value in values:
                    yield after(f"UPDATE {table} SET {column} = {value} {where}")
        if not table.startswith("sqlite"):
            yield after(f"ALTER TABLE {table} RENAME TO other")
            yield after(f"ALTER TABLE {table} RENAME TO other", f"CREATE VIEW {table} AS SELECT * FROM other LIMIT 2")
            yield after(f"ALTER TABLE {table} RENAME COLUMN {columns[table][-1]} TO other")


def _bits(database: Database) -> list[tuple[int, bytes]]:
    return [(release.t, release.packed.tobytes()) for release in database.releases() if release.packed is not None]


def store_files(data: bytes) -> None:
    if len(data) < 2:
        return
    folder, whole = _STORES[data[0] % len(_STORES)]
    names = sorted(whole)
    name = names[data[1] % len(names)]
    path = folder / "run.db"
    path.with_name("run.db-shm").unlink(missing_ok=True)
    (folder / name).write_bytes(_damaged(whole[name], data))
    try:
        with contextlib.closing(Database(str(path), write=False)) as database:
            found = _bits(database)
        assert found == _RELEASES[: len(found)], "other releases than were stored"
        if check_witness(path).endswith("no commit is missing"):
            assert found == _RELEASES, "commits are gone, and the witness did not say so"
        if not zlib.crc32(data) & 7:
            verify(path)
    except StreamPCAError as error:
        told(error)
    finally:
        (folder / name).write_bytes(whole[name])


def _damaged(whole: bytes, data: bytes) -> bytes:
    body, places = bytearray(whole), _places(whole)
    head, unit = (32, 24 + _PAGE) if whole[:3] == b"\x37\x7f\x06" else (0, _PAGE if whole[:6] == b"SQLite" else 64)
    for at in range(2, len(data) - 5, 6):
        act, place, value = struct.unpack_from("<BIB", data, at)
        blocks = max(1, (len(body) - head) // unit)
        one, two = (head + unit * (number % blocks) for number in (place, place >> 8))
        if act >= 64:
            if places:
                spot = places[place % len(places)]
                if spot < len(body):
                    body[spot] = value
        elif act < 12:
            body[one : one + unit] = body[two : two + unit]
        elif act < 24:
            body[one : one + unit], body[two : two + unit] = body[two : two + unit], body[one : one + unit]
        elif act < 32:
            body[one : one + unit] = bytes(len(body[one : one + unit]))
        elif act < 40:
            del body[one : one + unit]
        elif act < 48:
            del body[one:]
        elif act < 56:
            del body[value * len(body) // 256 :]
        else:
            body[one:one] = body[two : two + unit]
    return bytes(body)


_WRITTEN: dict[int, list[int]] = {}


def _places(whole: bytes) -> list[int]:
    if id(whole) not in _WRITTEN:
        _WRITTEN[id(whole)] = np.flatnonzero(np.frombuffer(whole, np.uint8)).tolist()
    return _WRITTEN[id(whole)]


def ledger(data: bytes) -> None:
    if len(data) < 2:
        return
    path = FOLDER / "ledger.db"
    for ending in ("-wal", "-shm"):
        path.with_name("ledger.db" + ending).unlink(missing_ok=True)
    path.write_bytes(_damaged(_LEDGERS[data[0] % len(_LEDGERS)], data))
    try:
        with Ledger(path) as opened:
            assert opened.balance("rows") == _BALANCE[0], "another balance than was booked"
            assert all(balance.spent >= 0.0 for balance in opened.balances())
            opened.head("rows", "run")
            opened.debit("rows", _DEBIT, run="again")
    except StreamPCAError as error:
        told(error)


def records(data: bytes) -> None:
    if not data:
        return
    read, whole = _RECORDS[data[0] % len(_RECORDS)]
    try:
        read(_damaged(whole, data) if data[0] < 200 else data[1:])
    except StreamPCAError as error:
        told(error, data)


def _config_of(data: bytes) -> None:
    load(data)


def _key_of(data: bytes) -> None:
    path = FOLDER / "key"
    path.write_bytes(data)
    path.chmod(0o600)
    read_key(path, None)


def prepare(name: str = "") -> None:
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", StreamPCAWarning)
    if not _RECORDS:
        _made_once()
    if name == "parquet" and not _FILES:
        _column_files()
    if name == "store" and len(_STORES) == 2:
        for edited in list(_edited(_STORES[0][1]["run.db"])):
            files = {**_STORES[0][1], "run.db": edited}
            _STORES.append((_own_folder(files), files))
        _STORES.extend(_STORES[:2] * (len(_STORES) // 2))  # as often whole as edited
    if name == "ledger" and len(_LEDGERS) == 1:
        _LEDGERS.extend(list(_edited(_LEDGERS[0])))
        _LEDGERS.extend(_LEDGERS[:1] * len(_LEDGERS))


def _made_once() -> None:
    _made_stores()
    path = Path(tempfile.mkdtemp(dir=FOLDER)) / "ledger.db"
    with Ledger(path) as made:
        made.set_budget("rows", Budget(4.0, 1e-5))
        for run in "ab":
            made.debit("rows", _DEBIT, run=run)
        made.note("rows", "run", None, (7, "0" * 32))
        _BALANCE.append(made.balance("rows"))
    _LEDGERS.append(path.read_bytes())
    counts, fresh = [[0] * 5, 0, None, 0, 0, 0, None], [b"0" * 16]
    values = {"first": 1, "count": 3, "kind": "rows", "counts": counts, "fresh": fresh, "link": b"1"}
    entry = encode(values | {"rows": np.eye(3, 2)})
    _RECORDS.extend([(_key_of, _STORES[0][1]["run.db.key"]), (decode, entry), (entry_of, entry)])
    fed = Stream(_DEBIT, row_norm=1.0, seed=1, features=("a", "b"))
    steps = fed.push_many(np.random.default_rng(0).normal(size=(3, 2)) / 3.0)
    lines = [release.to_json() for release in steps.releases]
    head = Header(steps.releases[0].terms, {"k": 1}).to_json()
    short = [release.to_json(terms=False) for release in steps.releases]
    SEEDS["releases"] = ["\n".join([head, *lines, *short]).encode() + b"\n", lines[0].encode()]
    SHAPES["releases"] = releases_of_shape(SEEDS["releases"])
    SHAPES["records"] = records_of([whole for _, whole in _RECORDS])


TARGETS = {
    "csv": csv, "ndjson": ndjson, "parquet": parquet, "releases": releases,
    "store": store_files, "records": records, "ledger": ledger,
}  # fmt: skip

#: Inputs to start from.
SEEDS: dict[str, list[bytes]] = {
    "csv": [
        b"\x00a,b\n1,2\n3,4\n", b"\x01a,b\n1,2\n3,nan\n", b"\x02a\tb\n1e308,5e-324\n", b"\x10a,b\n,1\n2,\n",
        b"\x08" + b"1,2\r\n3,4\r5,6\n", b'\x00"a","b"\n"1","2"\n', b"\x00a,a\n1,2\n", b"\x00a,\xff\n1,2\n",
        b"\x00a,b\n1,2\x00\n", b"\xe0" + "a,b\n1,2\n".encode("utf-16"), b"\x00" + b"a" + b"," * 200 + b"\n",
        b"\x01" + b"a,b\n" + b"1,2\n" * 150, b"\x00a,b\n-0,+1\n0x1,1_0\n", b'\x00a,b\n"1\n",2\n3,4\n',
    ],
    "parquet": [*(bytes([kind, 0]) for kind in range(28)), b"\xfaPAR1", bytes([0, 0, 99, *range(11)])],
    "ndjson": [
        b'\x00{"a": 1, "b": 2.5}\n{"a": "3", "b": null}\n', b'\x0c{"b": 1, "a": true}\n\n[1]\n{"a": 1e999}\n',
        b'\x1c{"a": 1, "b": 2}\nx\n{"a": {"a": "' + b"x" * 200 + b'"}}\n',
        b'\x44{"a": "2020-01-01T00:00:00", "b": 1}\n', b'\x01{"a": 1, "' + b"b" * 200 + b'": "\\ud800\\n"}\n',
    ],
    "releases": [],
    "store": [bytes([kind, at, 99, *range(11)]) for kind in range(2) for at in range(5)],
    "records": [bytes([kind, 0, 99, *range(11)]) for kind in range(16)] + [b"\xff\x80", b"\xfa{}"],
    "ledger": [bytes([0, 0, 99, *range(11)]), b"\x00\x00", bytes([0, 0, 50, 0, 0, 0, 0, 128])],
}  # fmt: skip
