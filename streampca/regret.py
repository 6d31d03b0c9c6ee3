"""How far the released subspaces are from the best one in hindsight. Curator only.

Rewards and regret are deterministic functions of raw rows: publishing them
has no privacy guarantee at all. They are for the trusted side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streampca.errors import BadParameter, NoRelease
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import top_sum
from streampca.linalg.lattice import GramSum
from streampca.linalg.memory import History
from streampca.linalg.svec import unpack_entries
from streampca.linalg.types import FloatArray
from streampca.processors.base import Processor
from streampca.release import Subspace

#: Most records of a history without ``every``.
KEPT = 512


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
    bound : bound on the expected regret for these parameters; `opt` where no better one is proved.
    captured : share of `opt` that the subspace now in play captures of all rows so far.
    """

    t: int
    reward: float
    opt: float
    regret: float
    bound: float
    captured: float

    @property
    def average(self) -> float:
        """Regret per row."""
        return self.regret / self.t


@dataclass(frozen=True, kw_only=True)
class RegretLog:
    """How the exact regret of a stream is kept. Curator only.

    Parameters
    ----------
    every : keep a record after every so many rows. Left out, records are kept
        at steps that double whenever there are more than 512.
    window : score against the best subspace of each window of so many rows
        (rows 1 to W, W + 1 to 2 W, ...) instead of one for all rows: dynamic
        regret, for streams that move. `opt` is then the sum of the windows' OPT,
        `captured` is of the rows of the window under way, and no bound is proved.

    Notes
    -----
    OPT needs an eigenvalue problem and is computed only for kept records and
    when `Regret.now` is called.
    """

    every: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        check_count("every", self.every, optional=True)
        check_count("window", self.window, optional=True)

    def start(self, processor: Processor) -> RegretSums:
        """The regret before the first row of a processor."""
        d = processor.n_features
        return RegretSums(
            self, 0, 0.0, 0.0, History(KEPT if self.every is None else None, self.every or 1),
            None if processor.curator_gram() is not None else GramSum(d),
            None if self.window is None else GramSum(d),
        )  # fmt: skip

    def resume(self, snapshot: Mapping[str, Any], n_features: int) -> RegretSums:
        """The regret of a snapshot."""
        records = [RegretRecord(int(t), *map(float, rest)) for t, *rest in snapshot["history"]]
        own, current = snapshot["own"], snapshot["current"]
        return RegretSums(
            self, int(snapshot["t"]), float(snapshot["reward"]), float(snapshot["past_opt"]),
            History(KEPT if self.every is None else None, int(snapshot["step"]), records, len(records)),
            None if own is None else GramSum.restored(n_features, own),
            None if current is None else GramSum.restored(n_features, current),
        )  # fmt: skip


