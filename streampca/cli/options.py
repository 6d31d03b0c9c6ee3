"""Options that commands share, and the settings that ``--read`` and ``--set`` take as KEY=VALUE.

Cyclopts makes options from the fields of these classes, and their help from the text below each field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from cyclopts import Parameter
from msgspec import ValidationError, convert

from streampca.errors import UsageError, refuse_web
from streampca.linalg.scale import close_names
from streampca.privacy.budget import DELTA, Adjacency

T = TypeVar("T")
#: JSON and YAML write true, people write yes, and configuration files on or 1.
_WORDS = dict.fromkeys(("yes", "true", "on", "1"), True) | dict.fromkeys(("no", "false", "off", "0"), False)
#: Beginning of the keys of the units of columns.
_UNITS = "units."
_EXTERNAL = ("kafka://", "postgres://", "postgresql://", "sqlite://", "duckdb://")


class Address(str):
    """The address of a topic or a database, such as ``kafka://broker/topic`` or ``postgresql://...``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The address without user, password and options, for titles; only the scheme if they cannot be separated."""
        # A password may hold any character, so an @ behind the path or the options makes the address ambiguous.
        plain = re.fullmatch(r"(\w+://)(?:[^/?#@]*@)?([^?#@]*)(?:[?#][^@]*)?", self)
        return "".join(plain.groups()) if plain else self.partition("//")[0] + "//..."


def _source(_type: object, tokens: Sequence[Any]) -> Path | Address:
    text = str(tokens[0].value)
    return Address(text) if text.lower().startswith(_EXTERNAL) else _input(_type, tokens)


def _input(_type: object, tokens: Sequence[Any]) -> Path:
    # A path joins the slashes of an address: it must be refused before, and without its password.
    refuse_web(text := str(tokens[0].value))
    if text.lower().startswith(_EXTERNAL):
        raise UsageError(
            f"{Address(text).name}: expected the path of a file. `streampca run` reads topics and databases"
        )
    return Path(text)


