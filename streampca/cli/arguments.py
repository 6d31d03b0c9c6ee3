"""Arguments of the commands turned into what they stand for: rows, ranges, algorithms, stores."""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import streampca
from streampca.cli import ADD
from streampca.cli.terminal import is_terminal
from streampca.errors import BadParameterError, StreamPCAError
from streampca.mechanisms.base import Mechanism
from streampca.names import looks_like_value
from streampca.processors.base import Algorithm
from streampca.processors.tumbling import Tumbling
from streampca.store.store import Store

if TYPE_CHECKING:
    from streampca.cli.reading import Address, Reading

_TABLES = frozenset((".csv", ".tsv", ".tab", ".txt"))
#: Share of the cells of a column of numbers that are numbers, at least.
_MOSTLY = 0.5
#: Names of columns that number rows.
_IDENTIFIER = re.compile(r"(^|[_ ])id$|^index$|^Unnamed: ", re.IGNORECASE)
#: Short names of algorithms. Every public algorithm may also be given by its own name.
NAMES = {
    "fpl": "PrivateFPL",
    "window": "SlidingWindowPCA",
    "oja": "Oja",
    "private-oja": "PrivateOja",
    "dp-pca": "DPPCA",
    "tumbling": "Tumbling",
}
#: Short names of mechanisms: what makes one release. Every public mechanism may also be given by its own name.
MECHANISMS = {
    "gaussian": "GaussianCovariance",
    "adaptive": "AdaptiveCovariance",
    "adaptive-laplace": "AdaptiveLaplaceCovariance",
    "matrix-laplace": "MatrixLaplaceCovariance",
    "exact-subspace": "ExactSubspace",
}
_RELEASE_EVERY = 100
#: Parameters that ``streampca run`` has options for; others are given by ``--set``.
_OPTIONS = ("n_components", "epsilon", "delta", "horizon", "window", "release_every", "adjacency", "noise")
_BOOLEANS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def missing_options(path: Path | Address, reading: Reading, on_bad_row: str, has_scale: bool) -> str:
    """Every option that the first rows of a CSV file show to be needed, as the end of a message. Curator only.

    Empty where nothing is missing, the file is not one that can be looked at, or standard error is no terminal: one
    cell may decide what is proposed. ``has_scale``: bounds or a norm were given.
    """
    import pandas as pd

    from streampca import sources

    if not isinstance(path, Path) or not is_terminal(sys.stderr):
        return ""
    is_table = reading.format == "csv" or (reading.format is None and _TABLES.intersection(path.suffixes))
    if not (is_table and path.is_file() and reading.header is not False and reading.names is None):
        return ""
    try:
        how = sources.Reading(encoding=reading.encoding or "utf-8", max_bytes=None, on_bad_row="zero")
        text = sources.text_files.TextFile(path, how, has_header=True)
        first, newline, _ = next(text.blocks(), b"").rpartition(b"\n")
        head = pd.read_csv(
            io.BytesIO(first + newline), nrows=1000, sep="\t" if ".tsv" in path.suffixes else None, engine="python",
            encoding_errors="replace", na_values=(reading.na or "").split(","),
            quoting=csv.QUOTE_NONE if reading.quoting == "none" else csv.QUOTE_MINIMAL,
        )  # fmt: skip
    except (StreamPCAError, ValueError, csv.Error):
        return ""
    if reading.header is None and any(looks_like_value(str(name)) for name in head):
        return ""  # the first line may be a row, whose cells are not to be proposed as names
    if reading.columns is not None:
        head = head.loc[:, [name for name in head if str(name) in reading.columns.split(",")]]
    for name in head:
        numbers = pd.to_numeric(head[name], errors="coerce")
        if numbers.notna().mean() > _MOSTLY:  # words in some cells do not make it a column of words
            head[name] = numbers
    usable = [name for name in head if head[name].dtype.kind in "iuf" and not _IDENTIFIER.search(str(name))]
    words = []
    if reading.columns is None and 0 < len(usable) < head.shape[1]:
        words += ["--columns", ",".join(map(str, usable))]
    if on_bad_row == "raise" and head[usable].isna().to_numpy().any():
        words += ["--on-bad-row", "zero"]
    if not has_scale:
        words += ["--bounds", "private"]
    return f". {ADD}{shlex.join(words)}" if words else ""


def make_algorithm(
    name: str,
    common: Mapping[str, Any],
    *,
    mechanism: str | None = None,
    release_every: int | None = None,
    extra: Iterable[str] = (),
) -> Algorithm:
    """Make an algorithm of command-line options.

    Parameters
    ----------
    name : key of `NAMES`, or name of a public algorithm.
    common : options that many algorithms share; None stands for not given.
    mechanism : of `Tumbling`: key of `MECHANISMS`, or name of a public mechanism. It gets what Tumbling does not take.
    release_every : rows between releases. Left out, 100 where the algorithm would release after every row.
    extra : further parameters, ``name=value`` with a JSON value or a bare word; yes, no, on, off, true or false in
        any case for those that are on or off.

    Raises
    ------
    BadParameterError
        If there is no such algorithm, or it does not take an option given, or
        needs one not given.
    """
    kind = _public("--processor", name, NAMES, Algorithm)
    takes = inspect.signature(kind).parameters
    given = _given({**common, "release_every": release_every}, extra)
    if mechanism is not None:
        if "mechanism" not in takes:
            raise BadParameterError(f"--mechanism {mechanism}: it is for --processor tumbling, not for {kind.__name__}")
        own = {key: given.pop(key) for key in list(given) if key not in takes}
        given["mechanism"] = make_mechanism(mechanism, own)
    elif "release_every" in takes and takes["release_every"].default == 1:
        given.setdefault("release_every", _RELEASE_EVERY)
    return cast(Algorithm, _made(kind, given))


