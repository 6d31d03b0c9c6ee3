"""Private PCA of the last W rows beside that of all rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from scenario import Context, held_bytes

from streampca.linalg.eigen import top_sum
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.window_methods import WindowProcessor
from streampca.rows.admission import Admission
from streampca.rows.protocol import Reader
from streampca.sources import flights
from streampca.sources.csv_rows import from_csv
from streampca.sources.synthetic import drift as drifting
from streampca.stream.stream import Stream

#: Public ranges of New York's weather, from almanacs and not from the rows.
WEATHER: Final[dict[str, tuple[float, float]]] = {
    "temp": (-20, 110), "dewp": (-20, 90), "humid": (0, 100), "wind_speed": (0, 60), "visib": (0, 10),
    "pressure": (970, 1050),
}  # fmt: skip
_BUDGET: Final[dict[str, float]] = {"epsilon": 1.0, "delta": 1e-6}


def drift(context: Context) -> dict[str, dict[str, float]]:
    """Follow a subspace that turns: see `_follow` for what is measured."""
    params = context.params
    given = {name: params[name] for name in ("n_features", "n_components", "quarter_turn", "norm")}
    source = drifting(context.rows, seed=context.seed, **given)
    return _follow(context, source.blocks(), Admission(n_features=params["n_features"]))


def weather(context: Context) -> dict[str, dict[str, float]]:
    """Follow a year of hourly weather at New York's three airports, one after the other: see `_follow`."""
    path = flights.path().parent / "weather.csv"
    source = from_csv(path, columns=tuple(WEATHER), bounds=WEATHER, missing="nan")
    admission = Admission(bounds=WEATHER, features=tuple(WEATHER), on_bad_row="zero")
    return _follow(context, source.blocks(), admission)


def _follow(context: Context, blocks: Iterator[FloatArray], admission: Admission) -> dict[str, dict[str, float]]:
    """Run every kind of window and PrivateFPL on the same rows; measure on the exact window as it moves.

    From the first full window on, several times a window:

    ``captured_least``, ``captured_mean``: share of what the best subspace of
    the last W rows captures of them. ``error``: largest spectral error of the released Gram matrix, over W.
    ``memory``: MiB at the end, noise apart. The last run holds UU21's additive terms for
    the same window, over W (Theorems 17 and 18, all constants 1).
    """
    params = context.params
    window, every, k = int(params["window"]), int(params["release_every"]), int(params["n_components"])
    common: dict[str, Any] = {"n_components": k, **_BUDGET, "release_every": every}
    algorithms: dict[str, Algorithm] = {
        "all_rows": PrivateFPL(horizon=context.rows, **common),
        "histogram": SlidingWindowPCA(window=window, **common),
        "sketch": SlidingWindowPCA(window=window, sketch_rank=4 * k, **common),
        "ring": SlidingWindowPCA(window=window, method="ring", **common),
        "forgetting": SlidingWindowPCA(window=window, method="forgetting", **common),
    }
    streams = {name: Stream(algorithm, regret=None, seed=context.seed) for name, algorithm in algorithms.items()}
    captured: dict[str, list[float]] = {name: [] for name in streams}
    errors: dict[str, list[float]] = {name: [] for name in streams if name not in ("all_rows", "forgetting")}
    last: FloatArray = np.empty((0, 0))
    t, size, reader = 0, max(every, window // 7 // every * every), Reader(blocks)
    while t + size <= context.rows and len(batch := reader.take(size)) == size:
        rows, _ = admission.block(batch, t + 1)
        t += size
        last = np.concatenate([last, rows])[-window:] if last.size else rows
        for stream in streams.values():
            stream.push_many(rows)
        if t < window:
            continue
        gram = last.T @ last
        best = top_sum(gram, k)
        for name, stream in streams.items():
            captured[name].append(stream.engine.subspace.captured(gram) / best)
            release = stream.release
            if name in errors and release is not None:
                errors[name].append(float(np.linalg.norm(release.gram - gram, 2)) / window)
    table = {}
    for name, shares in captured.items():
        table[name] = {"captured_least": min(shares), "captured_mean": float(np.mean(shares))}
        if name in errors:
            table[name]["error"] = max(errors[name])
        processor = streams[name].engine.processor
        if isinstance(processor, WindowProcessor):
            table[name]["memory"] = held_bytes(processor) / 2**20
    # Additive terms tau log tau of UU21's Theorems 17 and 18, their constants taken as 1. The printed algorithms are
    # not private (`tests/reference`); these are the errors claimed for them.
    scale = last.shape[1] + 14.0 * math.log(4.0 / _BUDGET["delta"]) / _BUDGET["epsilon"] ** 2
    taus = {"theorem_17": scale * math.log(window) ** 1.5, "theorem_18": scale * window**0.75}
    return table | {"uu21": {name: tau * math.log(tau) / window for name, tau in taus.items()}}
