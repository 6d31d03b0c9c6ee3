"""The fixed cases: what planted bugs are planted in, on the neighbors that each subject is worst for.

To register a case, append an `add` (or `mechanism`, for both adjacencies) at the end of this file. What happens to
streams, and other ways in, are in `planted.lifecycles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

import streampca as sp
from streampca.auditing.feeds import feed_mechanism, feed_stream
from streampca.auditing.instrument import Case, Row
from streampca.auditing.laws import shuffled
from streampca.auditing.neighbors import Pairs, changes
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.gaussian import epsilon_at
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.shuffling import shuffled_mu

EPSILON, DELTA = 8.0, 1e-2
#: The budget of most cases.
BUDGET: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
#: A small one, for what has a law of its own; and one for what needs large counts.
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 0.05}
LARGE: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-6}
#: Why a case shows less than its claim.
ENDLESS = "noise for any number of rows, of which a short run spends a part"
CASES: dict[str, Case] = {}
_OF_CASE = {field.name for field in fields(Case)}


def add(name: str, kind: Callable[..., Any], **given: Any) -> None:
    """Register a case: its name, what makes its subject, parameters of that, and attributes of `Case`."""
    of_case = {key: given.pop(key) for key in _OF_CASE & given.keys()}
    CASES[name] = Case(name=name, make=partial(kind, **given), **{"feed": feed_stream, "changes": changes, **of_case})


# -- PrivateFPL -----------------------------------------------------------------------------------

FPL = partial(sp.PrivateFPL, n_components=2, horizon=12, **BUDGET)
_FEEDS = ("many", "push", "chunks", "past")
add("PrivateFPL", FPL, feeds=_FEEDS)
add("PrivateFPL-one-feature", FPL, n_components=1, d=1)
add("PrivateFPL-forty-features", FPL, d=40, quick=False)
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
_more = "its noise is for regret, and more than the claim asks for"
add("DoublingFPL", partial(sp.papers.DoublingFPL, n_components=2, horizon=12, **BUDGET), slack=_more)


def _another_norm(subject: Any, d: int) -> Pairs:
    """Rows of another norm as well: the histogram of norms sees only these under replace.

    Norms are edges of its bins, so that a row which is just clipped counts in full.
    """
    one, two = np.eye(d)[:2]
    if subject.adjacency != "replace":
        return {**changes(subject, d), "another norm": (np.zeros(d), one)}
    return {**changes(subject, d), **{f"norm 1 for {norm}": (norm * two, one) for norm in (0.25, 2.0**-6)}}


def _centered_changes(subject: Any, d: int) -> Pairs:
    return {
        "a zero row in its place": (np.full(d, np.nan), np.eye(d)[0]),
        "twice as long": (np.full(d, np.nan), 2.0 * np.ones(d)),
    }


def _centered_pairs(subject: Any, d: int) -> Pairs:
    """Unit rows at the angle at which square and sum move most together."""
    first, other = np.eye(d)[0], np.zeros(d)
    other[:2] = -0.125, math.sqrt(1.0 - 0.125**2)
    return {"the largest move": (first, other), "opposite rows": (first, -first)}


_zeroed = partial(feed_stream, on_bad_row="zero")
_no_row = "centered rewards are bounded for a mean of length 1, which no row alone makes"
_centered = partial(FPL, center=True)
add("PrivateFPL-centered", _centered, feed=_zeroed, changes=_centered_changes)
add("PrivateFPL-centered-rewards", _centered, publish_regret=True, feed=_zeroed, changes=_centered_changes,
    slack=_no_row)  # fmt: skip
add("PrivateFPL-centered-replace", _centered, adjacency="replace", feed=_zeroed, changes=_centered_pairs)


def _bounded_changes(subject: Any, d: int) -> Pairs:
    """Rows of numbers of all sizes; under replace, two corners of any box."""
    swapped = np.ones(d), np.resize([1e9, -1e9], d)
    first, other = swapped if subject.adjacency == "replace" else [np.full(d, np.nan)] * 2
    return {
        "a row with all magnitudes": (first, np.geomspace(-1e-9, -1e9, d)),
        "a corner of any box": (other, np.full(d, 1e9)),
        "a row of tiny numbers": (np.full(d, np.nan), np.full(d, 1e-300)),
    }


# Few columns, of which a warm-up of busy rows finds the bins; zero rows have none.
_bounded: dict[str, Any] = {
    "feed": partial(_zeroed, bounds="private", warmup=24), "changes": _bounded_changes, "horizon": 32, "rows": 32,
    "d": 2, "busy": np.vstack([np.tile([[0.9, 0.7]], (24, 1)), np.tile([[0.5, -0.4], [0.2, 0.1]], (4, 1))]),
}  # fmt: skip
add("PrivateFPL-private-bounds", FPL, **_bounded)
add("PrivateFPL-private-bounds-replace", FPL, adjacency="replace", **_bounded)
add("PrivateFPL-users", FPL, noise="tree", max_rows_per_user=2, positions=(0,), span=3,
    feeds=("push", "many"), cost=0.6)  # fmt: skip

# -- windows, Oja, DP-PCA -------------------------------------------------------------------------

WINDOW = partial(sp.SlidingWindowPCA, n_components=1, window=4, **BUDGET)
for _method in ("histogram", "ring", "forgetting"):
    add(f"SlidingWindowPCA-{_method}", WINDOW, method=_method)
add("SlidingWindowPCA-replace", WINDOW, method="ring", adjacency="replace")
add("SlidingWindowPCA-sums", WINDOW, window=10, method="ring", release_every=5, d=1, rows=40)
add("SlidingWindowPCA-sketch", WINDOW, sketch_rank=2, checkpoint_every=1, d=6, quick=False)
add("SlidingWindowPCA-one-feature", WINDOW, d=1)
add("SlidingWindowPCA-once", WINDOW, method="once", horizon=8, rows=8, positions=(0, 5, 7))

OJA = partial(sp.PrivateOja, n_components=1, batch_size=2, **BUDGET)
add("PrivateOja", OJA, d=6)
add("PrivateOja-two", OJA, n_components=2, adjacency="replace", batch_size=1, d=6)
add("PrivateOja-replace", OJA, adjacency="replace", d=6)
add("PrivateOja-clipped", OJA, clip=0.3, release_every=5, d=6, positions=(0, 4, 9, 11))


def _step_of_shuffled(subject: Any) -> Guarantee:
    """What each step must be for the closed form of shuffling to give the claim."""
    mu = shuffled_mu(subject.epsilon, subject.delta, subject.shuffle)
    return Guarantee(epsilon_at(mu, subject.delta), subject.delta, "replace", "one step", "", "", mu=mu)


_shuffled = partial(OJA, epsilon=0.5, delta=1e-3, shuffle=800, horizon=800, adjacency="replace", batch_size="auto")
add("PrivateOja-shuffled", _shuffled,  # of as few rows as shuffling is proved to help for
    d=2, rows=800, guarantee=_step_of_shuffled, positions=(799,), feeds=("many",), quick=False,
    law=lambda subject, kind: shuffled(CASES["PrivateOja-shuffled"].both_rows(subject)[1]))  # fmt: skip


def dp_pca(name: str, rows: int, d: int = 2, **given: Any) -> None:
    """Register a `DPPCA`: rows that differ are in the segments of its last minibatch."""
    one, long = 0.1 * np.eye(d)[0] + 0.03, 0.9 * np.ones(d) / math.sqrt(d)

    def ends(subject: sp.DPPCA) -> tuple[int, ...]:
        segments = subject.plan(d).segments
        return tuple(segment.stop - 1 for segment in segments[-1 - len({segment.purpose for segment in segments}) :])

    def busy(subject: sp.DPPCA) -> FloatArray:
        """Rows that vote for two bins: in every second subsample, from the end of a segment, the last row is long.

        Without that row the subsample votes for the bin of the others.
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

    def neighbors(subject: sp.DPPCA, d: int) -> Pairs:
        return {**changes(subject, d), "a long row like others": (np.zeros(d), long)}

    plain = 0.5 * np.eye(d)[0] + 0.02 * np.random.default_rng(1).normal(size=(rows, d))
    add(name, partial(sp.DPPCA, n_components=1, horizon=rows, **LARGE), d=d, rows=rows, busy=busy, plain=plain,
        positions=ends, changes=neighbors, feeds=("many",), **given)  # fmt: skip


