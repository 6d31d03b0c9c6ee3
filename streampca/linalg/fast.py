"""Compiled kernels where numba is installed (extra ``fast``), numpy where it is not: the same bits."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType

_wanted = True


def compiled() -> ModuleType | None:
    """The compiled kernels, or None if they are not installed, or switched off."""
    return _load() if _wanted else None


def use(wanted: bool) -> bool:
    """Switch the compiled kernels on or off for objects made from now on; return what was set before.

    They are on by default. No released bit depends on it.
    """
    global _wanted
    before, _wanted = _wanted, wanted
    return before


@lru_cache(maxsize=1)
def _load() -> ModuleType | None:
    try:
        return import_module("streampca.linalg.compiled")
    except ImportError:
        return None
