"""Needs of audits: parameters, rows and pairs of neighbors for which an audit of a public class is sharp.

The defaults of `needs` suit every algorithm and mechanism. A class for which other neighbors are worse, or which
requires more rows, has an entry in `_SPECIAL`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from streampca.auditing.runs import HERS, Row, feed_mechanism, feed_stream
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.noises import BLT, Tree
from streampca.mechanisms.adaptive import AdaptiveCovariance
from streampca.mechanisms.base import Mechanism
from streampca.privacy.unit import Person
from streampca.processors.base import Algorithm
from streampca.processors.dp_pca import SUBSAMPLE
from streampca.processors.solvers import Exact, Smoothed, Tracking
from streampca.stream.stream import Stream

#: The budget of most cases; a small one for noise with a law of its own; and one for mechanisms with large counts.
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-2}
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 0.05}
LARGE: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-6}
#: Values that are tried, the plain case first: of parameters by name, and of a class by its name.
VALUES: dict[str, tuple[Any, ...]] = {
    "horizon": (12, None), "release_every": (1, 4), "unit": (None, Person(column="who")),
    "center": (False, True),
}  # fmt: skip
VALUES_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "PrivateFPL": {"noise": (BLT(), Tree(), Tree(discrete=True)), "solver": (Exact(), Tracking(), Smoothed())},
    "PrivateOja": {"n_components": (1, 2), "clip": (None, 0.3), "batch_size": (2, "auto")},
    "PrivateSketch": {"clip": (None, 0.3)},
    "DPPCA": {"n_components": (1, 2), "horizon": (12,)},
    "DoublingFPL": {"horizon": (12,)},
    "Tumbling": {"horizon": (None, 12)},
}
#: Rows of a warm-up that finds private bounds of few columns.
WARMUP = 12

# Reasons why the neighbors tried spend less than the claim.
ENDLESS = "noise for any number of rows, of which a short run spends a part"
DOUBLING = "its noise is for regret, and more than the claim requires"
MEAN = "centered rewards are bounded for a mean of length 1, which no single row causes"
REWARDS = "rewards of two persons add up only where rows of one are absent while those of the other count"
ONE_STEP = "rows of one step move one component by less than those of two steps, which are too long for an audit"
CORNERS = "the first rows find bounds, and only the corners of their box are as long as the claim allows"

Pairs = dict[str, tuple[Row, Row]]
#: A norm that adaptive algorithms clip to.
SHORT = 2.0**-6


def _unit(row: FloatArray) -> FloatArray:
    """Scale a row just below norm 1, so that it is not clipped."""
    return np.asarray(row / np.linalg.norm(row) * (1.0 - 1e-9))


def _basis(stream: Stream) -> FloatArray:
    """Return the current basis, that of gradients if there is one: before the first row, the first axes."""
    basis: FloatArray | None = getattr(stream.engine.processor, "basis", None) if stream.t else None
    return stream.engine.subspace().basis if basis is None else basis


def _off(stream: Stream) -> FloatArray:
    """Return a direction orthogonal to the current subspace, or its last one if there is none."""
    basis = _basis(stream)
    left = np.eye(len(basis)) - basis @ basis.T
    return _unit(left[:, int(np.argmax(np.diag(left)))] if basis.shape[1] < len(basis) else basis[:, -1])


def _played(stream: Stream, component: int = 0) -> FloatArray:
    """Return a direction of the current subspace, or one orthogonal to it if it has fewer."""
    basis = _basis(stream)
    return _unit(basis[:, component]) if component < basis.shape[1] else _off(stream)


def _aside(stream: Stream, weights: tuple[float, float] = (1.0, 1.0)) -> FloatArray:
    """Combine the leading direction of the current subspace with one orthogonal to all of it."""
    return _unit(weights[0] * _played(stream) + weights[1] * _off(stream))


def changes(subject: Any, d: int) -> Pairs:
    """Return pairs of rows that are far apart for Gram matrices, gradients and clipping."""
    axes, some, nothing = np.eye(d), np.random.default_rng(d).normal(size=d), np.zeros(d)
    one, two = axes[0], axes[min(1, d - 1)]
    both, some = (one + two) / np.linalg.norm(one + two), some / np.linalg.norm(some)
    streaming = isinstance(subject, Algorithm)
    if subject.guarantee.adjacency == "replace":
        found: Pairs = {
            "e1 against e2": (two if d > 1 else nothing, one),
            "an off-diagonal change": ((one - two) * math.sqrt(0.5), both),
            "2 e1 against a long row": (1e200 * some, 2.0 * one),
        }
        if streaming and d > 1:
            aside = partial(partial, _aside)
            # Gradients of the norm of the clip, on two sides of the basis, are furthest apart up to this norm.
            clip = min(getattr(subject.resolved(d), "clip", None) or 0.3, math.sqrt(0.5))
            side = math.sqrt(1.0 - clip**2)
            found |= {
                "two sides of the current basis": (aside(weights=(1.0, -1.0)), _aside),
                "none against aside of the current basis": (nothing, _aside),
                "two current directions": (partial(_played, component=1), _played),
                "off and in the current subspace": (_off, _played),
                "two sides, clipped": (aside(weights=(clip, -side)), aside(weights=(clip, side))),
            }
        return found
    rows: dict[str, Row] = {
        "e1": one, "(e1 + e2)/sqrt(2)": both, "a random row": some, "2 e1": 2.0 * one, "a long row": 1e200 * some,
    }  # fmt: skip
    if streaming:
        rows |= {"the current basis": _played} | ({"aside of the current basis": _aside} if d > 1 else {})
    gone: Pairs = {"the current basis, removed": (_played, nothing)} if hasattr(subject, "plan") else {}
    return {name: (nothing, row) for name, row in rows.items()} | gone


def another_norm(subject: Any, d: int) -> Pairs:
    """Return `changes` and rows of another norm, which the histogram of norms requires under replace."""
    # Norms are edges of its bins, so that a row that is just clipped counts in full.
    one, two = np.eye(d)[:2]
    norms = (0.25, SHORT) if subject.adjacency == "replace" else (0.0,)
    return changes(subject, d) | {f"norm 1 for {norm}": (norm * two, one) for norm in norms}


def centered(subject: Any, d: int) -> Pairs:
    """Return a row and a bad row, which is absent; under replace, also unit rows that move sum and square most."""
    bad = np.full(d, np.nan)
    if subject.guarantee.adjacency == "zero-out":
        # The squares of a long row overflow, too, so admission has to look which of the two it is.
        return {"a bad row in its place": (bad, np.eye(d)[0]), "a long row": (bad, 1e200 * np.ones(d))}
    # At this angle square and sum together move most.
    first, other = np.eye(d)[0], np.zeros(d)
    other[:2] = (-0.125, math.sqrt(1.0 - 0.125**2)) if d > 1 else -1.0
    return {
        "the largest move": (first, other[:d]), "opposite rows": (first, -first), "a bad row in its place": (bad, first)
    }  # fmt: skip


def absent(subject: Any, d: int) -> Pairs:
    """Return rows that are absent from one of two streams, and a bad row, which counts for nothing in the other."""
    rows = {name: (None, pair[1]) for name, pair in changes(subject, d).items()}
    return {**rows, "a bad row": (None, np.full(d, np.nan))}


def her_absence(subject: Any, d: int) -> Pairs:
    """Return rows of a person who is absent from one of two streams: full ones, and short ones that add up."""
    one, rows = np.eye(d)[0], absent(subject, d)
    return {"short rows": (None, 0.45 * one), "shorter rows": (None, 0.3 * one), **{"e1": rows.pop("e1")}, **rows}


def her_rows(of_row: Callable[[Any, int], Pairs], subject: Any, d: int, warmup: int = 0) -> Pairs:
    """Return rows of a person that are bad rows in one of two streams, or others under replace.

    With a ``warmup``, also rows of which only those after it are no bad rows, so that she has no vote.
    """
    pairs, one = of_row(subject, d), np.eye(d)[0]
    if subject.adjacency == "replace":
        return pairs
    bad, corner = np.full(d, np.nan), np.full(d, 1e9)
    if warmup:
        pairs["rows after the warm-up"] = bad, lambda stream: bad if stream.t < warmup else corner
    return {"short rows": (bad, 0.6 * one), **{name: (bad, pair[1]) for name, pair in pairs.items()}}


def in_the_basis(subject: Any, d: int) -> Pairs:
    """Return `changes` and full rows in the current basis: after a first row, from which on it can be seen.

    Under replace, rows of the first step and of the second, or, of two components, in two directions of the first.
    """

    def in_basis(first: int, component: int = 0) -> Row:
        return lambda stream: np.full(d, np.nan) if stream.t < first else _played(stream, component)

    found = changes(subject, d) | {"in the basis": (np.full(d, np.nan), in_basis(1))}
    if subject.guarantee.adjacency == "replace":
        found |= {"in the basis, a step later": (in_basis(2), in_basis(1))}
        if subject.n_components > 1:
            found |= {"in two directions of the basis": (in_basis(1, 1), in_basis(1))}
    return found


def with_gaps(pairs: Callable[[Any, int], Pairs], subject: Any, d: int) -> Pairs:
    """Return pairs for rows whose missing cells are filled: absent rows have infinite values, and some rows have gaps.

    With private shares the row that moves the released sums most has all cells, against one that is absent; under
    replace, against a row across it whose only cells are those that it needs.
    """

    def absent(row: Row) -> Row:
        return np.full(d, np.inf) if isinstance(row, np.ndarray) and np.isnan(row).all() else row

    found = {name: (absent(one), absent(two)) for name, (one, two) in pairs(subject, d).items()}
    gaps, whole = np.full(d, np.nan), np.eye(d)[0]
    gaps[: min(d, 2)] = (0.0, 1.0 - 1e-9)[-min(d, 2) :]
    if subject.guarantee.adjacency != "replace":  # with a calendar, too
        nothing = np.full(d, np.inf)
        return found | {"all cells for none": (nothing, whole), "a row with gaps": (nothing, gaps)}
    if subject.center and d > 1:  # as in `centered`
        gaps[:2] = (-0.125, math.sqrt(1.0 - 0.125**2))
    elif d > 1:
        gaps[0] = np.nan
    return found | {"gaps for cells": (whole, gaps), "no cell": (np.full(d, np.nan), whole)}


def about_mean(subject: Any, d: int) -> Pairs:
    """Return rows that move the mean, and rows that are far apart about the mean .6 e1 of `_adaptive`."""
    one, two = np.eye(d)[:2]
    aside, bad = _unit(0.6 * one + 0.8 * two), np.full(d, np.nan)
    if subject.adjacency == "replace":
        # About the mean the two are orthogonal, of length 1 and 1/2.
        return {
            "opposite rows": (one, -one), "aside of the mean": (-one, aside), "a zero row": (np.zeros(d), aside),
            "a bad row in its place": (bad, aside),
        }  # fmt: skip
    return {
        "opposite to the mean": (np.zeros(d), -one), "a bad row in its place": (bad, -one),
        "a zero row for a bad one": (bad, np.zeros(d)), "aside of the mean": (np.zeros(d), aside),
        "a long row": (bad, -1e200 * one),
    }  # fmt: skip


def boxed(subject: Any, d: int) -> Pairs:
    """Return rows of numbers of all sizes; under replace, two corners of any box."""
    first = other = bad = np.full(d, np.nan)
    if subject.guarantee.adjacency == "replace":
        first, other = np.ones(d), np.resize([1e9, -1e9], d)
    return {
        "a row with all magnitudes": (first, np.geomspace(-1e-9, -1e9, d)),
        "a corner of any box": (other, np.full(d, 1e9)),
        "a row of tiny numbers": (bad, np.full(d, 1e-300)),
    }


def in_sketch(subject: Any, d: int) -> Pairs:
    """Return unit rows whose sketches have the norm of the clip, on two sides of a direction of the sketch."""

    def row(stream: Stream, side: float = 1.0) -> FloatArray:
        if stream.t == 0:
            return _played(stream)  # a processor before the first row would draw another start
        omega: FloatArray = stream.engine.processor.omega  # type: ignore[attr-defined]
        inside, across = subject.shape(d)[1], np.eye(d)[0] - omega @ omega[0]
        across /= max(float(np.linalg.norm(across)), 1e-9)  # 0 if the sketch is of all features
        return _unit(inside * omega[:, 0] + side * math.sqrt(1.0 - inside**2) * across)

    if subject.guarantee.adjacency == "zero-out":
        return changes(subject, d) | {"a row of the clip": (np.full(d, np.nan) if subject.center else np.zeros(d), row)}
    return changes(subject, d) | {"two sides of the sketch": (partial(row, side=-1.0), row)}


def entries(subject: Any, d: int) -> Pairs:
    """Return rows whose products are far apart in l1 norm: halves of equal entries."""
    if d == 1:
        return changes(subject, d)
    turn, half = 0.4 * math.pi, np.ones((2, d // 2)) * math.sqrt(2.0 / d)
    one, other = (np.concatenate([math.cos(x) * half[0], math.sin(x) * half[1]]) for x in (turn, turn + 0.5 * math.pi))
    worst = (other, one) if subject.adjacency == "replace" else (np.zeros(d), math.sqrt(0.5) * np.ravel(half))
    return {**changes(subject, d), "equal entries": worst}


def lines(subject: Any, d: int) -> Pairs:
    """Return rows that complete a span or spoil it."""
    first = np.zeros(d) if subject.adjacency == "zero-out" else np.eye(d)[1]
    far = np.arange(1.0, d + 1.0)
    rows = {"e1": np.eye(d)[0], "a far line": far, "tiny": 5e-324 * np.ones(d), "huge": 1e300 * far}
    return {name: (first, row) for name, row in rows.items()}


def deciding(subject: Any, d: int) -> Pairs:
    """Return rows that decide the vote of their block: for one of two popular cells, or for a cell of its own."""
    one, two = np.eye(d)[0], np.eye(d)[1]
    nothing, own = one if subject.adjacency == "replace" else np.zeros(d), (one + two) * math.sqrt(0.5)
    return {
        "a popular cell for another": (nothing, two), "a cell of its own": (nothing, own), "or back": (own, nothing),
    }  # fmt: skip


# -- needs of classes --------------------------------------------------------------------------------

Pair = tuple[dict[str, Any], dict[str, Any]]


def needs(kind: type, options: Mapping[str, Any], warmup: int = 0) -> Pair:
    """Return numbers beside ``options``, and attributes of `Case`, after ``warmup`` rows that find private bounds."""
    rows = 12 + warmup
    numbers: dict[str, Any] = {"n_components": options.get("n_components", 1), **BUDGET}
    case: dict[str, Any] = {"d": 6, "rows": rows, "changes": changes, "feed": feed_stream}
    if issubclass(kind, Mechanism):
        case |= {"rows": 4 if options.get("unit") is None else 2 * HERS, "feed": feed_mechanism, "feeds": ("once",)}
    special = _SPECIAL.get(kind.__name__, ({}, {}))
    more, attributes = special(options, rows) if callable(special) else special
    numbers, case = numbers | more, case | attributes
    if options.get("horizon") is not None:
        numbers["horizon"] = case["rows"]
    return numbers, case


def needs_of(subject: Any) -> dict[str, Any]:
    """Return the attributes of `Case` for an existing algorithm or mechanism."""
    options = {one.name: getattr(subject, one.name) for one in fields(subject)} if is_dataclass(subject) else {}
    return needs(type(subject), options)[1]


def _fpl(options: Mapping[str, Any], rows: int) -> Pair:
    slack = ""
    if options["horizon"] is None:
        slack = ENDLESS
    elif options["publish_regret"] and options["center"]:
        slack = MEAN
    elif options["publish_regret"] and options["unit"] is not None and options["adjacency"] == "replace":
        slack = REWARDS
    return {"n_components": 2}, {"d": 8, "changes": centered if options["center"] else changes, "slack": slack}


def _oja(options: Mapping[str, Any], rows: int) -> Pair:
    if options["batch_size"] == "auto" and options["horizon"] is None:
        rows += 256 - 12  # rows of its first step
    case: dict[str, Any] = {"rows": rows, "positions": (0, -8, -3, -1)}
    if options["unit"] is not None:
        one_step = options["batch_size"] == "auto" and options["n_components"] == 1
        slack = ONE_STEP if one_step and options["adjacency"] == "replace" else ""
        case |= {"changes": in_the_basis, "slack": slack}
    return {}, case


def _dp_pca(options: Mapping[str, Any], rows: int) -> Pair:
    k, d = options["n_components"], options["n_components"] + 1
    rows, batch = (700, 100) if k == 1 else (1000, 126)
    one, long = 0.1 * np.eye(d)[0] + 0.03, 0.9 * np.ones(d) / math.sqrt(d)
    like_others: Pairs = {"a long row like others": (np.zeros(d), long)}

    def busy(subject: Any) -> FloatArray:
        # Rows vote for two bins. In every second subsample, from the end of a segment, the last row is long; without
        # it the subsample votes for the bin of the others.
        found = np.resize([one, 0.01 * one], (rows, d))
        for segment in subject.plan(d).segments:
            if segment.purpose == "norm":
                found[segment.stop - segment.rows : segment.stop][:: -2 * SUBSAMPLE] = long
        return found

    plain = 0.5 * np.eye(d)[0] + 0.02 * np.random.default_rng(1).normal(size=(rows, d))
    plain[:SUBSAMPLE] = 0.0  # the first subsample votes for the bin of zeros
    return {"batch_size": batch, **LARGE}, {
        # The last rows of the segments of the last minibatch, and of the one before.
        "positions": lambda subject: tuple(segment.stop - 1 for segment in subject.plan(d).segments[-4:]),
        "d": d, "rows": rows, "busy": busy, "plain": plain, "feeds": ("many",), "thin": False,
        "changes": lambda subject, d: changes(subject, d) | like_others,
    }  # fmt: skip


def _tumbling(options: Mapping[str, Any], rows: int) -> Pair:
    """Two blocks of the mechanism's own rows, and a row of a short one."""
    case = needs_of(options["mechanism"])
    block = options["release_every"] if case["rows"] <= 4 else case["rows"]
    rows += 2 * block - 11
    if "busy" in case:
        case["busy"] = np.resize(case["busy"], (rows, case["d"]))
    inner = case["changes"]
    case |= {"rows": rows, "changes": lambda subject, d: inner(subject.mechanism, d)}
    if isinstance(options["mechanism"], AdaptiveCovariance):
        case["quick"] = False  # maps are chosen by simulations
    return {"release_every": block}, {**case, "feed": feed_stream, "feeds": ("many", "push", "chunks"), "positions": ()}


