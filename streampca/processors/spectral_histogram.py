"""The approximate spectral histogram: which starts of windows to remember.

A window of an endless stream is ``K(i) = P - P_i``, the sum now less the sum
before checkpoint i. Keeping every start costs W matrices. If (1 - eta/2) K(i) is
already below K(j), every start in between is nearly K(i), and is
forgotten; few starts remain (Upadhyay and Upadhyay 2021, after Braverman et al. 2020).

Here the P_i are *private* sums, published as far as privacy is concerned, so all of
this is post-processing: nothing is needed for privacy, and the slack serves accuracy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streampca.linalg.parts import difference
from streampca.linalg.psd import negative_direction
from streampca.linalg.svec import pack_entries, svec_size, unpack_entries
from streampca.linalg.types import FloatArray

#: A remembered direction counts as a violation if it shows one this large, relative to the matrix.
_CLEAR = 1e-9


@dataclass(frozen=True, eq=False)
class Rules:
    """Which checkpoints are kept, and how. Public.

    Attributes
    ----------
    n_features : side of the matrices.
    window : rows in the window; the oldest checkpoint is at or before its start.
    keep : the factor that deletion keeps, 1 - eta/2.
    slack : of a number of rows: additive slack of the deletion test for checkpoints so far apart.
    pin_every : checkpoints at starts 1, 1 + pin_every, ... are never deleted, which bounds how
        far before the window the oldest one may lie.
    rank : directions that a checkpoint keeps of what was added since a pinned one; None keeps whole sums.
    """

    n_features: int
    window: int
    keep: float
    slack: Callable[[int], float]
    pin_every: int
    rank: int | None = None

    def is_pinned(self, start: int) -> bool:
        """Whether the checkpoint at this start is never deleted."""
        return (start - 1) % self.pin_every == 0


class Whole:
    """A whole private sum.

    Attributes
    ----------
    parts : the sum, in whole units and the rest (`linalg.parts`).
    error : bound on the spectral norm of what was left out of it.
    anchor : the whole sum that it rests on.
    """

    __slots__ = ("parts",)

    error = 0.0

    def __init__(self, parts: FloatArray) -> None:
        self.parts = parts

    @property
    def anchor(self) -> Whole:
        """The sum itself."""
        return self

    def since(self, now: FloatArray) -> FloatArray:
        """Packed entries of the sum now less this one."""
        return difference(now, self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.parts.nbytes


class Sketch:
    """A private sum as a whole earlier one plus ``Q diag(values) Q^T + rest (I - Q Q^T)``.

    Post-processing: what is truncated is private already. A sum is truncated once, so
    errors do not pile up, and what it cost is known and reported.

    Measured at d = 100, W = 10 000, epsilon = 4, a release every 10 rows, rank 8 and one pinned
    checkpoint a window: 0.23 MiB instead of 1.16, an error of at most 57 beside a noise
    bound of 112, and the same captured variance to 1e-5.

    Parameters
    ----------
    anchor : the earlier sum.
    vectors, values, rest : what was added since, but for its middle eigenvalues, which all became ``rest``.
    error : how far they were from it at most.
    """

    __slots__ = ("anchor", "error", "rest", "values", "vectors")

    def __init__(self, anchor: Whole, vectors: FloatArray, values: FloatArray, rest: float, error: float) -> None:
        self.anchor, self.vectors, self.values, self.rest, self.error = anchor, vectors, values, rest, error

    @classmethod
    def of(cls, anchor: Whole, matrix: FloatArray, rank: int) -> Sketch:
        """The best sketch of what was added since the anchor: its outer eigenvalues stay."""
        values, vectors = np.linalg.eigh(matrix)
        left = max(values.size - rank, 1)
        # What goes is a run of the ascending spectrum: the narrowest one.
        widths = values[left - 1 :] - values[: values.size - left + 1]
        first = int(np.argmin(widths))
        kept = np.r_[0:first, first + left : values.size]
        rest = 0.5 * float(values[first] + values[first + left - 1])
        return cls(anchor, np.ascontiguousarray(vectors[:, kept]), values[kept], rest, 0.5 * float(widths[first]))

    def since(self, now: FloatArray) -> FloatArray:
        """Packed entries of the sum now less this one."""
        added = (self.vectors * (self.values - self.rest)) @ self.vectors.T
        added[np.diag_indices_from(added)] += self.rest
        return difference(now, self.anchor.parts) - pack_entries(added)

    @property
    def nbytes(self) -> int:
        """Bytes held, the anchor apart."""
        return self.vectors.nbytes + self.values.nbytes


class SpectralHistogram:
    """Checkpoints of a stream of private running sums: an immutable value.

    Attributes
    ----------
    rules : which checkpoints are kept.
    starts : first rows of the sums that are kept, ascending.
    sums : for each start, the private sum of the rows before it.
    now : the private sum of all rows, in parts.
    anchor : the latest sum kept whole, on which sketches rest.
    witnesses : for a start, the next-but-one start it was compared with, and a direction that forbade
        deletion. They save work, and decide nothing.
    """

    __slots__ = ("anchor", "now", "rules", "starts", "sums", "witnesses")

    def __init__(
        self,
        rules: Rules,
        starts: tuple[int, ...],
        sums: tuple[Whole | Sketch, ...],
        now: FloatArray,
        anchor: Whole,
        witnesses: Mapping[int, tuple[int, FloatArray]],
    ) -> None:
        self.rules, self.starts, self.sums, self.now = rules, starts, sums, now
        self.anchor, self.witnesses = anchor, witnesses

    @classmethod
    def first(cls, rules: Rules) -> Self:
        """The histogram before any row."""
        nothing = Whole(np.zeros((2, svec_size(rules.n_features))))
        return cls(rules, (1,), (nothing,), nothing.parts, nothing, {})

    def advanced(self, t: int, now: FloatArray) -> Self:
        """With the private sum of the first t rows, and without the checkpoints that no window needs any more."""
        gone, past = 0, t - self.rules.window + 1
        while gone + 1 < len(self.starts) and self.starts[gone + 1] <= past:
            gone += 1
        return type(self)(self.rules, self.starts[gone:], self.sums[gone:], now, self.anchor, self.witnesses)

    def marked(self, t: int) -> Self:
        """With a checkpoint that starts at row t + 1, and without those that are no longer needed."""
        rules, anchor, start = self.rules, self.anchor, t + 1
        added: Whole | Sketch
        if rules.rank is None or rules.is_pinned(start):
            added = anchor = Whole(self.now)
        else:
            since = unpack_entries(anchor.since(self.now), rules.n_features)
            added = Sketch.of(anchor, since, rules.rank)
        starts, sums, witnesses = [*self.starts, start], [*self.sums, added], dict(self.witnesses)
        # From the newest backwards: afterwards no three neighbours allow a deletion.
        for i in range(len(starts) - 3, -1, -1):
            first = sums[i].since(self.now)
            while i + 2 < len(starts) and not rules.is_pinned(starts[i + 1]):
                known, other = witnesses.get(starts[i]), starts[i + 2]
                remembered = known[1] if known is not None and known[0] == other else None
                x = self.forbids(starts[i], other, first, sums[i + 2].since(self.now), remembered)
                if x is not None:
                    witnesses[starts[i]] = other, x
                    break
                del starts[i + 1], sums[i + 1]
        kept = {start: witnesses[start] for start in starts if start in witnesses}
        return type(self)(rules, tuple(starts), tuple(sums), self.now, anchor, kept)

    def forbids(
        self, start: int, other: int, first: FloatArray, second: FloatArray, remembered: FloatArray | None
    ) -> FloatArray | None:
        """A direction in which (1 - eta/2) K(i) - slack I is not below K(j); None if what lies between may go.

        Parameters
        ----------
        start, other : where the checkpoints i and j start.
        first, second : packed K(i) and K(j).
        remembered : a direction that forbade it before. Most often it still does: d**2 work instead of d**3.
        """
        gap = unpack_entries(second - self.rules.keep * first, self.rules.n_features)
        gap[np.diag_indices_from(gap)] += self.rules.slack(other - start)
        if remembered is not None:
            clear = _CLEAR * float(np.abs(np.diagonal(gap)).max())
            if float(remembered @ gap @ remembered) < -clear:
                return remembered
        return negative_direction(gap)

    def view(self, i: int) -> FloatArray:
        """K(i): packed entries of the private sum since checkpoint i."""
        return self.sums[i].since(self.now)

    @property
    def error(self) -> float:
        """Bound on the spectral norm of what K(1) misses: 0 if whole sums are kept."""
        return self.sums[0].error

    @property
    def _anchors(self) -> list[Whole]:
        """The whole sums that checkpoints rest on, and the next ones will."""
        anchors = [*(kept.anchor for kept in self.sums), self.anchor]
        return list({id(anchor): anchor for anchor in anchors}.values())

    @property
    def nbytes(self) -> int:
        """Bytes held for checkpoints."""
        sketches = sum(kept.nbytes for kept in self.sums if isinstance(kept, Sketch))
        return sketches + sum(anchor.nbytes for anchor in self._anchors)

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which `restored` makes it again. Public, as far as the rows are concerned."""
        anchors = self._anchors
        place = {id(anchor): i for i, anchor in enumerate(anchors)}
        sums: list[dict[str, Any]] = []
        for kept in self.sums:
            sums.append({"anchor": place[id(kept.anchor)]})
            if isinstance(kept, Sketch):
                sums[-1] |= {name: getattr(kept, name) for name in ("vectors", "values", "rest", "error")}
        return {
            "starts": list(self.starts),
            "now": self.now,
            "anchors": [anchor.parts for anchor in anchors],
            "anchor": place[id(self.anchor)],
            "sums": sums,
        }

    @classmethod
    def restored(cls, rules: Rules, snapshot: Mapping[str, Any]) -> Self:
        """The histogram of a snapshot."""
        anchors = [Whole(parts) for parts in snapshot["anchors"]]
        sums: list[Whole | Sketch] = []
        for kept in snapshot["sums"]:
            anchor = anchors[kept["anchor"]]
            if "vectors" in kept:
                sums.append(Sketch(anchor, kept["vectors"], kept["values"], kept["rest"], kept["error"]))
            else:
                sums.append(anchor)
        starts, anchor = tuple(snapshot["starts"]), anchors[snapshot["anchor"]]
        return cls(rules, starts, tuple(sums), snapshot["now"], anchor, {})