def _no_directory(_type: object, path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a directory; give the file in it, such as run.db")


def about(text: str, *names: str, **more: Any) -> Parameter:
    """Return the help of an option, with its names if they do not follow from the parameter."""
    return Parameter(help=text, name=names or None, **more)


NEIGHBORS = "Neighbors differ in one row: in place of the zero row or of none (zero-out), or of another row (replace)."
DELTA_HELP = "Privacy parameter, at most a tenth of one over the number of rows."
UNITS = "the unit of a column for the card, such as units.distance=mi"
LIVE = "Live view in the terminal. On by default, where standard error is one."
#: A database, which a directory cannot stand for.
StorePath = Annotated[Path, about("Database of the run.", validator=_no_directory, converter=_input)]
LedgerPath = Annotated[Path, about("The ledger.", validator=_no_directory)]
#: Releases to read, and which of them.
RunPath = Annotated[Path, about("releases.jsonl, or a store (run.db), or a folder with one of them.", converter=_input)]
#: A file of rows to read.
TablePath = Annotated[Path, Parameter(allow_leading_hyphen=True, converter=_input)]
At = Annotated[int | None, about("Use the current release after this number of rows. By default the latest.")]
#: A path that may begin with a hyphen, such as - for standard input or output.
HyphenPath = Annotated[Path, Parameter(allow_leading_hyphen=True)]
#: A source of rows: a file, a pattern of files, - for standard input, or an address.
SourceAddress = Annotated[Path | Address, Parameter(allow_leading_hyphen=True, converter=_source)]
Force = Annotated[bool, about("Overwrite existing files.", negative="")]


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Settings for reading rows.

    Parameters
    ----------
    format : csv, tsv, ndjson or parquet; by default by the end of the file's name, and csv for pipes.
    na : further texts that mean a missing value, separated by commas, such as "NA,?,-".
    delimiter : one character, tab or space; by default found in the header line.
    encoding : encoding of the text; utf-8 by default.
    quoting : csv, where quoted cells may hold separators and line ends, or none, where each line is a record.
    header : yes or no: whether the first line names the columns. By default it does, and names like values are refused.
    names : names of all columns of a file without a header line, separated by commas; with header=yes, in their place.
    follow : yes to wait for more rows at the end of the file, like tail -f, until Ctrl-C.
    rate : replay this number of rows a second.
    time : for a calendar, the column with the times of the rows, which are in their order.
    end : with it, the end of the last period, to which all are released; by default that of the horizon.
    query : of a database: a SELECT without ORDER BY.
    cursor : of a database: the column by which rows are ordered, and different from row to row.
    connect_timeout : of a topic: seconds that brokers may take to answer at the start, 5 by default.
    """

    format: str | None = None
    na: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    quoting: Literal["csv", "none"] | None = None
    header: bool | None = None
    names: str | None = None
    follow: bool = False
    rate: float | None = None
    time: str | None = None
    end: str | None = None
    query: str | None = None
    cursor: str | None = None
    connect_timeout: float | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the parts of a command, by ``--set PART.NAME=VALUE``.

    Parameters
    ----------
    bounds_warmup : with --bounds private, number of the first rows, which only find the bounds; by default it follows
        from the budget, the number of columns and the horizon.
    missing_rates : with --on-missing cell, the shares of cells present: private by default, or public ones as a number
        for all or NAME=SHARE,NAME=SHARE,...
    missing_correct : no to fill only, which moves the mean.
    unit_budget : with --unit, the number of full rows whose effect the rows of a person never exceed, 1 by default.
    unit_max_rows : most rows of a person that count, 64 by default.
    unit_name : word for the unit in the guarantee, such as device; person by default.
    unit_period : with a calendar, duration such as 1d after which budgets begin anew; by default never.
    out_gram : no to write subspaces without the private Gram matrices.
    out_keep_every : write only every n-th release.
    regret_every : rows between lines of the regret files, 1000 by default.
    store_passphrase_file : file with a passphrase that protects the key of the store.
    store_witness : file that notes the progress of the run, best on other storage; by default beside the database.
    store_commit_every : time or rows between commits, such as 50ms or 1000; 200ms by default.
    serve_public : yes to show what may be published, and nothing else.
    serve_port : port of the page, 8765 by default; 0 takes any.
    """

    bounds_warmup: int | None = None
    missing_rates: str | None = None
    missing_correct: bool = True
    unit_budget: float = 1.0
    unit_max_rows: int = 64
    unit_name: str = "person"
    unit_period: str | None = None
    out_gram: bool = True
    out_keep_every: int = 1
    regret_every: int = 1000
    store_passphrase_file: Path | None = None
    store_witness: Path | None = None
    store_commit_every: str = "200ms"
    serve_public: bool = False
    serve_port: int = 8765


def _keys(kind: type, parts: Sequence[str]) -> dict[str, str]:
    """Fields of settings by key: NAME, or PART.NAME of these parts if there are any."""
    names = [field.name for field in fields(kind)]
    return {n.replace("_", ".", 1) if parts else n: n for n in names if not parts or n.partition("_")[0] in parts}


def pairs(texts: Iterable[str], flag: str = "--set") -> dict[str, str]:
    """Values of KEY=VALUE texts by key; the last one of a key counts."""
    given = {}
    for text in texts:
        key, sign, value = text.partition("=")
        # Names of columns are any text.
        if not (sign and (key.startswith(_UNITS) or key.replace(".", "_").isidentifier())):
            raise UsageError(f"{flag} {text}: expected KEY=VALUE")
        given[key] = value
    return given


def units_of(given: dict[str, str], columns: Callable[[], Sequence[str]]) -> dict[str, str]:
    """Remove the units of columns, ``units.NAME=UNIT``, from the texts; return them by name. Refuses other names."""
    units = {key.removeprefix(_UNITS): given.pop(key) for key in [*given] if key.startswith(_UNITS)}
    for name in units:
        if name not in columns():
            raise UsageError(f"--set {_UNITS}{name}: there is no such column; {close_names(name, columns())}")
    return units


def yes_or_no(text: str, option: str) -> bool:
    """Convert yes, true, on and 1, or no, false, off and 0, in any case, to a truth value."""
    if text.lower() not in _WORDS:
        raise UsageError(f"{option}={text}: expected yes or no")
    return _WORDS[text.lower()]


def take(kind: type[T], given: dict[str, str], *parts: str, flag: str = "--set", others: bool = False) -> T:
    """Create settings of a class from texts by key, and remove these texts from ``given``."""
    # With ``parts``, keys are PART.NAME; those of other parts are refused, or left in ``given`` if ``others`` is true.
    hints, known, values = get_type_hints(kind), _keys(kind, parts), {}
    for key in list(given):
        if key not in known:
            if others and key.partition(".")[0] not in parts:
                continue
            raise UsageError(f"{flag} {key}: there is no such key; use {', '.join(known)}")
        hint, value = hints[known[key]], given.pop(key)
        if bool in (hint, *get_args(hint)):
            values[known[key]] = yes_or_no(value, f"{flag} {key}")
            continue
        # One at a time, so that the message names the key.
        try:
            values[known[key]] = convert(value, hint, strict=False, dec_hook=lambda kind, text: kind(text))
        except ValidationError:
            choices = " or ".join(one for kind in get_args(hint) for one in get_args(kind))
            number = "a whole number" if int in (hint, *get_args(hint)) else "a number"
            raise UsageError(f"{flag} {key}={value}: expected {choices or number}") from None
    return kind(**values)


def _key_option(name: str, purpose: str, kind: type, *parts: str) -> Parameter:
    """An option that takes KEY=VALUE texts. Its help lists the keys with their meanings."""
    # The docstring of the class has an entry a line, with indented continuations.
    text = re.sub(r"\n +", " ", cleandoc(kind.__doc__ or "").partition("----------\n")[2])
    meanings = dict(line.split(" : ", 1) for line in text.splitlines())
    listed = " ".join(f"{key}: {meanings[field]}" for key, field in _keys(kind, parts).items())
    return about(f"{purpose}, as KEY=VALUE, once or more. {listed}", name, negative="", show_default=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which rows are read, and how."""

    columns: str | None = None
    """Names of the columns to use, separated by commas, or their positions from 1, or all. By default those named in
    --bounds; all of Parquet files and queries, which have types."""
    read: Annotated[tuple[str, ...], _key_option("--read", "How rows are read", ReadSettings)] = ()

    def reading(self) -> ReadSettings:
        return take(ReadSettings, pairs(self.read, "--read"), flag="--read")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrivateOptions(ReadOptions):
    """Common options of ``run`` and ``pca``: the release, its rows and its account."""

    n_components: Annotated[int | None, about("Dimension of the subspace.", "--n-components", "-k")] = None
    epsilon: Annotated[float | None, about("Privacy parameter of all releases together, e.g. 1.")] = None
    delta: Annotated[float | None, about(f"{DELTA_HELP} {DELTA:g} by default, where the algorithm has one.")] = None
    adjacency: Annotated[Adjacency | None, about(NEIGHBORS)] = None
    bounds: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Public ranges of the columns: lo:hi for all, name=lo:hi,... or a JSON file {"name": [lo, hi]}. Or private: the
    first rows only find them, at the price of their whole budget. This needs delta > 0."""
    row_norm: float | None = None
    """Longer rows are scaled onto the ball of this radius. Either this or --bounds must be given."""
    on_missing: Literal["bad", "cell"] = "bad"
    """bad: a row with a missing cell counts for nothing. cell: the cell is filled with the middle of its bounds, and
    mean and components are corrected by the shares of cells present; see missing.rates of --set."""
    center: bool | None = None
    """Subtract the mean, from the same private release, for 12.5 % more noise. On by default for Gram matrices
    with Gaussian noise, but not with --private-regret; --no-center is the form of the papers."""
    unit: str | None = None
    """Column with the person of each row, or several, separated by commas: all rows of a person are protected together,
    by weights (see streampca.Person). It is no feature."""
    seed: int | None = None
    """Reproducible noise. For tests: not private against a reader who knows the seed."""
    ledger: Path | None = None
    """Ledger whose account of --data-set pays, or refuses. See streampca ledger budget."""
    data_set: Annotated[str | None, about("Name of the data set in the ledger.")] = None
    force: Force = False
    quiet: Annotated[bool, Parameter(negative="")] = False
    """Leave out of standard error what was done to the rows, which is for the curator."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PcaOptions(PrivateOptions):
    """Options of ``pca``."""

    n_components: Annotated[
        float | None, about("Number of components, or the share of the variance, below 1, that they hold.", "-k")
    ] = None  # type: ignore[assignment]
    mechanism: str | None = None
    """Another mechanism than Gaussian noise: adaptive; with delta 0 adaptive-laplace or matrix-laplace; auto:
    adaptive-laplace for few features, else adaptive; exact-subspace for rows on a subspace (integers; --row-norm is a
    power of two that no row exceeds), which finds -k itself; or a class name."""
    set_: Annotated[
        tuple[str, ...],
        _key_option(
            "--set", f"Any further parameter of the mechanism, or {UNITS}", Settings,
            "missing", "bounds", "unit", "out",
        ),
    ] = ()  # fmt: skip
    out: HyphenPath = Path("release.jsonl")
    """File of the release, or - for standard output. Publishable; the format is that of streampca run."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CheckOptions(PcaOptions):
    """Options of ``check``: those of ``pca``, none of which is required."""

    limit: Annotated[int | None, about("Number of first rows to read. All by default.")] = None
    write_bounds: Path | None = None
    """JSON file to write, with the names of the columns and empty ranges to be filled in, for --bounds."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions(PrivateOptions):
    """Options of ``run``."""

    algorithm: str = "fpl"
    """fpl (private follow the perturbed leader), window, private-oja, dp-pca, tumbling, or a class name."""
    horizon: int | str | None = None
    """Number of rows the noise is calibrated for. By default the number of records of a regular file, which is counted
    first. Unknown for pipes, topics, queries, follow=yes and --store: about 20 % more noise, 50 % in the last release.
    With a calendar, a duration such as 365d; by default the time from --start to --read end.
    """
    window: int | str | None = None
    """Number of the most recent rows that count, for sliding windows; with a calendar, a duration such as 30d."""
    release_every: int | str | None = None
    """Rows between releases; 100 by default, where the algorithm allows it. Rarer releases carry less noise. Or the
    period of a calendar: 15min, 6h, 1d or 1w. Then the number of rows is private, and rows count on arrival, or in
    files at their times: --read time=COLUMN."""
    start: str | None = None
    """Start of the first period of a calendar: a time with its zone, such as 2026-01-01T00:00+01:00."""
    set_: Annotated[
        tuple[str, ...],
        _key_option(
            "--set",
            f"Any further parameter of the algorithm, such as noise=tree, of tumbling mechanism=adaptive, or {UNITS}",
            Settings, "missing", "bounds", "unit", "out", "regret", "store", "serve",
        ),
    ] = ()  # fmt: skip
    out: HyphenPath = Path("releases.jsonl")
    """File of the releases, or - for standard output. Publishable."""
    regret: Annotated[Path | None, about("File for the exact regret. Curator only: it has no privacy at all.")] = None
    private_regret: Path | None = None
    """File for the regret as intervals. Publishable: noisy rewards are released too, and all noise grows by 11.8 %."""
    summary: Path | None = None
    """Markdown file for the released components and their guarantee, with exact figures. Curator only."""
    live: Annotated[bool | None, about(LIVE)] = None
    store: Annotated[Path | None, Parameter(validator=_no_directory)] = None
    """Database that makes the run durable: continue it with streampca resume. Curator only."""
    serve: Annotated[bool, Parameter(negative="")] = False
    """Show the run as a page in the browser, on this machine only, until Ctrl-C. Curator only, behind a token."""
    processes: int | None = None
    """Number of processes that read Parquet files. The releases are the same."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How a durable run is opened, for the commands on one."""

    set_: Annotated[tuple[str, ...], _key_option("--set", "How the store is opened", Settings, "store")] = ()

    def settings(self) -> Settings:
        return take(Settings, pairs(self.set_), "store")
