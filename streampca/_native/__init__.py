"""Compiled kernels for the inner loops of a row, with numpy as their oracle and their fallback.

Sums, noise and released Gram matrices have the same bits with both. Bases and eigenvalues computed from them may differ
by 1e-12, so that a store records which kernels computed them. A build of the package compiles the extension where there
is a C compiler (``STREAMPCA_NATIVE=0`` omits it, ``1`` requires it); nothing is compiled at run time. The environment
variable ``STREAMPCA_KERNELS=numpy`` switches it off.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import numpy as np

#: Version of the kernels. It grows when an argument of a kernel, or a bit of a basis or of an eigenvalue changes.
VERSION = 4


def _loaded() -> tuple[ModuleType | None, str]:
    """Return the extension, or None and the reason with its remedy."""
    if os.environ.get("STREAMPCA_KERNELS") == "numpy":
        return None, "switched off by STREAMPCA_KERNELS=numpy"
    try:
        # A name in a variable: type checkers need no stub for a file that only a build makes.
        module = import_module("streampca._native.kernels")
    except ModuleNotFoundError:
        return None, (
            "this installation has no compiled kernels; install a C compiler, then reinstall streampca with "
            "--no-cache-dir --force-reinstall"
        )
    except ImportError as problem:
        return None, f"{problem}; install streampca again"
    if module.VERSION != VERSION:
        return None, "the compiled kernels belong to another version; install streampca again"
    return module, ""


_MODULE, _REASON = _loaded()
#: The extension, or None where numpy computes everything.
compiled: ModuleType | None = _MODULE


def use(wanted: bool) -> bool:
    """Switch the compiled kernels on, where they exist, or off; return whether they were on."""
    global compiled
    before = compiled is not None
    compiled = _MODULE if wanted else None
    return before


def available() -> bool:
    """Return whether compiled kernels exist in this process, on or off."""
    return _MODULE is not None


def described() -> str:
    """Return the name and version of the kernels that compute bases and eigenvalues in this process."""
    return f"native {VERSION}" if compiled is not None else f"numpy {np.__version__}"


def kernels() -> str:
    """Describe the kernels in use, with the reason and the remedy where they are not compiled.

    Examples
    --------
    >>> import streampca as sp
    >>> sp.kernels().split()[0] in ("native", "numpy")
    True
    """
    if compiled is not None:
        return described()
    return f"{described()} (not compiled: {_REASON or 'switched off'})"
