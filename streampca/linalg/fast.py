"""Compiled kernels where numba is installed (extra ``fast``), numpy where it is not.

Sums, noise and released Gram matrices have the same bits with both. Eigenvectors and eigenvalues read off them may
differ by 1e-12, so a process takes the same ones from its first row on. Loading them takes half a second, and the first
time on a machine, when they are compiled and kept, about half a minute.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from streampca.linalg.types import FloatArray

#: The compiled kernels, or None if they are not installed, or switched off. Loaded when first read.
kernels: SimpleNamespace | None


def use(wanted: bool) -> bool:
    """Switch the compiled kernels on or off; return whether they were on.

    They are on by default where they are installed. No released Gram matrix depends on it.
    """
    global kernels
    before = globals().get("kernels", load()) is not None
    kernels = load() if wanted else None
    return before


def described() -> str:
    """The package whose kernels make bases and eigenvalues here, with its version."""
    name = "numpy" if globals().get("kernels", load()) is None else "numba"
    return f"{name} {import_module(name).__version__}"


@cache
def load() -> SimpleNamespace | None:
    """The compiled kernels of all modules; None if numba is not installed."""
    try:
        modules = [import_module(f"streampca.linalg.{name}") for name in ("compiled", "compiled_eigen")]
    except ImportError:
        return None
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


def sum_of_rows(rows: FloatArray) -> FloatArray:
    """The sum of the rows of an array, added in their order: the same bits as a compiled loop."""
    # `add.reduce` over rows adds in order, except for rows of one number.
    total: FloatArray = np.add.reduce(rows) if rows.shape[1] > 1 else np.add.accumulate(rows)[-1]
    return total


def __getattr__(name: str) -> Any:
    if name != "kernels":
        raise AttributeError(f"module 'streampca.linalg.fast' has no attribute {name!r}")
    use(True)
    return globals()["kernels"]
