"""Scale of rows: public ranges of the features, or a norm.

Every interface that absorbs or releases rows requires exactly one of ``bounds`` and ``row_norm``, because noise is
calibrated for rows of the unit ball: longer rows would be shortened without notice, and short ones drown in the noise.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import SCALE, BadParameterError, MissingParametersError, UsageError, listed, short
from streampca.linalg.types import FloatArray, Mask

#: ``(lower, upper)``, numbers or arrays with an entry a feature; or ``{feature: (lower, upper)}``, or a list of pairs.
Bounds = tuple[npt.ArrayLike, npt.ArrayLike] | Mapping[str, tuple[float, float]] | list[tuple[float, float]]

_LARGE = float(np.finfo(np.float64).max)


def check_scale(bounds: object, row_norm: object) -> None:
    """Raise `UsageError` unless exactly one of the two is given. Both errors begin with the sentence `SCALE`."""
    if bounds is None and row_norm is None:
        raise MissingParametersError(["bounds"])
    if bounds is not None and row_norm is not None:
        raise UsageError(f"{SCALE} Both are given, and bounds determine the scale. Omit row_norm")


def check_row_norm(row_norm: Any) -> float:
    """Return the norm as a float; raise `BadParameterError` unless its square is finite and positive."""
    number = isinstance(row_norm, (int, float, np.floating, np.integer)) and not isinstance(row_norm, bool)
    if not number or not 1e-150 < row_norm < 1e150:  # `Terms.from_dict` has the same limits
        raise BadParameterError("row_norm", row_norm, "a number between 1e-150 and 1e150")
    return float(row_norm)


def in_norm(rows: FloatArray, row_norm: float) -> FloatArray:
    """Return rows of finite numbers in units of ``row_norm``."""
    if row_norm == 1.0:
        return rows
    with np.errstate(over="ignore"):
        scaled = rows * (1.0 / row_norm)
    # Finite rows that become shorter stay finite.
    return scaled if row_norm > 1.0 else np.clip(scaled, -_LARGE, _LARGE, out=scaled)


def in_bounds(
    rows: FloatArray, middle: FloatArray | float, factor: FloatArray | float, tolerance: float
) -> tuple[FloatArray, Mask | None]:
    """Return rows mapped linearly from their bounds to [-1, 1] / sqrt(d) and clamped there."""
    # ``factor`` is 2 over the width of each range. The second value is the mask of the values that exceeded their range
    # times ``tolerance``; None if there are none.
    with np.errstate(over="ignore"):
        scaled: FloatArray = (rows - middle) * factor
    outside = None
    if max(scaled.max(initial=0.0), -scaled.min(initial=0.0)) > tolerance:
        outside = np.abs(scaled) > tolerance
    # Each entry within +-1 / sqrt(d) bounds the norm of the row by 1: the sensitivity that noise is calibrated for.
    np.clip(scaled, -1.0, 1.0, out=scaled)
    scaled *= 1.0 / math.sqrt(rows.shape[1])
    return scaled, outside


def column_bounds(
    bounds: Bounds, n_features: int, features: Sequence[str] | None, known: Collection[str] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds as two arrays, (n_features,). `UsageError` unless finite with lower < upper."""
    # A mapping may hold other ``known`` names; None for any. Names are compared as text.
    lower: Any
    upper: Any
    if isinstance(bounds, Mapping):
        if features is None:
            raise UsageError("bounds by name: expected named features. Pass features=, or bounds=(lower, upper)")
        pairs = {str(name): pair for name, pair in bounds.items()}
        for name, pair in pairs.items():
            if known is not None and name not in features and name not in known:
                raise UsageError(f"bounds= names {short(name)}, not a feature; {close_names(name, features)}")
            if np.shape(pair) != (2,):
                raise BadParameterError("bounds", ..., f"(lower, upper) for {short(name)}, not {short(pair)}")
        if missing := [name for name in features if name not in pairs]:
            raise UsageError(f"bounds are missing for {listed(missing)}. Pass public ranges of all features")
        lower, upper = zip(*(pairs[name] for name in features), strict=True)
    else:
        try:
            # A list has the pair of each feature; a tuple has all lower bounds, then all upper ones.
            lower, upper = zip(*bounds, strict=True) if isinstance(bounds, list) else bounds
        except (TypeError, ValueError):
            advice = "Only `Stream` and `sp.pca` accept 'private'"
            raise BadParameterError("bounds", bounds, "(lower, upper) or a mapping by name", advice=advice) from None
    try:
        lower, upper = (
            np.broadcast_to(np.asarray(side, dtype=np.float64), (n_features,)).copy() for side in (lower, upper)
        )
    except (TypeError, ValueError, OverflowError):
        raise BadParameterError("bounds", bounds, f"(lower, upper), each a number or {n_features} numbers") from None
    # Below this width, a value divided by it may not be finite.
    usable = np.isfinite(lower) & np.isfinite(upper) & (0.5 * upper - 0.5 * lower > 1e-300)
    if not usable.all():
        j = int(np.argmin(usable))
        name = f"feature {short(features[j])}" if features else f"feature {j}"
        raise BadParameterError("bounds", ..., f"finite lower < upper for {name}, not ({lower[j]:g}, {upper[j]:g})")
    return lower, upper


def close_names(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the closest known names, or the first few."""
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {listed(close)}?" if close else f"there are {listed(known)}"
