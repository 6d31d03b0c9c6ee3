"""Doors: every way in which a table's rows reach a stream, and what can be read behind it."""

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
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
from streampca.river import PrivatePCA as RiverPCA
from streampca.sklearn import PrivatePCA as SklearnPCA
from streampca.sources import NumberedRows, csv_rows, from_csv, from_kafka, from_query, open_rows, text_files
from streampca.sources.csv_cells import CellParser

EVERY = 6
ALGORITHM = sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=EVERY)
CENTERED = replace(ALGORITHM, center=True)
OF_PEOPLE = replace(ALGORITHM, horizon=1000, unit=sp.Person())
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream: sp.Stream | None = None
        self.t: Callable[[], int] | None = None
        self.said: list[Any] = []
        self.code: int | None = None

    def streaming(self, features: Any = CHOSEN, *, center: bool = False, **options: Any) -> sp.Stream:
        options = {"features": features, "seed": SEED, "regret": None, **options}
        if options.get("bounds") is None:
            options["row_norm"] = 1.0
        self.stream = sp.Stream(CENTERED if center else ALGORITHM, **options)
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
    tables: dict[str, Table] = edited.TABLES
    weight: float = 1.0  # how often it is drawn
    is_refused: bool = False  # the table is refused, in words that do not depend on a record

    def observe(self, folder: Path, table: Table, edit: Edit | None) -> Outcome:
        """Run a table, edited or not."""
        run = Run(folder)
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
    else:
        patches: dict[str, Any] = {
            "small": partial(mock.patch.object, csv_rows, "_BLOCK", 301),
            "without pyarrow": partial(mock.patch.object, CellParser, "parse", return_value=None),
            "follow": partial(mock.patch.object, text_files.time, "sleep", side_effect=NoMore),
            "path": nullcontext,
        }
        with patches[way]():
            yield run.path(name, data)


def drain(steps: Iterable[Any]) -> None:
    deque(steps, maxlen=0)


def feed(run: Run, source: Any, way: str, *, center: bool = False) -> None:
    """Feed a source to a stream."""
    if way in ("blocks", "rows", "readers"):
        stream = run.streaming(source.features, center=center, bounds=source.bounds)
        if way == "rows":
            drain(map(stream.push, source))
        elif way == "blocks":
            drain(map(stream.push_many, source.blocks()))
        else:
            stream.engine.adopt(source)
            packed = list(readers.reader_blocks(stream.leaves(), source.blocks(), reader=0, rows=EVERY))
            with TemporaryDirectory(dir=run.folder) as folder:
                if packed:
                    readers.write_blocks(folder, "reader-0", packed)
                drain(readers.collect(stream, readers.BlockFolder(folder), readers=1, rows=EVERY))
    elif way == "run":
        drain(run.streaming(None, center=center).run(source))
    elif way == "numbered":
        drain(run.streaming(None, center=center).run(NumberedRows(source, "numbered")))
    elif way == "arun":

        async def all_of_it() -> None:
            async for _ in run.streaming(None, center=center).arun(source):
                pass

        asyncio.run(all_of_it())
    else:
        assert way == "store"
        for path in run.folder.glob("run.db*"):
            path.unlink()
        with sp.Store(run.folder / "run.db", commit_every=4) as store:
            drain(run.streaming(None, center=center, store=store).run(NumberedRows(source, "numbered")))
            run.said.append([release.to_json() for release in store.releases()])


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
                source: Any = open_rows(path, follow=opening == "follow", **chosen)
            else:
                source = from_csv(path, **chosen)
            run.said.append((source.features, None if source.bounds is None else source.bounds[0].tolist()))
            with suppress(NoMore):
                feed(run, source, feeding, center=center)

    return Door(f"{name}, {opening}, {feeding}", act, edits, **more)


def json_door(opening: str = "bytes", feeding: str = "run", **options: Any) -> Door:
    def act(run: Run, table: Table, edit: Edit | None) -> None:
        with opened(run, opening, "rows.jsonl", edited.json_lines(table, edit), False) as path:
            follow = {"follow": True} if opening == "follow" else {}
            source = open_rows(path, format="ndjson", columns=list(CHOSEN), **follow, **options)
            with suppress(NoMore):
                feed(run, source, feeding)

    return Door(f"NDJSON, {opening}, {feeding}", act, edited.edit_of_json, tables=edited.LINE_TABLES)


