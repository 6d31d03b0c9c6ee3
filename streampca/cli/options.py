"""Options that commands share, and the settings that ``--read`` and ``--set`` take as KEY=VALUE.

Commands import nothing but this module and their application at the start, and the rest in their bodies: ``--help``
then needs neither numpy nor scipy.
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
_YES, _NO = frozenset({"yes", "true", "on", "1"}), frozenset({"no", "false", "off", "0"})


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
    """How rows are read.

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
    rate_from : replay in real time, at the distances that this column of times says. Times become public.
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
    bounds_warmup : with --bounds private, number of the first rows that serve for nothing else; by default it follows
        from the budget, the number of columns and the horizon.
    out_gram : no to write subspaces without the private Gram matrices.
    out_keep_every : write only every n-th release.
    regret_every : rows between lines of the regret files, 1000 by default.
    store_passphrase_file : file with a passphrase that protects the key of the store.
    store_witness : where the progress of the run is noted, best on other storage; by default beside the database.
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


def keys(kind: type, *parts: str) -> dict[str, str]:
    """The fields of settings by key: with a dot after the name of the part, of these parts only if there are any."""
    names = [field.name for field in fields(kind)]
    return {n.replace("_", ".", 1) if parts else n: n for n in names if not parts or n.partition("_")[0] in parts}


def pairs(texts: Iterable[str], flag: str = "--set") -> dict[str, str]:
    """KEY=VALUE texts by key; of those with one key, the last."""
    given = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (sign and key.replace(".", "_").isidentifier()):
            raise BadParameterError(f"{flag} {text}: expected KEY=VALUE")
        given[key] = value
    return given


def take(kind: type[T], given: dict[str, str], *parts: str, flag: str = "--set") -> T:
    """Make settings of texts, and take these out of those given: of some parts, or all of those without parts.

    Raises
    ------
    BadParameterError
        If there is no such key, or the value is of another type.
    """
    hints, known, values = get_type_hints(kind), keys(kind, *parts), {}
    for key in [key for key in given if not parts or key.partition(".")[0] in parts]:
        if key not in known:
            raise BadParameterError(f"{flag} {key}: there is no such key; use {', '.join(known)}")
        values[known[key]] = _converted(hints[known[key]], given.pop(key), f"{flag} {key}")
    return kind(**values)


def yes_or_no(text: str, what: str) -> bool:
    """The words yes, true, on and 1, or no, false, off and 0, in any case, as a truth value."""
    if text.lower() not in _YES | _NO:
        raise BadParameterError(f"{what}={text}: expected yes or no")
    return text.lower() in _YES


def _converted(hint: Any, text: str, what: str) -> Any:
    """A text as a value of a type, of a `Literal`, or of one of them or None."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    if hint is bool:
        return yes_or_no(text, what)
    if get_origin(hint) is Literal:
        expected = " or ".join(get_args(hint))
        hint = {one: one for one in get_args(hint)}.__getitem__
    else:
        expected = "a whole number" if hint is int else "a number"
    try:
        return hint(text)
    except (KeyError, ValueError):
        raise BadParameterError(f"{what}={text}: expected {expected}") from None


def _told(kind: type, *parts: str) -> str:
    """The keys of settings and what they mean, one after the other, for ``--help``."""
    text = re.sub(r"\n +", " ", cleandoc(kind.__doc__ or "").partition("----------\n")[2])
    meanings = dict(line.split(" : ", 1) for line in text.splitlines())
    return " ".join(f"{key}: {meanings[name]}" for key, name in keys(kind, *parts).items())


# -- option classes -----------------------------------------------------------------


def _settings(name: str, what: str, told: str) -> Parameter:
    """The annotation of ``--read`` and ``--set``."""
    return Parameter(name=name, negative="", show_default=False, help=f"{what}, as KEY=VALUE, once or more. {told}")


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
    read: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help=f"How, as KEY=VALUE, once or more. {_told(ReadSettings)}"),
    ] = ()

    def reading(self) -> ReadSettings:
        """The settings of ``--read``."""
        return take(ReadSettings, pairs(self.read, "--read"), flag="--read")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrivateOptions(ReadOptions):
    """Parameters of the release, its rows and its account: the common options of ``run`` and ``release``.

    Parameters
    ----------
    n_components
        Dimension of the subspace.
    epsilon
        Privacy parameter of all releases together, e.g. 1.
    delta
        Privacy parameter, well below one over the number of rows, e.g. 1e-6. None for those with delta 0.
    adjacency
        Neighbors differ in one row: in place of the zero row (zero-out), or of another row (replace).
    bounds
        Public ranges of the columns: lo:hi for all, name=lo:hi,... or a JSON file {"name": [lo, hi]}. Or private: the
        first rows spend their whole budget on finding them, and serve for nothing else. This needs delta > 0.
    row_norm
        Longer rows are scaled onto the ball of this radius; 1 by default. This or --bounds must be given.
    on_bad_row
        Stop at a row with missing or bad values, or absorb a zero row in its place.
    center
        Take the mean out, from the same private release: about 12 % more noise. On by default, for those that release
        Gram matrices with Gaussian noise; --no-center is the form of the papers.
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
        gaussian, adaptive; with delta 0: adaptive-laplace, matrix-laplace; auto takes adaptive-laplace for few
        features, else adaptive; for rows on a subspace: exact-subspace (integers, --row-norm a power of two no row
        exceeds), which finds -k by itself; or a class name.
    out
        File of the release, or - for standard output. Publishable; the format is that of streampca run.
    """

    mechanism: str
    set_: Annotated[
        tuple[str, ...], _settings("--set", "Any further parameter of the mechanism", _told(Settings, "bounds", "out"))
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
        File for the regret as intervals. Publishable: rewards are released with noise, too, and all releases
        carry 11.8 % more of it.
    summary
        File for what was released and promised, with exact figures, as Markdown. Curator only.
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
        _settings(
            "--set", "Any further parameter of the algorithm, such as noise=tree or, of tumbling, mechanism=adaptive",
            _told(Settings, "bounds", "out", "regret", "store", "serve"),
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

    set_: Annotated[tuple[str, ...], _settings("--set", "How the store is opened", _told(Settings, "store"))] = ()

    def settings(self) -> Settings:
        """The settings of ``--set``."""
        given = pairs(self.set_)
        made = take(Settings, given, "store")
        for key in given:
            raise BadParameterError(f"--set {key}: there is no such key; use {', '.join(keys(Settings, 'store'))}")
        return made
