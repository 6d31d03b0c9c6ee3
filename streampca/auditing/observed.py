"""Everything that a caller can read as public of a run.

Members are found by introspection, so a new property is observed because it is public. What is left out is listed
with its reason in `NOT_OBSERVED`, and methods that need arguments have them in `ARGUMENTS`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from hashlib import blake2b
from inspect import Parameter, getattr_static, signature
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np

from streampca.errors import StreamPCAError
from streampca.privacy.guarantee import Guarantee
from streampca.regret.private_regret import LivePrivateRegret, PrivateRegretRecord
from streampca.release.estimates import Estimates
from streampca.release.release import Release, Terms
from streampca.release.subspace import Subspace
from streampca.rows.admission import Admission
from streampca.rows.bounds import PrivateBounds
from streampca.stream.step import BlockStep, Step, Steps
from streampca.stream.stream import Stream
from streampca.users import UserStream
from streampca.views.card import card
from streampca.views.facts import in_words
from streampca.views.public import PublicPage

#: Logger of the curator, whose records may depend on exact rows.
CURATOR = "streampca.curator"

_CHANGES = "absorbs rows, or changes where they are kept"
_EXACT = "curator only: a function of exact rows"
_SECRET = "as secret as the rows: keys, states, snapshots"  # noqa: S105  # the reason, no password
_SETTINGS = "public parameters, fixed before the first row, and the lock"
_GIVEN = "a function of what the caller passes and of observed members"
_SAME = "another form of observed members"
#: Public members that are not observed: by class, reason and name.
NOT_OBSERVED: dict[type, dict[str, str]] = {
    Release: {
        _GIVEN: "transform replaced",
        _SAME: "plot to_dict",
    },
    Guarantee: {_GIVEN: "compose epsilon_at", _SAME: "seeded to_dict"},
    Stream: {
        _CHANGES: "arun finish leaves push push_block push_many resume run watch",
        _EXACT: "admission regret _repr_html_",
        _SECRET: "engine",
        _SETTINGS: "algorithm",
    },
    UserStream: {
        _CHANGES: "finish push push_many run",
        _EXACT: "admission regret",
        _SETTINGS: "algorithm guard",
    },
    Admission: {_GIVEN: "row block all_values fixed fixed_by fixed_by_block neutral table values"},
    PrivateBounds: {_GIVEN: "found rows std votes warnings"},
    LivePrivateRegret: {_SETTINGS: "config", _SAME: "to_frame"},
    Step: {_EXACT: "reward"},
    Steps: {_EXACT: "rewards", _GIVEN: "index count"},
    tuple: {_GIVEN: "index count"},
    BlockStep: {_EXACT: "reward"},
}
#: Arguments of methods that are called, by class and name.
ARGUMENTS: dict[tuple[type, str], Callable[[Any], tuple[Any, ...]]] = {
    (Subspace, "captured"): lambda subspace: (np.diag(np.arange(1.0, subspace.n_features + 1.0)),),
    (Subspace, "angles"): lambda subspace: (Subspace.first_axes(subspace.n_features, subspace.n_components),),
    (Terms, "count"): lambda terms: (1, 100),
    (Terms, "of_unit"): lambda terms: (0.5,),
}
#: Read of few releases only: they take an eigendecomposition each. And of fewer: they take milliseconds.
_DEEP = {(Release, name) for name in ("estimates", "component_estimates", "explained_variance_ratio")}
_SLOW = {(Estimates, "interval"), (Estimates, "approximate_interval"), (Release, "_repr_html_")}
#: Called of every release, as attributes are read.
_CALLED = {(Release, "to_json")}
#: Longer texts are kept as digests.
_LONG = 200


def left_out(kind: type) -> dict[str, str]:
    """The members of a class that are not observed, and why."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        for reason, names in NOT_OBSERVED.get(base, {}).items():
            found |= dict.fromkeys(names.split(), reason)
    return found


def public_members(kind: type, names: Iterable[str] | None = None) -> list[str]:
    """Those of the names of an object, by default of a class, that are public, but for constructors."""
    given = dir(kind) if names is None else names
    names = {name for name in given if not name.startswith("_") or name.startswith("_repr_")}  # these are for notebooks
    return sorted(n for n in names if not isinstance(getattr_static(kind, n, None), (classmethod, staticmethod)))


