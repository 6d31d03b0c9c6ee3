"""Fitting the two numbers of a geometric BLT to a horizon, a window or a decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from streampca.matrix_factorization.buffers import Buffers


@lru_cache(maxsize=256)
def fit_buffers(horizon: int) -> Buffers:
    """The geometric BLT with the least noise in the last of ``horizon`` sums, before column normalisation.

    Deterministic, a few hundredths of a second: a simplex search on
    0.5 log[S(T) sum_k b_k**2] over (log alpha, log r), rounded to seven digits.
    """
    return _fit(
        lambda blt: float(blt.column_square(horizon)) * float(blt.row_square(horizon)), horizon, buffers_for(horizon)
    )


@lru_cache(maxsize=256)
def fit_lagged(window: int) -> Buffers:
    """The geometric BLT with the least noise in differences of prefix sums ``window`` apart, forever."""
    count = max(1, (window.bit_length() + 2) // 3)
    return _fit(lambda blt: blt.column_square_limit() * float(blt.lagged_square(window)), window, count)


@lru_cache(maxsize=256)
def fit_forgetting(memory: int) -> Buffers:
    """The geometric BLT with the least noise in sums that decay by 1 - 1/memory a step."""
    fade = 2.0 / memory - 1.0 / memory**2  # 1 - (1 - 1/memory)**2
    count = max(1, (memory.bit_length() + 3) // 3)
    return _fit(lambda blt: blt.faded_column_square(fade) * blt.faded_row_square(fade), memory, count)


def _fit(square: Callable[[Buffers], float], length: int, count: int) -> Buffers:
    def loss(x: tuple[float, float]) -> float:
        buffers = _make(x, count)
        return math.inf if buffers is None else 0.5 * math.log(square(buffers))

    best = simplex_search(loss, (math.log(0.2 / length), math.log(_ratio(length, count))))
    # Seven digits of each: beyond them the noise does not change, and mathematics libraries may.
    return Buffers(_rounded(math.exp(best[0])), _rounded(math.exp(best[1])), count)


def buffers_for(horizon: int) -> int:
    """How many buffers bring the noise within about 0.5 % of what more would."""
    return min(8, max(1, (2 * horizon.bit_length() + 3) // 5))


def _ratio(horizon: int, count: int) -> float:
    return float((2.0 * horizon) ** (1.0 / count))


def _make(x: tuple[float, float], count: int) -> Buffers | None:
    alpha, ratio = math.exp(x[0]), math.exp(x[1])
    if not (1.0 + 1e-6 < ratio < 1e9 and alpha * ratio ** (count - 0.5) < 0.999):
        return None
    return Buffers(alpha, ratio, count)


def _rounded(x: float) -> float:
    return float(f"{x:.7g}")


def simplex_search(loss: Callable[[tuple[float, float]], float], start: tuple[float, float]) -> tuple[float, float]:
    """Nelder and Mead's search in two dimensions; our own, so that it never changes."""
    points = list(np.array(start) + np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.2]]))
    values = [loss((p[0], p[1])) for p in points]
    for _ in range(200):
        order = sorted(range(3), key=values.__getitem__)
        points, values = [points[i] for i in order], [values[i] for i in order]
        if values[2] - values[0] < 1e-12 and float(np.abs(points[2] - points[0]).max()) < 1e-7:
            break
        centre = 0.5 * (points[0] + points[1])
        step = centre - points[2]

        def at(scale: float, centre: np.ndarray = centre, step: np.ndarray = step) -> tuple[np.ndarray, float]:
            p = centre + scale * step
            return p, loss((float(p[0]), float(p[1])))

        p, value = at(1.0)
        if value < values[0]:
            further = at(2.0)
            p, value = further if further[1] < value else (p, value)
        elif value >= values[1]:
            p, value = at(0.5) if value < values[2] else at(-0.5)
        if value < values[2]:
            points[2], values[2] = p, value
        else:
            for i in (1, 2):
                points[i] = 0.5 * (points[0] + points[i])
                values[i] = loss((float(points[i][0]), float(points[i][1])))
    return float(points[0][0]), float(points[0][1])