dp_pca("DPPCA", 700, batch_size=100)
dp_pca("DPPCA-replace", 700, batch_size=100, adjacency="replace", quick=False)
dp_pca("DPPCA-two", 1000, d=3, batch_size=126, n_components=2, quick=False, cost=0.7)
dp_pca("DPPCA-deflation", 1500, batch_size=294, method="deflation", cost=0.8)
dp_pca("DPPCA-search", 8000, quick=False, cost=3.0, method="deflation", learning_rate="search")

# -- mechanisms -----------------------------------------------------------------------------------


def mechanism(name: str, kind: Callable[..., Mechanism], *, quick_replace: bool = True, **given: Any) -> None:
    """Register a mechanism under both adjacencies."""
    given = {"n_components": 1, "d": 6, "rows": 4, "feed": feed_mechanism, "feeds": ("once",), **given}
    add(name, kind, **given)
    add(f"{name}-replace", kind, **{**given, "adjacency": "replace", "quick": given.get("quick", quick_replace)})


GAUSSIAN = partial(sp.GaussianCovariance, n_components=1, **BUDGET)
mechanism("GaussianCovariance", GAUSSIAN, d=20)
mechanism("GaussianCovariance-discrete", GAUSSIAN, d=20, discrete_noise=True)
mechanism("GaussianCovariance-projected", GAUSSIAN, project="psd")


