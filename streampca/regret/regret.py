"""Exact regret: how far the released subspaces are from the best one in hindsight. Curator only.

Rewards and regret are deterministic functions of raw rows: publishing them
has no privacy guarantee at all. They are for the trusted side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streampca.errors import BadParameterError, NoReleaseError
from streampca.linalg import fast
from streampca.linalg.centering import about_mean
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import top_pairs, top_sum
from streampca.linalg.frequent_directions import FrequentDirections
from streampca.linalg.lattice import GramSum
from streampca.linalg.memory import History
from streampca.linalg.svec import unpack_entries
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.processors.base import Processor
from streampca.release.release import Scoring, Subspace, rewarded
from streampca.tables import CURATOR_ONLY, html_table, record_frame

if TYPE_CHECKING:
    import pandas as pd

#: Features above which OPT is read off a sketch, unless the processor holds a (d, d) matrix; and its l over k.
_EXACT_FEATURES, _SKETCH_ROWS = 1000, 10
#: Rows between records, at least, before any are dropped. Up to there each is at twice the rows of the one before.
_SPACING = 512
#: Most records kept; each took an eigenvalue problem.
_KEPT = 128
#: Rows between releases from which on records do not wait for them.
_LONGEST = 2**14
#: Records shown in a notebook.
_SHOWN = 8


@dataclass(frozen=True)
class RegretRecord:
    """Regret after t rows. Curator only: exact functions of raw rows.

    Attributes
    ----------
    t : rows seen.
    reward : sum of ||V^T a||**2 over the rows, each on the subspace played
        before it was seen, in units of row_norm**2.
    opt : the same for the best fixed subspace in hindsight (OPT).
    regret : ``opt - reward``.
    bound : bound on the expected regret for these parameters and rows; None where none is proved beyond `opt`, which
        always is.
    captured : what the subspace now in play captures of all rows so far, as a share of the most that k dimensions can.
    slack : 0 where OPT is exact. Else it is known as an interval: `opt` is the least it can be and ``opt + slack`` the
        most, `regret` likewise, and `captured` is the least that it can be (`RegretLog`).

    Notes
    -----
    *Losses.* A row's loss is its squared distance from the subspace V in play through the mean m in play,
    ``||(I - V V^T)(a - m)||**2``, and its reward is ``||a||**2`` less that. The least sum of losses in hindsight, over
    subspaces and means, is the sum of the d - k smallest eigenvalues of ``G - s s^T / n``, G the Gram matrix and s the
    sum of the n rows; `opt` is the sum of ``||a||**2`` less that, and `regret` is the losses less the least. Streams
    with ``center=False`` have m = 0, on both sides. In centered ones, `captured` is of ``G - s s^T / n``.
    """

    t: int
    reward: float
    opt: float
    regret: float
    bound: float | None
    captured: float
    slack: float = 0.0

    @property
    def is_interval(self) -> bool:
        """True if `opt`, `regret` and `captured` are the lower ends of intervals."""
        return self.slack > 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> RegretRecord:
        """The record of its values in order, nan for no bound."""
        t, reward, opt, regret, bound, captured, *slack = map(float, values)
        return cls(int(t), reward, opt, regret, None if math.isnan(bound) else bound, captured, *slack)

    @property
    def average_bound(self) -> float | None:
        """Bound on the expected regret per row; None where none is proved."""
        return None if self.bound is None else self.bound / self.t

    @property
    def average(self) -> float:
        """Regret per row; the lower end of an interval if `is_interval`."""
        return self.regret / self.t

    @property
    def average_most(self) -> float | None:
        """The upper end of that interval; None if the regret is exact."""
        return (self.regret + self.slack) / self.t if self.is_interval else None

    @property
    def average_text(self) -> str:
        """Regret per row, or its interval. Curator only."""
        most = self.average_most
        return f"{self.average:.4g}" if most is None else f"between {self.average:.4g} and {most:.4g}"

    def _repr_html_(self) -> str:
        """The figures of the record, for notebooks. Curator only."""
        shown = asdict(self) | {"regret per row": self.average}
        return html_table((), shown.items(), warning=CURATOR_ONLY)


@dataclass(frozen=True, kw_only=True)
class RegretLog:
    """Settings of the exact regret of a stream. Curator only.

    Parameters
    ----------
    every : number of rows between records. If None, records are kept after 1, 2, 4, ..., 512 rows and then
        every 512, or at as few releases as are 512 rows apart; every other one is dropped and the step doubles
        whenever there are more than 128.
    window : number of rows of a window: score against the best subspace of each window
        (rows 1 to W, W + 1 to 2 W, ...) instead of one for all rows: dynamic
        regret, for streams that move. `opt` is then the sum of the windows' OPT,
        `captured` is of the rows of the window under way, and no bound is proved.

    Notes
    -----
    OPT needs an eigenvalue problem and is computed only for kept records and
    when `Regret.now` is called.

    Above 1000 features, and where the processor holds no (d, d) matrix either, OPT is read off a sketch of 10 k to 20 k
    rows (Frequent Directions, `linalg.frequent_directions`): records then hold intervals (`RegretRecord.slack`).
    """

    every: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        check_count("every", self.every, optional=True)
        check_count("window", self.window, optional=True)

    def start(self, processor: Processor) -> RegretSums:
        """The regret before the first row of a processor."""
        d, held, center = processor.n_features, processor.curator_gram() is not None, processor.algorithm.center
        sketched = d > _EXACT_FEATURES and not held and not center
        empty = FrequentDirections.first(d, _SKETCH_ROWS * processor.n_components) if sketched else GramSum(d)
        return RegretSums(
            self, 0, 0.0, 0.0, 0.0, History(_KEPT if self.every is None else None, self._step(processor)),
            self.every or 1, None if held else empty, None if self.window is None else empty, center,
        )  # fmt: skip

    def next_record(self, t: int, step: int) -> int:
        """The row after which the record that follows one after row t is kept."""
        return 2 * t if 3 * t < step and self.every is None else (t // step + 1) * step

    def _step(self, processor: Processor) -> int:
        """Rows between records, before any are dropped: records then fall on releases, so no block is cut for them."""
        release = processor.rows_until_release
        return self.every or (-(-_SPACING // release) * release if release <= _LONGEST else _SPACING)

    def resume(self, snapshot: Mapping[str, Any], processor: Processor) -> RegretSums:
        """The regret of a snapshot, of a processor of the same run."""
        records = [RegretRecord.of(values) for values in snapshot["history"]]
        history = History(_KEPT if self.every is None else None, int(snapshot["step"]), records, len(records))
        own, current = (_restored(processor.n_features, snapshot[name]) for name in ("own", "current"))
        return RegretSums(
            self, int(snapshot["t"]), float(snapshot["reward"]), float(snapshot["past_opt"]),
            float(snapshot["past_slack"]), history, int(snapshot["next"]), own, current, processor.algorithm.center,
        )  # fmt: skip


class RegretSums(NamedTuple):
    """State of the regret of a stream after t rows: an immutable value. Curator only.

    Attributes
    ----------
    log : how it is kept.
    t, reward : rows, and the sum of their rewards in units of row_norm**2 = 1.
    past_opt, past_slack : OPT of the windows that have ended, and by how much more it may be.
    history : the records kept.
    next : the row after which the next one is kept.
    own : exact Gram matrix of all rows, or a sketch of it, where the processor keeps none.
    current : that of the window under way.
    center : whether rows have the constant of `linalg.centering`.
    """

    log: RegretLog
    t: int
    reward: float
    past_opt: float
    past_slack: float
    history: History
    next: int
    own: GramSum | FrequentDirections | None
    current: GramSum | FrequentDirections | None
    center: bool

    @property
    def rows_until_record(self) -> int:
        """Number of rows until the next record is kept, or a window ends."""
        due = self.next - self.t
        window = self.log.window
        return due if window is None else min(due, window - self.t % window)

    def check_block(self, count: int) -> None:
        """Raise `BadParameterError` if ``count`` rows would cross the end of a window."""
        window = self.log.window
        if window is not None and count > window - self.t % window:
            raise BadParameterError(
                f"a block of {count} rows crosses the end of a regret window of {window}; "
                "let release_every divide the window, or leave it out"
            )

    def observe(self, rows: FloatArray, scoring: Scoring, n_components: int) -> tuple[RegretSums, FloatArray]:
        """The regret after admitted rows, at most `rows_until_record` of them, and their rewards.

        Parameters
        ----------
        rows : (n, d).
        scoring : of the subspace played before them.
        n_components : k.
        """
        log, t, reward, past_opt, past_slack, history, following, own, current, center = self
        kernels = fast.kernels
        if kernels is not None and scoring.linear is None:  # `release.rewarded`, without a call
            rewards: FloatArray = np.empty(rows.shape[0])
            reward = kernels.score(rows, scoring.basis, reward, rewards)
        else:
            rewards, reward = rewarded(rows, scoring, reward)
        if own is not None:
            own = own.add(rows)
        if current is not None:
            past_opt, past_slack, current = self._window(current, n_components)
            current = current.add(rows)
        after = (log, t + rewards.size, reward, past_opt, past_slack, history, following, own, current, center)
        return tuple.__new__(RegretSums, after), rewards

    def observe_block(self, count: int, gram: GramSum, reward: float, n_components: int) -> RegretSums:
        """The regret after a block with this Gram matrix and this sum of rewards."""
        made = self._replace(t=self.t + count, reward=self.reward + reward)
        if isinstance(self.own, GramSum):
            made = made._replace(own=self.own.add_high_low(*gram.high_low()))
        if self.current is not None:
            past_opt, past_slack, current = self._window(self.current, n_components)
            made = made._replace(past_opt=past_opt, past_slack=past_slack)
            if isinstance(current, GramSum):  # no sketch is kept where blocks are absorbed
                made = made._replace(current=current.add_high_low(*gram.high_low()))
        return made

    def _window(
        self, current: GramSum | FrequentDirections, n_components: int
    ) -> tuple[float, float, GramSum | FrequentDirections]:
        """OPT of the windows that have ended with its slack, and the sum of the window of the next row."""
        if self.log.window is None or not self.t or self.t % self.log.window:
            return self.past_opt, self.past_slack, current
        opt, slack, _ = self._best(current, n_components)
        return self.past_opt + opt, self.past_slack + slack, current.emptied()

    def _best(
        self, gram: GramSum | FrequentDirections, n_components: int, played: Subspace | None = None
    ) -> tuple[float, float, float]:
        """OPT of the rows of a sum, by how much more it may be, and the least share that a subspace captures."""
        if isinstance(gram, FrequentDirections):
            most, slack, of_mean = gram.top_sum(n_components), gram.slack(n_components), 0.0
            inside = 0.0 if played is None else gram.captured(played.basis)
        else:
            matrix, slack, of_mean = _square(gram), 0.0, 0.0
            if self.center:
                matrix, of_mean = about_mean(matrix)
            if self.center:
                most = top_sum(matrix, n_components)
            else:
                most = float(top_pairs(gram.packed(), n_components)[0].sum())
            inside = 0.0 if played is None else played.captured(matrix)
        return most + of_mean, slack, inside / (most + slack) if most > 0.0 else 1.0

    def recorded(self, processor: Processor, played: Subspace, unit: float) -> RegretSums:
        """The regret with the record of this moment kept; see `record`."""
        history = self.history.append(self.record(processor, played, unit))
        return self._replace(history=history, next=self.log.next_record(self.t, history.step))

    def record(
        self, processor: Processor, played: Subspace, unit: float, waiting: GramSum | None = None
    ) -> RegretRecord:
        """The record at this moment.

        Parameters
        ----------
        processor, played : after these rows.
        unit : row_norm**2.
        waiting : Gram matrix of rows that are counted here and that the processor has not absorbed.
        """
        gram = self.gram(processor, waiting) if self.current is None else self.current
        with OneThread(processor.n_features):
            opt, slack, captured = self._best(gram, processor.n_components, played)
        opt, slack = self.past_opt + opt, self.past_slack + slack
        proved = self.log.window is None and not self.center
        bound = processor.regret_bound(self.t, opt) if proved else None
        reward, best = self.reward * unit, opt * unit
        bound = None if bound is None else bound * unit
        return RegretRecord(self.t, reward, best, best - reward, bound, captured, slack * unit)

    def gram(self, processor: Processor, waiting: GramSum | None = None) -> GramSum | FrequentDirections:
        """The exact Gram matrix of all rows counted here, or a sketch of it; ``waiting`` as for `record`."""
        if self.own is not None:
            return self.own
        exact = processor.curator_gram() or GramSum(processor.n_features)
        return exact if waiting is None else exact.add_high_low(*waiting.high_low())

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which `RegretLog.resume` makes the same regret. As secret as the rows."""
        records = [tuple(vars(record).values()) for record in self.history.records]
        return {
            "step": self.history.step,
            "t": self.t,
            "reward": self.reward,
            "history": np.array(records, dtype=np.float64).reshape(-1, 7),
            "own": None if self.own is None else self.own.snapshot(),
            "past_opt": self.past_opt,
            "past_slack": self.past_slack,
            "next": self.next,
            "current": None if self.current is None else self.current.snapshot(),
        }


