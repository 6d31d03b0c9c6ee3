"""Doors: every way in which a table's rows reach a stream, and what can be read behind it."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import os
import re
import sqlite3
import sys
import threading
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import edited
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from blind import watching
from edited import CHOSEN, NAMES, Edit, Table, Writer
from scipy import sparse

import streampca as sp
from streampca import readers
from streampca.errors import StreamPCAError
from streampca.pool import absorb_parquet
from streampca.river import PrivatePCA as RiverPCA
from streampca.sklearn import PrivatePCA as SklearnPCA
from streampca.sources import NumberedRows, csv_rows, from_csv, from_kafka, from_query, open_rows, text_files
from streampca.sources.csv_cells import CellParser
from streampca.store.store import Store
from streampca.stream.stream import Stream
from streampca.users import UserStream

EVERY = 6
ALGORITHM = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=EVERY)
CENTERED = ALGORITHM.centered()
OF_USERS = replace(ALGORITHM, horizon=1000, max_rows_per_user=1)
SEED = 5


@dataclass
class Outcome:
    """Outcome of a table.

    All that is public is in ``t``, ``releases`` (JSON) and ``said``. ``rows`` and ``gram`` are for the curator: the
    admitted rows, None if they were summed elsewhere, and their exact sum. ``code`` is the exit status of a command.
    """

    t: int = 0
    releases: list[str] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)
    rows: np.ndarray | None = None
    gram: tuple[np.ndarray, np.ndarray] | None = None
    problem: BaseException | None = None
    code: int | None = None


class Run:
    """A run at work: its stream, if it has one, and what is said."""

    def __init__(self, folder: Path, zero: bool) -> None:
        self.folder, self.zero = folder, zero
        self.mode = "zero" if zero else "raise"
        self.stream: Stream | None = None
        self.t: Callable[[], int] | None = None
        self.said: list[Any] = []
        self.code: int | None = None

    def streaming(self, features: Any = CHOSEN, *, center: bool = False, **options: Any) -> Stream:
        options = {"features": features, "on_bad_row": self.mode, "seed": SEED, "regret": None, **options}
        self.stream = Stream(CENTERED if center else ALGORITHM, **options)
        return self.stream

    def path(self, name: str, data: bytes = b"") -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path


Act = Callable[[Run, Table, Edit | None], None]


class Door(NamedTuple):
    """A way in: ``act`` feeds a table to a run, and ``edits`` draws an edit."""

    name: str
    act: Act
    edits: Callable[[Any], Edit]
    modes: tuple[str, ...] = ("zero", "raise")
    tables: dict[str, Table] = edited.TABLES
    weight: float = 1.0  # how often it is drawn
    by_row: bool = True  # whether all rows before a bad one are absorbed in raise mode; else at most those
    errors: tuple[type[Exception], ...] = (StreamPCAError,)  # of a bad row
    is_refused: bool = False  # the table is refused, in words that do not depend on a record

    def observe(self, folder: Path, mode: str, table: Table, edit: Edit | None) -> Outcome:
        """Run a table, edited or not."""
        run = Run(folder, mode == "zero")
        outcome = Outcome(said=run.said)
        with watching() as seen, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                self.act(run, table, edit)
            except Exception as problem:
                outcome.problem = problem
        # An interrupted run leaves resources to the collector.
        others = [one for one in warned if not issubclass(one.category, ResourceWarning)]
        run.said.append([f"{one.category.__name__}: {one.message}" for one in others])
        outcome.releases, outcome.code = seen.releases, run.code
        outcome.rows = None if seen.counts else seen.matrix()
        outcome.gram = None if seen.gram is None else seen.gram.high_low()
        if run.stream is not None:
            outcome.t = run.stream.t
            last = run.stream.release
            run.said.append((run.stream.features, run.stream.engine.now.due, last and last.to_json()))
        elif run.t is not None:
            outcome.t = run.t()
        else:
            outcome.t = len(seen.matrix()) + sum(seen.counts)
        return outcome


# -- text ---------------------------------------------------------------------------


class _Dribble(io.RawIOBase):
    """A stream that has a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._size if self._at < 4096 else 2**16)
        part = self._data[self._at : self._at + size]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


class NoMore(Exception):  # noqa: N818
    """In place of waiting at the end of a file that is followed."""


