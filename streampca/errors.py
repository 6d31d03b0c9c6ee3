"""Errors raised on purpose by streampca, and the class of its warnings.

Each message names the parameter or row, the value, and a remedy. Errors are raised before any state changes: no row is
absorbed, no noise is drawn and no budget is spent.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Iterator
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
    """One parameter is outside its domain. The message is ``parameter=value: expected X. Advice.``, from the fields.

    ``value`` is a text by `short`, because an error holds no more of an input than its message shows. It is None if the
    raise passes ``...``, as for a key.
    """

    def __init__(self, parameter: str, value: object, expected: str, *, advice: str = "") -> None:
        self.parameter, self.expected, self.advice = parameter, expected, advice
        self.value = None if value is ... else short(value)
        subject = parameter if self.value is None else f"{parameter}={self.value}"
        super().__init__(f"{subject}: expected {expected}{advice and f'. {advice}'}")


class BadRowError(StreamPCAError, ValueError):
    """A row cannot be admitted: wrong shape, not finite, not a number.

    ``row`` is its number, if known, and ``feature`` the name or position of the bad value, if it is one. The row
    is counted under ``reason``, one of `streampca.rows.admission.REASONS`.
    """

    def __init__(
        self, row: int | None, problem: str, *, feature: str | int | None = None, reason: str = "wrong features"
    ) -> None:
        self.row, self.problem, self.feature, self.reason = row, problem, feature, reason
        text = problem if feature is None else f"feature {short(feature)} {problem}"
        super().__init__(text if row is None else f"row {row}: {text}")


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