def text_doors() -> Iterator[Door]:
    plain, lines, bare, whole = Writer(), Writer(quoting=None), Writer(header=False), Writer(csv.QUOTE_ALL)
    of_lines: dict[str, Any] = {"edits": edited.edit_of_line}
    # Name, writer, opening, feeding, how often it is drawn, and further arguments.
    table: list[tuple[str, Writer, str, str, float, dict[str, Any]]] = [
        ("CSV", plain, "bytes", "run", 3.0, {}),
        ("CSV", plain, "path", "blocks", 1.0, {"center": True}),
        ("CSV", plain, "dribble397", "rows", 2.0, {}),
        ("CSV", plain, "small", "run", 1.0, {}),
        ("CSV, CRLF", Writer(end="\r\n"), "dribble211", "run", 1.0, {}),
        ("CSV, CRLF", Writer(end="\r\n"), "small", "blocks", 1.0, {}),
        ("CSV, all quoted", whole, "dribble1", "run", 0.05, {}),
        ("CSV, all quoted", whole, "dribble307", "run", 1.0, {}),
        ("CSV, all quoted, CRLF", Writer(csv.QUOTE_ALL, end="\r\n", final=False), "small", "rows", 1.0, {}),
        ("CSV, all quoted, CRLF", Writer(csv.QUOTE_ALL, end="\r\n"), "bytes", "numbered", 1.0, {}),
        ("CSV", plain, "without pyarrow", "run", 1.0, {}),
        ("CSV, all quoted", whole, "without pyarrow", "rows", 0.5, {}),
        ("CSV, no last end", Writer(final=False), "bytes", "run", 1.0, {}),
        ("CSV, positions", plain, "bytes", "run", 1.0, {"options": {"columns": [5, 1, 3]}}),
        ("CSV, chunks", whole, "path", "run", 1.0, {"options": {"chunk_rows": 1}}),
        ("CSV, bounds", plain, "bytes", "run", 1.0,
         {"options": {"bounds": dict.fromkeys(CHOSEN, (-1.0, 2.0))}, "center": True}),
        ("CSV, missing", plain, "bytes", "run", 1.0, {"options": {"na": ["?", "999"]}}),
        ("CSV, names", bare, "bytes", "run", 2.0, {}),
        ("CSV, names", bare, "dribble251", "rows", 1.0, {}),
        ("CSV, names, path", Writer(header=False, end="\r\n"), "path", "run", 1.0, {}),
        ("CSV, semicolons", Writer(delimiter=";"), "bytes", "run", 1.0, {"options": {"delimiter": None}}),
        ("CSV, tabs", Writer(delimiter="\t"), "path", "run", 1.0, {"open_as": "tsv"}),
        ("CSV, spaces", Writer(csv.QUOTE_ALL, delimiter=" "), "bytes", "run", 1.0, {}),
        *[("CSV", Writer(end="\r\n") if opening == "pipe" else plain, opening, "run", 0.5, {})
          for opening in ("gz", "gz stream", "zip", "pipe", "files", "follow")],
        ("CSV, names", bare, "files", "run", 0.5, {}),
        ("CSV", plain, "bytes", "arun", 0.3, {}),
        ("CSV", plain, "bytes", "readers", 0.3, {}),
        ("CSV", plain, "bytes", "store", 0.02, {}),
        *[(f"CSV, {encoding}", Writer(encoding=encoding), "dribble251", "run", 0.4, {})
          for encoding in ("utf-8-sig", "latin-1", "cp1252", "shift_jis", "gb18030", "cp037", "utf-16", "utf-16-le",
                           "utf-32")],
        ("lines", lines, "bytes", "run", 2.0, of_lines),
        ("lines", Writer(None, end="\r\n"), "dribble307", "rows", 1.0, of_lines),
        ("lines, names", Writer(None, header=False), "small", "run", 1.0, of_lines),
        ("lines, names", Writer(None, header=False), "path", "blocks", 1.0, of_lines),
        ("lines", lines, "gz", "run", 0.5, of_lines),
        ("lines", lines, "follow", "run", 0.5, of_lines),
    ]  # fmt: skip
    for name, writer, opening, feeding, weight, more in table:
        yield text_door(name, writer, opening, feeding, weight=weight, **more)
    for opening, feeding, options in (
        ("bytes", "run", {}), ("dribble397", "rows", {}), ("path", "blocks", {"chunk_rows": 3}), ("gz", "run", {}),
        ("follow", "run", {}),
    ):  # fmt: skip
        yield json_door(opening, feeding, **options)
    yield text_door("CSV, headless", bare, options={"columns": [1, 3, 5], "names": None}, is_refused=True, weight=0.5,
                    edits=lambda rng: Edit(0, {rng.choice(NAMES): edited.text(rng)}))  # fmt: skip


