"""What planted bugs are planted in: generated cases, and a few with other rows or parameters.

To register a case, append an `add` at the end of this file. What happens to streams is in `planted.lifecycles`.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

import streampca as sp
from streampca.auditing.cases import generated
from streampca.auditing.needs import BUDGET, LARGE, Pairs, boxed, changes, needs_of
from streampca.auditing.runs import Case, Row, feed_stream
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.outlet import NoiseSource, Outlet

__all__ = ["BUDGET", "CASES", "DELTA", "EPSILON", "FPL", "GAUSSIAN", "LARGE", "OJA", "add"]

EPSILON, DELTA = BUDGET["epsilon"], BUDGET["delta"]
_NAMES = """
    PrivateFPL PrivateFPL-tree PrivateFPL-discrete PrivateFPL-endless PrivateFPL-replace PrivateFPL-rewards
    PrivateFPL-rewards-replace PrivateFPL-tracking PrivateFPL-smoothed PrivateFPL-centered
    PrivateFPL-centered-rewards PrivateFPL-centered-replace PrivateFPL-cells PrivateFPL-centered-cells
    PrivateFPL-person PrivateFPL-person-centered PrivateFPL-person-tree PrivateFPL-person-every_4
    PrivateFPL-person-centered-cells PrivateFPL-person-bounds DoublingFPL DPPCA DPPCA-replace DPPCA-n_components_2
    SlidingWindowPCA-histogram SlidingWindowPCA-ring SlidingWindowPCA-forgetting SlidingWindowPCA-replace
    SlidingWindowPCA-cells PrivateOja
    PrivateOja-replace PrivateOja-n_components_2-replace PrivateSketch PrivateSketch-replace PrivateSketch-centered
    PrivateSketch-centered-replace GaussianCovariance GaussianCovariance-replace GaussianCovariance-discrete
    LaplaceCovariance LaplaceCovariance-replace MatrixLaplaceCovariance MatrixLaplaceCovariance-replace
    WishartCovariance WishartCovariance-replace SubspacePerturbation SubspacePerturbation-replace ExactSubspace
    ExactSubspace-replace ApproximateSubspace AdaptiveCovariance AdaptiveCovariance-replace
    AdaptiveCovariance-centered AdaptiveCovariance-centered-replace AdaptiveLaplaceCovariance
    AdaptiveLaplaceCovariance-replace AdaptiveLaplaceCovariance-centered AdaptiveLaplaceCovariance-centered-replace
    Tumbling-ExactSubspace
"""
_BY_WORDS = {frozenset(case.name.split("-")): case for case in generated()}
_PAST: dict[str, Any] = {"feeds": ("many", "push", "chunks", "past")}
_MORE = {"PrivateFPL": _PAST, "PrivateFPL-tree": _PAST, "PrivateFPL-person": {"feeds": ("push", "many", "resumed 3")}}
_COSTS = {"AdaptiveCovariance": 1.4, "MatrixLaplaceCovariance": 0.4}
#: Generated cases, with the words of their names in any order. Bugs are few: all neighbors are tried, and more noise.
CASES: dict[str, Case] = {}
for _name in _NAMES.split():
    _case = _BY_WORDS[frozenset(_name.split("-"))]
    _d = 20 if _case.d == 8 and "bounds" not in _name else _case.d
    _cost = _COSTS.get(_name.partition("-")[0], _case.cost)
    CASES[_name] = replace(_case, name=_name, thin=False, quick=True, d=_d, cost=_cost, **_MORE.get(_name, {}))
_OF_CASE = {field.name for field in fields(Case)}


def add(name: str, kind: Callable[..., Any], **given: Any) -> None:
    of_case = {key: given.pop(key) for key in _OF_CASE & given.keys()}
    CASES[name] = Case(name=name, make=partial(kind, **given), **{"feed": feed_stream, "changes": changes, **of_case})


# -- streams --------------------------------------------------------------------------------------

FPL = partial(sp.PrivateFPL, n_components=2, horizon=12, release_every=1, center=False, **BUDGET)
add("PrivateFPL-one-feature", FPL, n_components=1, d=1)
add("PrivateFPL-every-5", FPL, horizon=58, release_every=5, rows=58)
# A warm-up of busy rows finds the bins of the columns; zero rows have none. The noise of eight columns has a standard
# deviation above 1, so that released counts are coarser than their lattice.
_bounded: dict[str, Any] = {
    "feed": partial(feed_stream, bounds="private", warmup=24), "changes": boxed, "horizon": 32, "rows": 32,
    "d": 8, "busy": np.vstack([np.tile([[0.9, 0.7]], (24, 4)), np.tile([[0.5, -0.4], [0.2, 0.1]], (4, 4))]),
}  # fmt: skip
add("PrivateFPL-private-bounds", FPL, **_bounded)
add("PrivateFPL-private-bounds-replace", FPL, adjacency="replace", **_bounded)
add("SlidingWindowPCA-one-feature", sp.SlidingWindowPCA, n_components=1, window=4, release_every=1, center=False,
    **BUDGET, method="histogram", d=1)  # fmt: skip
OJA = partial(sp.PrivateOja, n_components=1, batch_size=2, **BUDGET)
add("PrivateOja-clipped", OJA, clip=0.3, release_every=5, d=6, positions=(0, 4, 9, 11))

# -- mechanisms -----------------------------------------------------------------------------------

GAUSSIAN = partial(sp.GaussianCovariance, n_components=1, center=False, **BUDGET)
_matrix_laplace = sp.MatrixLaplaceCovariance(n_components=1, epsilon=1.0)
add("MatrixLaplaceCovariance-one-feature", sp.MatrixLaplaceCovariance, n_components=1, epsilon=1.0,
    **needs_of(_matrix_laplace) | {"d": 1})  # fmt: skip
_popular = np.repeat([[0.0, 1.0], [1.0, 0.0]], [24, 136], axis=0)  # the second cell is popular enough to show
for _name, _rows, _busy in (("edge-lone", 4, None), ("ApproximateSubspace-lone", 160, _popular)):
    CASES[_name] = replace(
        CASES["ApproximateSubspace"], name=_name, rows=_rows, busy=_busy, positions=(0,),
        make=partial(replace, CASES["ApproximateSubspace"].make(), n_components=1, widths=(0.5,)),
    )  # fmt: skip


def _tumbling(adjacency: str = "zero-out", **given: Any) -> sp.Tumbling:
    return sp.Tumbling(GAUSSIAN(adjacency=adjacency), **given)


add("Tumbling", _tumbling, release_every=2, rows=8)
add("Tumbling-replace", partial(_tumbling, "replace"), release_every=3, horizon=8, keep_short=True, rows=8)


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
