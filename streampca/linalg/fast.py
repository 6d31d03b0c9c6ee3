"""Compiled kernels where numba is installed (extra ``fast``), numpy where it is not: the same bits."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

#: The compiled kernels, or None if they are not installed, or switched off. Loaded when first read.
kernels: ModuleType | None


def use(wanted: bool) -> bool:
    """Switch the compiled kernels on or off; return what was set before.

    They are on by default where they are installed. No released Gram matrix depends on it.
    """
    global kernels
    before = globals().get("kernels", _load()) is not None
    kernels = _load() if wanted else None
    return before


def _load() -> ModuleType | None:
    try:
        return import_module("streampca.linalg.compiled")
    except ImportError:
        return None


def __getattr__(name: str) -> Any:
    if name != "kernels":
        raise AttributeError(f"module 'streampca.linalg.fast' has no attribute {name!r}")
    use(True)
    return globals()["kernels"]
