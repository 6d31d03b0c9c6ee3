"""Release a subspace that the rows lie close to, or nothing (Singhal and Steinke 2021, Algorithm 2)."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.base import SubspaceFinder
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.budget import Adjacency
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet
from streampca.release.release import Release, Terms

CITATION = "Singhal and Steinke 2021, Algorithm 2 and Lemma 3.4; Nissim, Raskhodnikova and Smith 2007"
#: Default cell widths: this many, each half the one before, from WIDEST / sqrt(n_features) down.
WIDTHS, WIDEST = 12, 0.125
#: Reference points, and least rows in a block, for each dimension of the subspace.
PER_COMPONENT = 4
#: Singular values below this fraction of a block's largest count as rounding errors.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class ApproximateSubspace(SubspaceFinder):
    """A subspace that most blocks of rows agree on, or nothing.

    Disjoint blocks of consecutive rows each compute their own top subspace
    and project public random reference points on it. The projections of
    blocks that agree fall into one cell of a public grid; a stability
    histogram finds that cell. The number of rows needed does not depend on
    the number of features (`rows_needed`), but the rows must be *very* close to
    the subspace. With 4312 rows of 20 features, k = 2, at (1, 1e-6), Gaussian rows whose standard deviation off the
    subspace is 1e-5 of that in it always gave a subspace (error bound 0.01), 1e-4 in two thirds
    of cases (0.07), 1e-3 never.

    The release is a subspace, or *null*: the empty subspace (``n_components == 0``,
    a basis of no columns, ``details["null"]`` true), if no cell is popular enough.
    ``details["error_bound"]`` bounds the sine of the largest angle to
    the subspace of every block that voted for it (1 is no bound).

    Parameters
    ----------
    n_components : k, or None to find it: each block then votes with its own k,
        where its singular values fall most steeply.
    epsilon, delta, adjacency, n_features : see `Mechanism`; delta is below 0.5. The noise is the same under both
        adjacencies.
    max_components : largest k to look for when n_components is None.
    widths : cell widths to try, all positive. The rows needed grow about in
        proportion to their number; 12 by default, from 0.125 / sqrt(n_features) down
        by halves. The narrowest one that has a popular cell is used.
    block_rows : rows in a block; by default as many as allow enough blocks, at least 4 k.

    Notes
    -----
    (epsilon, delta)-DP per row. A row is in one block whatever its value,
    and zeroing or replacing it changes that block's vote alone: in each of the G
    histograms one vote *moves*. Each is a `StabilityHistogram` at (epsilon / G, delta / G): noise
    Lap(2 G / epsilon), threshold ``1 + (2 G / epsilon) ln(G / (2 delta))``; basic composition gives
    the total. Everything after is post-processing; grid and reference points are public.
    No norm is used, so rows are neither scaled nor rounded.

    Citation: Singhal and Steinke, "Privately Learning Subspaces", NeurIPS 2021.
    """

    n_components: int | None = None
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"
    max_components: int = 3
    widths: tuple[float, ...] | None = None
    block_rows: int | None = None
    n_features: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.widths is not None:
            object.__setattr__(self, "widths", tuple(float(w) for w in self.widths))
            if not self.widths or not all(0.0 < w < math.inf for w in self.widths):
                raise BadParameterError(f"widths={self.widths!r} must be positive finite numbers, at least one")
        _ = self.histogram

    @property
    def histogram(self) -> StabilityHistogram:
        """The histogram of the votes at one cell width."""
        count = WIDTHS if self.widths is None else len(self.widths)
        return StabilityHistogram(self.epsilon / count, self.delta / count)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP per row, for one release of one data set."""
        return self._promise(
            "stability histograms in which one vote moves; basic composition over cell widths", CITATION
        )

    @property
    def blocks_needed(self) -> int:
        """Blocks with which a cell that 4 in 5 of them agree on passes with probability 0.95."""
        return math.ceil(1.25 * self.histogram.count_needed(0.05))

    def rows_needed(self) -> int:
        """Rows for `blocks_needed` blocks of the least size."""
        return self.blocks_needed * (self.block_rows or PER_COMPONENT * self._largest)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """The scale of the noise on votes, the threshold, and the widths of the cells."""
        return self.histogram.scale, self.histogram.threshold, *self._sorted_widths(n_features)

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        """The popular subspace, or null."""
        n, d = rows.shape
        size = self.block_rows or max(PER_COMPONENT * self._largest, n // self.blocks_needed)
        blocks = rows[: n // size * size].reshape(-1, size, d)
        outlet.hide("rows", rows)  # so that the public coins cannot be known before the rows
        points = outlet.coins("reference points").normal(PER_COMPONENT * self._largest * d).reshape(d, -1)
        ranks, projections = self._votes(blocks, points)
        details = {"mechanism": type(self).__name__, "rows": n, "blocks": len(blocks), "block_rows": size}
        for width in self._sorted_widths(d):
            offset = outlet.coins("offset").uniform(points.size)
            cells = cells_of(projections, width, offset)
            votes = [(rank, cell.tobytes()) for rank, cell in zip(ranks.tolist(), cells, strict=True)]
            shown = self.histogram.release(votes, outlet, "votes")
            if shown:
                (rank, cell), noisy_votes = shown[0]
                center = ((np.frombuffer(cell, dtype=np.int64) + 0.5 - offset) * width).reshape(points.shape)
                left, singular, _ = np.linalg.svd(center, full_matrices=False)
                error = 0.5 * width * math.sqrt(center.size)
                details |= {
                    "null": False,
                    "width": width,
                    "noisy_votes": noisy_votes,
                    # (I - P_Y) U_C = (I - P_Y) (C - Y) V_C / S_C for every Y of rank k in the cell.
                    "error_bound": min(1.0, error / float(singular[rank - 1])),
                }
                return Release(t=t, n_components=rank, terms=terms, basis=fix_signs(left[:, :rank]), details=details)
        return Release(t=t, n_components=0, terms=terms, basis=np.zeros((d, 0)), details=details | {"null": True})

    def _votes(self, blocks: FloatArray, points: FloatArray) -> tuple[IntArray, FloatArray]:
        """Each block's dimension, and its projections of the reference points as one vector."""
        singular, directions = _decompose(blocks)
        ranks = self._ranks(singular)
        made = np.empty((len(blocks), points.size))
        for rank in np.unique(ranks).tolist():
            among = ranks == rank
            top = directions[among, :rank]
            made[among] = (top.transpose(0, 2, 1) @ (top @ points)).reshape(-1, points.size)
        return ranks, made

    def _ranks(self, singular: FloatArray) -> IntArray:
        """The dimension that each block votes for: where its singular values fall most steeply."""
        if self.n_components is not None:
            return np.full(len(singular), self.n_components, dtype=np.int64)
        floor = np.maximum(ROUNDING * singular[:, :1], np.finfo(np.float64).tiny)
        padded = np.maximum(np.pad(singular, ((0, 0), (0, 1))), floor)
        steepest: IntArray = np.argmax((padded[:, :-1] / padded[:, 1:])[:, : self.max_components], axis=1)
        return steepest + 1

    def _sorted_widths(self, d: int) -> list[float]:
        if self.widths is not None:
            return sorted(self.widths)
        return [WIDEST / math.sqrt(d) * 2.0**-i for i in reversed(range(WIDTHS))]


def _decompose(blocks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Singular values and right singular vectors of each block; fixed ones where the solver fails."""
    peaks = np.abs(blocks).max(axis=(1, 2), initial=0.0)
    scaled = np.ldexp(blocks, -np.frexp(peaks)[1][:, None, None])
    try:
        singular, directions = np.linalg.svd(scaled, full_matrices=False)[1:]
    except np.linalg.LinAlgError:
        shape = min(blocks.shape[1:]), blocks.shape[2]
        singular, directions = np.ones((len(blocks), shape[0])), np.tile(np.eye(*shape), (len(blocks), 1, 1))
        for j, block in enumerate(scaled):
            with suppress(np.linalg.LinAlgError):
                singular[j], directions[j] = np.linalg.svd(block, full_matrices=False)[1:]
    return singular, directions


def cells_of(vectors: FloatArray, width: float, offset: FloatArray) -> IntArray:
    """The grid cell of each vector."""
    return np.floor(vectors / width + offset).astype(np.int64)
