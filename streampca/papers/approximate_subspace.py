"""Release a subspace that the rows lie close to, or nothing (Singhal and Steinke 2021, Algorithm 2)."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.base import SubspaceFinder
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.outlet import Outlet
from streampca.release.release import Release
from streampca.release.terms import Terms

#: Default cell widths: WIDTHS of them, each half the one before, from WIDEST / sqrt(n_features) down.
WIDTHS, WIDEST = 12, 0.125
#: Reference points, and least rows in a block, per dimension of the subspace.
PER_COMPONENT = 4
#: Singular values below this fraction of a block's largest count as rounding errors.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class ApproximateSubspace(SubspaceFinder):
    """A subspace that most blocks of rows agree on, or nothing.

    Disjoint blocks of consecutive rows compute their own top subspaces and project public random reference points on
    them. The projections of blocks that agree fall into one cell of a public grid, which a stability histogram finds.
    The number of rows needed does not depend on the number of features (`rows_needed`), but the standard deviation of
    rows off the subspace must be about 1e-5 of that in it.

    The release is a subspace, or *null* if no cell is popular enough: the empty subspace (``n_components == 0``,
    ``details["null"]`` true). ``details["error_bound"]`` bounds the sine of the largest angle to the subspace of every
    block that voted for it (1 is no bound).

    Parameters
    ----------
    n_components : k. None lets each block vote with its own k, at the steepest fall of its singular values.
    epsilon, delta, adjacency : see `Mechanism`; delta is below 0.5. Both adjacencies have the same noise.
    max_components : largest k considered if n_components is None.
    widths : cell widths to try, all positive. The narrowest one with a popular cell is used. The rows needed grow about
        in proportion to their number. None uses 12 widths, from 0.125 / sqrt(n_features) down by halves.
    block_rows : rows in a block. None uses the largest number that allows enough blocks, at least 4 k.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP per row. A row is in one block for any value, and zeroing or replacing it changes
    the vote of that block only: in each of the G histograms one vote *moves*. Each is a `StabilityHistogram` at
    (epsilon / G, delta / G), and basic composition gives the total. Grid and reference points are public. No norm is
    used, so rows are neither scaled nor rounded.
    """

    widths: tuple[float, ...] | None = None
    histogram: StabilityHistogram = field(init=False, repr=False, compare=False)  # of the votes at one cell width
    #: Number of blocks for which a cell with 4 of 5 votes passes with probability 0.95.
    blocks_needed: int = field(init=False, repr=False, compare=False)

    theorem = "stability histograms in which one vote moves; basic composition over cell widths"
    citation = "Singhal and Steinke 2021, Algorithm 2 and Lemma 3.4; Nissim, Raskhodnikova and Smith 2007"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.widths is not None:
            object.__setattr__(self, "widths", tuple(float(w) for w in self.widths))
            if not self.widths or not all(0.0 < w < math.inf for w in self.widths):
                raise BadParameterError("widths", self.widths, "positive finite numbers, at least one")
        count = WIDTHS if self.widths is None else len(self.widths)
        histogram = StabilityHistogram(self.epsilon / count, self.delta / count)
        vars(self).update(histogram=histogram, blocks_needed=math.ceil(1.25 * histogram.count_needed(0.05)))

    def rows_needed(self) -> int:
        """Return the rows of `blocks_needed` blocks of the least size."""
        return self.blocks_needed * (self.block_rows or PER_COMPONENT * self._largest)

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.histogram.scale, self.histogram.threshold, *self._sorted_widths(n_features)

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n, d = rows.shape
        # Public: the number of rows is, under zero-out and replace. Rows beyond the last whole block have no vote.
        size = self.block_rows or max(PER_COMPONENT * self._largest, n // self.blocks_needed)
        blocks = rows[: n // size * size].reshape(-1, size, d)
        # The public coins are drawn after the rows are bound to the chain, so rows cannot be chosen to fit the grid.
        outlet.hide("rows", rows)
        points = outlet.hide("reference points").normal(PER_COMPONENT * self._largest * d).reshape(d, -1)
        # SS21, Algorithm 2: Y_j = P_j X for the reference points X, and the cell of the vector Y_j.
        ranks, projections = self._votes(blocks, points)
        details = {"mechanism": type(self).__name__, "rows": n, "blocks": len(blocks), "block_rows": size}
        for width in self._sorted_widths(d):
            offset = outlet.hide("offset").uniform(points.size)
            cells = np.floor(projections / width + offset).astype(np.int64)  # one a block, in the public grid
            votes = [(rank, cell.tobytes()) for rank, cell in zip(ranks.tolist(), cells, strict=True)]
            shown = self.histogram.release(votes, outlet, "votes")
            if shown:
                (rank, cell), noisy_votes = shown[0]
                # The middle of the cell, in units of the projections.
                center = ((np.frombuffer(cell, dtype=np.int64) + 0.5 - offset) * width).reshape(points.shape)
                left, singular, _ = np.linalg.svd(center, full_matrices=False)
                error = 0.5 * width * math.sqrt(center.size)
                # (I - P_Y) U_C = (I - P_Y) (C - Y) V_C / S_C for every Y of rank k in the cell.
                bound = min(1.0, error / float(singular[rank - 1]))
                details |= {"null": False, "width": width, "noisy_votes": noisy_votes, "error_bound": bound}
                return Release(t=t, n_components=rank, terms=terms, basis=fix_signs(left[:, :rank]), details=details)
        return Release(t=t, n_components=0, terms=terms, basis=np.zeros((d, 0)), details=details | {"null": True})

    def _votes(self, blocks: FloatArray, points: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each block's dimension, and its projections of the reference points as one vector."""
        singular, directions = _decompose(blocks)
        if self.n_components is not None:
            ranks = np.full(len(singular), self.n_components, dtype=np.int64)
        else:
            # A block votes for the dimension after which its singular values fall most steeply.
            floor = np.maximum(ROUNDING * singular[:, :1], np.finfo(np.float64).tiny)
            padded = np.maximum(np.pad(singular, ((0, 0), (0, 1))), floor)
            ranks = 1 + np.argmax((padded[:, :-1] / padded[:, 1:])[:, : self.max_components], axis=1)
        projections = np.empty((len(blocks), points.size))
        for rank in np.unique(ranks).tolist():
            among = ranks == rank
            top = directions[among, :rank]
            projections[among] = (top.transpose(0, 2, 1) @ (top @ points)).reshape(-1, points.size)
        return ranks, projections

    def _sorted_widths(self, d: int) -> list[float]:
        if self.widths is not None:
            return sorted(self.widths)
        return [WIDEST / math.sqrt(d) * 2.0**-i for i in reversed(range(WIDTHS))]


def _decompose(blocks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return singular values and right singular vectors of each block, fixed ones if the solver fails."""
    # Powers of two change no direction, and keep squares of tiny or huge numbers from underflow and overflow.
    peaks = np.abs(blocks).max(axis=(1, 2), initial=0.0)
    scaled = np.ldexp(blocks, -np.frexp(peaks)[1][:, None, None])
    shape = min(blocks.shape[1:]), blocks.shape[2]
    singular, directions = np.ones((len(blocks), shape[0])), np.tile(np.eye(*shape), (len(blocks), 1, 1))
    for j, block in enumerate(scaled):
        # Privacy: a failure on one block must not stop the release, because it depends on the rows.
        with suppress(np.linalg.LinAlgError):
            singular[j], directions[j] = np.linalg.svd(block, full_matrices=False)[1:]
    return singular, directions
