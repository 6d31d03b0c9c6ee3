"""Warnings that depend on public parameters only. What depends on rows is logged for the curator (`rows.report`)."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from streampca.errors import StreamPCAWarning
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.unit import Person

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
#: epsilon above which a guarantee is weak: the odds of an attacker may change by a factor of 22 000.
_LARGE_EPSILON = 10.0
#: Number of rows times delta above which delta is too large: a mechanism that publishes each row with probability delta
#: is (0, delta)-private.
_ROWS_EXPOSED = 0.1
#: Bytes of memory above which a warning is issued.
_LARGE_MEMORY = 1e9


def settings_warnings(guarantee: Guarantee, n_rows: int | None) -> list[str]:
    """Warn of a weak guarantee: epsilon over 10, or a large delta for the number of rows, if known."""
    found = []
    if guarantee.is_private and guarantee.epsilon > _LARGE_EPSILON:
        found.append(f"epsilon={guarantee.epsilon:g}: the guarantee is weak. Choose at most 10, better 1.")
    return found if n_rows is None else found + delta_warnings(guarantee, n_rows)


def unit_warnings(unit: Person | None, horizon: int | None) -> list[str]:
    """Warn of an endless stream of people, whose budgets are spent for good."""
    if unit is None or unit.period is not None or horizon is not None:
        return []
    return [
        f"unit, horizon=None: the budget of a {unit.name} is spent for good, and later rows of hers count for nothing. "
        "Give a horizon, after which another run begins, or with a calendar unit.period."
    ]


def delta_warnings(guarantee: Guarantee, n_rows: int) -> list[str]:
    """Warn of a delta over a tenth of one over the number of rows."""
    expected = guarantee.delta * n_rows
    if not guarantee.is_private or expected <= _ROWS_EXPOSED:
        return []
    return [
        f"delta={guarantee.delta:g} is too large for {n_rows} rows: it allows to publish {expected:.2g} whole rows on "
        f"average. Choose at most {10.0 ** math.floor(math.log10(_ROWS_EXPOSED / n_rows)):g}."
    ]


def size_warnings(n_components: int | None, n_features: int | None, square_bytes: float = 0.0) -> list[str]:
    """Warn of a subspace that is the whole space, and of (d, d) matrices of more than a gigabyte."""
    found = []
    if n_components == n_features:
        found.append(
            f"n_components={n_components} is the number of features: the subspace is the whole space for any rows. "
            "Choose fewer components."
        )
    needed = square_bytes * (n_features or 0) ** 2
    if needed > _LARGE_MEMORY:
        found.append(
            f"{n_features} features: matrices of all pairs of features require about {needed / 1e9:.2g} GB of memory. "
            "Choose fewer columns, or PrivateSketch, which has none."
        )
    return found


def warn(texts: Iterable[str]) -> None:
    """Issue each text as a `StreamPCAWarning` that points at the caller of the package."""
    frame: Any = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    for text in texts:
        warnings.warn(text, StreamPCAWarning, stacklevel=level)
