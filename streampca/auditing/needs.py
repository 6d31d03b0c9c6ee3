"""Needs of audits: numbers of parameters, rows and neighbors on which an audit of a public class is sharp.

`needs` has defaults that suit any algorithm or mechanism. A class for which other neighbors are worse, or more rows
are needed, has a branch there. `VALUES` holds the values that are tried of parameters that are neither switches nor
literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from streampca.auditing import neighbors
from streampca.auditing.feeds import feed_mechanism, feed_stream
from streampca.auditing.laws import shuffled
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.noises import BLT, Tree
from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.privacy.gaussian import epsilon_at
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.shuffling import shuffled_mu
from streampca.processors.solvers import Exact, Smoothed, Tracking

#: The budget of most cases; a small one, for what has a law of its own; and one for what needs large counts.
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-2}
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 0.05}
LARGE: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-6}
#: Values that are tried, the first one as the plain case: of parameters by name, and of a class by its name.
VALUES: dict[str, tuple[Any, ...]] = {
    "horizon": (12, None), "release_every": (1, 4), "max_rows_per_user": (None, 2),
}  # fmt: skip
VALUES_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "PrivateFPL": {"noise": (BLT(), Tree(), Tree(discrete=True)), "solver": (Exact(), Tracking(), Smoothed())},
    "SlidingWindowPCA": {"horizon": (None, 12), "sketch_rank": (None, 2)},
    "PrivateOja": {"n_components": (1, 2), "clip": (None, 0.3), "shuffle": (None, 800)},
    "DPPCA": {"n_components": (1, 2), "horizon": (12,)},
    "DoublingFPL": {"horizon": (12,)},
    "ExactSubspace": {"method": ("all", "blocks")},  # "auto" is one of them
    "Tumbling": {"horizon": (None, 12)},
}
#: Rows of a warm-up that finds private bounds of few columns.
WARMUP = 12

# Why the neighbors tried spend less than the claim.
ENDLESS = "noise for any number of rows, of which a short run spends a part"
DOUBLING = "its noise is for regret, and more than the claim asks for"
REWARDS = "two rows of a user would have to have extreme rewards on different subspaces, and equal outer products"
MEAN = "centered rewards are bounded for a mean of length 1, which no row alone makes"
GAP = "the bound on how far the projector moves holds for the least gap that the measured one allows"
SHUFFLED = "a row is chosen before the secret order shows which basis its gradient is clipped about"
SEARCH = "no row has the largest reward under all candidates of a search, and no other one the least under all"
CORNERS = "the first rows find bounds, and of the box that bounds make only the corners are as long as the claim allows"


Pair = tuple[dict[str, Any], dict[str, Any]]


def needs(kind: type, given: Mapping[str, Any], warmup: int = 0) -> Pair:
    """Return numbers of parameters, and attributes of `Case`, for a class with some of its parameters given.

    Parameters
    ----------
    kind : an algorithm or a mechanism.
    given : its other parameters.
    warmup : rows that find private bounds, before the others.
    """
    rows = 12 + warmup
    numbers: dict[str, Any] = {"n_components": 1, **BUDGET}
    case: dict[str, Any] = {"d": 6, "rows": rows, "changes": neighbors.changes}
    if issubclass(kind, Mechanism):
        case |= {"rows": 4, "feed": feed_mechanism, "feeds": ("once",)}
    special = _SPECIAL.get(kind.__name__)
    if special is not None:
        more, attributes = special(given, rows)
        numbers, case = numbers | more, case | attributes
    if given.get("horizon") is not None:
        numbers["horizon"] = case["rows"]
    return numbers, case


def needs_of(subject: Any) -> dict[str, Any]:
    """Return the attributes of `Case` for an algorithm or a mechanism that exists."""
    given = fields(subject) if is_dataclass(subject) else ()
    return needs(type(subject), {one.name: getattr(subject, one.name) for one in given})[1]


def _fpl(given: Mapping[str, Any], rows: int) -> Pair:
    numbers: dict[str, Any] = {"n_components": 2}
    case: dict[str, Any] = {"d": 8}
    if given["publish_regret"] and given["max_rows_per_user"] is not None:
        case["slack"] = REWARDS
    if given["center"]:
        case["changes"] = neighbors.centered
        if given["publish_regret"]:
            case["slack"] = MEAN
    if given["horizon"] is None:
        case["slack"] = ENDLESS
    return numbers, case


def _window(given: Mapping[str, Any], rows: int) -> Pair:
    numbers: dict[str, Any] = {"window": 4 * given["release_every"]}
    if given["sketch_rank"] is not None:
        numbers["checkpoint_every"] = given["release_every"]
    rows += 12 * (given["release_every"] - 1)
    return numbers, {"rows": rows, "changes": neighbors.centered if given["center"] else neighbors.changes}


def _oja(given: Mapping[str, Any], rows: int) -> Pair:
    if given["shuffle"] is None:
        return {"batch_size": 2}, {"positions": (0, rows - 8, rows - 3, rows - 1)}
    rows = 800  # as few rows as shuffling is proved to help for
    busy = np.random.default_rng(rows).normal(size=(rows, 2))
    busy *= 0.8 / np.linalg.norm(busy, axis=1, keepdims=True)

    def each_step(subject: Any) -> Guarantee:
        """Return the guarantee of a step for which the closed form of shuffling gives the claim."""
        mu = shuffled_mu(subject.epsilon, subject.delta, subject.shuffle)
        return Guarantee(epsilon_at(mu, subject.delta), subject.delta, "replace", "one step", "", "", mu=mu)

    return {"batch_size": "auto", "epsilon": 0.5, "delta": 1e-3}, {
        "warmup": 200,  # at this budget
        "slack": SHUFFLED if given["clip"] is not None else "",
        "d": 2, "rows": rows, "guarantee": each_step, "positions": (rows - 1,), "busy": busy, "feeds": ("many",),
        "law": lambda subject, kind: shuffled(busy), "quick": False, "thin": False,
    }  # fmt: skip


#: Rows and minibatches of `DPPCA`, by method and number of components.
_ASCENTS = {
    ("tangent", 1): (700, 100), ("tangent", 2): (1000, 126),
    ("deflation", 1): (1500, 294), ("deflation", 2): (3000, 294),
}  # fmt: skip


def _dp_pca(given: Mapping[str, Any], rows: int) -> Pair:
    k, d = given["n_components"], given["n_components"] + 1
    rows, batch = (8000 * k, "auto") if given["learning_rate"] == "search" else _ASCENTS[given["method"], k]
    one, long = 0.1 * np.eye(d)[0] + 0.03, 0.9 * np.ones(d) / math.sqrt(d)

    def ends(subject: Any) -> tuple[int, ...]:
        """Return the last rows of the segments of the last minibatch."""
        segments = subject.plan(d).segments
        return tuple(segment.stop - 1 for segment in segments[-1 - len({segment.purpose for segment in segments}) :])

    def busy(subject: Any) -> FloatArray:
        """Return rows that vote for two bins.

        In every second subsample, from the end of a segment, the last row is long. Without it the subsample votes for
        the bin of the others.
        """
        made, plan, start = np.resize([one, 0.01 * one], (rows, d)), subject.plan(d), 0
        for segment in plan.segments:
            votes = getattr(plan, "votes" if segment.purpose == "norm" else segment.purpose, None)
            if isinstance(votes, PrivateEigenvalue):
                made[start : segment.stop][:: -4 * votes.pairs] = long
            if segment.purpose == "center":  # each row votes
                made[start : segment.stop] = 0.0
                made[start : segment.stop : 2] = long
            start = segment.stop
        return made

    def changes(subject: Any, d: int) -> neighbors.Pairs:
        like_others = np.full(d, 0.9 / math.sqrt(d))
        return {**neighbors.changes(subject, d), "a long row like others": (np.zeros(d), like_others)}

    plain = 0.5 * np.eye(d)[0] + 0.02 * np.random.default_rng(1).normal(size=(rows, d))
    return {"batch_size": batch, **LARGE}, {
        "d": d, "rows": rows, "busy": busy, "plain": plain, "positions": ends, "changes": changes,
        "feeds": ("many",), "quick": rows < 5000, "thin": False,
        # A row that is rewarded most under every candidate exists on a line, not on a plane.
        "slack": SEARCH if given["learning_rate"] == "search" and (given["adjacency"] == "replace" or k == 2) else "",
    }  # fmt: skip


def _tumbling(given: Mapping[str, Any], rows: int) -> Pair:
    """Two blocks of the mechanism's own rows, and a row of a short one."""
    case = needs_of(given["mechanism"])
    block = given["release_every"] if case["rows"] <= 4 else case["rows"]
    rows += 2 * block - 11
    if "busy" in case:
        case["busy"] = np.resize(case["busy"], (rows, case["d"]))
    found = case["changes"]
    case |= {"rows": rows, "changes": lambda subject, d: found(subject.mechanism, d)}
    if isinstance(given["mechanism"], AdaptiveCovariance):
        case["quick"] = False  # maps are chosen by simulations
    return {"release_every": block}, {**case, "feed": feed_stream, "feeds": ("many", "push", "chunks"), "positions": ()}


