"""Errors raised on purpose by streampca, and the class of its warnings.

Each message names the parameter or row, the value, and a remedy. Errors are raised before any state changes: no row is
absorbed, no noise is drawn and no budget is spent.
"""

from __future__ import annotations

import copyreg
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


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
    """One parameter is outside its domain. The message is ``parameter=value: expected X. Advice.``, from the fields.

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


class AbsorbInterruptedError(StreamPCAError, RuntimeError):
    """A worker of `Stream.absorb` failed. The stream stands at its last step: the same call continues."""


class TenantRetiredError(StreamPCAError, RuntimeError):
    """A key of a fleet was retired or handed over, and has no budget left there."""


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


#: What users of other libraries try, and what streampca has: by class, or "streampca", and name or keyword.
ANSWERS = {
    "streampca": {
        "PCA PrivatePCA fit fit_transform": "sp.pca for a table, sp.Stream for rows; or streampca.sklearn.PrivatePCA",
        "IncrementalPCA StreamingPCA StreamPCA OnlinePCA": "sp.Stream(sp.PrivateFPL(...))",
        "CSVSource read_csv open_rows from_csv load_csv": "sp.sources.open_rows",
        "read_release load load_releases": "sp.read_releases",
        "Accountant PrivacyAccountant BudgetAccountant": "sp.Ledger",
        "Gaussian GaussianMechanism": "sp.GaussianCovariance",
        "Exponential SlidingWindow WindowPCA": "sp.SlidingWindowPCA",
        "recommend suggest": "sp.plan",
    },
    "Stream": {
        "update learn_one add feed": "push",
        "partial_fit learn_many fit": "push_many for a block; sp.pca for one table",
        "releases": "`for step in stream.run(rows)`: step.release",
        "components_ components explained_variance_ratio_ plot save subspace to_frame transform":
            "stream.release, which has components, plot, save, subspace, to_frame and transform",
        "spent epsilon budget": "stream.guarantee",
        "n_components k delta center horizon release_every adjacency window noise solver unit":
            "a parameter of the algorithm: Stream(sp.PrivateFPL(...))",
        "ledger": "account=Ledger(path).account(data_set)",
    },
    "Release": {
        "basis components_ loadings loadings_": "components (k, d), or to_frame() in the units of the features",
        "explained_variance_ explained_variance_ratio_": "explained_variance and explained_variance_ratio",
        "mean_": "mean",
        "to_dataframe to_pandas": "to_frame",
        "to_file write": "save",
        "epsilon delta": "guarantee",
    },
    "Ledger": {
        "spent": "balance(data_set).spent",
        "budget": "balance(data_set)",
        "spend charge": "debit",
        "epsilon delta": "Ledger.set_budget(data_set, Budget(epsilon, delta))",
    },
    "": {  # parameters of algorithms, mechanisms and functions
        "k n_components_ components rank": "n_components",
        "n": "n_rows or horizon",
        "d": "n_features",
        "rho mu": "epsilon and delta; Guarantee has mu and rho",
        "data_norm norm clip": "row_norm of Stream or release",
        "every": "release_every",
        "random_state": "seed",
    },
}  # fmt: skip


def refuse_guess(owners: Iterable[str], guess: str, error: type[Exception], has: str) -> None:
    """Raise an error that names the right word, if there is one for this ``guess``."""
    for guesses, answer in chain.from_iterable(ANSWERS.get(owner, {}).items() for owner in owners):
        if guess in guesses.split():
            raise error(f"there is no {has} {guess!r}. Use {answer}")


class Answered:
    """Base of classes whose missing attributes are looked up in `ANSWERS`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            refuse_guess([kind.__name__ for kind in type(self).__mro__], name, AttributeError, "attribute")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def answered(function: F) -> F:
    """Make calls with an unknown keyword raise an error that names the right one."""
    known = frozenset(inspect.signature(function).parameters)
    owners = function.__qualname__.partition(".")[0], ""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - known:
            refuse_guess(owners, name, TypeError, "parameter")
        return function(*args, **kwargs)

    return cast(F, call)
