"""Calls that change an object: one at a time, and none inside another one.

Code of the caller runs inside such calls: methods of a row, `debit` of an account, signal handlers, finalizers.
A nested change would start from the state that the outer call is about to replace, and a stream would release one
row number twice. `exclusive` refuses it with `StreamBusyError`. Other threads wait.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import wraps
from threading import RLock, get_ident
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from streampca.errors import StreamBusyError


class Forkable(Protocol):
    """An object that must change in the child of a fork."""

    def after_fork(self) -> None:
        """Called in the child."""


#: Objects whose ``after_fork`` is called in the child of a fork.
_FORKABLE: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_of_forks(thing: Forkable) -> None:
    """Call ``after_fork`` of an object in the child of every fork, for as long as the object lives."""
    _FORKABLE.add(thing)


def _after_fork() -> None:
    for thing in list(_FORKABLE):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Guard:
    """Lock and busy mark of an object. A copy, a pickle and the child of a fork have their own.

    Parameters
    ----------
    name : noun for the object, in messages.

    Attributes
    ----------
    lock : held during every exclusive call; re-entrant.
    is_busy : the mark: the thread that holds the lock is inside an exclusive call.
    helper : identifier of a thread that exclusive calls wait for, so that its own calls are refused; 0 if none.
    inner : guard that exclusive calls acquire as well, or None. Inside its calls, calls of this one are refused: two
        threads that acquire both in different order would wait for each other.
    """

    __slots__ = ("__weakref__", "helper", "inner", "is_busy", "lock", "name")

    def __init__(self, name: str, inner: Guard | None = None) -> None:
        self.name, self.inner = name, inner
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Start free: threads that were inside do not exist in the child."""
        self.lock, self.is_busy, self.helper = RLock(), False, 0

    def refuse(self) -> None:
        """Raise `StreamBusyError`."""
        raise StreamBusyError(
            f"this {self.name} is busy: a call that changes it is not finished in this thread. "
            "Call again after it has returned"
        )

    def check(self) -> None:
        """Raise `StreamBusyError` inside an exclusive call of the same thread. Wait for those of other threads."""
        if self.helper and self.helper == get_ident():
            self.refuse()
        with self.lock:
            if self.is_busy:
                self.refuse()

    def __reduce__(self) -> tuple[type[Guard], tuple[str]]:
        return Guard, (self.name,)


class _Guarded(Protocol):
    @property
    def guard(self) -> Guard: ...


G = TypeVar("G", bound=_Guarded)
P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Make a method wait for other threads, and raise `StreamBusyError` inside another exclusive call of its thread.

    Any number of nested calls may complete before the mark is set, and after it is cleared.
    """

    @wraps(method)
    def call(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self.guard
        if guard.helper and guard.helper == get_ident():
            guard.refuse()
        if guard.inner is not None:
            guard.inner.check()
        with guard.lock:
            if guard.is_busy:
                guard.refuse()
            # Setting the mark is inside `try`, and clearing it is repeated: an exception at any line, also in the inner
            # `finally`, leaves no mark behind.
            try:
                try:
                    guard.is_busy = True
                    return method(self, *args, **kwargs)
                finally:
                    guard.is_busy = False
            finally:
                guard.is_busy = False

    return call