_SHORT = neighbors.SHORT * np.tile(np.eye(6)[0], (40, 1))
_GAP = np.tile(np.eye(6)[0], (30, 1))
_LINE = np.where(np.arange(12)[:, None] < 9, np.eye(5)[0], np.eye(5)[1])
# Three blocks of two vote for a plane, and three for the line that a zero row in place of the first leaves of it.
_PLANE = np.where(np.isin(np.arange(12), (0, 2, 4))[:, None], np.eye(5)[0], np.eye(5)[1])
_AGREE = np.repeat([[0.0, 1.0], [1.0, 0.0]], [16, 16], axis=0)
_AGREE[:4] = 0.0


def _exact_subspace(given: Mapping[str, Any], rows: int) -> Pair:
    case: dict[str, Any] = {"d": 5, "rows": 12, "changes": neighbors.lines}
    if given["method"] == "blocks":
        return {**SMALL, "n_components": None, "max_components": 2, "block_rows": 2}, {**case, "busy": _PLANE}
    return SMALL, {**case, "busy": _LINE}


def _gaussian(given: Mapping[str, Any], rows: int) -> Pair:
    apart = given["center"] and given["adjacency"] == "replace"
    return {}, {"d": 20, "changes": neighbors.centered if apart else neighbors.changes}


