"""The fixed cases: what planted bugs are planted in, on the neighbors that each subject is worst for.

To register a case, append an `add` (or `mechanism`, for both adjacencies) at the end of this file. What happens to
streams is in `planted.lifecycles`.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

import streampca as sp
from streampca.auditing.needs import (
    BUDGET,
    DOUBLING,
    ENDLESS,
    LARGE,
    MEAN,
    SMALL,
    Pairs,
    boxed,
    centered,
    changes,
    her_rows,
    in_sketch,
    lines,
    needs,
    needs_of,
    with_gaps,
)
from streampca.auditing.runs import HERS, Case, Row, feed_stream
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.configuration import for_missing
from streampca.privacy.outlet import NoiseSource, Outlet

EPSILON, DELTA = BUDGET["epsilon"], BUDGET["delta"]
CASES: dict[str, Case] = {}
_OF_CASE = {field.name for field in fields(Case)}


def add(name: str, kind: Callable[..., Any], **given: Any) -> None:
    of_case = {key: given.pop(key) for key in _OF_CASE & given.keys()}
    CASES[name] = Case(name=name, make=partial(kind, **given), **{"feed": feed_stream, "changes": changes, **of_case})


# -- PrivateFPL -----------------------------------------------------------------------------------

FPL = partial(sp.PrivateFPL, n_components=2, horizon=12, release_every=1, center=False, **BUDGET)
_FEEDS = ("many", "push", "chunks", "past")
add("PrivateFPL", FPL, feeds=_FEEDS)
add("PrivateFPL-one-feature", FPL, n_components=1, d=1)
add("PrivateFPL-long", FPL, horizon=64, d=6, rows=64, quick=False)
add("PrivateFPL-every-5", FPL, horizon=58, release_every=5, rows=58)
add("PrivateFPL-tree", FPL, noise="tree", feeds=_FEEDS)
add("PrivateFPL-discrete", FPL, noise=sp.Tree(discrete=True))
add("PrivateFPL-endless", FPL, horizon=None, slack=ENDLESS)
add("PrivateFPL-replace", FPL, adjacency="replace")
add("PrivateFPL-rewards", FPL, publish_regret=True)
add("PrivateFPL-rewards-replace", FPL, publish_regret=True, adjacency="replace", quick=False)
add("PrivateFPL-tracking", FPL, solver="tracking")
add("PrivateFPL-smoothed", FPL, solver="smoothed")
add(
    "DoublingFPL", partial(sp.papers.DoublingFPL, n_components=2, horizon=12, release_every=1, **BUDGET), slack=DOUBLING
)


_centered = partial(FPL, center=True)
add("PrivateFPL-centered", _centered, changes=centered)
add("PrivateFPL-centered-rewards", _centered, publish_regret=True, changes=centered,
    slack=MEAN)  # fmt: skip
add("PrivateFPL-centered-replace", _centered, adjacency="replace", changes=centered)


def _counting(kind: Callable[..., Any], **given: Any) -> Any:
    return for_missing(kind(**given), "private")


_cells = partial(feed_stream, on_missing="cell")
add("PrivateFPL-cells", partial(_counting, FPL), feed=_cells, changes=partial(with_gaps, changes))
add("PrivateFPL-centered-cells", partial(_counting, _centered), feed=_cells, changes=partial(with_gaps, centered))
add("SlidingWindowPCA-cells", partial(_counting, sp.SlidingWindowPCA, window=4, n_components=1, release_every=1,
    center=True, **BUDGET), d=6, feed=_cells, changes=partial(with_gaps, centered))  # fmt: skip


# A warm-up of busy rows finds the bins of the columns; zero rows have none. The noise of eight columns has a standard
# deviation above 1, so that released counts are coarser than their lattice.
_bounded: dict[str, Any] = {
    "feed": partial(feed_stream, bounds="private", warmup=24), "changes": boxed, "horizon": 32, "rows": 32,
    "d": 8, "busy": np.vstack([np.tile([[0.9, 0.7]], (24, 4)), np.tile([[0.5, -0.4], [0.2, 0.1]], (4, 4))]),
}  # fmt: skip
add("PrivateFPL-private-bounds", FPL, **_bounded)
add("PrivateFPL-private-bounds-replace", FPL, adjacency="replace", **_bounded)
# Rows of one person, which spend her budget, are absent from one of two streams.
_hers: dict[str, Any] = {"unit": sp.Person(column="who"), "span": HERS, "positions": (0,)}
add("PrivateFPL-person", FPL, changes=partial(her_rows, changes), feeds=("push", "many", "resumed 3"), **_hers)
add("PrivateFPL-person-centered", FPL, center=True, changes=partial(her_rows, centered), **_hers)
add("PrivateFPL-person-tree", FPL, noise="tree", changes=partial(her_rows, changes), **_hers)
add("PrivateFPL-person-every-4", FPL, release_every=4, horizon=32, rows=32, d=6,
    changes=partial(her_rows, changes), **_hers)  # fmt: skip
# Three of her rows are in a warm-up, where she has one vote, and three come after it.
add("PrivateFPL-person-bounds", FPL, feed=partial(feed_stream, bounds="private", warmup=3), d=1, n_components=1,
    changes=partial(her_rows, boxed, warmup=3), **_hers)  # fmt: skip

# -- windows, Oja, DP-PCA -------------------------------------------------------------------------

WINDOW = partial(sp.SlidingWindowPCA, n_components=1, window=4, release_every=1, center=False, **BUDGET)
for _method in ("histogram", "ring", "forgetting"):
    add(f"SlidingWindowPCA-{_method}", WINDOW, method=_method)
add("SlidingWindowPCA-replace", WINDOW, method="ring", adjacency="replace")
add("SlidingWindowPCA-sums", WINDOW, window=10, method="ring", release_every=5, d=1, rows=40)
add("SlidingWindowPCA-one-feature", WINDOW, method="histogram", d=1)

OJA = partial(sp.PrivateOja, n_components=1, batch_size=2, **BUDGET)
add("PrivateOja", OJA, d=6)
add("PrivateOja-two", OJA, n_components=2, adjacency="replace", batch_size=1, d=6)
add("PrivateOja-replace", OJA, adjacency="replace", d=6)
add("PrivateOja-clipped", OJA, clip=0.3, release_every=5, d=6, positions=(0, 4, 9, 11))

SKETCH = partial(sp.PrivateSketch, n_components=1, sketch_size=2, horizon=12, release_every=1, center=False, **BUDGET)
_in_sketch: dict[str, Any] = {"d": 12, "changes": in_sketch}
add("PrivateSketch", SKETCH, **_in_sketch)
add("PrivateSketch-replace", SKETCH, adjacency="replace", **_in_sketch)
add("PrivateSketch-centered", SKETCH, center=True, **_in_sketch)
add("PrivateSketch-centered-replace", SKETCH, center=True, adjacency="replace", quick=False, **_in_sketch)


def dp_pca(name: str, quick: bool = False, cost: float = 1.0, **given: Any) -> None:
    plain = {"n_components": 1, "adjacency": "zero-out", **given}
    numbers, case = needs(sp.DPPCA, plain)
    kept = {one: case[one] for one in ("d", "rows", "busy", "plain", "positions", "changes", "feeds")}
    make = partial(sp.DPPCA, **{"n_components": 1, **numbers, "horizon": case["rows"], **given})
    add(name, make, **kept, quick=quick, cost=cost)


dp_pca("DPPCA", quick=True)
dp_pca("DPPCA-replace", adjacency="replace")
dp_pca("DPPCA-two", n_components=2, cost=0.7)

# -- mechanisms -----------------------------------------------------------------------------------


def mechanism(name: str, kind: Callable[..., Mechanism], *, quick_replace: bool = True, **given: Any) -> None:
    """Register a mechanism under both adjacencies, with the needs of its class."""
    parameters = {key: value for key, value in given.items() if key not in _OF_CASE}
    for adjacency, suffix in (("zero-out", ""), ("replace", "-replace")):
        case = needs_of(kind(**parameters, adjacency=adjacency)) | {"thin": False} | given
        if suffix:
            case |= {"adjacency": adjacency, "quick": given.get("quick", quick_replace)}
        add(f"{name}{suffix}", kind, **case)


GAUSSIAN = partial(sp.GaussianCovariance, n_components=1, center=False, **BUDGET)
mechanism("GaussianCovariance", GAUSSIAN)
mechanism("GaussianCovariance-discrete", GAUSSIAN, discrete_noise=True)
_entries = partial(sp.papers.LaplaceCovariance, n_components=1, epsilon=1.0)
mechanism("LaplaceCovariance", _entries)
mechanism("LaplaceCovariance-one-feature", _entries, d=1, changes=changes)
_matrix_laplace = partial(sp.MatrixLaplaceCovariance, n_components=1, epsilon=1.0)
mechanism("MatrixLaplaceCovariance", _matrix_laplace, cost=0.4, quick_replace=False)
mechanism("MatrixLaplaceCovariance-one-feature", _matrix_laplace, d=1, quick_replace=False)
mechanism("WishartCovariance", partial(sp.papers.WishartCovariance, n_components=1, **SMALL))
mechanism("SubspacePerturbation", partial(sp.papers.SubspacePerturbation, n_components=1, **LARGE))
_adaptive = partial(sp.AdaptiveCovariance, n_components=1, center=False, **LARGE)
mechanism("AdaptiveCovariance", _adaptive, cost=1.4)
mechanism(
    "AdaptiveLaplaceCovariance", partial(sp.AdaptiveLaplaceCovariance, n_components=1, center=False, epsilon=20.0)
)
_centered = partial(sp.AdaptiveCovariance, n_components=1, **LARGE)
mechanism("AdaptiveCovariance-centered", _centered, cost=1.4)
mechanism("AdaptiveLaplaceCovariance-centered", partial(sp.AdaptiveLaplaceCovariance, n_components=1, epsilon=20.0))
_exact = partial(sp.ExactSubspace, n_components=None, max_components=2, block_rows=2, **SMALL)
mechanism("ExactSubspace", _exact)
_popular = np.repeat([[0.0, 1.0], [1.0, 0.0]], [24, 136], axis=0)  # the second cell is popular enough to show
_of_cells = partial(sp.papers.ApproximateSubspace, n_components=1, epsilon=5.0, delta=1e-6, block_rows=4)
mechanism("ApproximateSubspace", _of_cells, widths=(0.5, 0.25))
mechanism("edge-lone", _of_cells, rows=4, busy=None, positions=(0,), widths=(0.5,))
mechanism("ApproximateSubspace-lone", _of_cells, rows=160, busy=_popular, positions=(0,), widths=(0.5,))


def of_mechanism(changes: Callable[[Any, int], Pairs]) -> Callable[[Any, int], Pairs]:
    return lambda subject, d: changes(subject.mechanism, d)


def tumbling(inner: Callable[..., Mechanism], adjacency: str = "zero-out", **given: Any) -> sp.Tumbling:
    return sp.Tumbling(inner(adjacency=adjacency), **given)


_tumbling = partial(tumbling, GAUSSIAN)
add("Tumbling", _tumbling, release_every=2, rows=8)
add("Tumbling-replace", _tumbling, adjacency="replace", release_every=3, horizon=8, keep_short=True, rows=8)
add("Tumbling-ExactSubspace", partial(tumbling, _exact), changes=of_mechanism(lines), release_every=6, d=5)


def _votes(subject: Any, rows: list[Row], how: str) -> list[Any]:
    source = NoiseSource(sp.Randomness(), "audit", repr(subject))
    return [subject.release([f"bin {int(row[0])}" for row in rows], Outlet(source, source.first), "votes")]


def _bins(subject: Any, d: int) -> Pairs:
    first, second, own = np.zeros(1), np.ones(1), np.full(1, 7.0)
    lone = {"a lone vote": (first, own), "a lone vote gone": (own, first)}
    return {"a vote between popular bins": (first, second), **lone}


_moves = partial(StabilityHistogram, 1.0, 1e-6)
add("StabilityHistogram-moves", _moves, feed=_votes, changes=_bins, d=1, rows=99,
    busy=np.repeat([[0.0], [1.0]], [9, 90], axis=0),  # a bin that is hidden, and one that shows

    feeds=("once",), positions=(0,))  # fmt: skip