class RegretSums(NamedTuple):
    """The regret of a stream after t rows: an immutable value. Curator only.

    Attributes
    ----------
    log : how it is kept.
    t, reward : rows, and the sum of their rewards in units of row_norm**2 = 1.
    past_opt : OPT of the windows that have ended.
    history : the records kept.
    own : exact Gram matrix of all rows, where the processor keeps none.
    current : that of the window under way.
    """

    log: RegretLog
    t: int
    reward: float
    past_opt: float
    history: History
    own: GramSum | None
    current: GramSum | None

    @property
    def rows_until_record(self) -> int:
        """How many rows until the next record is kept, or a window ends."""
        due = self.history.step - self.t % self.history.step
        window = self.log.window
        return due if window is None else min(due, window - self.t % window)

    def check_block(self, count: int) -> None:
        """Raise `BadParameter` if so many rows would cross the end of a window."""
        window = self.log.window
        if window is not None and count > window - self.t % window:
            raise BadParameter(
                f"a block of {count} rows crosses the end of a regret window of {window}; "
                "let release_every divide the window, or leave it out"
            )

    def observe(self, rows: FloatArray, scoring: FloatArray, n_components: int) -> tuple[RegretSums, FloatArray]:
        """The regret after admitted rows, at most `rows_until_record` of them, and their rewards.

        Parameters
        ----------
        rows : (n, d).
        scoring : basis of the subspace played before them (`release.scoring_basis`).
        n_components : k.
        """
        products = rows @ scoring
        rewards: FloatArray = np.vecdot(products, products)
        log, t, reward, past_opt, history, own, current = self
        # Added one by one, so that block sizes cannot change a bit of the sum.
        for each in rewards.tolist():
            reward += each
        if own is not None:
            own = own.add(rows)
        if current is not None:
            past_opt, current = self._window(current, n_components)
            current = current.add(rows)
        after = (log, t + rewards.size, reward, past_opt, history, own, current)
        return tuple.__new__(RegretSums, after), rewards

    def observe_block(self, count: int, gram: GramSum, reward: float, n_components: int) -> RegretSums:
        """The regret after a block with this Gram matrix and this sum of rewards."""
        past_opt, own, current = self.past_opt, self.own, self.current
        if own is not None:
            own = own.add_words(*gram.words())
        if current is not None:
            past_opt, current = self._window(current, n_components)
            current = current.add_words(*gram.words())
        return RegretSums(self.log, self.t + count, self.reward + reward, past_opt, self.history, own, current)

    def _window(self, current: GramSum, n_components: int) -> tuple[float, GramSum]:
        """OPT of the windows that have ended, and the Gram matrix of the window of the next row."""
        if self.log.window is None or not self.t or self.t % self.log.window:
            return self.past_opt, current
        return self.past_opt + top_sum(_square(current), n_components), GramSum(current.n_features)

    def recorded(self, processor: Processor, played: Subspace, unit: float) -> RegretSums:
        """The regret with the record of this moment kept; see `record`."""
        history = self.history.append(self.record(processor, played, unit))
        return RegretSums(self.log, self.t, self.reward, self.past_opt, history, self.own, self.current)

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
        exact = self.gram(processor)
        if waiting is not None and self.current is None and self.own is None:
            exact = exact.add_words(*waiting.words())
        gram = _square(exact if self.current is None else self.current)
        best_now = top_sum(gram, processor.n_components)
        opt = self.past_opt + best_now
        captured = played.captured(gram) / best_now if best_now > 0.0 else 1.0
        bound = processor.regret_bound(self.t, opt) if self.log.window is None else opt
        reward, best = self.reward * unit, opt * unit
        return RegretRecord(self.t, reward, best, best - reward, bound * unit, captured)

    def gram(self, processor: Processor) -> GramSum:
        """The exact Gram matrix of all rows absorbed."""
        exact = self.own or processor.curator_gram()
        return GramSum(processor.n_features) if exact is None else exact

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which `RegretLog.resume` makes the same regret. As secret as the rows."""
        records = [tuple(vars(record).values()) for record in self.history.records]
        return {
            "step": self.history.step,
            "t": self.t,
            "reward": self.reward,
            "history": np.array(records, dtype=np.float64).reshape(-1, 6),
            "own": None if self.own is None else self.own.snapshot(),
            "past_opt": self.past_opt,
            "current": None if self.current is None else self.current.snapshot(),
        }


class Regret:
    """The exact regret of a stream, live: a view. Curator only.

    Parameters
    ----------
    log : how it is kept.
    history : gives the kept records.
    now : gives the record of this moment.
    gram : gives the exact Gram matrix.
    """

    def __init__(
        self,
        log: RegretLog,
        history: Callable[[], list[RegretRecord]],
        now: Callable[[], RegretRecord | None],
        gram: Callable[[], GramSum | None],
    ) -> None:
        self.log = log
        self._history, self._now, self._gram = history, now, gram

    @property
    def history(self) -> list[RegretRecord]:
        """The records kept so far, in order: a list of your own."""
        return self._history()

    def now(self) -> RegretRecord:
        """The record at this moment.

        Raises
        ------
        NoRelease
            If no row has been seen.
        """
        record = self._now()
        if record is None:
            raise NoRelease("no row has been seen, so there is no regret yet")
        return record

    def exact_gram(self) -> FloatArray:
        """The exact Gram matrix of all rows, (d, d), in units of row_norm**2 = 1."""
        gram = self._gram()
        if gram is None:
            raise NoRelease("no row has been seen, so there is no Gram matrix yet")
        return _square(gram)

    def __repr__(self) -> str:
        return f"<regret of a stream, kept by {self.log!r}. Curator only>"


def _square(gram: GramSum) -> FloatArray:
    return unpack_entries(gram.packed(), gram.n_features)