def _fixed(numbers: dict[str, Any], **case: Any) -> Callable[[Mapping[str, Any], int], Pair]:
    return lambda given, rows: (numbers, case)


_SPECIAL: dict[str, Callable[[Mapping[str, Any], int], Pair]] = {
    "PrivateFPL": _fpl,
    "SlidingWindowPCA": _window,
    "PrivateOja": _oja,
    "DPPCA": _dp_pca,
    "DoublingFPL": _fixed({"n_components": 2}, d=8, slack=DOUBLING),
    "Tumbling": _tumbling,
    "GaussianCovariance": _gaussian,
    "LaplaceCovariance": _fixed({"epsilon": 1.0}, changes=neighbors.entries),
    "MatrixLaplaceCovariance": _fixed({"epsilon": 1.0}, d=3),
    "WishartCovariance": _fixed(SMALL, d=2),
    # Busy rows have a gap that shows; zero rows have none.
    "SubspacePerturbation": _fixed(LARGE, rows=30, busy=_GAP, slack=GAP),
    # Short busy rows are clipped to a small radius, and all private values are released; zero rows keep radius 1.
    "AdaptiveCovariance": _fixed(LARGE, rows=40, busy=_SHORT, changes=neighbors.another_norm, cost=4.0, thin=False),
    # 40 rows at epsilon 20 are more than 500 / epsilon.
    "AdaptiveLaplaceCovariance": _fixed(
        {"epsilon": 20.0}, rows=40, busy=_SHORT, changes=neighbors.another_norm, thin=False
    ),
    "ExactSubspace": _exact_subspace,
    "ApproximateSubspace": _fixed(
        {
            "n_components": None, "max_components": 2, "epsilon": 5.0, "delta": 1e-6, "block_rows": 4,
            "widths": (0.5, 0.25),
        },
        d=2, rows=32, busy=_AGREE, changes=neighbors.deciding, positions=(0, 2),
    ),
}  # fmt: skip