@contextmanager
def _pipe(path: Path, data: bytes) -> Iterator[Path]:
    path.unlink(missing_ok=True)
    os.mkfifo(path)

    def write() -> None:
        try:
            with path.open("wb") as file:
                file.write(data)
        except OSError:  # the reader is gone
            pass

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield path
    finally:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb"):  # releases a writer without a reader
            pass
        writer.join()
        path.unlink()


@contextmanager
def opened(run: Run, way: str, name: str, parts: list[bytes], headed: bool) -> Iterator[Any]:
    """The text as something that can be opened."""
    data = b"".join(parts)
    if way == "bytes":
        yield io.BytesIO(data)
    elif way.startswith("dribble"):
        yield io.BufferedReader(_Dribble(data, int(way.removeprefix("dribble"))), 16)
    elif way == "gz":
        yield run.path(f"{name}.gz", gzip.compress(data, 1, mtime=0))
    elif way == "gz stream":
        yield io.BytesIO(gzip.compress(data, 1, mtime=0))
    elif way == "zip":
        with zipfile.ZipFile(run.folder / f"{name}.zip", "w") as archive:
            archive.writestr(name, data)
        yield run.folder / f"{name}.zip"
    elif way == "pipe":
        with _pipe(run.folder / f"pipe-{name}", data) as path:
            yield path
    elif way == "files":
        half, head = len(parts) // 2, parts[:1] if headed else []
        run.path(f"part1-{name}", b"".join(parts[:half]))
        run.path(f"part2-{name}", b"".join(head + parts[half:]))
        yield str(run.folder / f"part*-{name}")
    elif way == "small":
        with mock.patch.object(csv_rows, "_BLOCK", 301):
            yield run.path(name, data)
    elif way == "without pyarrow":
        with mock.patch.object(CellParser, "_by_arrow", CellParser._by_python):
            yield run.path(name, data)
    elif way == "follow":
        with mock.patch.object(text_files.time, "sleep", side_effect=NoMore):
            yield run.path(name, data)
    else:
        yield run.path(name, data)


def feed(run: Run, source: Any, way: str, *, center: bool = False) -> None:
    """Feed a source to a stream."""
    if way == "run":
        for _ in run.streaming(None, center=center).run(source):
            pass
    elif way == "arun":

        async def all_of_it() -> None:
            async for _ in run.streaming(None, center=center).arun(source):
                pass

        asyncio.run(all_of_it())
    elif way == "blocks":
        stream = run.streaming(source.features, center=center, bounds=source.bounds)
        for block in source.blocks():
            stream.push_many(block)
    elif way == "rows":
        stream = run.streaming(source.features, center=center, bounds=source.bounds)
        for row in source:
            stream.push(row)
    elif way == "numbered":
        for _ in run.streaming(None, center=center).run(NumberedRows(source, "numbered")):
            pass
    elif way == "store":
        for path in run.folder.glob("run.db*"):
            path.unlink()
        with Store(run.folder / "run.db", commit_every=4) as store:
            for _ in run.streaming(None, center=center, store=store).run(NumberedRows(source, "numbered")):
                pass
            run.said.append([release.to_json() for release in store.releases()])
    elif way == "readers":
        stream = run.streaming(source.features, center=center, bounds=source.bounds)
        stream.engine.adopt(source)
        packed = list(readers.reader_blocks(stream.leaves(), source.blocks(), reader=0, rows=EVERY))
        folder = run.folder / "blocks"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        if packed:
            readers.write_blocks(folder, "reader-0", packed)
        for _ in readers.collect(stream, readers.BlockFolder(folder), readers=1, rows=EVERY):
            pass
    else:
        raise ValueError(way)


