"""Options that commands share, and the settings that ``--read`` and ``--set`` take as KEY=VALUE.

Cyclopts makes the options of a command from the fields of these classes, and its help from their docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from cyclopts import Parameter

from streampca.errors import BadParameterError

T = TypeVar("T")
_WORDS = dict.fromkeys(("yes", "true", "on", "1"), True) | dict.fromkeys(("no", "false", "off", "0"), False)


# -- paths --------------------------------------------------------------------------


def _no_directory(_type: object, path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a directory; give the file in it, such as run.db")


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
    elsewhere = urlsplit(text).scheme in ("kafka", "postgres", "postgresql", "sqlite", "duckdb") and "://" in text
    return Address(text) if elsewhere else Path(text)


_Hyphen = Parameter(allow_leading_hyphen=True)
#: A file that a directory cannot stand for.
FilePath = Annotated[Path, Parameter(validator=_no_directory)]
#: A path that may begin with a hyphen, such as - for standard input or output.
HyphenPath = Annotated[Path, _Hyphen]
#: A source of rows: a file, a pattern of files, - for standard input, or an address.
SourceAddress = Annotated[Path | Address, Parameter(allow_leading_hyphen=True, converter=_source)]
#: An option that is given or not, without a negative form.
Switch = Annotated[bool, Parameter(negative="")]


# -- settings -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Settings for reading rows.

    Parameters
    ----------
    format : csv, tsv, ndjson, parquet or arrow; by default by the end of the file's name, and csv for pipes.
    na : further texts that mean a missing value, separated by commas, such as "NA,?,-".
    delimiter : one character, tab or space; by default found in the header line.
    encoding : encoding of the text; utf-8 by default.
    quoting : csv, where quoted cells may hold separators and line ends, or none, where each line is a record.
    header : yes or no: whether the first line names the columns. By default it does, and names like values are refused.
    names : names of all columns of a file without a header line, separated by commas; with header=yes, in their place.
    follow : yes to wait for more rows at the end of the file, like tail -f, until Ctrl-C.
    rate : replay this number of rows a second.
    rate_from : replay in real time, by the distances in this column of times. Times become public.
    query : of a database: a SELECT without ORDER BY.
    cursor : of a database: the column by which rows are ordered, and different from row to row.
    """

    format: Literal["csv", "tsv", "ndjson", "parquet", "arrow"] | None = None
    na: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    quoting: Literal["csv", "none"] | None = None
    header: bool | None = None
    names: str | None = None
    follow: bool = False
    rate: float | None = None
    rate_from: str | None = None
    query: str | None = None
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the parts of a command, by ``--set PART.NAME=VALUE``.

    Parameters
    ----------
    bounds_warmup : with --bounds private, number of the first rows, which only find the bounds; by default it follows
        from the budget, the number of columns and the horizon.
    out_gram : no to write subspaces without the private Gram matrices.
    out_keep_every : write only every n-th release.
    regret_every : rows between lines of the regret files, 1000 by default.
    store_passphrase_file : file with a passphrase that protects the key of the store.
    store_witness : file that notes the progress of the run, best on other storage; by default beside the database.
    store_commit_every : time or rows between commits, such as 50ms or 1000; 200ms by default.
    serve_public : yes to show what may be published, and nothing else.
    serve_port : port of the page, 8765 by default; 0 takes any.
    serve_token_file : file (mode 0600) that keeps the token of the page, so that it continues after a restart.
    """

    bounds_warmup: int | None = None
    out_gram: bool = True
    out_keep_every: int = 1
    regret_every: int = 1000
    store_passphrase_file: Path | None = None
    store_witness: Path | None = None
    store_commit_every: str = "200ms"
    serve_public: bool = False
    serve_port: int = 8765
    serve_token_file: Path | None = None


def _keys(kind: type, parts: Sequence[str]) -> dict[str, str]:
    """Fields of settings by key: NAME, or PART.NAME of these parts if there are any."""
    names = [field.name for field in fields(kind)]
    return {n.replace("_", ".", 1) if parts else n: n for n in names if not parts or n.partition("_")[0] in parts}


def pairs(texts: Iterable[str], flag: str = "--set") -> dict[str, str]:
    """Values of KEY=VALUE texts by key; the last one of a key counts."""
    given = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (sign and key.replace(".", "_").isidentifier()):
            raise BadParameterError(f"{flag} {text}: expected KEY=VALUE")
        given[key] = value
    return given


def take(kind: type[T], given: dict[str, str], *parts: str, flag: str = "--set", others: bool = False) -> T:
    """Create settings from texts, and remove these texts from ``given``.

    Parameters
    ----------
    kind : class of the settings.
    given : texts by key.
    *parts : names of the parts whose keys begin with them; none if keys have no parts.
    flag : option that gave the texts, for messages.
    others : leave keys of other parts in ``given``, instead of refusing them.

    Raises
    ------
    BadParameterError
        If a key is unknown, or its value is of another type.
    """
    hints, known, values = get_type_hints(kind), _keys(kind, parts), {}
    for key in list(given):
        if key in known:
            values[known[key]] = _converted(hints[known[key]], given.pop(key), f"{flag} {key}")
        elif not others or key.partition(".")[0] in parts:
            raise BadParameterError(f"{flag} {key}: there is no such key; use {', '.join(known)}")
    return kind(**values)


def yes_or_no(text: str, option: str) -> bool:
    """Convert yes, true, on and 1, or no, false, off and 0, in any case, to a truth value."""
    if text.lower() not in _WORDS:
        raise BadParameterError(f"{option}={text}: expected yes or no")
    return _WORDS[text.lower()]


def _converted(hint: Any, text: str, option: str) -> Any:
    """Convert a text to a type or a value of a `Literal`; None in a union is for settings that are not given."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    if hint is bool:
        return yes_or_no(text, option)
    expected = "a whole number" if hint is int else "a number"
    if get_origin(hint) is Literal:
        expected = " or ".join(get_args(hint))
        hint = {one: one for one in get_args(hint)}.__getitem__
    try:
        return hint(text)
    except (KeyError, ValueError):
        raise BadParameterError(f"{option}={text}: expected {expected}") from None