def needs_arguments(member: Any) -> bool:
    """True for a function with parameters besides ``self`` that have no default."""
    try:
        given = list(signature(member).parameters.values())[1:]
    except (TypeError, ValueError):
        return True
    return any(
        one.default is Parameter.empty and one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        for one in given
    )


class Observed:
    """What is seen of some objects, by path.

    Parameters
    ----------
    depth : 0 for attributes and properties; 1 to call methods, too, and to read what takes an eigendecomposition; 2
        for everything.

    Attributes
    ----------
    seen : text, or a digest where it is long, by path.
    classes : the classes that were met.
    """

    def __init__(self, depth: int = 0) -> None:
        self.depth, self.seen, self.classes = depth, dict[str, str](), set[type]()
        self._known: dict[int, tuple[str, Any]] = {}
        self._open: list[type] = []

    def add(self, path: str, value: Any) -> None:
        """Observe a value, and all that can be read from it."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes):
            self.seen[path] = _short(repr(value))
        elif isinstance(value, np.ndarray):
            self.seen[path] = f"{value.dtype.str} {value.shape} {_short(value.tobytes())}"
        elif kind in (dict, list, tuple) and (plain := _plain(value)) is not None:
            self.seen[path] = _short(plain)
        elif isinstance(value, Mapping):
            self.seen[path] = f"keys {list(value)}"
            for name, item in value.items():
                self.add(f"{path}[{name!r}]", item)
        elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            self._items(path, value)
        elif isinstance(value, BaseException) or not kind.__module__.startswith("streampca"):
            self.seen[path] = _short(f"{kind.__name__}: {value!s}")
        elif id(value) in self._known:
            self.seen[path] = f"the same as {self._known[id(value)][0]}"
        else:
            self._known[id(value)] = path, value  # kept, so that no other object has its id
            self._members(path, value)

    def _items(self, path: str, value: Sequence[Any]) -> None:
        self.seen[path] = f"{len(value)} items"
        for i, item in enumerate(value):
            self.add(f"{path}[{i}]", item)

    def _members(self, path: str, value: Any) -> None:
        kind = type(value)
        self.classes.add(kind)
        # Printing arrays takes long, and the fields of a dataclass are observed themselves.
        shown = (self.depth or not is_dataclass(kind)) and any("__repr__" in vars(base) for base in kind.__mro__[:-1])
        self.seen[path] = _short(repr(value)) if shown else kind.__name__
        if kind in self._open:  # a copy of itself, which would give another one
            return
        alone = tuple(name for name in getattr(value, "__dict__", ()) if not hasattr(kind, name))
        self._open.append(kind)
        for name, called in _read(kind, (*dir(kind), *alone), self.depth):  # type: ignore[arg-type]
            self._member(path, value, name, called=called)
        self._open.pop()
        if isinstance(value, Sequence) and not isinstance(value, tuple):
            self._items(f"{path}[:]", value)
        if isinstance(value, Release):
            for name in Release.__slots__:
                if name.startswith("_"):
                    self.add(f"{path}.{name}", getattr(value, name))

    def _member(self, path: str, value: Any, name: str, *, called: bool) -> None:
        path = f"{path}.{name}"
        try:
            found = getattr(value, name)
            if called:
                given = ARGUMENTS.get((type(value), name))
                found = found(*(given(value) if given else ()))
        except (StreamPCAError, ValueError) as problem:
            found = problem
        self.add(path, found)


@lru_cache(maxsize=256)
def _read(kind: type, names: tuple[str, ...], depth: int) -> tuple[tuple[str, bool], ...]:
    """Names of the members that are read, of those that an object has, and whether they are called."""
    left, found = left_out(kind), list[tuple[str, bool]]()
    for name in public_members(kind, names):
        member = getattr_static(kind, name, None)
        called = callable(member) and not isinstance(member, type)
        if name in left or (called and (kind, name) not in ARGUMENTS and needs_arguments(member)):
            continue
        needed = 2 if (kind, name) in _SLOW else int((kind, name) in _DEEP or (called and (kind, name) not in _CALLED))
        if depth >= needed:
            found.append((name, called))
    return tuple(found)


def _plain(value: Any) -> str | None:
    """The text of JSON values; None of others."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return None