# -- typed columns ------------------------------------------------------------------


def columns_of(table: Table, edit: Edit | None, names: tuple[str, ...] = NAMES) -> dict[str, list[Any]]:
    records = [
        (edit if edit is not None and at == edit.at else Edit(at)).mapping(table) for at in range(len(table.records))
    ]
    return {name: [record[name] for record in records] for name in names}


def arrow(table: Table, edit: Edit | None, names: tuple[str, ...] = NAMES) -> pa.Table:
    kinds = {name: pa.float64() if name in CHOSEN else pa.string() for name in names}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns_of(table, edit, names).items()})


def parquet(table: Table, edit: Edit | None) -> bytes:
    made = io.BytesIO()
    pq.write_table(arrow(table, edit), made, row_group_size=7)
    return made.getvalue()


def _parquet(run: Run, table: Table, edit: Edit | None, center: bool = False) -> None:
    path = run.path("rows.parquet", parquet(table, edit))
    feed(run, open_rows(path, columns=list(CHOSEN)), "run", center=center)


def _absorbed(run: Run, table: Table, edit: Edit | None) -> None:
    drain(run.streaming().absorb(run.path("rows.parquet", parquet(table, edit)), columns=CHOSEN))


def matrix(columns: dict[str, list[Any]]) -> np.ndarray:
    return np.array([[np.nan if one is None else one for one in column] for column in columns.values()]).T


def _typed(columns: dict[str, list[Any]], kind: str) -> Any:
    with np.errstate(over="ignore"):
        return pd.DataFrame({name: pd.Series(values, dtype=kind) for name, values in columns.items()})


#: Tables of the chosen columns: frames, arrays and matrices.
MADE: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "Arrow": lambda columns: pa.table({name: pa.array(values, pa.float64()) for name, values in columns.items()}),
    "Arrow reader": lambda columns: MADE["Arrow"](columns).to_reader(max_chunksize=7),
    "Arrow batch": lambda columns: MADE["Arrow"](columns).combine_chunks().to_batches()[0],
    "polars": lambda columns: pl.DataFrame(columns, schema=dict.fromkeys(CHOSEN, pl.Float64), strict=False),
    **{f"pandas {kind}": partial(_typed, kind=kind) for kind in ("float64", "Float64", "float32", "double[pyarrow]")},
    "pandas inferred": lambda columns: pd.DataFrame({name: pd.Series(values) for name, values in columns.items()}),
    "pandas object": lambda columns: pd.DataFrame(columns, dtype=object),
    "array": matrix,
    "array, masked": lambda columns: np.ma.masked_invalid(matrix(columns)),
    "array, fortran": lambda columns: np.asfortranarray(matrix(columns)),
    "array of objects": lambda columns: np.array(list(columns.values()), dtype=object).T,
    "scipy sparse": lambda columns: sparse.csr_matrix(matrix(columns)),
}


def _made(run: Run, table: Table, edit: Edit | None, *, kind: str, way: str = "push") -> None:
    rows, stream = MADE[kind](columns_of(table, edit, CHOSEN)), run.streaming()
    drain(stream.push_many(rows) if way == "push" else stream.run(rows))


def _read_csv(run: Run, table: Table, edit: Edit | None) -> None:
    data = b"".join(Writer(csv.QUOTE_ALL).parts(table, edit))
    frame = pd.read_csv(io.BytesIO(data), usecols=list(CHOSEN), encoding_errors="replace")[list(CHOSEN)]
    run.streaming().push_many(frame)


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
        source = from_query(lambda: database, "SELECT * FROM rows", "id", columns=list(CHOSEN), chunk_rows=size)
        feed(run, source, "run")
    finally:
        sqlite3.Connection.close(database)


def _storable(content: Any) -> Any:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) and not content.isascii() else content


class _Topic:
    """What `KafkaRows` asks of a consumer, of messages in a list for each partition."""

    parts: tuple[list[types.SimpleNamespace], ...] = ()

    def __init__(self, _config: Any) -> None:
        self._next: list[types.SimpleNamespace] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = types.SimpleNamespace(error=None, partitions=dict(enumerate(self.parts)))
        return types.SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, len(self.parts[partition.partition])

    def assign(self, partitions: list[Any]) -> None:
        self._next = [message for one in partitions for message in self.parts[one.partition][one.offset :]]

    def poll(self, timeout: float) -> Any:
        return self._next.pop(0) if self._next else None

    def consume(self, count: int, timeout: float) -> list[Any]:
        taken, self._next = self._next[:count], self._next[count:]
        return taken

    def pause(self, *_partitions: Any) -> None:
        pass

    close = resume = pause


