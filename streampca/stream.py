"""The one loop: admit, play, score, absorb, release, log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import RLock
from typing import Any, Literal, Self

import numpy as np

from streampca.admission import Admission, Bounds, OnBadRow
from streampca.errors import BadParameter, BadRow
from streampca.journal import Account, RunStore, journaled
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.private_regret import PrivateRegret
from streampca.processors.base import Processor
from streampca.processors.rewards import score_in_turn, scoring_basis
from streampca.queries.centering import centered_if_possible
from streampca.regret import RegretLog
from streampca.release import Release
from streampca.rows import RowSource
from streampca.step import Step, Steps
from streampca.stream_blocks import TakesBlocks

#: Most single rows that wait to be absorbed together.
_WAITING_ROWS = 256
#: Most numbers of a block that are admitted at a time.
_PIECE_NUMBERS = 2**17


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
        if self._private_log is not None:
            self._private_log.hold = self._hold
        self._ledger = ledger
        self._started = False
        self._release: Release | None = None
        self._scoring: FloatArray | None = None
        self._promise: tuple[Guarantee, Guarantee] | None = None
        # Single rows wait here, checked but not absorbed, until a release is read or a record is due.
        # Whoever reads a release makes them absorbed, in whatever thread.
        self._turn = RLock()
        self._room = np.empty((0, 0))
        self._few = self._waiting = 0
        self._pending = Steps(1)
        self._journal = None
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
        if self._started:
            values = self._gate.values(row, self.t + 1)
        else:
            with self._first_row():
                values = self._gate.values(row, 1)
                self._pay(1)
                self._start()
        overdue = self._journal is not None and self._journal.check()
        with self._turn:
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
            values = self._gate.all_values(rows, self.t + 1)
            count, left = len(values), self._processor.rows_left
            if count:
                self._pay(count)
                self._start()
        if left is not None and count > left:
            raise self._past_horizon(count, left)
        steps, parts = Steps(self.t + 1, journal=self._journal), list(self._in_pieces(values))
        rewards = np.concatenate([rewards for rewards, _ in parts]) if parts else np.empty(0)
        steps.fill(rewards, {t: release for _, releases in parts for t, release in releases.items()})
        return steps

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
                    values = self._gate.all_values(block, self.t + 1)
                    self._pay(1)
                    self._start()
            except BadRow:
                for row in block:  # the rows before the bad one are not lost
                    yield self.push(row)
                self._settle()
                continue
            for rewards, releases in self._in_pieces(values):  # memory does not grow with the block
                steps = Steps(self._processor.t - len(rewards) + 1, journal=self._journal)
                steps.fill(rewards, releases)
                yield from steps

    def _open(self) -> None:
        """Make room for the rows up to the next release or record."""
        due, t = self._processor.rows_until_release, self._processor.t
        if due == 0:
            raise self._past_horizon(1, 0)
        self._pay(1)
        room = min(self._together(due), _WAITING_ROWS)
        if self._journal is not None and (uncommitted := self._journal.room) is not None:
            room = min(room, uncommitted)
        if self._log is not None:
            room = min(room, self._log.rows_until_record)
        if len(self._room) != room:
            assert self._gate.n_features is not None
            self._room = np.empty((room, self._gate.n_features))
        self._pending = Steps(t + 1, self._settle, self._journal, due=t + due)

    def _together(self, due: int) -> int:
        """How many rows may be absorbed at once: the ``due`` ones up to the next release, or some few releases."""
        if due >= self._few:
            return due
        left = self._processor.rows_left
        return self._few if left is None else min(self._few, left)

    def _settle(self) -> None:
        """Absorb the rows that wait. What a stream does never depends on when."""
        with self._turn:
            if self._waiting:
                rows, self._waiting = self._room[: self._waiting], 0
                admitted, bad = self._gate.block(rows, self._processor.t + 1)
                self._pending.fill(*self._absorb(admitted, bad))

    def _in_pieces(self, values: FloatArray) -> Iterator[tuple[FloatArray, dict[int, Release]]]:
        """Admit and absorb checked rows so many at a time that a piece stays in the cache in between."""
        start = 0
        while start < len(values):
            due = self._processor.rows_until_release
            if due == 0:
                raise self._past_horizon(1, 0)
            piece = values[start : start + min(self._together(due), max(1, _PIECE_NUMBERS // values.shape[1]))]
            yield self._absorb(*self._gate.block(piece, self._processor.t + 1))
            start += len(piece)

    @journaled
    def _absorb(self, admitted: FloatArray, bad: int) -> tuple[FloatArray, dict[int, Release]]:
        """Play, score, absorb, release and log a block; return its rewards, and its releases by t."""
        self._gate.bad_rows += bad
        releases: dict[int, Release] = {}
        if self._log is None:
            self._follow(admitted, releases)
            rewards = np.full(len(admitted), np.nan)
        else:
            parts, start = [], 0
            while start < len(admitted):
                rows, before = admitted[start : start + self._log.rows_until_record], self._basis()
                made = self._follow(rows, releases)
                parts.append(score_in_turn(rows, before, made, self._processor.t))
                self._log.observe(rows, parts[-1])
                start += len(rows)
            rewards = (parts[0] if len(parts) == 1 else np.concatenate(parts)) * self.row_norm**2
        if self._journal is not None:
            self._journal.took(admitted, bad, releases)
        return rewards, releases

    def _follow(self, rows: FloatArray, releases: dict[int, Release]) -> list[Release]:
        """Absorb and release; note the releases by t."""
        made = [self._publish(release) for release in self._processor.absorb_many(rows)]
        for release in made:
            releases[release.t] = release
        return made

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

    def _basis(self) -> FloatArray:
        """The basis on which the next row is scored."""
        if self._scoring is None:
            self._scoring = scoring_basis(self._playing().basis if self._release is None else self._release.span)
        return self._scoring
