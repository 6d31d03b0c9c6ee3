"""How far the released subspaces are from the best one in hindsight. Curator only.

Rewards and regret are deterministic functions of raw rows: publishing them
has no privacy guarantee at all. They are for the trusted side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.errors import BadParameter, NoRelease
from streampca.linalg.eigen import top_sum
from streampca.linalg.lattice import GramAccumulator
from streampca.linalg.svec import unpack_entries
from streampca.linalg.types import FloatArray, IntArray
from streampca.processors.base import Processor, check_count
from streampca.release import Subspace

#: How many records an unthinned history may grow to before every other one goes.
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


class RegretLog:
    """The exact regret of a stream, live. Curator only.

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
    when `now` is called.
    """

    def __init__(self, *, every: int | None = None, window: int | None = None) -> None:
        check_count("every", every, optional=True)
        check_count("window", window, optional=True)
        self.every = every
        self.window = window
        self._history: list[RegretRecord] = []
        self._step = every or 1
        self._t = 0
        self._reward = 0.0
        self._past_opt = 0.0  # of windows gone by
        self._current: GramAccumulator | None = None  # rows of the window under way
        self._own: GramAccumulator | None = None
        self._processor: Processor | None = None
        self._played: Callable[[], Subspace] | None = None
        self._unit = 1.0
        self._settle: Callable[[], None] = lambda: None

    @property
    def history(self) -> list[RegretRecord]:
        """The records kept so far, in order."""
        self._settle()
        return self._history

    def start(
        self, processor: Processor, played: Callable[[], Subspace], row_norm: float, settle: Callable[[], None]
    ) -> None:
        """Follow a bound processor; ``settle`` makes the stream absorb rows that wait. Called by the stream."""
        self._settle = settle
        self._processor = processor
        self._played = played
        self._unit = row_norm**2
        assert processor.n_features is not None
        if self.window is not None:
            self._current = GramAccumulator(processor.n_features)
        if processor.curator_gram() is None:
            self._own = GramAccumulator(processor.n_features)

    @property
    def rows_until_record(self) -> int:
        """How many rows until the next record is kept, or a window ends."""
        due = self._step - self._t % self._step
        return due if self.window is None else min(due, self.window - self._t % self.window)

    def observe(self, rows: FloatArray, rewards: FloatArray) -> None:
        """Count admitted rows and their rewards, at most `rows_until_record` of them."""
        if self._own is not None:
            self._own.add(rows)
        self._begin_window(rows.shape[1])
        if self._current is not None:
            self._current.add(rows)
        # Added one by one, so that block sizes cannot change a bit of the sum.
        if rewards.size == 1:
            self._count(1, self._reward + float(rewards[0]))
        else:
            sums = rewards.copy()
            sums[0] += self._reward
            self._count(sums.size, float(np.add.accumulate(sums, out=sums)[-1]))

    def check_block(self, count: int) -> None:
        """Raise `BadParameter` if so many rows would cross the end of a window."""
        if self.window is not None and count > self.window - self._t % self.window:
            raise BadParameter(
                f"a block of {count} rows crosses the end of a regret window of {self.window}; "
                "let release_every divide the window, or leave it out"
            )

    def observe_block(self, count: int, high: IntArray, low: IntArray, reward: float) -> None:
        """Count a block of which the exact packed Gram matrix is known, and the sum of rewards.

        Records that fall due within the block are one record at its end.
        """
        if self._own is not None:
            self._own.add_gram(high, low)
        assert self._processor is not None
        assert self._processor.n_features is not None
        self._begin_window(self._processor.n_features)
        if self._current is not None:
            self._current.add_gram(high, low)
        self._count(count, self._reward + reward)

    def _count(self, count: int, reward: float) -> None:
        due = self._step - self._t % self._step
        self._reward = reward
        self._t += count
        if count >= due:
            self._history.append(self._record())
            if self.every is None and len(self._history) > KEPT:
                self._step *= 2
                self._history = self._history[1::2]

    def _begin_window(self, n_features: int) -> None:
        """Settle the window gone by, with its last row in and the next row at the door."""
        if self.window is not None and self._t and self._t % self.window == 0:
            self._past_opt += self._opt(self._scored())
            self._current = GramAccumulator(n_features)

    def now(self) -> RegretRecord:
        """The record at this moment.

        Raises
        ------
        NoRelease
            If no row has been seen.
        """
        self._settle()
        if self._t == 0:
            raise NoRelease("no row has been seen, so there is no regret yet")
        return self._record()

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {
            "step": self._step,
            "t": self._t,
            "reward": self._reward,
            "history": np.array([tuple(vars(record).values()) for record in self._history]).reshape(-1, 6),
            "own": None if self._own is None else self._own.state(),
            "past_opt": self._past_opt,
            "current": None if self._current is None else self._current.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`, on a log that was started."""
        self._step, self._t, self._reward = state["step"], state["t"], state["reward"]
        self._history = [RegretRecord(int(t), *map(float, rest)) for t, *rest in state["history"]]
        if self._own is not None:
            self._own.restore(state["own"])
        self._past_opt = float(state["past_opt"])
        if self._current is not None:
            self._current.restore(state["current"])

    def _record(self) -> RegretRecord:
        assert self._processor is not None
        assert self._played is not None
        gram = self._scored()
        best_now = self._opt(gram)
        opt = self._past_opt + best_now
        captured = self._played().captured(gram) / best_now if best_now > 0.0 else 1.0
        bound = self._processor.regret_bound(self._t, opt) if self.window is None else opt
        reward, best = self._reward * self._unit, opt * self._unit
        return RegretRecord(self._t, reward, best, best - reward, bound * self._unit, captured)

    def _scored(self) -> FloatArray:
        """The exact Gram matrix of the rows that the best subspace is of: all, or those of the window under way."""
        assert self._processor is not None
        assert self._processor.n_features is not None
        if self.window is None:
            return self._exact_gram()
        assert self._current is not None
        return unpack_entries(self._current.plus(), self._processor.n_features)

    def _opt(self, gram: FloatArray) -> float:
        assert self._processor is not None
        return top_sum(gram, self._processor.n_components)

    def exact_gram(self) -> FloatArray:
        """The exact Gram matrix of all rows, (d, d), in units of row_norm**2 = 1. Curator only."""
        self._settle()
        if self._t == 0:
            raise NoRelease("no row has been seen, so there is no Gram matrix yet")
        return self._exact_gram()

    def _exact_gram(self) -> FloatArray:
        assert self._processor is not None
        assert self._processor.n_features is not None
        packed = self._own.plus() if self._own is not None else self._processor.curator_gram()
        assert packed is not None
        return unpack_entries(packed, self._processor.n_features)
