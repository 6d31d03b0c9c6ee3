"""Weights of graph cuts, from a private window over a stream of edges."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scenario import Context

from streampca import queries
from streampca.linalg.types import FloatArray, IntArray
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.release.release import Release
from streampca.stream.stream import Stream

METHODS: tuple[Literal["ring", "histogram"], ...] = ("ring", "histogram")
LEAVES, CUTS = 8, 20


def edges(n_rows: int, sides: FloatArray, crossing: float, rng: np.random.Generator) -> FloatArray:
    """Rows ``sqrt(w) (e_u - e_v)``, w uniform in (0, 1]; edges cross between the sides (+1, -1) with a probability."""
    plus, minus = np.flatnonzero(sides > 0), np.flatnonzero(sides < 0)
    u = np.where(rng.random(n_rows) < 0.5, rng.choice(plus, n_rows), rng.choice(minus, n_rows))
    far = np.where(rng.random(n_rows) < crossing, -sides[u], sides[u])
    v = u.copy()
    while (loops := np.flatnonzero(u == v)).size:
        v[loops] = np.where(far[loops] > 0, rng.choice(plus, loops.size), rng.choice(minus, loops.size))
    rows = np.zeros((n_rows, sides.size))
    weights = np.sqrt(1.0 - rng.random(n_rows))
    rows[np.arange(n_rows), u] = weights
    rows[np.arange(n_rows), v] = -weights
    return rows


def run(context: Context) -> dict[str, dict[str, float]]:
    """Follow a graph whose communities change halfway, through windows of a quarter of the rows.

    Measures: ``cut_error`` (of the cut between the communities at the end, as
    a share of it), ``std`` and ``plain_std`` of that cut (with and without using
    that edges sum to zero), ``coverage`` (share of 95 % intervals of random
    public cuts, over all releases, that hold the exact cut of the rows released on),
    ``old_over_new`` (at the end, the private cut between the old communities
    over that between the new ones), ``communities_found`` (share of vertices that
    the released Laplacian puts on the right side). Curator only: exact functions of raw rows.
    """
    params, rng = context.params, np.random.default_rng(context.seed)
    d, half = int(params["vertices"]), context.rows // 2
    old = np.where(np.arange(d) < d // 2, 1.0, -1.0)
    new = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    crossing = float(params["crossing"])
    rows = np.vstack([edges(half, old, crossing, rng), edges(context.rows - half, new, crossing, rng)])
    cuts = [np.flatnonzero(rng.random(d) < 0.5) for _ in range(CUTS)]
    leaf = max(1, context.rows // (4 * LEAVES))
    measured: dict[str, dict[str, float]] = {}
    for method in METHODS:
        window = SlidingWindowPCA(
            window=LEAVES * leaf, n_components=1, method=method, release_every=leaf,
            epsilon=float(params["epsilon"]), delta=float(params["delta"]),
        )  # fmt: skip
        # A row of weight w has squared norm 2 w, and w is at most 1.
        steps = Stream(window, row_norm=math.sqrt(2.0), regret=None, seed=context.seed).push_many(rows)
        measured[method] = _measure(steps.releases, rows, old, new, cuts)
    return measured


def _measure(
    releases: list[Release], rows: FloatArray, old: FloatArray, new: FloatArray, cuts: list[IntArray]
) -> dict[str, float]:
    held = []
    for release in releases:
        first, last = release.details["window"]
        covered = rows[first - 1 : last]
        for side in cuts:
            low, high = queries.cut(release, side).interval(0.95)
            held.append(low <= _exact_cut(covered, side) <= high)
    release, side, d = releases[-1], np.flatnonzero(new > 0), len(new)
    first, last = release.details["window"]
    now, plain = queries.cut(release, side), queries.cut(release, side, zero_sum=False)
    truth = _exact_cut(rows[first - 1 : last], side)
    # Signs of the least connected direction that sums to zero: post-processing.
    center, ceiling = np.eye(d) - 1.0 / d, float(np.trace(np.abs(release.gram)))
    values = center @ release.gram @ center + ceiling / d * np.ones((d, d))
    found = np.sign(np.linalg.eigh(values)[1][:, 0])
    return {
        "cut_error": abs(now.value - truth) / truth, "std": now.std or math.nan, "plain_std": plain.std or math.nan,
        "coverage": float(np.mean(held)),
        "old_over_new": queries.cut(release, np.flatnonzero(old > 0)).value / now.value,
        "communities_found": float(max(np.mean(found == new), np.mean(found == -new))),
    }  # fmt: skip


def _exact_cut(rows: FloatArray, side: IntArray) -> float:
    """The cut from raw edges. Curator only."""
    return float(np.square(rows[:, side].sum(axis=1)).sum())