def _entries(subject: Any, d: int) -> Pairs:
    """Rows whose products are far apart in l1 norm: halves of equal entries."""
    turn, half = 0.4 * math.pi, np.ones((2, d // 2)) * math.sqrt(2.0 / d)
    one, other = (np.concatenate([math.cos(x) * half[0], math.sin(x) * half[1]]) for x in (turn, turn + 0.5 * math.pi))
    worst = (other, one) if subject.adjacency == "replace" else (np.zeros(d), math.sqrt(0.5) * np.ravel(half))
    return {**changes(subject, d), "equal entries": worst}


mechanism("LaplaceCovariance", sp.papers.LaplaceCovariance, epsilon=1.0, changes=_entries)
mechanism("LaplaceCovariance-one-feature", sp.papers.LaplaceCovariance, d=1, epsilon=1.0)
_matrix_laplace = partial(sp.MatrixLaplaceCovariance, epsilon=1.0)
mechanism("MatrixLaplaceCovariance", _matrix_laplace, d=3, cost=0.4, quick_replace=False)
mechanism("MatrixLaplaceCovariance-one-feature", _matrix_laplace, d=1, quick_replace=False)
mechanism("WishartCovariance", sp.papers.WishartCovariance, d=2, **SMALL)
# Busy rows have a gap that shows; zero rows have none.
_gap = np.tile(np.eye(6)[0], (30, 1))
_least = "the bound on how far the projector moves holds for the least gap that the measured one allows"
mechanism("SubspacePerturbation", sp.papers.SubspacePerturbation, rows=30, busy=_gap, slack=_least, **LARGE)

# Short busy rows are clipped to a small radius, and all its private values are released; zero rows keep radius 1.
_short = 2.0**-6 * np.tile(np.eye(6)[0], (40, 1))
_given: dict[str, Any] = {"rows": 40, "busy": _short, "changes": _another_norm, "cost": 1.4}
_adaptive = partial(sp.AdaptiveCovariance, n_components=1, **LARGE)
mechanism("AdaptiveCovariance", _adaptive, **_given)
_laplace = partial(sp.AdaptiveLaplaceCovariance, n_components=1, epsilon=20.0)
mechanism("AdaptiveLaplaceCovariance", _laplace, **{**_given, "cost": 1.0})  # 40 * 20 is above 500


def _lines(subject: Any, d: int) -> Pairs:
    """Rows that make a span or spoil it; among them rows in the kernel of what the search computes with."""
    first = np.zeros(d) if subject.adjacency == "zero-out" else np.eye(d)[1]
    prime = 2.0**31 - 1.0
    rows = {
        "e1": np.eye(d)[0],
        "a far line": np.arange(1.0, d + 1.0),
        "the prime of the search": prime * np.eye(d)[0],
        "one beyond it": np.append(prime, np.ones(d - 1)),
        "tiny": 5e-324 * np.ones(d),
        "huge": 1e300 * np.arange(1.0, d + 1.0),
        "in the kernel of its projection": _kernel(d),
    }
    return {name: (first, row) for name, row in rows.items()}


def _kernel(d: int) -> FloatArray:
    """A row of integers that the random projection of `subspace_search` to two dimensions takes to zero."""
    prime, mix = 2**31 - 1, np.random.Generator(np.random.Philox(0))
    columns = [[int(x) for x in mix.integers(0, prime, 2)] for _ in range(d)]
    (a, b), (c, e), (f, g) = columns[:3]
    row = [c * g - e * f, f * b - g * a, a * e - b * c]
    return np.array([float(x % prime) for x in row] + [0.0] * (d - 3))


_line = np.where(np.arange(12)[:, None] < 9, np.eye(5)[0], np.eye(5)[1])
_exact = partial(sp.ExactSubspace, n_components=1, method="all", **SMALL)
mechanism("ExactSubspace-all", _exact, d=5, rows=12, busy=_line, changes=_lines)
# Three blocks of two vote for a plane, and three for the line that a zero row in place of the first leaves of it.
_plane = np.where(np.isin(np.arange(12), (0, 2, 4))[:, None], np.eye(5)[0], np.eye(5)[1])
mechanism("ExactSubspace-blocks", _exact, d=5, rows=12, busy=_plane, changes=_lines, n_components=None,
    max_components=2, block_rows=2, method="blocks")  # fmt: skip


def _deciding(subject: Any, d: int) -> Pairs:
    """A row that alone decides for what its block votes: for one popular cell or another, or for one of its own."""
    one, two = np.eye(d)[0], np.eye(d)[1]
    nothing, own = one if subject.adjacency == "replace" else np.zeros(d), (one + two) * math.sqrt(0.5)
    return {
        "a popular cell for another": (nothing, two), "a cell of its own": (nothing, own), "or back": (own, nothing),
    }  # fmt: skip


_agree = np.repeat([[0.0, 1.0], [1.0, 0.0]], [16, 16], axis=0)
_agree[:4] = 0.0
_popular = np.repeat([[0.0, 1.0], [1.0, 0.0]], [24, 136], axis=0)  # the second cell is popular enough to show
_of_cells = partial(sp.papers.ApproximateSubspace, epsilon=5.0, delta=1e-6, block_rows=4)
mechanism("ApproximateSubspace", _of_cells, d=2, changes=_deciding, rows=32, busy=_agree, positions=(0, 2),
    widths=(0.5, 0.25))  # fmt: skip
mechanism("edge-lone", _of_cells, d=2, changes=_deciding, positions=(0,), widths=(0.5,))
mechanism("ApproximateSubspace-lone", _of_cells, d=2, changes=_deciding, rows=160, busy=_popular, positions=(0,),
    widths=(0.5,))  # fmt: skip


def of_mechanism(changes: Callable[[Any, int], Pairs]) -> Callable[[Any, int], Pairs]:
    """Pairs of rows that are far apart for the mechanism of a `Tumbling`."""
    return lambda subject, d: changes(subject.mechanism, d)


def tumbling(inner: Callable[..., Mechanism], adjacency: str = "zero-out", **given: Any) -> sp.Tumbling:
    """A `Tumbling` of a mechanism."""
    return sp.Tumbling(inner(adjacency=adjacency), **given)


_tumbling = partial(tumbling, GAUSSIAN)
add("Tumbling", _tumbling, release_every=2, rows=8)
add("Tumbling-replace", _tumbling, adjacency="replace", release_every=3, horizon=8, keep_short=True, rows=8)
# The second block is released with a map from the first one's release.
_mapped = partial(tumbling, _adaptive, release_every=40, map_from="previous")
for _adjacency, _suffix in (("zero-out", ""), ("replace", "-replace")):
    add(f"Tumbling-adaptive{_suffix}", _mapped, adjacency=_adjacency, changes=of_mechanism(_another_norm), d=6, rows=80,
        busy=np.tile(_short, (2, 1)), positions=(0, 79), feeds=("many",), cost=10.0, quick=False)  # fmt: skip
add("Tumbling-ExactSubspace", partial(tumbling, _exact), changes=of_mechanism(_lines), release_every=6, d=5)


def _votes(subject: Any, rows: list[Row], how: str) -> list[Any]:
    source = NoiseSource(sp.Randomness(), "audit", repr(subject))
    return [subject.release([f"bin {int(row[0])}" for row in rows], source.outlet(source.first), "votes")]


def _bins(subject: Any, d: int) -> Pairs:
    first, second, own = np.zeros(1), np.ones(1), np.full(1, 7.0)
    lone = {"a lone vote": (first, own), "a lone vote gone": (own, first)}
    return {"a vote between popular bins": (first, second), **lone}


_moves = partial(StabilityHistogram, 1.0, 1e-6)
add("StabilityHistogram-moves", _moves, feed=_votes, changes=_bins, d=1, rows=99,
    busy=np.repeat([[0.0], [1.0]], [9, 90], axis=0),  # a bin that is hidden, and one that shows

    feeds=("once",), positions=(0,))  # fmt: skip