def make_mechanism(name: str, common: Mapping[str, Any], extra: Iterable[str] = ()) -> Mechanism:
    """Make a mechanism of command-line options; parameters and errors as for `make_algorithm`."""
    kind = _public("--mechanism", name, MECHANISMS, Mechanism)
    return cast(Mechanism, _made(kind, _given(common, extra)))


def command_of(made: Algorithm | Mechanism, *, row_norm: float = 1.0) -> str:
    """Return the command that does what an algorithm or a mechanism does to the rows of a FILE."""
    settings = _settings(made)
    if isinstance(made, Mechanism):
        words = ["streampca", "release", "FILE", "--mechanism", _short(made, MECHANISMS)]
    else:
        words = ["streampca", "run", "FILE", "--processor", _short(made, NAMES)]
        if isinstance(made, Tumbling):
            words += ["--mechanism", _short(made.mechanism, MECHANISMS)]
            del settings["mechanism"]
            settings |= _settings(made.mechanism)
    inner = made.mechanism if isinstance(made, Tumbling) else made
    if settings.pop("center", None) is None and "center" in inspect.signature(type(inner)).parameters:
        words.append("--no-center")
    for name, value in settings.items():
        words += [_flag(name), str(value)] if name in _OPTIONS else ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join([*words, "--row-norm", f"{row_norm:g}"])


def _settings(made: Algorithm | Mechanism) -> dict[str, Any]:
    """The parameters that are not at their defaults, and release_every, whose default is another here."""
    defaults = {name: taken.default for name, taken in inspect.signature(type(made)).parameters.items()}
    defaults["release_every"] = None
    values = {name: getattr(made, name, None) for name in defaults}
    return {name: value for name, value in values.items() if value is not None and value != defaults[name]}


def _short(made: Algorithm | Mechanism, names: Mapping[str, str]) -> str:
    full = type(made).__name__
    return next((short for short, name in names.items() if name == full), full)


def _public(flag: str, name: str, names: Mapping[str, str], base: type) -> type:
    """The public class of a short or full name; those of `papers` have their full names only."""
    full = names.get(name, name)
    kind = getattr(streampca.papers if full in streampca.papers.__all__ else streampca, full, None)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise BadParameterError(f"{flag} {name}: there is none of that name; use {', '.join(names)}")
    return kind


def _given(common: Mapping[str, Any], extra: Iterable[str]) -> dict[str, Any]:
    """The parameters that are given."""
    given = {key: value for key, value in common.items() if value is not None}
    return given | dict(_setting(text) for text in extra)


def _made(kind: type, values: Mapping[str, Any]) -> Any:
    takes, given = inspect.signature(kind).parameters, dict(values)
    for key, parameter in takes.items():
        if isinstance(parameter.default, bool) and key in given:
            given[key] = _on_or_off(key, given[key])
    for key in given:
        if key not in takes:
            raise BadParameterError(
                f"{_flag(key)}: {kind.__name__} takes no such parameter; it takes {', '.join(takes)}"
            )
    missing = [_flag(key) for key, taken in takes.items() if taken.default is taken.empty and key not in given]
    if missing:
        raise BadParameterError(f"{kind.__name__} needs {', '.join(missing)}")
    return kind(**given)


def _flag(name: str) -> str:
    """The option of a parameter."""
    if name not in (*_OPTIONS, "mechanism"):
        return f"--set {name}"
    return "-k" if name == "n_components" else "--" + name.replace("_", "-")


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise BadParameterError(f"--set {text}: expected name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _on_or_off(name: str, value: Any) -> bool:
    on = _BOOLEANS.get(str(value).lower())
    if on is None:
        raise BadParameterError(f"--set {name}={value}: expected yes or no")
    return on


def open_store(
    path: Path, passphrase_file: Path | None, *, witness: Path | None = None, commit_every: str | None = None
) -> Store:
    """Open a store; what is left out is as in `Store`."""
    given: dict[str, Any] = {}
    if commit_every is not None:
        given["commit_every"] = int(commit_every) if commit_every.isdigit() else commit_every
    return Store(path, passphrase=passphrase_of(passphrase_file), witness=witness, **given)


def passphrase_of(file: Path | None) -> str | None:
    """Read the passphrase in a file, without the end of its line. Raises `BadParameterError` if the file is empty."""
    if file is None:
        return None
    text = file.read_text(encoding="utf-8").rstrip("\r\n")
    if not text:
        raise BadParameterError(f"{file} is empty; write the passphrase into it")
    return text