def _short(value: Any) -> str:
    """Text, or the digest of a long one."""
    text = value if isinstance(value, bytes) else value.encode("utf-8", "backslashreplace")
    if len(text) > _LONG:
        return blake2b(text, digest_size=16).hexdigest()
    return text.hex() if isinstance(value, bytes) else str(value)


def surfaces(values: Iterable[Any]) -> list[dict[str, str]]:
    """Everything that is quickly read from each output of a run: a release, a stream, or text."""
    made, found = Observed(), list[dict[str, str]]()
    for value in values:
        made.seen = {}
        made.add(type(value).__name__, value)
        found.append(made.seen)
    return found


def views(release: Release, depth: int) -> dict[str, str]:
    """Everything that shows a release: methods and estimates; at depth 2 cards, pages, texts and records, too."""
    made = Observed(depth)
    made.add("Release", release)
    if depth > 1:
        page, shown = PublicPage(), card(release, most=40, components=release.n_components)
        page.add([release])
        made.add("page", page.state())
        made.add("card", card(release))
        made.add("streampca show", [shown.text(80), *map(str, in_words(release.guarantee))])
        if "rewards" in release.details and release.has_gram:
            made.add("private regret", PrivateRegretRecord.of(release))
    made.add("pickle", pickle.dumps(release))
    return made.seen


# -- what is said --------------------------------------------------------------------------------------------

_PACKAGES = "site-packages", "dist-packages"
#: Ids of stored runs and folders for a test are fresh; how much a thread of a store commits at once depends on time.
_FRESH, _TIMED = re.compile(r"run=[0-9a-f]{32}\b|path=\S+"), re.compile(r"\d[\d.]*")


class _Ear(logging.Handler):
    """Collects records of streampca, the root logger and code that is not installed; not those of the curator.

    Attributes
    ----------
    said : texts of records, in order.
    beside : texts of records of other threads, without their numbers.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.said, self.beside, self.own = list[str](), set[str](), get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record."""
        own = record.name == "root" or record.name.partition(".")[0] == "streampca"
        if not own and any(folder in Path(record.pathname).parts for folder in _PACKAGES):
            return
        if record.name == CURATOR or record.name.startswith(f"{CURATOR}."):
            return
        text = f"{record.name} logged {_FRESH.sub('...', record.getMessage())}"
        if record.thread == self.own:
            self.said.append(text)
        else:
            self.beside.add(_TIMED.sub("...", text))


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect what is said in the ``with`` block: warnings, records of any level, and text on both standard streams."""
    said, ear, root = list[str](), _Ear(), logging.getLogger()
    known = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [(one, one.level, one.propagate, one.disabled) for one in (root, *known)]
    disabled, streams = logging.root.manager.disable, {"stdout": io.StringIO(), "stderr": io.StringIO()}
    given: list[warnings.WarningMessage] = []
    try:
        logging.disable(logging.NOTSET)
        for one, level, *_ in before:
            if one is root or one.name.partition(".")[0] == "streampca":
                one.setLevel(1)
                one.propagate, one.disabled = True, False
            elif level == logging.NOTSET and "." not in one.name:
                one.setLevel(logging.WARNING)  # other libraries stay as quiet as they are
        root.addHandler(ear)
        with (
            contextlib.redirect_stdout(streams["stdout"]),
            contextlib.redirect_stderr(streams["stderr"]),
            warnings.catch_warnings(record=True) as given,
        ):
            warnings.simplefilter("always")
            yield said
    finally:
        root.removeHandler(ear)
        logging.disable(disabled)
        for one, level, propagate, off in before:
            one.setLevel(level)
            one.propagate, one.disabled = propagate, off
        said += [*ear.said, *sorted(ear.beside)]
        said += [f"warned {one.category.__name__}: {one.message}" for one in given]
        said += [f"{name}: {stream.getvalue()}" for name, stream in streams.items() if stream.getvalue()]