def text_door(
    name: str, writer: Writer, opening: str = "bytes", feeding: str = "run", *, open_as: str = "", center: bool = False,
    options: dict[str, Any] | None = None, edits: Any = edited.edit_of_text, **more: Any,
) -> Door:  # fmt: skip
    chosen = {"columns": list(CHOSEN), **(options or {})}
    if not writer.header:
        chosen.setdefault("names", list(NAMES))
    if writer.delimiter != "," and not open_as:
        chosen.setdefault("delimiter", writer.delimiter)
    if writer.encoding != "utf-8":
        chosen.setdefault("encoding", writer.encoding)
    if writer.quoting is None:
        chosen["quoting"] = "none"
    more.setdefault("tables", edited.LINE_TABLES if writer.quoting is None else edited.TABLES)

    def act(run: Run, table: Table, edit: Edit | None) -> None:
        parts = writer.parts(table, edit)
        with opened(run, opening, f"rows.{open_as or 'csv'}", parts, writer.header) as path:
            if opening == "files" or open_as or opening == "follow":
                source: Any = open_rows(path, on_bad_row=run.mode, follow=opening == "follow", **chosen)
            else:
                source = from_csv(path, on_bad_row=run.mode, **chosen)
            run.said.append((source.features, None if source.bounds is None else source.bounds[0].tolist()))
            with suppress(NoMore):
                feed(run, source, feeding, center=center)

    more.setdefault("by_row", feeding not in ("blocks", "readers"))
    return Door(f"{name}, {opening}, {feeding}", act, edits, **more)


def json_door(opening: str = "bytes", feeding: str = "run", **options: Any) -> Door:
    def act(run: Run, table: Table, edit: Edit | None) -> None:
        with opened(run, opening, "rows.jsonl", edited.json_lines(table, edit), False) as path:
            follow = {"follow": True} if opening == "follow" else {}
            source = open_rows(path, format="ndjson", columns=list(CHOSEN), on_bad_row=run.mode, **follow, **options)
            with suppress(NoMore):
                feed(run, source, feeding)

    return Door(
        f"NDJSON, {opening}, {feeding}", act, edited.edit_of_json, tables=edited.LINE_TABLES, by_row=feeding != "blocks"
    )


def text_doors() -> Iterator[Door]:
    plain, lines = Writer(), Writer(quoting=None)
    crlf, whole = Writer(end="\r\n"), Writer(csv.QUOTE_ALL)
    numeric = Writer(csv.QUOTE_NONNUMERIC, end="\r\n")
    bare = Writer(header=False)
    yield text_door("CSV", plain, weight=3.0)
    yield text_door("CSV", plain, "path", "blocks", center=True)
    yield text_door("CSV", plain, "dribble397", "rows", weight=2.0)
    yield text_door("CSV", plain, "small")
    yield text_door("CSV, CRLF", crlf, "dribble211", "run")
    yield text_door("CSV, CRLF", crlf, "small", "blocks")
    yield text_door("CSV, all quoted", whole, "dribble1", weight=0.05)
    yield text_door("CSV, all quoted", whole, "dribble307")
    yield text_door("CSV, all quoted, CRLF", Writer(csv.QUOTE_ALL, end="\r\n", final=False), "small", "rows")
    yield text_door("CSV, text quoted, CRLF", numeric, "bytes", "numbered")
    yield text_door("CSV", plain, "without pyarrow")
    yield text_door("CSV, all quoted", whole, "without pyarrow", "rows", weight=0.5)
    yield text_door("CSV, no last end", Writer(final=False), "bytes", "run")
    yield text_door("CSV, positions", plain, "bytes", "run", options={"columns": [5, 1, 3]})
    yield text_door("CSV, chunks", whole, "path", "run", options={"chunk_rows": 1})
    yield text_door(
        "CSV, bounds", plain, "bytes", "run", options={"bounds": dict.fromkeys(CHOSEN, (-1.0, 2.0))}, center=True
    )
    yield text_door("CSV, missing", plain, "bytes", "run", options={"missing": "nan", "na": ["?", "999"]})
    yield text_door("CSV, names", bare, "bytes", "run", weight=2.0)
    yield text_door("CSV, names", bare, "dribble251", "rows")
    yield text_door("CSV, names, path", Writer(header=False, end="\r\n"), "path", "run")
    yield text_door("CSV, semicolons", Writer(delimiter=";"), "bytes", "run", options={"delimiter": None})
    yield text_door("CSV, tabs", Writer(delimiter="\t"), "path", "run", open_as="tsv")
    yield text_door("CSV, spaces", Writer(csv.QUOTE_ALL, delimiter=" "), "bytes", "run")
    for opening in ("gz", "gz stream", "zip", "pipe", "files", "follow"):
        yield text_door("CSV", Writer(end="\r\n") if opening == "pipe" else plain, opening, weight=0.5)
    yield text_door("CSV, names", bare, "files", weight=0.5)
    yield text_door("CSV", plain, "bytes", "arun", weight=0.3)
    yield text_door("CSV", plain, "bytes", "readers", weight=0.3)
    yield text_door("CSV", plain, "bytes", "store", weight=0.02)
    for encoding in [
        "utf-8-sig",
        "latin-1",
        "cp1252",
        "shift_jis",
        "gb18030",
        "cp037",
        "utf-16",
        "utf-16-le",
        "utf-32",
    ]:
        yield text_door(f"CSV, {encoding}", Writer(encoding=encoding), "dribble251", weight=0.4, by_row=False)
    yield text_door("lines", lines, weight=2.0, edits=edited.edit_of_line)
    yield text_door("lines", Writer(None, end="\r\n"), "dribble307", "rows", edits=edited.edit_of_line)
    yield text_door("lines, names", Writer(None, header=False), "small", edits=edited.edit_of_line)
    yield text_door("lines, names", Writer(None, header=False), "path", "blocks", edits=edited.edit_of_line)
    yield text_door("lines", lines, "gz", weight=0.5, edits=edited.edit_of_line)
    yield text_door("lines", lines, "follow", weight=0.5, edits=edited.edit_of_line)
    yield json_door()
    yield json_door("dribble397", "rows")
    yield json_door("path", "blocks", chunk_rows=3)
    yield json_door("gz")
    yield json_door("follow")
    yield headless_door()


