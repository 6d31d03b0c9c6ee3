"""Options of commands turned into rows, accounts of ledgers and stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from streampca.cli.options import Address, PcaOptions, PrivateOptions, ReadSettings, RunOptions, Settings
from streampca.errors import UsageError
from streampca.linalg.scale import check_scale
from streampca.privacy.unit import Person, columns_of
from streampca.processors.base import Algorithm
from streampca.rows.bounds import Ranges, read_bounds
from streampca.rows.protocol import RowSource
from streampca.sources import NumberedRows, from_kafka, from_query, open_rows
from streampca.sources.base import NameOrPosition
from streampca.sources.files import format_of, matching
from streampca.store.ledger import Account, Ledger
from streampca.store.store import Store

_MARKS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}


def open_source(
    source: Path | Address, reading: ReadSettings, columns: str | None = None, *, bounds: Ranges | None = None,
    features: Sequence[str] | None = None, unit: Person | None = None,
) -> RowSource:  # fmt: skip
    """Open a file, a pattern of files, - for standard input, a topic or a query."""
    # ``features`` are default columns. The columns of the ``unit`` and of times are none of them.
    given, chosen = text_options(reading), chosen_columns(columns, reading)
    beside = [*columns_of(unit), *((reading.time,) if reading.time else ())]
    if not isinstance(source, Address):
        given = {name: value for name, value in given.items() if name not in ("time", "end")}
    if columns is None and features is not None and has_names(reading):
        chosen = list(features)
    common: dict[str, Any] = {"columns": chosen, "bounds": bounds}
    parts = urlsplit(source if isinstance(source, Address) else "")
    kind = {"": "file", "kafka": "topic"}.get(parts.scheme, "database")
    # Topics and databases have names and types of their own: settings of text files do not apply.
    theirs = {"topic": {"follow", "connect_timeout"}, "database": {"follow", "query", "cursor"}}
    applying = theirs.get(kind, given.keys() - (theirs["topic"] ^ theirs["database"]))
    if others := sorted(given.keys() - applying):
        raise UsageError(f"--read {others[0]} does not apply to {source.name}, a {kind}")
    if both := sorted({*beside} & {*(chosen if isinstance(chosen, list) else bounds or ())}):
        raise UsageError(f"--columns {both[0]}: it holds people or times, and is no feature. Leave it out")
    given["beside"] = beside
    if kind == "file":
        return open_rows("-" if str(source) == "-" else source, **common, **given)
    if chosen is not None:
        common["columns"] = [str(name) for name in chosen]
    if kind == "database":
        if not {"query", "cursor"} <= given.keys():
            raise UsageError("a database needs a query and a cursor: --read query='SELECT * FROM t' --read cursor=id")
        return from_query(str(source), **common, **given)
    features = common.pop("columns")
    if features is None:
        raise UsageError("a topic has no header line; name the numbers of a message with --columns")
    config = dict(parse_qsl(parts.query))  # of the client, but for its group
    # Readers of one group share the messages of a topic: another group reads all of them.
    group = config.pop("group", "streampca")
    return from_kafka(
        parts.path.strip("/"), group, servers=parts.netloc, features=features, config=config, **common, **given
    )


def text_options(reading: ReadSettings) -> dict[str, Any]:
    """Return the settings that are given, as keywords of `open_rows`."""
    given = {name: value for name, value in asdict(reading).items() if value != getattr(ReadSettings, name)}
    if reading.delimiter is not None:
        given["delimiter"] = _MARKS.get(reading.delimiter, reading.delimiter)
    if reading.names is not None:
        given["names"] = [name.strip() for name in reading.names.split(",") if name.strip()]
    return given


def has_names(reading: ReadSettings) -> bool:
    """Return whether columns have names, in a header or given."""
    return reading.header is not False or reading.names is not None


def chosen_columns(columns: str | None, reading: ReadSettings) -> list[Any] | Literal["all"] | None:
    """Return the names and positions of ``--columns``."""
    if columns is None or columns == "all":
        return None if columns is None else "all"
    names = [name.strip() for name in columns.split(",") if name.strip()]
    chosen = [(NameOrPosition(n) if has_names(reading) else int(n) - 1) if n.isdecimal() else n for n in names]
    if -1 in chosen:
        raise UsageError("--columns 0: positions of columns count from 1")
    return chosen


def parquet_files(source: Path | Address) -> list[Any]:
    """Return the Parquet files of a path, folder or pattern, for ``--processes``."""
    paths = [] if isinstance(source, Address) else matching(source)
    if not paths or any(format_of(path) != "parquet" for path in paths):
        raise UsageError(f"--processes: {source.name} is no Parquet file or folder of them. Leave the option out")
    return paths


def rows_of(source: Path | Address, options: PrivateOptions, unit: Person | None = None) -> RowSource:
    """Open the source of a run."""
    check_scale(options.bounds, options.row_norm)
    bounds = None if options.bounds in (None, "private") else read_bounds(options.bounds)
    return open_source(source, options.reading(), options.columns, bounds=bounds, unit=unit)


def missing_scale(options: PrivateOptions) -> tuple[str, ...]:
    """Return the parameters of the scale if none of them is given, for `MissingParametersError`."""
    return ("bounds",) if options.bounds is None and options.row_norm is None else ()


def stream_settings(options: PrivateOptions, settings: Settings, rows: RowSource) -> dict[str, Any]:
    """Return the parameters of a stream of these rows."""
    return {
        "bounds": "private" if options.bounds == "private" else rows.bounds, "row_norm": options.row_norm,
        "warmup": settings.bounds_warmup, "seed": options.seed, "on_missing": options.on_missing,
        "missing_rates": shares(settings.missing_rates), "correct": settings.missing_correct,
        "start": getattr(options, "start", None),
    }  # fmt: skip


def shares(text: str | None) -> Any:
    """Return the shares of cells present in ``missing.rates``, as `Stream` takes them."""
    if text is None or text == "private":
        return text
    try:
        if "=" not in text:
            return float(text)
        # Names may hold an equals sign; a share holds none.
        return {name.strip(): float(share) for name, _, share in (pair.rpartition("=") for pair in text.split(","))}
    except ValueError:
        raise UsageError(f"--set missing.rates={text}: expected private, a share, or NAME=SHARE,...") from None


@contextmanager
def paying(options: PrivateOptions) -> Iterator[Account | None]:
    """Open the account that pays for a run, if there is a ledger."""
    if (options.ledger is None) != (options.data_set is None):
        raise UsageError("--ledger and --data-set go together: the account of a data set pays for the run")
    if options.ledger is None or options.data_set is None:
        yield None
        return
    with Ledger(options.ledger, create=False) as opened:
        yield opened.account(options.data_set)


def open_store(path: Path, settings: Settings) -> Store:
    """Open a store by the settings of ``--set store.``."""
    # A whole number counts rows, and anything else is a time.
    every = settings.store_commit_every
    return Store(
        path, passphrase=passphrase_of(settings), witness=settings.store_witness,
        commit_every=int(every) if every.isdigit() else every,
    )  # fmt: skip


def passphrase_of(settings: Settings) -> str | None:
    """Read the passphrase in its file, without the end of the line. Raises `UsageError` if the file is empty."""
    file = settings.store_passphrase_file
    # An editor ends the file with a newline. Spaces belong to the passphrase.
    text = None if file is None else file.read_text(encoding="utf-8").rstrip("\r\n")
    if text == "":
        raise UsageError(f"{file} is empty; write the passphrase into it")
    return text


def remember(store: Store, source: Path | Address | None, reading: ReadSettings, columns: str | None) -> None:
    """Store where the rows of a run come from, so that it can be resumed without a source."""
    if source is None or str(source) == "-":
        return store.remember_source(None)
    elsewhere = isinstance(source, Address)
    where = str(source if isinstance(source, Address) else source.absolute())
    store.remember_source({"source": where, "elsewhere": elsewhere, "columns": columns, "reading": asdict(reading)})


def unit_of(options: PcaOptions | RunOptions, settings: Settings) -> Person | None:
    """Return the unit of ``--unit`` and ``--set unit.NAME``, or None for a row."""
    if options.unit is None:
        for text in options.set_:
            if text.startswith("unit."):
                raise UsageError(f"--set {text.partition('=')[0]}: it goes with --unit")
        return None
    first, *others = (name.strip() for name in options.unit.split(","))
    return Person(
        column=(first, *others) if others else first, budget=settings.unit_budget, max_rows=settings.unit_max_rows,
        name=settings.unit_name, period=settings.unit_period,
    )  # fmt: skip


def counted(
    rows: RowSource, source: Path | Address, algorithm: Algorithm, reading: ReadSettings, name: str | None = None,
    passed: Any = None,
) -> RowSource:  # fmt: skip
    """Return the rows of a run as its calendar and its unit count them. Refuse a file whose rows have no times."""
    # ``name`` is that of the rows in the run, by default their path, and ``passed`` that of `NumberedRows`.
    is_file = isinstance(source, Path) and source.is_file()
    for key in ("time", "end"):
        if not algorithm.has_calendar and getattr(reading, key) is not None:
            raise UsageError(f"--read {key}: it goes with a calendar, such as --release-every 1d")
    if algorithm.has_calendar and is_file and not reading.follow and reading.time is None:
        raise UsageError(
            f"--release-every {algorithm.release_every}: all rows of a file arrive at once. Name the column of their "
            "times, --read time=COLUMN, or follow the file, --read follow=yes"
        )
    if reading.time is not None and (not is_file or reading.follow):
        raise UsageError(f"--read time: {source.name} is live, and its rows count on arrival. Omit --read time")
    # Positions are numbers of rows, which say after a resume how many have counted, and whose they were.
    if isinstance(source, Path) and (algorithm.unit is not None or (algorithm.has_calendar and is_file)):
        return NumberedRows(rows, name or str(source if str(source) == "-" else source.absolute()), passed)
    return rows