def _message(content: bytes | None, partition: int, offset: int) -> types.SimpleNamespace:
    answers = {"value": content, "error": None, "partition": partition, "offset": offset}
    return types.SimpleNamespace(**{name: partial(lambda one: one, answer) for name, answer in answers.items()})


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
    parts = tuple([_message(value, p, at) for at, value in enumerate(turn)] for p, turn in enumerate(turns))
    with mock.patch.dict(sys.modules, confluent_kafka=_CLIENT), mock.patch.object(_Topic, "parts", parts):
        source = from_kafka("t", "g", servers="s", features=CHOSEN, turn=3)
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
        drain(map(stream.push, records))
    elif way in ("push_many", "iterator"):
        stream.push_many(records if way == "push_many" else iter(records))
    else:
        targets = way == "targets"
        drain(stream.run([(one, 1) if targets and isinstance(one, dict) else one for one in records]))


def _people(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    # A row each: an edit may change the weights of all later rows of its person, and of nobody else.
    people, records = [*range(len(table.records))], records_of(table, edit, "list")
    run.stream = stream = sp.Stream(OF_PEOPLE, row_norm=1.0, features=CHOSEN, seed=SEED, regret=None)
    if way == "push":
        for person, record in zip(people, records, strict=True):
            stream.push(record, person)
    else:
        stream.push_many(records, people)


def _river(run: Run, table: Table, edit: Edit | None, *, way: str) -> None:
    model = RiverPCA(
        n_components=1, row_norm=1.0, features=CHOSEN, seed=SEED, release_every=EVERY,
        center=way == "many",
    )  # fmt: skip
    run.t = lambda: model.t
    if way == "one":
        for record in records_of(table, edit, "all"):
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
    ways = ("push", "run")
    for name, act in {
        "Parquet": _parquet,
        "Parquet, centered": partial(_parquet, center=True),
        "Parquet, absorbed": _absorbed,
        "scipy sparse": partial(_made, kind="scipy sparse", way="run"),
        **{f"Arrow, {way}": partial(_made, kind="Arrow", way=way) for way in ways},
        **{f"Arrow, {way}": partial(_made, kind=f"Arrow {way}", way="run") for way in ("reader", "batch")},
        **{f"{kind}, {way}": partial(_made, kind=kind, way=way)
           for kind in ("polars", *(kind for kind in MADE if "loat" in kind or "double" in kind), "array")
           for way in ways},
        **{kind: partial(_made, kind=kind) for kind in ("array, masked", "array, fortran")},
    }.items():  # fmt: skip
        yield Door(name, act, edited.edit_of_floats, tables=clean, weight=0.6)
    whole: dict[str, Any] = {"edits": _edit_of_columns, "tables": clean}
    for kind in ("inferred", "object"):
        for way in ways:
            yield Door(f"pandas {kind}, {way}", partial(_made, kind=f"pandas {kind}", way=way), weight=0.5, **whole)
    yield Door("pandas read_csv, push", _read_csv, _edit_of_chosen_text, tables=clean, weight=0.7)
    yield Door("array of objects", partial(_made, kind="array of objects"), weight=0.5, **whole)
    yield Door("river, learn_many", partial(_river, way="many"), weight=0.3, **whole)
    for size in (3, 8192):
        yield Door(f"SQLite, pages of {size}", partial(_sqlite, size=size), edited.edit_of_cells, tables=clean)
    yield Door("Kafka", _kafka, edited.edit_of_json, tables=edited.LINE_TABLES, weight=2.0)
    private: dict[str, Any] = {"kind": "list", "bounds": "private", "warmup": 4}
    # Name, act, and how often it is drawn.
    objects: list[tuple[str, Act, float]] = [
        *[(f"{kind}, {way}", partial(_python, kind=kind, way=way, center=way == "run"), 1.2)
          for kind in ("mapping", "tuple", "list") for way in ("push", "push_many", "run", "iterator")],
        *[(f"private bounds, {way}", partial(_python, way=way, **private), 1.0)
          for way in ("push", "push_many")],
        ("people, push", partial(_people, way="push"), 0.5),
        ("people, push_many", partial(_people, way="many"), 0.5),
        *[(f"missing cells, {rates} shares, {way}", partial(_python, kind=kind, way=way, center=True, on_missing="cell",
           missing_rates=rates if rates == "private" else 0.8), 1.0)
          for rates in ("private", "public") for kind, way in (("mapping", "push"), ("list", "push_many"))],
        ("mapping, targets", partial(_python, kind="mapping", way="targets"), 1.0),
        ("river, learn_one", partial(_river, way="one"), 1.2),
    ]  # fmt: skip
    for name, act, weight in objects:
        yield Door(name, act, edited.edit_of_object, tables=clean, weight=weight)
    for way in ("fit", "partial_fit"):
        yield Door(f"scikit-learn, {way}", partial(_sklearn, way=way), edited.edit_of_floats, tables=clean, weight=0.1)


def _edit_of_chosen_text(rng: Any) -> Edit:
    edit = edited.edit_of_text(rng)
    return Edit(edit.at, {name: content for name, content in edit.cells.items() if name in CHOSEN})


def _edit_of_columns(rng: Any) -> Edit:
    edit = edited.edit_of_object(rng)
    return Edit(edit.at, {name: edited.encodable(content) for name, content in edit.cells.items()})


# -- the command line ---------------------------------------------------------------

_SECONDS = re.compile(r"\d+\.\d s\b")


def timeless(said: str) -> str:
    return _SECONDS.sub("- s", said)


def command(run: Run, words: list[str], data: bytes | None = None, *, then: list[str] | None = None) -> None:
    """One command in this process, and another: exit status, standard output and error, publishable files."""
    from streampca.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = {path.name for path in run.folder.iterdir()}
    given = io.TextIOWrapper(io.BytesIO(data or b""))
    with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "stdin", given):
        run.code = main(words)
        if then is not None and not run.code:
            run.code = main(then)
    made = sorted(path for path in run.folder.iterdir() if path.name not in before)
    files = {path.name: path.read_bytes() for path in made if path.suffix == ".jsonl"}
    for path in made:
        path.unlink()
    run.said += [out.getvalue(), timeless(err.getvalue()), files]


