"""Values that are computed once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 replaces that of functools
        """`functools.cached_property` without its lock."""

        # Before Python 3.12, `functools.cached_property` holds one lock for all instances while a value is computed; in
        # the child of a fork, a lock that another thread held is never released.

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
