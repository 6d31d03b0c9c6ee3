"""The one loop: admit, play, score, absorb, release, log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np

from streampca.admission import Admission, Bounds, OnBadRow
from streampca.errors import BadParameter, BadRow, HorizonReached, StreamPCAError
from streampca.journal import Account, Journal, RunStore, journaled
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.private_regret import PrivateRegret
from streampca.processors.base import Processor
from streampca.processors.rewards import score, scoring_basis
from streampca.queries.centering import centered_if_possible
from streampca.regret import RegretLog
from streampca.release import Release
from streampca.rows import RowSource
from streampca.step import Step, Steps
from streampca.stream_blocks import TakesBlocks

#: Most single rows that wait to be absorbed together.
_WAITING_ROWS = 256


class Stream(TakesBlocks):
    """Feed rows to a processor; get private releases, and live regret for the curator.

    Parameters
    ----------
    processor : the algorithm, e.g. `PrivateFPL`. It belongs to this stream from now on.
    row_norm : rows longer than this are scaled onto the ball of this radius.
        Public. Gram matrices, eigenvalues and rewards are in units of its square.
    bounds : public ranges of the features, mapped into that ball: ``(lower,
        upper)`` or a mapping by name. See `Admission`.
    features : names of the features. Left out, they are those of the first
        row if it is a mapping or a named tuple.
    on_bad_row : ``"raise"`` stops at a row that is not all numbers, before
        anything changes; ``"zero"`` absorbs a zero row in its place.
    center : release centred Gram matrices: a constant feature is appended to
        every row (``sqrt(2) * row_norm`` then bounds its norm, which doubles the
        noise in units of row_norm**2), and the mean and the number of rows are
        read off the same private release (`queries.centered`). While the noisy
        number of rows is not positive, releases are not centred and say so in
        ``details["centered"]``. No regret is kept: rewards of centred rows
        would change with the mean.
    regret : a `RegretLog`; None keeps none (rewards are not computed and no
        d x d matrix is held beyond the processor's own).
    private_regret : how the publishable regret is kept, for a processor that
        releases rewards (``PrivateFPL(publish_regret=True)``), where
        ``PrivateRegret()`` is the default.
    ledger : the account that pays, ``Ledger(file).account(data_set)``. The whole
        stream is booked before its first row; where the budget does not cover it,
        that row raises `BudgetExhausted` and nothing has changed.
    seed : integer for reproducible noise, for tests and scenarios: not private
        against whoever knows it. Left out, the key is fresh from the system.
    key : 32 secret bytes instead of a fresh key.
    store : a `Store` that makes the run durable. Reading a release then waits until the
        rows it depends on are; `resume` continues after a crash.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.
    """

    _knows_users = False

    def __init__(
        self,
        processor: Processor,
        *,
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        features: Sequence[str] | None = None,
        on_bad_row: OnBadRow = "raise",
        center: bool = False,
        regret: RegretLog | Literal["exact"] | None = "exact",
        private_regret: PrivateRegret | None = None,
        ledger: Account | None = None,
        seed: int | None = None,
        key: bytes | None = None,
        store: RunStore | None = None,
    ) -> None:
        if not isinstance(processor, Processor):
            raise BadParameter(f"processor={processor!r} is not a processor; pass e.g. PrivateFPL(...)")
        if getattr(processor, "max_rows_per_user", None) is not None and not self._knows_users:
            raise BadParameter("max_rows_per_user needs to know whose rows they are; use UserStream(processor)")
        if isinstance(regret, str) and regret != "exact":
            raise BadParameter(f"regret={regret!r} must be a RegretLog, 'exact' or None")
        publishes = bool(getattr(processor, "publish_regret", False))
        if center and (isinstance(regret, RegretLog) or publishes):
            raise BadParameter("center=True keeps no regret: leave out regret= and publish_regret=")
        if private_regret is not None and not publishes:
            raise BadParameter(
                f"private_regret={private_regret!r} needs a processor that releases rewards, and its noise calibrated "
                "for that; use PrivateFPL(..., publish_regret=True)"
            )
        if seed is None:
            seed = getattr(processor, "seed", None)
        if seed is not None and key is not None:
            raise BadParameter("give seed= or key=, not both")
        self._randomness = Randomness(key) if seed is None else Randomness.from_seed(seed)
        self._processor = processor
        self._gate = Admission(
            row_norm=row_norm,
            bounds=bounds,
            features=features,
            on_bad_row=on_bad_row,
            n_features=processor.n_features,
            center=center,
        )
        self._log = None if center else RegretLog() if isinstance(regret, str) else regret
        self._private_log = (private_regret or PrivateRegret()) if publishes else None
        self._ledger = ledger
        self._started = False
        self._release: Release | None = None
        self._scoring: FloatArray | None = None
        self._promise: tuple[Guarantee, Guarantee] | None = None
        # Single rows wait here, checked but not absorbed, until a release or a record is due.
        self._room = np.empty((0, 0))
        self._waiting = 0
        self._pending = Steps(1)
        self._journal: Journal | None = None
        if store is not None:
            if not hasattr(store, "begin"):
                raise BadParameter(f"store={store!r} is not a store; pass Store(path)")
            self._attach(store.begin(self))
        if self._gate.n_features is not None:
            self._start()

    @classmethod
    def resume(cls, store: RunStore, *, moved: bool = False) -> Self:
        """Continue the run of a store: the same releases as if nothing had happened.

        Parameters
        ----------
        store : a `Store` that holds a run. Rows up to `t` are durable; the next to push is row ``t + 1``.
        moved : take a store that was copied or moved. Only if no other copy
            was ever resumed: two copies would put different rows under the same noise.

        Raises
        ------
        StoreCorrupt, StoreForked, StoreLocked, StoreUnwritable, WrongKey
            If the run cannot be continued. Nothing has changed.
        """
        resumed: Self = store.resume(cls, moved=moved)
        return resumed

    # -- what users do --------------------------------------------------------------

    def push(self, row: Any) -> Step:
        """Feed one row.

        Parameters
        ----------
        row : 1-D array or sequence of numbers, mapping from feature name to
            number, or named tuple.

        Returns
        -------
        Step : with a release if one was due.

        Raises
        ------
        BadRow
            If the row is bad and ``on_bad_row="raise"``. Nothing has changed.
        HorizonReached
            If the processor takes no more rows. Nothing has changed.
        """
        if not self._started:
            with self._first_row():
                admitted, bad = self._gate.row(row, 1)
                self._pay(1)
                self._start()
            return self._push(admitted, bad)[0]
        values = self._gate.values(row, self.t + 1)
        overdue = self._journal is not None and self._journal.check()
        waiting = self._waiting
        if not waiting:
            self._open()
        self._room[waiting] = values
        self._waiting = waiting + 1
        step = Step(self._pending, waiting)
        if overdue or self._waiting == len(self._room):
            self._settle()
        return step

    def push_many(self, rows: Any) -> Steps:
        """Feed a block of rows: the same releases as one by one, bit for bit.

        Parameters
        ----------
        rows : (n, d) array or sequence of rows.

        Returns
        -------
        Steps : a sequence of `Step` with ``.releases`` and ``.rewards``.

        Raises
        ------
        BadRow
            If a row is bad and ``on_bad_row="raise"``. No row was absorbed.
        HorizonReached
            If the processor cannot take all of them. No row was absorbed.
        """
        self._settle()
        with self._first_row():
            if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
                rows = self._gate.table(rows)
            if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub":
                admitted, bad = self._gate.block(rows, self.t + 1)
            else:
                admitted, bad = self._gate.rows(rows, self.t + 1)
            if admitted.shape[0]:
                self._pay(admitted.shape[0])
                self._start()
        return self._push(admitted, bad)

    def run(self, rows: Iterable[Any]) -> Iterator[Step]:
        """Feed rows from any iterable, lazily; yield a `Step` a row.

        Parameters
        ----------
        rows : arrays, mappings, named tuples, ``(mapping, target)`` pairs as
            river's datasets give them (the target is left out), or a source
            of `streampca.sources`, whose feature names and bounds are taken
            over if this stream has none.
        """
        if isinstance(rows, RowSource):
            yield from self._run_source(rows)
            return
        for row in rows:
            pair = isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], dict)
            yield self.push(row[0] if pair else row)

    def finish(self) -> Release | None:
        """End the stream: the release of what the processor still holds, where it makes one.

        `Tumbling` with ``keep_short=True`` releases its last, short block.
        When to end must not depend on the rows.
        """
        self._settle()
        last = self._processor.finish() if self._started else None
        if last is None:
            return None
        last = self._publish(last)
        if self._journal is not None:
            assert self._gate.admitted_features is not None
            self._journal.took(np.empty((0, self._gate.admitted_features)), 0, {last.t: last})
        return last

    # -- how it works ---------------------------------------------------------------

    def _run_source(self, source: RowSource) -> Iterator[Step]:
        self._settle()
        self.adopt(source)
        for block in source.blocks():
            try:
                with self._first_row():
                    admitted, bad = self._gate.block(block, self.t + 1)
                    self._pay(1)
                    self._start()
            except BadRow:
                for row in block:  # the rows before the bad one are not lost
                    yield self.push(row)
                self._settle()
                continue
            start = 0
            while start < len(admitted):
                # One release at a time, so that memory does not grow with the block; past the
                # horizon one row is offered, which raises.
                take = max(1, min(len(admitted) - start, self._processor.rows_until_release))
                yield from self._push(admitted[start : start + take], bad if start == 0 else 0)
                start += take

    def adopt(self, source: RowSource) -> None:
        """Take feature names and public bounds over from a source, where the stream has none."""
        if source.bounds is not None:
            self._gate.give_bounds(source.bounds)
        if source.features and self._gate.features is None:
            self._gate.fix(source.features)

    def _attach(self, journal: Journal) -> None:
        """Keep a journal from here on."""
        self._journal = journal
        if self._private_log is not None:
            self._private_log.hold = self._hold

    @contextmanager
    def _first_row(self) -> Iterator[None]:
        """Let a bad first row leave no trace: the features it would have fixed are forgotten."""
        before = self._gate.n_features, self._gate.features
        try:
            yield
        except StreamPCAError:
            if not self._started:
                self._gate.n_features, self._gate.features = before
            raise

    def _pay(self, count: int) -> None:
        """Have the whole stream booked before its first row, unless that row will be refused."""
        left = self._processor.rows_left
        if self._ledger is not None and (left is None or count <= left):
            self._ledger.debit(self.guarantee)
            self._ledger = None

    def _start(self) -> None:
        if not self._started:
            assert self._gate.admitted_features is not None
            self._processor.bind(self._gate.admitted_features, self._randomness, constants=int(self._gate.center))
            if self._log is not None:
                self._log.start(self._processor, self._playing, self.row_norm, self._settle)
            self._started = True

    def _open(self) -> None:
        """Make room for the rows up to the next release or record."""
        due = self._processor.rows_until_release
        if due == 0:
            raise self._past_horizon(1, 0)
        self._pay(1)
        if self._log is not None:
            due = min(due, self._log.rows_until_record)
        due = min(due, _WAITING_ROWS if self._journal is None else self._journal.room)
        if len(self._room) != due:
            assert self._gate.n_features is not None
            self._room = np.empty((due, self._gate.n_features))
        self._pending = Steps(self._processor.t + 1, self._settle, self._journal)

    def _settle(self) -> None:
        """Absorb the rows that wait. What a stream does never depends on when."""
        if self._waiting:
            rows, self._waiting = self._room[: self._waiting], 0
            admitted, bad = self._gate.block(rows, self._processor.t + 1)
            self._pending.fill(*self._absorb(admitted, bad))

    def _past_horizon(self, count: int, left: int) -> HorizonReached:
        return HorizonReached(
            f"{count} rows given, but the horizon of {self._processor.t + left} rows leaves room for {left}: noise is "
            "calibrated for no more; use horizon=None for a stream of unknown length"
        )

    def _push(self, admitted: FloatArray, bad: int) -> Steps:
        count, steps = admitted.shape[0], Steps(self._processor.t + 1, journal=self._journal)
        left = self._processor.rows_left
        if left is not None and count > left:
            raise self._past_horizon(count, left)
        steps.fill(*self._absorb(admitted, bad))
        return steps

    @journaled
    def _absorb(self, admitted: FloatArray, bad: int) -> tuple[FloatArray, dict[int, Release]]:
        """Play, score, absorb, release and log a block; return its rewards, and its releases by t."""
        count = admitted.shape[0]
        self._gate.bad_rows += bad
        rewards = np.full(count, np.nan)
        releases: dict[int, Release] = {}
        start = 0
        while start < count:
            take = min(count - start, self._processor.rows_until_release)
            if self._log is not None:
                take = min(take, self._log.rows_until_record)
            rows = admitted[start : start + take]
            scores = None if self._log is None else self._score(rows)
            release = self._processor.absorb(rows)
            if release is not None:
                releases[release.t] = self._publish(release)
            if self._log is not None and scores is not None:
                self._log.observe(rows, scores)
                rewards[start : start + take] = scores * self.row_norm**2
            start += take
        if self._journal is not None:
            self._journal.took(admitted, bad, releases)
        return rewards, releases

    def _publish(self, release: Release) -> Release:
        release.for_rows(self._gate.admitted_norm, self.features)
        if self._gate.center:
            release = centered_if_possible(release, self.row_norm, self.features)
        if self._randomness.is_seeded:
            if self._promise is None or self._promise[0] is not release.guarantee:
                self._promise = release.guarantee, release.guarantee.seeded()
            release.guarantee = self._promise[1]
        self._release = release
        self._scoring = None
        if self._private_log is not None:
            self._private_log.observe(release)
        return release

    def _score(self, rows: FloatArray) -> FloatArray:
        """Rewards of rows on the subspace in play."""
        if self._scoring is None:
            self._scoring = scoring_basis(self._playing().basis if self._release is None else self._release.span)
        return score(rows, self._scoring)
