"""Exact regret: the reward of the released subspaces against that of the best one in hindsight. Curator only.

Rewards and regret are deterministic functions of raw rows: publishing them has no privacy guarantee at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streampca.errors import NoReleaseError, UsageError
from streampca.linalg.centering import CONSTANT, about_mean
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import lanczos_sum, top_pairs, top_sum
from streampca.linalg.frequent_directions import FrequentDirections
from streampca.linalg.lattice import GramSum
from streampca.linalg.memory import History, Rows
from streampca.linalg.svec import unpack_entries
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.processors.base import Processor
from streampca.release.scoring import Scoring, rewarded
from streampca.release.subspace import Subspace
from streampca.state import State
from streampca.tables import CURATOR_ONLY, html_table, record_frame

if TYPE_CHECKING:
    import pandas as pd

#: Number of features above which OPT is computed from a sketch, unless the processor holds a (d, d) matrix; and the
#: sketch's l over k.
_EXACT_FEATURES, _SKETCH_ROWS = 200, 10
#: Minimum number of rows between records before any are dropped. Up to it each record doubles the rows of the previous.
_SPACING = 512
#: Number of features above which OPT is computed by Lanczos iterations, and from which an eigenvalue problem costs as
#: much as thousands of rows, or as a release: records there wait for more rows, up to `_LONGEST`, or for `_RELEASES`.
_DIRECT, _WIDE, _RELEASES = 256, 500, 8
#: Maximum number of records; each required an eigenvalue problem.
_KEPT = 128
#: Rows between releases above which records do not wait for them.
_LONGEST = 2**14
#: Share of the squared norms below which a variance is rounding.
_ROUNDING = 1e-12
#: Number of records shown in a notebook.
_SHOWN = 8


@dataclass(frozen=True)
class RegretRecord:
    """Regret after t rows. Curator only: exact functions of raw rows.

    *Centered streams.* The loss of a row a is its squared distance ``||(I - V V^T)(a - m)||**2`` from the current
    subspace V through the current mean m, and its reward is ``||a||**2`` less that. The least sum of losses in
    hindsight, over subspaces and means, is the sum of the d - k smallest eigenvalues of ``G - s s^T / n``, G the Gram
    matrix and s the sum of the n rows; `opt` is the sum of ``||a||**2`` less that. `captured` refers to this matrix.
    """

    t: int  #: number of rows
    reward: float  #: sum of ||V^T a||**2 over the rows a, V the subspace before the row, in units of row_norm**2
    opt: float  #: the same for the best fixed subspace in hindsight (OPT)
    regret: float  #: ``opt - reward``
    bound: float | None  #: on the expected regret for these parameters and rows; None if none below `opt` is proved
    #: Energy of all rows so far in the current subspace, as a share of the maximum for k dimensions; nan if that is 0:
    #: every row is the same (0, without centering).
    captured: float
    #: 0 if OPT is exact. Otherwise OPT is between `opt` and ``opt + slack``, regret likewise, and `captured` is a lower
    #: bound (`RegretLog`).
    slack: float = 0.0
    #: Number of rows to divide by for figures per row: those that are present if the stream is centered
    #: (`linalg.centering`), else 0, which stands for t.
    count: float = 0.0

    @classmethod
    def of(cls, values: Iterable[Any]) -> RegretRecord:
        """Create the record of its values in order, with None or nan for no bound."""
        t, reward, opt, regret, bound, *others = values
        return cls(int(t), reward, opt, regret, None if bound is None or math.isnan(bound) else bound, *others)

    @property
    def average(self) -> float:
        """Regret per row; the lower end of an interval of length ``per_row(slack)``."""
        return self.per_row(self.regret)

    @property
    def average_bound(self) -> float | None:
        """Bound on the expected regret per row; None if none is proved."""
        return None if self.bound is None else self.per_row(self.bound)

    def per_row(self, value: float) -> float:
        """Return a figure of all rows, divided by their number."""
        return value / (self.count or self.t)

    def _repr_html_(self) -> str:
        shown = asdict(self) | {"regret per row": self.average}
        return html_table((), shown.items(), warning=CURATOR_ONLY)


@dataclass(frozen=True, kw_only=True)
class RegretLog:
    """Settings of the exact regret of a stream. Curator only.

    Parameters
    ----------
    every : number of rows between records. If None, records are kept after 1, 2, 4, ... rows and then every 512, or at
        releases at least 512 rows apart; above 128 records, every other one is dropped and the step doubles. From 500
        features on, they are at least 512 rows and 8 releases apart, or 16 384 rows.

    OPT is an eigenvalue problem, computed only for records and by `Regret.now`: above 200 features, if the processor
    holds no (d, d) matrix, from a sketch of 10 k to 20 k rows. Records then hold intervals (`RegretRecord.slack`).
    """

    every: int | None = None

    def __post_init__(self) -> None:
        check_count("every", self.every, optional=True)

    def start(self, processor: Processor) -> RegretSums:
        """Return the regret before the first row of a processor."""
        d, center = processor.n_features, processor.algorithm.center
        # None are left at the horizon, for a state that is restored.
        has_matrix, release = processor.curator_gram() is not None, max(1, processor.rows_until_release)
        # A second (d, d) matrix would double the memory of algorithms that hold one, and be all of it for others.
        # A sketch is of rows, and the inputs of a calendar are their sums.
        is_sketched = d > _EXACT_FEATURES and not has_matrix and not processor.algorithm.has_calendar
        sketch = _SKETCH_ROWS * processor.algorithm.n_components
        sums = np.zeros(d) if center else None
        own = FrequentDirections(Rows(d - center), sketch, sums=sums) if is_sketched else GramSum(d)
        # Records fall on releases, so that no block is cut for them.
        rows = _SPACING if d < _WIDE else min(max(_SPACING, _RELEASES * release), _LONGEST)
        step = self.every or (-(-rows // release) * release if release <= _LONGEST else rows)
        history = History(RegretRecord.of, _KEPT if self.every is None else None, step)
        first = self.every or (1 if d < _WIDE else step)
        return RegretSums(self, 0, 0.0, history, first, None if has_matrix else own, center)


@dataclass(eq=False, repr=False, slots=True)
class RegretSums(State):
    """State of the regret of a stream after t rows: an immutable value. Curator only."""

    kept = ("t", "reward", "next", "own", "history")

    log: RegretLog
    t: int
    reward: float  # sum of those of the rows, in units of row_norm**2 = 1
    history: History
    next: int  # row of the next record
    own: GramSum | FrequentDirections | None  # of all rows; None if the processor holds their Gram matrix
    center: bool  # rows end with the constant of `linalg.centering`

    def observe(self, rows: FloatArray, scoring: Scoring) -> tuple[RegretSums, FloatArray]:
        """Return the regret after admitted rows, up to row `next` at most, and their rewards on ``scoring``."""
        rewards, reward = rewarded(rows, scoring, self.reward)
        own = None if self.own is None else self.own.add(rows)
        after = RegretSums(self.log, self.t + rewards.size, reward, self.history, self.next, own, self.center)
        return after, rewards

    def observe_block(self, count: int, gram: GramSum, reward: float) -> RegretSums:
        """Return the regret after a block with this Gram matrix and this sum of rewards."""
        # Algorithms that absorb blocks hold no sketch.
        own = self.own.add_high_low(*gram.high_low()) if isinstance(self.own, GramSum) else self.own
        return replace(self, t=self.t + count, reward=self.reward + reward, own=own)

    def recorded(self, processor: Processor, subspace: Subspace, unit: float) -> RegretSums:
        """Return the regret with the record of this moment; see `record`."""
        history = self.history.append(self.record(processor, subspace, unit))
        # Records fall on 1, 2, 4, ... while the gaps are below the step, then on its multiples.
        doubles = 3 * self.t < history.step and self.log.every is None
        following = 2 * self.t if doubles else (self.t // history.step + 1) * history.step
        return replace(self, history=history, next=following)

    def record(
        self, processor: Processor, subspace: Subspace, unit: float, waiting: GramSum | None = None
    ) -> RegretRecord:
        """Return the record at this moment, for the processor and the current subspace after these rows.

        ``unit`` is row_norm**2, and ``waiting`` the Gram matrix of the rows that the processor has not absorbed.
        """
        gram, k = self.gram(processor, waiting), processor.algorithm.n_components
        slack = of_mean = present = 0.0
        with OneThread(processor.n_features):
            if isinstance(gram, FrequentDirections):
                # The sketch loses at most `slack` of OPT and adds nothing: both ends are certain (Ghashami et al.).
                most, slack, inside = gram.top_sum(k), gram.slack(k), gram.captured(subspace.basis)
                present, mean = gram.mean
                of_mean = present * float(mean @ mean)
            else:
                matrix = unpack_entries(gram.packed(), gram.n_features)
                if self.center:
                    present = round(float(matrix[-1, -1]) / CONSTANT**2)
                    matrix, of_mean = about_mean(matrix)
                # All three agree up to rounding; the first is the fastest for many features, the last for few.
                if len(matrix) > _DIRECT:
                    most = lanczos_sum(matrix, k)
                elif self.center:
                    most = top_sum(matrix, k)
                else:
                    most = float(top_pairs(gram.packed(), k)[0].sum())
                inside = subspace.captured(matrix)
        # OPT of all projectors is at least that of `subspace`: the share is at most 1, but for rounding.
        # Equal rows have no variance about their mean, but for rounding.
        opt, is_empty = most + of_mean, most <= _ROUNDING * of_mean
        captured = math.nan if is_empty else inside / (most + slack)
        # The theorems compare with a fixed subspace through 0.
        bound = None if self.center else processor.regret_bound(self.t, opt)
        reward, best = self.reward * unit, opt * unit
        bound = None if bound is None else bound * unit
        return RegretRecord(self.t, reward, best, best - reward, bound, captured, slack * unit, present)

    def gram(self, processor: Processor, waiting: GramSum | None = None) -> GramSum | FrequentDirections:
        """Return the exact Gram matrix of all rows, or a sketch of it; ``waiting`` as for `record`."""
        if self.own is not None:
            return self.own
        # The processor's own sums are the same integers; keeping them twice would cost d x d numbers.
        exact = processor.curator_gram() or GramSum(processor.n_features)
        return exact if waiting is None else exact.add_high_low(*waiting.high_low())


class Moment(NamedTuple):
    """Regret of all rows of a stream at this moment, and the parameters of `RegretSums.record`. Curator only."""

    sums: RegretSums
    processor: Processor
    subspace: Subspace
    unit: float
    waiting: GramSum | None


@dataclass(eq=False, repr=False)
class Regret:
    """Live view of the exact regret of a stream. Curator only."""

    log: RegretLog
    _moment: Callable[[], Moment | None]

    @property
    def history(self) -> list[RegretRecord]:
        """Records so far, in order: a new list."""
        moment = self._moment()
        return [] if moment is None else moment.sums.history.records

    def now(self) -> RegretRecord:
        """Return the record at this moment. Raises `NoReleaseError` if there is no row."""
        moment = self._moment()
        if moment is None:
            raise NoReleaseError("no row has been seen, so there is no regret yet")
        return moment.sums.record(*moment[1:])

    def to_frame(self) -> pd.DataFrame:
        """Return the records so far as a pandas frame, a row each; ``polars.from_dataframe`` reads it."""
        return record_frame(RegretRecord, self.history)

    def _repr_html_(self) -> str:
        history = self.history
        head = ("rows", "regret per row", "regret", "bound", "captured")
        rows = [
            (r.t, r.average, r.regret, r.bound, "" if math.isnan(r.captured) else f"{r.captured:.1%}")
            for r in history[-_SHOWN:]
        ]
        note = f"the last {len(rows)} of {len(history)} records; to_frame() has all of them"
        return html_table(head, rows, warning=CURATOR_ONLY, note=note)

    def exact_gram(self) -> FloatArray:
        """Return the exact Gram matrix of all rows, (d, d), in units of row_norm**2 = 1; about their mean if centered.

        Raises `NoReleaseError` if there is no row, and `UsageError` if the stream keeps a sketch only (`RegretLog`).
        """
        moment = self._moment()
        if moment is None:
            raise NoReleaseError("no row has been seen, so there is no Gram matrix yet")
        gram = moment.sums.gram(moment.processor, moment.waiting)
        if isinstance(gram, FrequentDirections):
            raise UsageError(f"above {_EXACT_FEATURES} features the stream keeps a sketch of the Gram matrix only")
        matrix = unpack_entries(gram.packed(), gram.n_features)
        return about_mean(matrix)[0] if moment.sums.center else matrix

    def __repr__(self) -> str:
        return f"<regret of a stream, kept by {self.log!r}. Curator only>"
