"""Errors raised on purpose by streampca, and the class of its warnings.

Each message names the parameter or row, the value, and a remedy. Errors are raised before any state changes: no row is
absorbed, no noise is drawn and no budget is spent.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any


def short(value: object) -> str:
    """Return the repr of an input value for a message: at most 80 characters; of an array, its shape."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and hasattr(value, "__len__"):
        return f"<{type(value).__name__} of shape {shape}>"
    try:
        # A value of the caller may be as long as its rows: a message never holds all of it.
        return _cut(repr(value))
    except ValueError:  # an integer of more than 4300 digits
        return f"<{type(value).__name__}>"


def listed(values: Iterable[object]) -> str:
    """Return the first of several input values for a message: at most 80 characters."""
    return _cut(", ".join(map(repr, islice(values, 40))))


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import modules of an extra; the error for a missing one explains how to install it."""
    try:
        yield
    except ModuleNotFoundError as problem:
        raise ModuleNotFoundError(f"{problem}; pip install 'streampca[{extra}]'", name=problem.name) from None


def reason(problem: BaseException) -> str:
    """Return the message of an exception for the middle of another: 80 characters if it is from another library."""
    text = str(problem).removesuffix(".")
    return text if isinstance(problem, StreamPCAError) else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def refuse_web(path: object) -> None:
    """Raise `SourceError` if the path of a file is a web address."""
    # The address itself may hold a password or a token.
    if scheme := re.match(r"(https?|ftps?|s3|gs)://", str(path), re.IGNORECASE):
        raise SourceError(
            None, f"`{scheme[0]}…` is a web address, and streampca reads none. Download the file and give its path."
        )


class StreamPCAError(Exception):
    """Base class of all errors. The message is one line of printable characters for any input, with a final period."""

    def __str__(self) -> str:
        text = super().__str__()
        if not text.isprintable():
            text = "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text).strip()
        return text if text.endswith((".", "?")) else f"{text}."

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors pass between processes, and a constructor takes other arguments than the message in `args`.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UsageError(StreamPCAError, ValueError):
    """The call is not possible with these arguments together, or in this state."""


class BadParameterError(UsageError):
    """One parameter is outside its domain: ``parameter=value: expected X. Advice.``, from the fields of these names.

    ``value`` is a text by `short`, because an error holds no more of an input than its message shows. It is None if the
    raise passes ``...``, as for a key.
    """

    def __init__(self, parameter: str, value: object, expected: str, *, advice: str = "") -> None:
        self.parameter, self.expected, self.advice = parameter, expected, advice
        self.value = None if value is ... else short(value)
        subject = parameter if self.value is None else f"{parameter}={self.value}"
        super().__init__(f"{subject}: expected {expected}{advice and f'. {advice}'}")


#: First sentence of the error of every interface for a scale that is missing, or given twice.
SCALE = "Give the range of each column (bounds), or the length of a long row (row_norm), but not from the rows."
#: Meanings of parameters that have no default.
_MEANINGS = {
    "n_components": "number of components", "epsilon": "privacy budget, e.g. 1", "window": "rows that count",
    "horizon": "number of rows", "release_every": "rows between releases",
}  # fmt: skip


class MissingParametersError(UsageError):
    """Parameters without a default are not given: all of them, by name, in ``names``.

    The name ``"bounds"`` stands for the scale of the rows, which is `bounds` or `row_norm`. If only that is missing,
    the message is `SCALE`. Interfaces with other spellings than Python's use `rendered`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(self.rendered(str))

    def rendered(self, spelled: Callable[[str], str]) -> str:
        """Return the message with parameters as an interface spells them."""
        if self.names == ("bounds",):
            return SCALE
        words = [
            f"{spelled('bounds')} or {spelled('row_norm')}" if name == "bounds"
            else f"{spelled(name)} ({_MEANINGS[name]})" if name in _MEANINGS else spelled(name)
            for name in self.names
        ]  # fmt: skip
        return f"Missing: {' and '.join(filter(None, (', '.join(words[:-1]), words[-1])))}."


class BadRowError(StreamPCAError, ValueError):
    """A row has the wrong shape, or is bad where bad rows have no meaning. ``row`` is its number, if known."""

    def __init__(self, row: int | None, problem: str) -> None:
        self.row, self.problem = row, problem
        super().__init__(problem if row is None else f"row {row}: {problem}")


class SourceError(StreamPCAError, ValueError):
    """A file or table, ``source``, cannot be read as rows. ``line`` is a number from 1, or None for all of it."""

    def __init__(self, source: object, problem: str, *, line: int | None = None) -> None:
        self.source, self.problem, self.line = None if source is None else str(source), problem, line
        where = source if line is None else f"{source}, line {line}"
        super().__init__(problem if source is None else f"{where}: {problem}")


class HorizonReachedError(StreamPCAError, RuntimeError):
    """The noise is calibrated for fewer rows."""


class StreamBusyError(StreamPCAError):
    """A call would change a stream, ledger or store inside another call that changes it, in the same thread.

    Raised by nested calls from signal handlers, finalizers and methods of rows. Not a `RuntimeError`, which conversions
    of rows catch.
    """


class BudgetExhaustedError(StreamPCAError, RuntimeError):
    """The privacy budget does not cover a release."""


class NoReleaseError(StreamPCAError, RuntimeError):
    """A release does not exist or does not hold a value."""


class StoreCorruptError(StreamPCAError, RuntimeError):
    """A durable run is damaged or has another format."""


class StoreLockedError(StreamPCAError, RuntimeError):
    """Another process or stream writes to the durable run."""


class StoreForkedError(StreamPCAError, RuntimeError):
    """A durable run was copied or restored, and another copy may have continued: two runs cost more."""


class StoreUnwritableError(StreamPCAError, RuntimeError):
    """The rows cannot be made durable: the disk is full or read-only."""


class WrongKeyError(StreamPCAError, ValueError):
    """The key or passphrase does not open the durable run, or its key file is missing or unsafe."""


class StreamPCAWarning(UserWarning):
    """Public parameters or releases predict a result of little use, or a weak guarantee. Never about rows.

    Issued before or after a whole change: turned into an error, it leaves a stream consistent.
    """


def printable(text: str) -> str:
    """Replace the characters of a text that control a terminal."""
    # The narrow space that groups digits counts as not printable, and controls nothing.
    return "".join(c if c.isprintable() or c == "\u202f" else "\ufffd" for c in text)