class Moment(NamedTuple):
    """Data of the regret of a stream at this moment. Curator only.

    Attributes
    ----------
    sums : the regret of all rows.
    processor, played, unit, waiting : see `RegretSums.record`.
    """

    sums: RegretSums
    processor: Processor
    played: Subspace
    unit: float
    waiting: GramSum | None


class Regret:
    """The exact regret of a stream, live: a view. Curator only.

    Parameters
    ----------
    log : how it is kept.
    moment : gives what is known now; None before the first row.
    """

    def __init__(self, log: RegretLog, moment: Callable[[], Moment | None]) -> None:
        self.log = log
        self._moment = moment

    @property
    def history(self) -> list[RegretRecord]:
        """The records kept so far, in order: a new list."""
        moment = self._moment()
        return [] if moment is None else moment.sums.history.records

    def now(self) -> RegretRecord:
        """The record at this moment.

        Raises
        ------
        NoReleaseError
            If no row has been seen.
        """
        moment = self._moment()
        if moment is None:
            raise NoReleaseError("no row has been seen, so there is no regret yet")
        return moment.sums.record(*moment[1:])

    def to_frame(self) -> pd.DataFrame:
        """The records kept so far as a pandas frame, a row each. Curator only.

        ``polars.from_dataframe`` reads it, by the dataframe interchange protocol.
        """
        return record_frame(RegretRecord, self.history)

    def _repr_html_(self) -> str:
        """The latest of the kept records, for notebooks. Curator only."""
        history = self.history
        head = ("rows", "regret per row", "regret", "bound", "captured")
        rows = [(r.t, r.average, r.regret, r.bound, f"{r.captured:.1%}") for r in history[-_SHOWN:]]
        note = f"the last {len(rows)} of {len(history)} records; to_frame() has all of them"
        return html_table(head, rows, warning=CURATOR_ONLY, note=note)

    def exact_gram(self) -> FloatArray:
        """The exact Gram matrix of all rows, (d, d), in units of row_norm**2 = 1; about their mean if centered.

        Raises
        ------
        NoReleaseError
            If no row has been seen.
        BadParameterError
            If a sketch is kept in its place (`RegretLog`).
        """
        moment = self._moment()
        if moment is None:
            raise NoReleaseError("no row has been seen, so there is no Gram matrix yet")
        gram = moment.sums.gram(moment.processor, moment.waiting)
        if isinstance(gram, FrequentDirections):
            raise BadParameterError(
                f"of more than {_EXACT_FEATURES} features this stream keeps a sketch of the Gram matrix, not the matrix"
            )
        matrix = _square(gram)
        return about_mean(matrix)[0] if moment.sums.center else matrix

    def __repr__(self) -> str:
        return f"<regret of a stream, kept by {self.log!r}. Curator only>"


def _restored(n_features: int, snapshot: Mapping[str, Any] | None) -> GramSum | FrequentDirections | None:
    if snapshot is None:
        return None
    # Its size is that of the snapshot.
    empty = FrequentDirections.first(n_features, 1) if "rows" in snapshot else GramSum(n_features)
    return empty.restored(snapshot)


def _square(gram: GramSum) -> FloatArray:
    return unpack_entries(gram.packed(), gram.n_features)