def headless_door() -> Door:
    writer = Writer(header=False)

    def edits(rng: Any) -> Edit:
        return Edit(0, {rng.choice(NAMES): edited.text(rng)})

    options = {"columns": [1, 3, 5], "names": None}
    return text_door("CSV, headless", writer, options=options, edits=edits, is_refused=True, weight=0.5)


# -- typed columns ------------------------------------------------------------------


def columns_of(table: Table, edit: Edit | None, names: tuple[str, ...] = NAMES) -> dict[str, list[Any]]:
    records = [
        (edit if edit is not None and at == edit.at else Edit(at)).mapping(table) for at in range(len(table.records))
    ]
    return {name: [record[name] for record in records] for name in names}


def arrow(table: Table, edit: Edit | None, names: tuple[str, ...] = NAMES) -> pa.Table:
    kinds = {name: pa.float64() if name in CHOSEN else pa.string() for name in names}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns_of(table, edit, names).items()})


def _parquet(run: Run, table: Table, edit: Edit | None, center: bool = False) -> None:
    path = run.folder / "rows.parquet"
    pq.write_table(arrow(table, edit), path, row_group_size=7)
    feed(run, open_rows(path, columns=list(CHOSEN), on_bad_row=run.mode), "run", center=center)


def _pool(run: Run, table: Table, edit: Edit | None) -> None:
    path = run.folder / "rows.parquet"
    pq.write_table(arrow(table, edit), path, row_group_size=7)
    for _ in absorb_parquet(run.streaming(), path, processes=1):
        pass


def _feather(run: Run, table: Table, edit: Edit | None, *, stream: bool) -> None:
    made, rows = io.BytesIO(), arrow(table, edit)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(made, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)
    given: Any = io.BytesIO(made.getvalue()) if stream else run.path("rows.arrow", made.getvalue())
    feed(run, open_rows(given, format="arrow", columns=list(CHOSEN), on_bad_row=run.mode), "run")


