"""Exclusive calls: calls that change an object run one at a time, and none inside another one.

Code of the caller runs inside such calls: methods of a row, `debit` of an account, signal handlers, finalizers. A
nested change would start from the state that the outer call is about to replace, and a stream would release one row
number twice. `exclusive` refuses it with `StreamBusyError`. Other threads wait.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import wraps
from threading import RLock, get_ident
from typing import Any, TypeVar, cast

from streampca.errors import StreamBusyError

#: Objects whose ``after_fork`` the child of a fork calls, for as long as they live.
_FORKABLE: weakref.WeakSet[Any] = weakref.WeakSet()
tell_of_forks = _FORKABLE.add


def _after_fork() -> None:
    for thing in list(_FORKABLE):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Guard:
    """Lock and busy mark of an object, which ``name`` names in messages. Not shared with copies and forked children."""

    # Every exclusive call holds ``lock``; ``is_busy`` if the thread that holds it is inside one. ``helper`` identifies
    # a thread that exclusive calls wait for, so that its own calls are refused (0 if none). Calls acquire ``inner``,
    # too. Inside its calls, calls of this one are refused: two threads could acquire both in different order, and wait.

    __slots__ = ("__weakref__", "helper", "inner", "is_busy", "lock", "name")

    def __init__(self, name: str, inner: Guard | None = None) -> None:
        self.name, self.inner = name, inner
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Start free: threads that were inside a call do not exist in the child."""
        self.lock, self.is_busy, self.helper = RLock(), False, 0

    def refuse(self) -> None:
        raise StreamBusyError(
            f"this {self.name} is busy: a call that changes it is not finished in this thread. "
            "Call again after it has returned"
        )

    def check(self) -> None:
        """Raise `StreamBusyError` inside an exclusive call of the same thread. Wait for those of other threads."""
        if self.helper and self.helper == get_ident():
            self.refuse()
        # A mark that is set while this thread holds the lock is that of a call further up in this thread.
        with self.lock:
            if self.is_busy:
                self.refuse()

    def __reduce__(self) -> tuple[type[Guard], tuple[str]]:
        return Guard, (self.name,)


F = TypeVar("F", bound=Callable[..., Any])


def exclusive(method: F) -> F:
    """Make a method wait for other threads, and raise `StreamBusyError` inside another exclusive call of its thread.

    The method's object has a `Guard` as its ``guard``.
    """

    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        guard: Guard = self.guard
        if guard.helper and guard.helper == get_ident():
            guard.refuse()
        # Always in this order: outer guard, then inner. Two orders could wait for each other.
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

    return cast(F, call)