def _key_option(name: str, purpose: str, kind: type, *parts: str) -> Parameter:
    """An option that takes KEY=VALUE texts. Its help lists the keys with their meanings."""
    text = re.sub(r"\n +", " ", cleandoc(kind.__doc__ or "").partition("----------\n")[2])
    meanings = dict(line.split(" : ", 1) for line in text.splitlines())
    listed = " ".join(f"{key}: {meanings[name]}" for key, name in _keys(kind, parts).items())
    return Parameter(
        name=name, negative="", show_default=False, help=f"{purpose}, as KEY=VALUE, once or more. {listed}"
    )


# -- option classes -----------------------------------------------------------------


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which rows are read, and how.

    Parameters
    ----------
    columns
        Names of the columns to use, separated by commas, or their positions from 1. All by default.
    """

    columns: str | None = None
    read: Annotated[tuple[str, ...], _key_option("--read", "How rows are read", ReadSettings)] = ()

    def reading(self) -> ReadSettings:
        """Settings of ``--read``."""
        return take(ReadSettings, pairs(self.read, "--read"), flag="--read")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrivateOptions(ReadOptions):
    """Common options of ``run`` and ``release``: the release, its rows and its account.

    Parameters
    ----------
    n_components
        Dimension of the subspace.
    epsilon
        Privacy parameter of all releases together, e.g. 1.
    delta
        Privacy parameter, well below one over the number of rows, e.g. 1e-6. None for algorithms with delta 0.
    adjacency
        Neighbors differ in one row: in place of the zero row (zero-out), or of another row (replace).
    bounds
        Public ranges of the columns: lo:hi for all, name=lo:hi,... or a JSON file {"name": [lo, hi]}. Or private:
        the first rows only find them, at the price of their whole budget. This needs delta > 0.
    row_norm
        Longer rows are scaled onto the ball of this radius; 1 by default. This or --bounds must be given.
    on_bad_row
        Stop at a row with missing or bad values, or absorb a zero row in its place.
    center
        Subtract the mean, from the same private release, for about 12 % more noise. On by default for Gram matrices
        with Gaussian noise; --no-center is the form of the papers.
    seed
        Reproducible noise. For tests: not private against a reader who knows the seed.
    ledger
        Ledger whose account of --data-set pays, or refuses. See streampca ledger budget.
    data_set
        Name of the data set in the ledger.
    force
        Overwrite existing output files.
    """

    n_components: Annotated[int | None, Parameter(name=["--n-components", "-k"])] = None
    epsilon: float | None = None
    delta: float | None = None
    adjacency: Literal["zero-out", "replace"] | None = None
    bounds: Annotated[str | None, _Hyphen] = None
    row_norm: float | None = None
    on_bad_row: Literal["raise", "zero"] = "raise"
    center: bool | None = None
    seed: int | None = None
    ledger: Path | None = None
    data_set: str | None = None
    force: Switch = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(PrivateOptions):
    """Options of ``release``.

    Parameters
    ----------
    mechanism
        gaussian or adaptive; with delta 0: adaptive-laplace or matrix-laplace; auto: adaptive-laplace for few features,
        else adaptive; exact-subspace for rows on a subspace (integers; --row-norm is a power of two that no row
        exceeds), which finds -k itself; or a class name.
    out
        File of the release, or - for standard output. Publishable; the format is that of streampca run.
    """

    mechanism: str
    set_: Annotated[
        tuple[str, ...], _key_option("--set", "Any further parameter of the mechanism", Settings, "bounds", "out")
    ] = ()
    out: HyphenPath = Path("release.jsonl")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions(PrivateOptions):
    """Options of ``run``.

    Parameters
    ----------
    algorithm
        fpl (private follow the perturbed leader), window, private-oja, dp-pca, tumbling, or a class name.
    horizon
        Number of rows the noise is calibrated for. Unknown by default, which costs a little more noise.
    window
        Number of the most recent rows that count, for algorithms of sliding windows.
    release_every
        Rows between releases; 100 by default. Rarer releases carry less noise.
    out
        File of the releases, or - for standard output. Publishable.
    regret
        File for the exact regret. Curator only: it has no privacy at all.
    private_regret
        File for the regret as intervals. Publishable: noisy rewards are released too, and all noise grows by 11.8 %.
    summary
        Markdown file for the released components and their guarantee, with exact figures. Curator only.
    live
        Live view in the terminal. On by default, where standard error is one.
    store
        Database that makes the run durable: continue it with streampca resume. Curator only.
    serve
        Show the run as a page in the browser, on this machine only, until Ctrl-C. Curator only, behind a token.
    """

    algorithm: str = "fpl"
    horizon: int | None = None
    window: int | None = None
    release_every: int | None = None
    set_: Annotated[
        tuple[str, ...],
        _key_option(
            "--set", "Any further parameter of the algorithm, such as noise=tree or, of tumbling, mechanism=adaptive",
            Settings, "bounds", "out", "regret", "store", "serve",
        ),
    ] = ()  # fmt: skip
    out: HyphenPath = Path("releases.jsonl")
    regret: Path | None = None
    private_regret: Path | None = None
    summary: Path | None = None
    live: bool | None = None
    store: FilePath | None = None
    serve: Switch = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How a durable run is opened, for the commands on one."""

    set_: Annotated[tuple[str, ...], _key_option("--set", "How the store is opened", Settings, "store")] = ()

    def settings(self) -> Settings:
        """Settings of ``--set``."""
        return take(Settings, pairs(self.set_), "store")