def _arrow_run(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    rows: Any = arrow(table, edit, CHOSEN)
    if way == "reader":
        rows = rows.to_reader(max_chunksize=7)
    elif way == "batch":
        rows = rows.combine_chunks().to_batches()[0]
    elif way == "integers":
        rows = rows.cast(
            pa.schema([(name, pa.decimal128(38, 9) if name == "a" else pa.float32()) for name in CHOSEN]), safe=False
        )
    _push_table(run, rows, way)


def _push_table(run: Run, rows: Any, way: str) -> None:
    stream = run.streaming()
    if way == "push":
        stream.push_many(rows)
    else:
        for _ in stream.run(rows):
            pass


def _pandas(run: Run, table: Table, edit: Edit | None, *, kind: str, way: str = "push") -> None:
    columns = {} if kind == "read_csv" else columns_of(table, edit, CHOSEN)
    if kind == "read_csv":
        data = b"".join(Writer(csv.QUOTE_ALL).parts(table, edit))
        frame = pd.read_csv(io.BytesIO(data), usecols=list(CHOSEN), encoding_errors="replace")[list(CHOSEN)]
    elif kind == "inferred":
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    elif kind == "records":
        records = [dict(zip(CHOSEN, record, strict=True)) for record in zip(*columns.values(), strict=True)]
        frame = pd.DataFrame(records, columns=list(CHOSEN))
    elif kind == "object":
        frame = pd.DataFrame(columns, dtype=object)
    else:
        with np.errstate(over="ignore"):
            frame = pd.DataFrame({name: pd.Series(values, dtype=kind) for name, values in columns.items()})
    _push_table(run, frame, way)


def _polars(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    frame = pl.DataFrame(columns_of(table, edit, CHOSEN), schema=dict.fromkeys(CHOSEN, pl.Float64), strict=False)
    _push_table(run, frame, way)


def _sparse(run: Run, table: Table, edit: Edit | None) -> None:
    columns = columns_of(table, edit, CHOSEN)
    matrix = np.array([[np.nan if one is None else one for one in column] for column in columns.values()]).T
    _push_table(run, sparse.csr_matrix(matrix), "run")


# -- databases and topics -----------------------------------------------------------


class _Kept(sqlite3.Connection):
    """A database in memory that outlives the source's connections."""

    def close(self) -> None:
        pass


def _sqlite(run: Run, table: Table, edit: Edit | None, *, size: int) -> None:
    database = sqlite3.connect(":memory:", factory=_Kept)
    try:
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, " + ", ".join(f'"{name}"' for name in NAMES) + ")")
        columns = columns_of(table, edit)
        content = [
            [_storable(one) for one in record]
            for record in zip(range(len(table.records)), *columns.values(), strict=True)
        ]
        database.executemany(f"INSERT INTO rows VALUES (?{', ?' * len(NAMES)})", content)
        source = from_query(
            lambda: database, "SELECT * FROM rows", "id", columns=list(CHOSEN), on_bad_row=run.mode, chunk_rows=size
        )
        feed(run, source, "run")
    finally:
        sqlite3.Connection.close(database)


def _storable(content: Any) -> Any:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) and not content.isascii() else content


class _Message(NamedTuple):
    content: bytes | None
    where: tuple[int, int]

    def value(self) -> bytes | None:
        return self.content

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self.where[0]

    def offset(self) -> int:
        return self.where[1]


class _Topic:
    """What `KafkaRows` asks of a consumer, of messages in a list for each partition."""

    parts: tuple[list[_Message], ...] = ()

    def __init__(self, _config: Any) -> None:
        self._next: list[_Message] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = types.SimpleNamespace(error=None, partitions=dict(enumerate(self.parts)))
        return types.SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, len(self.parts[partition.partition])

    def assign(self, partitions: list[Any]) -> None:
        self._next = [message for one in partitions for message in self.parts[one.partition][one.offset :]]

    def poll(self, timeout: float) -> _Message | None:
        return self._next.pop(0) if self._next else None

    def consume(self, count: int, timeout: float) -> list[_Message]:
        taken, self._next = self._next[:count], self._next[count:]
        return taken

    def pause(self, partitions: list[Any]) -> None:
        pass

    resume = pause

    def close(self) -> None:
        pass


class _Partition(NamedTuple):
    topic: str
    partition: int
    offset: int = 0


_CLIENT = types.SimpleNamespace(Consumer=_Topic, TopicPartition=_Partition, KafkaException=RuntimeError)