_MODEL = ["-k", "1", "--epsilon", "1", "--delta", "1e-6", "--seed", str(SEED)]
#: Of each command, after the file.
WORDS = {"run": [*_MODEL, "--release-every", str(EVERY), "--no-live"], "pca": [*_MODEL, "--mechanism", "gaussian"]}


def cli_door(
    name: str, file: str, write: Callable[[Table, Edit | None], bytes], *words: str, verb: str = "run", **more: Any
) -> Door:  # fmt: skip
    """A door of ``streampca run`` or ``pca``."""

    def act(run: Run, table: Table, edit: Edit | None) -> None:
        data = write(table, edit)
        out = run.folder / "releases.jsonl"
        path = "-" if file == "-" else str(run.path(file, data))
        for old in run.folder.glob("run.db*"):
            old.unlink()
        scale = () if any(word.startswith("--bounds") for word in words) else ("--row-norm", "1")
        words_ = [verb, path, *WORDS[verb], *scale, "--out", str(out), *words]
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

    columns = ("--columns", ",".join(CHOSEN))
    lines: dict[str, Any] = {"edits": edited.edit_of_line, "tables": edited.LINE_TABLES}
    lone: dict[str, Any] = {"tables": {"plain": edited.TABLES["plain"]}, "edits": edited.edit_of_floats}
    # Name, writer, words, and further arguments.
    for name, writer, words, more in (
        ("CSV", Writer(), columns, {}),
        ("CSV, CRLF", Writer(csv.QUOTE_ALL, end="\r\n"), ("--columns", "6,2,4"), {}),
        ("standard input", Writer(), columns, {}),
        ("names", Writer(header=False), ("--read", f"names={','.join(NAMES)}", *columns), {}),
        ("pca", Writer(), columns, {"verb": "pca"}),
        ("store", Writer(), (*columns, "--store", "FOLDER/run.db"), {"weight": 0.02}),
        ("bounds", Writer(), (*columns, "--bounds=-2:2"), {}),
        ("private regret", Writer(),
         (*columns, "--private-regret", "FOLDER/regret.jsonl", "--set", "regret.every=5"), {}),
        ("lines", Writer(None), (*columns, "--read", "quoting=none"), lines),
    ):  # fmt: skip
        file = "-" if name == "standard input" else "rows.csv"
        yield cli_door(name, file, text(writer), *words, **{"edits": edited.edit_of_text, **more})
    yield cli_door("NDJSON", "rows.jsonl", lambda table, edit: b"".join(edited.json_lines(table, edit)), *columns,
                   **{**lines, "edits": edited.edit_of_json})  # fmt: skip
    yield cli_door("Parquet", "rows.parquet", parquet, *columns, **lone)


DOORS = (*text_doors(), *object_doors(), *cli_doors())
