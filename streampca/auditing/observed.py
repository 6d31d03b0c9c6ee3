"""Everything that a caller can read as public of a run.

Members are found by introspection, so a new property is observed because it is public. Exceptions are listed with
their reason in `NOT_OBSERVED`, and the arguments of methods in `ARGUMENTS`.
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
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache
from hashlib import blake2b
from inspect import getattr_static, signature
from pathlib import Path
from threading import get_ident
from typing import Any
from unittest import mock

import numpy as np

from streampca.errors import StreamPCAError
from streampca.linalg.memory import History
from streampca.privacy.guarantee import Guarantee
from streampca.regret.private_regret import PrivateRegretRecord, PrivateRegretRecords
from streampca.release.clear import NoiseLaw
from streampca.release.estimates import Estimates
from streampca.release.release import Release
from streampca.release.subspace import Subspace
from streampca.release.terms import Terms
from streampca.rows.admission import Admission
from streampca.rows.bounds import PrivateBounds
from streampca.stream.step import Step, Steps
from streampca.stream.stream import Stream
from streampca.views.card import card
from streampca.views.facts import in_words
from streampca.views.page import Page

#: Logger of the curator, whose records may depend on exact rows.
CURATOR = "streampca.curator"

_CHANGES = "absorbs rows, or changes where they are kept"
_EXACT = "curator only: a function of exact rows"
_SECRET = "as secret as the rows: keys, states, snapshots"  # noqa: S105  # the reason, no password
_SETTINGS = "public parameters, fixed before the first row, and the lock"
_ARGUMENT = "a function of arguments of the caller and of observed members"
_SAME = "another form of observed members"
#: Public members that are not observed: by class, reason and name.
NOT_OBSERVED: dict[type, dict[str, str]] = {
    Release: {_ARGUMENT: "holding transform replaced", _SAME: "plot save"},
    Estimates: {_ARGUMENT: "share"},
    NoiseLaw: {_ARGUMENT: "quantile std"},
    Guarantee: {_ARGUMENT: "compose epsilon_at", _SAME: "seeded to_dict"},
    Stream: {
        _CHANGES: "absorb arun close_period finish leaves push push_block push_many resume run tick watch",
        _EXACT: "admission regret _repr_html_",
        _SECRET: "engine",
        _SETTINGS: "algorithm",
    },
    Admission: {_ARGUMENT: "row block all_values fixed fixed_by fixed_by_block table values"},
    PrivateBounds: {_ARGUMENT: "found rows std votes warnings"},
    History: {_ARGUMENT: "append read restored"},
    PrivateRegretRecords: {_SETTINGS: "config", _SAME: "kept snapshot to_frame", _ARGUMENT: "observe read restored"},
    Step: {_EXACT: "reward"},
    Steps: {_EXACT: "rewards", _ARGUMENT: "index count"},
    tuple: {_ARGUMENT: "index count"},
}
#: Arguments of methods that are called, by class and name.
ARGUMENTS: dict[tuple[type, str], Callable[[Any], tuple[Any, ...]]] = {
    (Subspace, "captured"): lambda subspace: (np.diag(np.arange(1.0, len(subspace.basis) + 1.0)),),
    (Subspace, "angles"): lambda subspace: (Subspace(np.eye(*subspace.basis.shape)),),
    (Subspace, "distance"): lambda subspace: (Subspace(np.eye(*subspace.basis.shape)),),
    (Terms, "count"): lambda terms: (1, 100),
}
#: Least depth at which members are read: those of 1 need an eigendecomposition each, those of 2 milliseconds.
_EIGEN = ("changes", "estimates", "component_estimates", "explained_variance", "explained_variance_ratio", "n_clear")
_DEPTHS = {(Release, name): 1 for name in _EIGEN} | {
    (Estimates, "interval"): 2, (Release, "_repr_html_"): 2,
    (Release, "to_json"): 0, (Release, "to_frame"): 2, (Release, "stands_out"): 2,
}  # fmt: skip
#: Longer texts are kept as digests.
_LONG = 200


def members_of(kind: type, names: Iterable[str]) -> list[tuple[str, Any]]:
    """Return the public members among the names of an object, unless a reason is listed in `NOT_OBSERVED`."""
    omitted = [text for base in kind.__mro__ for text in NOT_OBSERVED.get(base, {}).values()]
    public = {name for name in names if not name.startswith("_") or name.startswith("_repr_")}  # the latter: notebooks
    members = [(name, getattr_static(kind, name, None)) for name in sorted(public - set(" ".join(omitted).split()))]
    return [(name, member) for name, member in members if not isinstance(member, (classmethod, staticmethod))]


def needs_arguments(member: Any) -> bool:
    """Return True for a function with parameters besides ``self`` that have no default."""
    try:
        signature(member).bind(None)
    except (TypeError, ValueError):
        return True
    return False


@dataclass(eq=False)
class Observed:
    """Texts of objects by path, and the classes of these objects."""

    # At 0 attributes and properties are read; at 1 also methods, and members that need an eigendecomposition; at 2 all.
    depth: int = 0
    seen: dict[str, str] = field(default_factory=dict, init=False)
    classes: set[type] = field(default_factory=set, init=False)
    _known: dict[int, tuple[str, Any]] = field(default_factory=dict, init=False)
    _open: list[type] = field(default_factory=list, init=False)

    def add(self, path: str, value: Any) -> None:
        """Observe a value, and everything that can be read from it."""
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes):
            self.seen[path] = _short(repr(value))
            return
        if isinstance(value, np.ndarray):
            self.seen[path] = f"{value.dtype.str} {value.shape} {_short(value.tobytes())}"
            return
        if kind in (dict, list, tuple):
            with contextlib.suppress(TypeError, ValueError):  # values that are no JSON are observed one by one
                self.seen[path] = _short(json.dumps(value))
                return
        if isinstance(value, Mapping):
            self.seen[path] = f"keys {list(value)}"
            for name, item in value.items():
                self.add(f"{path}[{name!r}]", item)
        elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            self.seen[path] = f"{len(value)} items"
            for i, item in enumerate(value):
                self.add(f"{path}[{i}]", item)
        elif isinstance(value, BaseException) or not kind.__module__.startswith("streampca"):
            self.seen[path] = _short(f"{kind.__name__}: {value!s}")
        elif id(value) in self._known:
            self.seen[path] = f"the same as {self._known[id(value)][0]}"
        else:
            self._known[id(value)] = path, value  # kept, so that no other object has its id
            self._members(path, value)

    def _members(self, path: str, value: Any) -> None:
        kind = type(value)
        self.classes.add(kind)
        # Printing arrays is slow, and the fields of a dataclass are observed one by one.
        shown = (self.depth or not is_dataclass(kind)) and any("__repr__" in vars(base) for base in kind.__mro__[:-1])
        self.seen[path] = _short(repr(value)) if shown else kind.__name__
        if kind in self._open:  # a copy of itself, which would return another one
            return
        own = tuple(name for name in getattr(value, "__dict__", ()) if not hasattr(kind, name))
        self._open.append(kind)
        for name, called in _read(kind, (*dir(kind), *own), self.depth):  # type: ignore[arg-type]
            try:
                member = getattr(value, name)
                if called:
                    arguments = ARGUMENTS.get((kind, name))
                    member = member(*(arguments(value) if arguments else ()))
            except (StreamPCAError, ValueError) as problem:
                member = problem
            self.add(f"{path}.{name}", member)
        self._open.pop()
        if isinstance(value, Sequence) and not isinstance(value, tuple):
            self.add(f"{path}[:]", list(value))
        if isinstance(value, Release):
            for name in Release.__slots__:
                if name.startswith("_"):
                    self.add(f"{path}.{name}", getattr(value, name))


@lru_cache(maxsize=256)
def _read(kind: type, names: tuple[str, ...], depth: int) -> tuple[tuple[str, bool], ...]:
    """Return the names of the members that are read at a depth, and whether they are called."""
    read = list[tuple[str, bool]]()
    for name, member in members_of(kind, names):
        called = callable(member) and not isinstance(member, type)
        is_readable = not called or (kind, name) in ARGUMENTS or not needs_arguments(member)
        if is_readable and depth >= _DEPTHS.get((kind, name), int(called)):
            read.append((name, called))
    return tuple(read)


def _short(value: Any) -> str:
    """Return a text, or the digest of a long one."""
    text = value if isinstance(value, bytes) else value.encode("utf-8", "backslashreplace")
    if len(text) > _LONG:
        return blake2b(text, digest_size=16).hexdigest()
    return text.hex() if isinstance(value, bytes) else str(value)


def surfaces(values: Iterable[Any]) -> list[dict[str, str]]:
    """Return everything that can be read fast from each output of a run: a release, a stream, or text."""
    observed, outputs = Observed(), list[dict[str, str]]()
    for value in values:
        observed.seen = {}
        observed.add(type(value).__name__, value)
        outputs.append(observed.seen)
    return outputs


def views(release: Release, depth: int) -> dict[str, str]:
    """Return all views of a release: methods and estimates; at depth 2 also cards, pages, texts and records."""
    observed = Observed(depth)
    observed.add("Release", release)
    if depth > 1:
        page, shown = Page(), card(release, most=40, components=release.n_components)
        page.add([release])
        observed.add("page", page.state())
        observed.add("card", card(release))
        observed.add("streampca show", [shown.text(80), *map(str, in_words(release.guarantee))])
        if "rewards" in release.details and release.packed is not None:
            observed.add("private regret", PrivateRegretRecord.of(release))
    observed.add("pickle", pickle.dumps(release))
    return observed.seen


_PACKAGES = {"site-packages", "dist-packages"}
#: Ids of stored runs and temporary folders differ in each run; how much a store's thread commits depends on time.
_FRESH, _TIMED = re.compile(r"run=[0-9a-f]{32}\b|path=\S+"), re.compile(r"\d[\d.]*")


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect the messages of the ``with`` block: warnings, both standard streams, and records of any level.

    Records are those of streampca, the root logger and code that is not installed; not those of the curator.
    """
    # Texts in order; those of other threads, whose order depends on time, as a set and without their numbers.
    texts, beside, thread = list[str](), set[str](), get_ident()
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    caught: list[warnings.WarningMessage] = []
    is_enabled, handle = logging.Logger.isEnabledFor, logging.Logger.handle

    def heard(logger: logging.Logger, record: logging.LogRecord) -> None:
        own = record.name == "root" or record.name.partition(".")[0] == "streampca"
        is_installed = not own and not _PACKAGES.isdisjoint(Path(record.pathname).parts)
        if not is_installed and not f"{record.name}.".startswith(f"{CURATOR}."):
            text = f"{record.name} logged {_FRESH.sub('...', record.getMessage())}"
            if record.thread == thread:
                texts.append(text)
            else:
                beside.add(_TIMED.sub("...", text))
        if is_enabled(logger, record.levelno):
            handle(logger, record)

    try:
        with (
            mock.patch.multiple(logging.Logger, isEnabledFor=lambda *_: True, handle=heard),
            mock.patch.object(logging, "lastResort", logging.NullHandler()),  # else the curator's records go to stderr
            contextlib.redirect_stdout(streams["stdout"]),
            contextlib.redirect_stderr(streams["stderr"]),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            yield texts
    finally:
        texts += sorted(beside)
        texts += [f"warned {one.category.__name__}: {one.message}" for one in caught]
        texts += [f"{name}: {stream.getvalue()}" for name, stream in streams.items() if stream.getvalue()]