_APART = "the rows furthest apart for the Gram matrices are not opposite, as those for the mean"


def _adaptive(numbers: dict[str, Any], cost: float, options: Mapping[str, Any], rows: int) -> Pair:
    """Short rows about zero; about a mean far from it, rows at that mean."""
    of_rows = (0.6, about_mean) if options["center"] else (SHORT, another_norm)
    busy = of_rows[0] * np.tile(np.eye(6)[0], (40, 1))
    slack = _APART if options["center"] and options["adjacency"] == "replace" else ""
    return numbers, {
        "rows": 40, "busy": busy, "changes": of_rows[1], "thin": False, "cost": cost, "slack": slack,
    }  # fmt: skip


_AGREE = np.repeat([[0.0, 1.0], [1.0, 0.0]], [16, 16], axis=0)
_AGREE[:4] = 0.0
_SPECIAL: dict[str, Pair | Callable[[Mapping[str, Any], int], Pair]] = {
    "PrivateFPL": _fpl,
    "SlidingWindowPCA": lambda options, rows: (
        {"window": 4 * options["release_every"]},
        {"rows": rows + 12 * (options["release_every"] - 1), "changes": centered if options["center"] else changes},
    ),
    "PrivateOja": _oja,
    "PrivateSketch": lambda options, rows: (
        {"sketch_size": 2}, {"d": 12, "changes": in_sketch, "slack": ENDLESS if options["horizon"] is None else ""},
    ),
    "DPPCA": _dp_pca,
    "DoublingFPL": ({"n_components": 2}, {"d": 8, "slack": DOUBLING}),
    "Tumbling": _tumbling,
    "GaussianCovariance": lambda options, rows: (
        {}, {"d": 20, "changes": centered if options["center"] else changes},
    ),
    "LaplaceCovariance": ({"epsilon": 1.0}, {"changes": entries}),
    "MatrixLaplaceCovariance": ({"epsilon": 1.0}, {"d": 3}),
    "WishartCovariance": (SMALL, {"d": 2}),
    # Busy rows have a gap that shows, also in a box, whose corners alone have norm 1; zero rows have none.
    "SubspacePerturbation": (
        LARGE,
        {"rows": 30, "busy": np.full((30, 6), 0.408), "thin": False,
         "slack": "the bound on the shift of the projector holds for the least gap that the measured one allows"},
    ),
    # Short busy rows are clipped to a small radius, and all private values are released; zero rows keep radius 1.
    "AdaptiveCovariance": partial(_adaptive, LARGE, 4.0),
    "AdaptiveLaplaceCovariance": partial(_adaptive, {"epsilon": 20.0}, 1.0),  # 40 rows are more than 500 / epsilon
    # Three blocks of two vote for a plane, and three for the line that a zero row in place of the first leaves of it.
    "ExactSubspace": (
        {**SMALL, "n_components": None, "max_components": 2, "block_rows": 2},
        {"d": 5, "rows": 12, "changes": lines, "busy": np.eye(5)[[0, 1, 0, 1, 0, *[1] * 7]]},
    ),
    "ApproximateSubspace": (
        {"n_components": None, "max_components": 2, "epsilon": 5.0, "delta": 1e-6, "block_rows": 4,
         "widths": (0.5, 0.25)},
        {"d": 2, "rows": 32, "busy": _AGREE, "changes": deciding, "positions": (0, 2)},
    ),
}  # fmt: skip