def _kafka(run: Run, table: Table, edit: Edit | None) -> None:
    values = [line.removesuffix(b"\n") for line in edited.json_lines(table, edit)]
    if edit is not None and edit.whole == (b"",):
        values[edit.at] = None  # type: ignore[call-overload]  # a tombstone
    turns: tuple[list[Any], list[Any]] = [], []  # so that the order of the stream is that of the table
    for at, value in enumerate(values):
        turns[at // 3 % 2].append(value)
    parts = tuple([_Message(value, (p, at)) for at, value in enumerate(turn)] for p, turn in enumerate(turns))
    with mock.patch.dict(sys.modules, confluent_kafka=_CLIENT), mock.patch.object(_Topic, "parts", parts):
        source = from_kafka("t", "g", servers="s", features=CHOSEN, on_bad_row=run.mode, turn=3)
        feed(run, source, "run")


# -- records in Python --------------------------------------------------------------


def records_of(table: Table, edit: Edit | None, way: str) -> list[Any]:
    """The records as objects of one kind."""
    made: list[Any] = []
    for at in range(len(table.records)):
        one = edit if edit is not None and at == edit.at else Edit(at)
        if one.whole:
            made.append(one.whole[0])
            continue
        record = one.mapping(table)
        if way == "mapping":  # a stream takes its own features, all and no others
            names = (*CHOSEN, *(name for name in record if name.startswith("extra")))
            made.append({name: record[name] for name in names if name in record})
        elif way == "all":
            made.append(record)
        else:
            cells = [record[name] for name in CHOSEN if name in record] + list(one.extra)
            made.append(tuple(cells) if way == "tuple" else cells)
    return made


def _python(run: Run, table: Table, edit: Edit | None, *, kind: str, way: str, **options: Any) -> None:
    records, stream = records_of(table, edit, kind), run.streaming(**options)
    if way == "push":
        for record in records:
            stream.push(record)
    elif way == "push_many":
        stream.push_many(records)
    elif way == "iterator":
        stream.push_many(iter(records))
    elif way == "targets":
        for _ in stream.run([(record, 1) if isinstance(record, dict) else record for record in records]):
            pass
    else:
        for _ in stream.run(records):
            pass


def _arrays(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    columns = columns_of(table, edit, CHOSEN)
    if way == "object":
        run.streaming().push_many(np.array(list(columns.values()), dtype=object).T)
        return
    rows = np.array([[np.nan if one is None else one for one in column] for column in columns.values()]).T
    if way == "masked":
        given: Any = np.ma.masked_invalid(rows)
    else:
        given = np.asfortranarray(rows) if way == "fortran" else rows
    _push_table(run, given, "push" if way != "run" else "run")


def _users(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    users, records = [at // 2 for at in range(len(table.records))], records_of(table, edit, "list")
    stream = UserStream(OF_USERS, features=CHOSEN, on_bad_row=run.mode, seed=SEED, regret=None)
    run.stream = stream.stream
    if way == "push":
        for user, record in zip(users, records, strict=True):
            stream.push(record, user)
    else:
        stream.push_many(records, users)


def _river(run: Run, table: Table, edit: Edit | None, *, way: str, kind: str = "all", **options: Any) -> None:
    model = RiverPCA(
        n_components=1, features=CHOSEN, on_bad_row=run.mode, seed=SEED, release_every=EVERY, center=way == "many",
        **options,
    )  # fmt: skip
    run.t = lambda: model.t
    if way == "one":
        for record in records_of(table, edit, kind):
            model.learn_one(record)
    else:
        columns = columns_of(table, edit)
        for start in range(0, len(table.records), 5):
            model.learn_many(pd.DataFrame({name: pd.Series(v[start : start + 5]) for name, v in columns.items()}))
    run.said.append((model.t, repr(model), model.components.to_json(), model.explained_variance_ratio.to_json()))


def _sklearn(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    columns = columns_of(table, edit, CHOSEN)
    model = SklearnPCA(n_components=1, row_norm=1.0, random_state=SEED)
    frame: Any = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if way == "fit":
        model.fit(frame)
    else:
        for start in range(0, len(table.records), EVERY):
            model.partial_fit(frame.iloc[start : start + EVERY])
    run.said.append({name: repr(value) for name, value in vars(model).items() if name.endswith("_")})


def object_doors() -> Iterator[Door]:
    clean = {"plain": edited.TABLES["plain"]}
    typed: dict[str, Any] = {"tables": clean, "edits": edited.edit_of_floats}
    for name, act in {
        "Parquet": _parquet,
        "Parquet, centered": partial(_parquet, center=True),
        "Parquet, pool": _pool,
        "Feather": partial(_feather, stream=False),
        "Arrow stream": partial(_feather, stream=True),
        "scipy sparse": _sparse,
        **{f"Arrow, {way}": partial(_arrow_run, way=way) for way in ("push", "run", "reader", "batch")},
        **{f"polars, {way}": partial(_polars, way=way) for way in ("push", "run")},
        **{f"pandas {kind}, {way}": partial(_pandas, kind=kind, way=way)
           for kind in ("float64", "Float64", "float32", "double[pyarrow]") for way in ("push", "run")},
        **{f"array, {way}": partial(_arrays, way=way) for way in ("push", "run", "masked", "fortran")},
    }.items():  # fmt: skip
        yield Door(name, act, weight=0.6, by_row="run" in name and "polars" not in name, **typed)
    whole = {"tables": clean, "edits": _edit_of_columns, "by_row": False}
    for kind in ("inferred", "records", "object"):
        for way in ("push", "run"):
            yield Door(f"pandas {kind}, {way}", partial(_pandas, kind=kind, way=way), weight=0.5, **whole)
    text = {"tables": clean, "edits": _edit_of_chosen_text, "by_row": False}
    yield Door("pandas read_csv, push", partial(_pandas, kind="read_csv"), weight=0.7, **text)
    yield Door("array of objects", partial(_arrays, way="object"), weight=0.5, **whole)
    yield Door("river, learn_many", partial(_river, way="many"), weight=0.3, **whole)
    for size in (3, 8192):
        yield Door(f"SQLite, pages of {size}", partial(_sqlite, size=size), edited.edit_of_cells, tables=clean)
    yield Door("Kafka", _kafka, edited.edit_of_json, tables=edited.LINE_TABLES, weight=2.0)
    for kind in ("mapping", "tuple", "list"):
        for way in ("push", "push_many", "run", "iterator"):
            act = partial(_python, kind=kind, way=way, center=way == "run")
            by_row = way in ("push", "run")
            yield Door(f"{kind}, {way}", act, edited.edit_of_object, tables=clean, weight=1.2, by_row=by_row)
    private = {"bounds": "private", "warmup": 4}
    for way in ("push", "push_many"):
        act = partial(_python, kind="list", way=way, **private)
        yield Door(f"private bounds, {way}", act, edited.edit_of_object, tables=clean, by_row=way == "push")
    yield Door("users, push", partial(_users, way="push"), edited.edit_of_object, tables=clean, weight=0.5)
    yield Door(
        "users, push_many", partial(_users, way="many"), edited.edit_of_object, tables=clean, weight=0.5, by_row=False
    )
    yield Door("mapping, targets", partial(_python, kind="mapping", way="targets"), edited.edit_of_object, tables=clean)
    yield Door("river, learn_one", partial(_river, way="one"), edited.edit_of_object, tables=clean, weight=0.7)
    strict = partial(_river, way="one", kind="mapping", on_unseen="raise", on_missing="raise")
    yield Door("river, strict", strict, edited.edit_of_object, tables=clean, weight=0.5)
    for way in ("fit", "partial_fit"):
        yield Door(
            f"scikit-learn, {way}", partial(_sklearn, way=way), _edit_of_columns, ("raise",), clean, 0.1, False,
            (ValueError, TypeError, OverflowError),
        )  # fmt: skip


def _edit_of_chosen_text(rng: Any) -> Edit:
    edit = edited.edit_of_text(rng)
    return Edit(edit.at, {name: content for name, content in edit.cells.items() if name in CHOSEN})


def _edit_of_columns(rng: Any) -> Edit:
    edit = edited.edit_of_object(rng)
    return Edit(edit.at, {name: edited.encodable(content) for name, content in edit.cells.items()})


# -- the command line ---------------------------------------------------------------

#: Lines of progress depend on the clock; only the last one is certain.
_PROGRESS = re.compile(r"^\d+ rows, \d+ releases, \d+\.\d s\n(?=(.*\n)*\d+ rows, )", re.MULTILINE)
_SECONDS = re.compile(r"\d+\.\d s\b")


def timeless(said: str) -> str:
    return _SECONDS.sub("- s", _PROGRESS.sub("", said))


class _Stdin(io.TextIOWrapper):
    pass


def command(run: Run, words: list[str], data: bytes | None = None, *, then: list[str] | None = None) -> None:
    """One command in this process, and another: exit status, standard output and error, publishable files."""
    from streampca.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = {path.name for path in run.folder.iterdir()}
    given = _Stdin(io.BytesIO(data or b""))
    with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "stdin", given):
        run.code = main(words)
        if then is not None and not run.code:
            run.code = main(then)
    made = sorted(path for path in run.folder.iterdir() if path.name not in before)
    files = {path.name: path.read_bytes() for path in made if path.suffix == ".jsonl"}
    for path in made:
        path.unlink()
    run.said += [out.getvalue(), timeless(err.getvalue()), files]


_MODEL = ["-k", "1", "--epsilon", "1", "--delta", "1e-6", "--row-norm", "1", "--seed", str(SEED)]
#: Of each command, after the file.
WORDS = {"run": [*_MODEL, "--release-every", str(EVERY), "--no-live"], "release": [*_MODEL, "--mechanism", "gaussian"]}


def cli_door(
    name: str, file: str, write: Callable[[Table, Edit | None], bytes], *words: str, verb: str = "run", **more: Any
) -> Door:  # fmt: skip
    """A door of ``streampca run`` or ``release``."""

    def act(run: Run, table: Table, edit: Edit | None) -> None:
        data = write(table, edit)
        out = run.folder / "releases.jsonl"
        path = "-" if file == "-" else str(run.path(file, data))
        for old in run.folder.glob("run.db*"):
            old.unlink()
        words_ = [verb, path, *WORDS[verb], "--on-bad-row", run.mode, "--out", str(out), *words]
        database, then = str(run.folder / "run.db"), None
        if "--store" in words:
            then = ["export", database, "--out", str(run.folder / "exported.jsonl")]
        command(run, [word.replace("FOLDER", str(run.folder)) for word in words_], data, then=then)

    more.setdefault("weight", 0.03)
    return Door(f"command, {name}", act, **more)


def cli_doors() -> Iterator[Door]:
    """Doors of the command line, in this process."""

    def text(writer: Writer) -> Callable[[Table, Edit | None], bytes]:
        return lambda table, edit: b"".join(writer.parts(table, edit))

    def parquet(table: Table, edit: Edit | None) -> bytes:
        made = io.BytesIO()
        pq.write_table(arrow(table, edit), made, row_group_size=7)
        return made.getvalue()

    columns = ("--columns", ",".join(CHOSEN))
    csv_: dict[str, Any] = {"edits": edited.edit_of_text}
    lines: dict[str, Any] = {"edits": edited.edit_of_line, "tables": edited.LINE_TABLES}
    yield cli_door("CSV", "rows.csv", text(Writer()), *columns, **csv_)
    yield cli_door("CSV, CRLF", "rows.csv", text(Writer(csv.QUOTE_ALL, end="\r\n")), "--columns", "6,2,4", **csv_)
    yield cli_door("standard input", "-", text(Writer()), *columns, **csv_)
    yield cli_door(
        "names", "rows.csv", text(Writer(header=False)), "--read", f"names={','.join(NAMES)}", *columns, **csv_
    )
    yield cli_door("release", "rows.csv", text(Writer()), *columns, verb="release", by_row=False, **csv_)
    yield cli_door("store", "rows.csv", text(Writer()), *columns, "--store", "FOLDER/run.db", weight=0.02, **csv_)
    yield cli_door("bounds", "rows.csv", text(Writer()), *columns, "--bounds=-2:2", **csv_)
    yield cli_door(
        "private regret", "rows.csv", text(Writer()), *columns, "--private-regret", "FOLDER/regret.jsonl",
        "--set", "regret.every=5", **csv_,
    )  # fmt: skip
    yield cli_door("lines", "rows.csv", text(Writer(None)), *columns, "--read", "quoting=none", **lines)
    yield cli_door("NDJSON", "rows.jsonl", lambda table, edit: b"".join(edited.json_lines(table, edit)), *columns,
                   edits=edited.edit_of_json, tables=edited.LINE_TABLES)  # fmt: skip
    yield cli_door("Parquet", "rows.parquet", parquet, *columns, edits=edited.edit_of_floats,
                   tables={"plain": edited.TABLES["plain"]})  # fmt: skip


DOORS = (*text_doors(), *object_doors(), *cli_doors())
