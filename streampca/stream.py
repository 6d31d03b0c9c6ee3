"""Feed rows to an algorithm: admit, score, absorb, release, log, commit.

All that changes is one immutable value, `_now`. A piece of rows is absorbed by
computing the next value and assigning it: whatever breaks that off, in whatever
thread, leaves the stream as it was before the piece or as it is after it. One
lock guards everything that changes, and reading changes nothing.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from threading import RLock
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np

from streampca.admission import Admission, Bounds, OnBadRow
from streampca.blocks import BlockGram, Leaves, admission_mark
from streampca.errors import BadParameter, BadRow, HorizonReached, StoreLocked
from streampca.linalg.lattice import GramSum
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import NAME_BYTES, Randomness
from streampca.private_regret import LivePrivateRegret, PrivateRegret, PrivateRegretRecords
from streampca.processors.base import Algorithm, Processor, Setting
from streampca.queries.centering import CONSTANT, centered_if_possible
from streampca.regret import Regret, RegretLog, RegretRecord, RegretSums
from streampca.release import Release, Subspace, Terms, scoring_basis
from streampca.rows import RowSource
from streampca.step import BlockStep, Step, Steps, Waiting, WaitingStep, no_rewards, step_of

#: Most single rows that wait to be absorbed together.
_WAITING_ROWS = 256
#: Most numbers of a block that are admitted at a time.
_BLOCK_NUMBERS = 2**17


class Entry(NamedTuple):
    """One piece as a commit log keeps it. As secret as the rows.

    Attributes
    ----------
    first : number of its first row.
    count : rows in it.
    rows : admitted rows, (count, d); None for a block.
    block : the block; None for rows.
    bad : how many of the rows were bad.
    fresh : the fresh bytes of the noise drawn for it, a vector each.
    link : the chain value after it.
    release : the release that it completed, or None.
    kind : ``"rows"``, ``"finish"``, or ``"generation"`` where the run went on as another one.
    """

    first: int
    count: int  # type: ignore[assignment]
    rows: FloatArray | None
    block: BlockGram | None
    bad: int
    fresh: tuple[bytes, ...] = ()
    link: bytes = b""
    release: Release | None = None
    kind: str = "rows"


class CommitLog(Protocol):
    """Keeps the pieces of one stream, and its releases back until their rows are durable."""

    @property
    def room(self) -> int | None:
        """How many single rows may wait before the next commit; None if it does not count rows."""

    def check(self) -> bool:
        """Raise if the log takes no more pieces; tell if a commit is overdue. Called before a piece is taken."""

    def append(self, entry: Entry) -> None:
        """Keep a piece. Entries from its first row on that were kept before are replaced."""

    def appended(self) -> None:
        """Commit if it is time. Called once the stream has taken the piece."""

    def hold(self, t: int) -> None:
        """Return once the first t rows and the releases made of them are durable."""


class RunStore(Protocol):
    """Where streams can be begun and resumed: `streampca.Store`."""

    def begin(self, stream: Stream) -> CommitLog:
        """Begin a durable run."""

    def resume(self, kind: type[Any], *, moved: bool = False) -> Any:
        """Rebuild the stream of a run."""


class Account(Protocol):
    """Who pays for a stream: e.g. one data set of a `streampca.store.Ledger`."""

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream, or raise `BudgetExhausted`. Booking the same start again does nothing."""


class _Now(NamedTuple):
    """Where a stream stands. Never changed; replaced as a whole.

    ``due`` rows may be absorbed at once: up to the next release or record. ``unit`` is row_norm**2.
    ``entries`` of a commit log led here.
    """

    t: int
    admission: Admission
    processor: Processor | None
    release: Release | None
    regret: RegretSums | None
    private: PrivateRegretRecords | None
    scoring: FloatArray | None
    bad_rows: int
    due: int
    unit: float
    entries: int


class Stream:
    """Feed rows to an algorithm; get private releases, and live regret for the curator.

    Parameters
    ----------
    algorithm : e.g. `PrivateFPL`. It may feed any number of streams.
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
    private_regret : how the publishable regret is kept, for an algorithm that
        releases rewards (``PrivateFPL(publish_regret=True)``), where
        ``PrivateRegret()`` is the default.
    ledger : the account that pays, ``Ledger(file).account(data_set)``. The whole
        stream is booked before its first row; where the budget does not cover it,
        that row raises `BudgetExhausted` and nothing has changed.
    seed : integer for reproducible noise, for tests and scenarios: not private
        against whoever knows it. Left out, noise is fresh from the system.
    key : 32 secret bytes instead of a fresh key. They reproduce nothing: two streams
        with one key have independent noise.
    store : a `Store` that makes the run durable. Reading a release then waits until the
        rows it depends on are; `resume` continues after a crash.

    Attributes
    ----------
    lock : held by every method that changes the stream; re-entrant.
    start_id : 16 bytes that name this start of a run: a ledger is debited once for them.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.

    Notes
    -----
    *Interrupts and threads.* After any exception the stream is exactly before or
    exactly after a piece of rows, and `t` says which; it goes on from there.
    Methods may be called from any thread.

    *Copies.* A copy, a pickle, and the child of a fork go on as another run with
    noise of its own: two runs on the same rows cost sqrt(2) times mu. With a ledger
    the copy pays before its next row; without one, nothing counts the copies.
    """

    #: True where rows come from `streampca.UserStream`, which caps the rows of each user.
    caps_users: ClassVar[bool] = False

    def __init__(
        self,
        algorithm: Algorithm,
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
        if not isinstance(algorithm, Algorithm):
            raise BadParameter(f"algorithm={algorithm!r} is not an algorithm; pass e.g. PrivateFPL(...)")
        if getattr(algorithm, "max_rows_per_user", None) is not None and not self.caps_users:
            raise BadParameter("max_rows_per_user needs to know whose rows they are; use UserStream(algorithm)")
        if isinstance(regret, str) and regret != "exact":
            raise BadParameter(f"regret={regret!r} must be a RegretLog, 'exact' or None")
        publishes = bool(getattr(algorithm, "publish_regret", False))
        if center and (isinstance(regret, RegretLog) or publishes):
            raise BadParameter("center=True keeps no regret: leave out regret= and publish_regret=")
        if private_regret is not None and not publishes:
            raise BadParameter(
                f"private_regret={private_regret!r} needs an algorithm that releases rewards, and its noise calibrated "
                "for that; use PrivateFPL(..., publish_regret=True)"
            )
        if seed is None:
            seed = algorithm.seed
        if seed is not None and key is not None:
            raise BadParameter("give seed= or key=, not both")
        self._algorithm = algorithm
        self._randomness = Randomness(key) if seed is None else Randomness.from_seed(seed)
        self.start_id = os.urandom(NAME_BYTES)
        self._regret_log = None if center else RegretLog() if isinstance(regret, str) else regret
        self._private_log = (private_regret or PrivateRegret()) if publishes else None
        self._account = ledger
        admission = Admission(
            row_norm=row_norm, bounds=bounds, on_bad_row=on_bad_row, center=center,
            features=None if features is None else tuple(features), n_features=algorithm.n_features,
        )  # fmt: skip
        if admission.n_features is not None:
            algorithm.check(admission.n_features)
        self._now = _before(admission)
        self._taken = 0  # rows taken, those that wait included; `_now.t` if that is more
        self._waiting: Waiting | None = None
        self._generation: bytes | None = None  # set: this is a copy that has not gone on yet
        self._lost = ""  # set: why no more rows may be taken
        self._checked = False  # set: `_ready` has something to look at before rows are taken
        self.lock = RLock()
        self._log: CommitLog | None = None
        tell_of_forks(self)
        if store is not None:
            if not hasattr(store, "begin"):
                raise BadParameter(f"store={store!r} is not a store; pass Store(path)")
            self._log = store.begin(self)
            self._checked = True

    @classmethod
    def resume(cls, store: RunStore, *, moved: bool = False) -> Self:
        """Continue the run of a store: the same releases as if nothing had happened.

        Parameters
        ----------
        store : a `Store` that holds a run. Rows up to `t` are durable; the next to push is row ``t + 1``.
        moved : take a store that was copied or put back although another copy may have gone on. It goes on
            as another run with noise of its own; both together cost sqrt(2) times mu.

        Raises
        ------
        StoreCorrupt, StoreForked, StoreLocked, StoreUnwritable, WrongKey
            If the run cannot be continued. Nothing has changed.
        """
        resumed: Self = store.resume(cls, moved=moved)
        return resumed

    # -- feeding rows ---------------------------------------------------------------

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
            If the algorithm takes no more rows. Nothing has changed.
        """
        with self.lock:
            now, overdue = self._now, False
            if self._checked:
                overdue = self._ready()
                now = self._now
            if now.processor is None:
                now = self._begun(now.admission.settled_by(row), row, 1)
            t = max(now.t, self._taken)
            place, waiting = t - now.t, self._waiting
            if place == 0:
                if now.due == 1:  # one row completes the piece
                    admitted, bad = now.admission.row(row, t + 1)
                    now, release, rewards = self._absorb(now, admitted, bad)
                    if self._log is not None:
                        return step_of(t + 1, release, float(rewards[0]) * now.unit, self._log)
                    step = Step.__new__(Step)  # this runs once a row: no call of __init__
                    step.t, step.release, step.reward = t + 1, release, float(rewards[0]) * now.unit
                    return step
                waiting = None
            waiting = waiting or self._opened(now)
            waiting.rows[place] = now.admission.values(row, t + 1)
            if place + 1 < len(waiting.rows) and not overdue:
                self._taken = t + 1
                return WaitingStep(t + 1, waiting, place)
            admitted, bad = now.admission.block(waiting.rows[: place + 1], now.t + 1)
            now, release, rewards = self._absorb(now, admitted, bad)
            return step_of(t + 1, release, float(rewards[-1]) * now.unit, self._log)

    def push_many(self, rows: Any) -> Steps:
        """Feed a block of rows: the same releases as one by one, bit for bit.

        Parameters
        ----------
        rows : (n, d) array, table, or sequence of rows.

        Returns
        -------
        Steps : a sequence of `Step` with ``.releases`` and ``.rewards``.

        Raises
        ------
        BadRow
            If a row is bad and ``on_bad_row="raise"``. No row was absorbed.
        HorizonReached
            If the algorithm cannot take all of them. No row was absorbed.
        """
        if not hasattr(rows, "__len__"):
            rows = list(rows)
        with self.lock:
            self._ready()
            now = self._settled()
            admission = now.admission
            if now.processor is None:
                admission = admission.settled_by_block(rows)
            if not len(rows):
                return Steps(now.t + 1, no_rewards(0), [], self._log)
            values = admission.all_values(rows, now.t + 1)
            if now.processor is None:
                now = self._begun(admission, None, len(values))
            else:
                self._check_room(now, len(values))
            first, rewards, releases = now.t + 1, [], []
            for _, release, scored in self._absorb_all(values):
                rewards.append(scored)
                if release is not None:
                    releases.append(release)
            return Steps(first, np.concatenate(rewards) * now.unit, releases, self._log)

    def push_block(self, block: BlockGram) -> BlockStep:
        """Feed rows that were admitted and summed elsewhere: the same release as from the rows, bit for bit.

        For algorithms that need no more than Gram matrices: `PrivateFPL`
        (without ``publish_regret``) and `PerturbedLeader`.

        Parameters
        ----------
        block : made by `leaves`, or by `BlockGram.of`. It must end where the next release is due, or before.

        Raises
        ------
        BadParameter
            If the algorithm needs rows, the block crosses a release or the end
            of a regret window, or it is of other features, of another admission
            or from another place of the stream. Nothing has changed.
        BadRow
            If it is not the Gram matrix of so many rows of the unit ball. Nothing has changed.
        HorizonReached
            If the algorithm takes no more rows. Nothing has changed.
        """
        self._check_blocks()
        if not isinstance(block, BlockGram):
            raise BadParameter(f"a {type(block).__name__} given; push_block takes a BlockGram, push_many takes rows")
        with self.lock:
            self._ready()
            now = self._settled()
            if block.first is not None and block.first != now.t + 1:
                raise BadParameter(
                    f"a block from row {block.first} given, row {now.t + 1} is next: blocks come once each, in order"
                )
            admission = now.admission
            if admission.n_features is None:
                admission = admission.fixed(None, block.n_features - int(admission.center))
            if block.n_features != admission.admitted_features:
                raise BadParameter(
                    f"a block of {block.n_features} features given, {admission.admitted_features} expected"
                )
            if block.gate and block.gate != admission_mark(admission):
                raise BadParameter(
                    "the block was admitted with other settings or by another version; use stream.leaves()"
                )
            begins = now.processor is None
            if begins:  # not kept, and not paid for, before the block is found good
                now = self._first(admission, self._processor(admission))
            due = _running(now).rows_until_release
            if due and block.count > due:
                raise BadParameter(
                    f"a block of {block.count} rows given, but a release is due after {due}; "
                    "cut rows with stream.leaves()"
                )
            self._check_room(now, block.count)
            if now.regret is not None:
                now.regret.check_block(block.count)
            if begins:
                now = self._paid(now)
            return self._absorb_block(now, block)

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

    def _run_source(self, source: RowSource) -> Iterator[Step]:
        self.adopt(source)
        for block in source.blocks():
            size = max(1, _BLOCK_NUMBERS // max(1, block.shape[1]))
            for start in range(0, len(block), size):  # memory does not grow with the block
                piece = block[start : start + size]
                try:
                    steps: Iterable[Step] = self.push_many(piece)
                except (BadRow, HorizonReached):
                    steps = map(self.push, piece)  # the rows before the bad one are not lost
                yield from steps

    def finish(self) -> Release | None:
        """End the stream: the release of what the processor still holds, where it makes one.

        `Tumbling` with ``keep_short=True`` releases its last, short block.
        When to end must not depend on the rows.
        """
        with self.lock:
            self._ready()
            now = self._settled()
            if now.processor is None:
                return None
            outlet = now.processor.outlet()
            after, release = now.processor.finish(outlet)
            self._waiting = None
            self._logged(now, Entry(now.t + 1, 0, None, None, 0, kind="finish"), outlet, after, release, now.regret)
            return None if release is None else self._committed().release

    def adopt(self, source: RowSource) -> None:
        """Take feature names and public bounds over from a source, where the stream has none."""
        with self.lock:
            now = self._now
            admission = now.admission
            if source.bounds is not None and now.processor is None:
                admission = admission.with_bounds(source.bounds)
            if source.features and admission.features is None:
                admission = admission.fixed(source.features)
            self._now = now._replace(admission=admission)

    def leaves(self) -> Leaves:
        """What other processes need to cut rows into blocks for this stream. Public settings only.

        Raises
        ------
        BadParameter
            If the features are not settled yet, or the algorithm needs rows.
        """
        self._check_blocks()
        admission = self._now.admission
        if admission.n_features is None:
            raise BadParameter("blocks are made elsewhere, so the features must be known: give features= to the stream")
        algorithm = self._algorithm
        return Leaves(admission, getattr(algorithm, "release_every", 1), getattr(algorithm, "horizon", None))

    # -- reading --------------------------------------------------------------------

    @property
    def t(self) -> int:
        """Rows seen."""
        return max(self._now.t, self._taken)

    @property
    def rows_until_release(self) -> int:
        """How many rows may be pushed before the next release; 0 once the horizon is reached."""
        now = self._now
        return self.processor.rows_until_release - max(0, self._taken - now.t)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm at work."""
        return self._algorithm

    @property
    def processor(self) -> Processor:
        """Where the algorithm stands after the rows absorbed: an immutable value. Curator only.

        Raises
        ------
        BadParameter
            Before the number of features is known.
        """
        processor = self._now.processor
        if processor is None:
            admission = self._now.admission
            if admission.admitted_features is None:
                raise BadParameter("the number of features is not known yet; push a row, or give n_features=")
            processor = self._processor(admission)
        return processor

    @property
    def randomness(self) -> Randomness:
        """The master key. As secret as the rows."""
        return self._randomness

    @property
    def account(self) -> Account | None:
        """Who pays for the stream."""
        return self._account

    @property
    def admission(self) -> Admission:
        """How rows are admitted."""
        return self._now.admission

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features, if rows are named."""
        return self._now.admission.features

    @property
    def row_norm(self) -> float:
        """Norm onto which longer rows are scaled."""
        return self._now.admission.row_norm

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for all releases of this stream together."""
        promised = self._algorithm.guarantee
        return promised.seeded() if self._randomness.is_seeded else promised

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first."""
        return self._committed().release

    @property
    def subspace(self) -> Subspace:
        """The subspace in play: of the latest release, or the first coordinate axes before it."""
        return self._played(self._committed())

    @property
    def keeps_regret(self) -> bool:
        """False if the stream was made with ``regret=None``."""
        return self._regret_log is not None

    @property
    def regret(self) -> Regret:
        """The exact regret, live. Curator only."""
        if self._regret_log is None:
            raise BadParameter("this stream keeps no regret; leave out regret=None")
        return Regret(self._regret_log, self._regret_history, self._regret_now, self._regret_gram)

    @property
    def publishes_regret(self) -> bool:
        """True if the algorithm releases rewards, so that there is a `private_regret`."""
        return self._private_log is not None

    @property
    def private_regret(self) -> LivePrivateRegret:
        """The publishable regret: intervals, under the guarantee of the releases."""
        config = self._private_log
        if config is None:
            raise BadParameter("this stream releases no rewards; use PrivateFPL(..., publish_regret=True)")
        return LivePrivateRegret(config, lambda: self._committed().private or config.start())

    @property
    def bad_rows(self) -> int:
        """Rows absorbed as zero rows because they were bad. Curator only: it depends on raw rows."""
        with self.lock:
            now, rows = self._now, self._rows_waiting()
            return now.bad_rows + (0 if rows is None else now.admission.block(rows, now.t + 1)[1])

    def __repr__(self) -> str:
        return f"<Stream of {self._algorithm!r}, {self.t} rows seen: {self.guarantee}>"

    def _committed(self) -> _Now:
        """Where the stream stands, once the latest release may be handed out."""
        if self._lost:
            raise StoreLocked(self._lost)
        now = self._now
        if self._log is not None and now.release is not None:
            self._log.hold(now.release.t)
        return now

    def _played(self, now: _Now) -> Subspace:
        if now.release is not None:
            return now.release.subspace
        if now.admission.n_features is None:
            raise BadParameter("the number of features is not known yet; push a row, or give n_features=")
        return Subspace.first_axes(now.admission.n_features, self._algorithm.n_components)

    def _regret_history(self) -> list[RegretRecord]:
        sums = self._committed().regret
        return [] if sums is None else sums.history.records

    def _regret_now(self) -> RegretRecord | None:
        with self.lock:
            now, rows = self._committed(), self._rows_waiting()
            processor, sums = now.processor, now.regret
            if processor is None or sums is None or self.t == 0:
                return None
            gram = None
            if rows is not None:
                admitted = now.admission.block(rows, now.t + 1)[0]
                gram = GramSum.of(admitted)
                sums = sums.observe(admitted, _scoring(now), processor.n_components)[0]
            return sums.record(processor, self._played(now), self.row_norm**2, gram)

    def _regret_gram(self) -> GramSum | None:
        with self.lock:
            now, rows = self._now, self._rows_waiting()
            processor, sums = now.processor, now.regret
            if processor is None or sums is None or self.t == 0:
                return None
            gram = sums.gram(processor)
            return gram if rows is None else gram.add(now.admission.block(rows, now.t + 1)[0])

    def _rows_waiting(self) -> FloatArray | None:
        """Single rows that are not absorbed yet."""
        waiting, count = self._waiting, self._taken - self._now.t
        return waiting.rows[:count] if waiting is not None and count > 0 else None

    # -- how rows are absorbed ------------------------------------------------------

    def _ready(self) -> bool:
        """Raise if no row may be taken; tell if a commit is overdue."""
        if self._lost:
            raise StoreLocked(self._lost)
        overdue = self._log is not None and self._log.check()
        if self._generation is not None:
            self._go_on_as_copy(self._generation)
        self._checked = self._log is not None
        return overdue

    def _processor(
        self, admission: Admission, start: bytes | None = None, snapshot: dict[str, Any] | None = None
    ) -> Processor:
        """The processor before the first row, or that of a snapshot. Checks that the algorithm fits."""
        names = admission.features
        if admission.center and names is not None:
            names = (*names, CONSTANT)
        terms = Terms(self.guarantee, admission.admitted_norm, names, *admission.ranges())
        setting = Setting(terms, int(admission.center), admission.settings)
        if start is None and not self._randomness.is_seeded:
            start = self.start_id
        d = admission.admitted_features or 0
        return self._algorithm.start(d, self._randomness, setting, start=start, snapshot=snapshot)

    def _begun(self, admission: Admission, row: Any, count: int) -> _Now:
        """Check, pay, start: the stream with its features settled, after the first rows were found good."""
        if row is not None:
            admission.values(row, 1)
        now = self._first(admission, self._processor(admission))
        self._check_room(now, count)
        return self._paid(now)

    def _paid(self, now: _Now) -> _Now:
        """Pay, and start where a stream stands before its first row."""
        if self._account is not None:
            self._account.debit(self.guarantee, self.start_id)
        self._now = now
        return now

    def _first(self, admission: Admission, processor: Processor) -> _Now:
        """Where the stream stands before the first row."""
        sums = None if self._regret_log is None else self._regret_log.start(processor)
        private = None if self._private_log is None else self._private_log.start()
        now = _before(admission)._replace(processor=processor, regret=sums, private=private)
        if sums is not None:
            now = now._replace(scoring=scoring_basis(self._played(now).basis))
        return now._replace(due=_due(processor, sums))

    def _opened(self, now: _Now) -> Waiting:
        """Room for single rows up to the next release or record."""
        if now.due == 0:
            raise _past_horizon(now.t, 1, 0)
        room = min(now.due, _WAITING_ROWS)
        if self._log is not None and (uncommitted := self._log.room) is not None:
            room = min(room, uncommitted)
        self._waiting = Waiting(now.t, now.admission, now.scoring, now.unit, room)
        return self._waiting

    def _check_room(self, now: _Now, count: int) -> None:
        left = _running(now).rows_left
        if left is not None and count > left:
            raise _past_horizon(now.t, count, left)

    def _settled(self) -> _Now:
        """Absorb the single rows that wait. What a stream releases never depends on when."""
        now, rows = self._now, self._rows_waiting()
        if rows is None:
            return now
        admitted, bad = now.admission.block(rows, now.t + 1)
        return self._absorb(now, admitted, bad)[0]

    def _absorb_all(self, values: FloatArray) -> Iterator[tuple[_Now, Release | None, FloatArray]]:
        """Admit and absorb checked rows, a piece for each release, record and batch that fits the cache."""
        now, size = self._now, max(1, _BLOCK_NUMBERS // values.shape[1])
        for start in range(0, len(values), size):
            batch = values[start : start + size]
            admitted, bad = now.admission.block(batch, now.t + 1)
            place = 0
            while place < len(batch):
                count = min(now.due, len(batch) - place)
                rows = slice(place, place + count)
                worse = now.admission.block(batch[rows], now.t + 1)[1] if bad else 0
                now, release, rewards = self._absorb(now, admitted[rows], worse)
                yield now, release, rewards
                place += count

    def _absorb(
        self, now: _Now, admitted: FloatArray, bad: int, recorded: Sequence[bytes] | None = None
    ) -> tuple[_Now, Release | None, FloatArray]:
        """Score, absorb, release, log and commit a piece; return where the stream stands, and the rewards.

        Rewards are in units of row_norm**2 = 1.
        """
        processor, sums, count = now.processor or _running(now), now.regret, len(admitted)
        if sums is None or now.scoring is None:
            rewards = no_rewards(count)
        else:
            sums, rewards = sums.observe(admitted, now.scoring, processor.algorithm.n_components)
        outlet = Outlet(processor.source, processor.chain, recorded)
        after, release = processor.step(admitted, outlet)
        if self._log is None:
            now = self._now = self._following(now, count, bad, after, release, sums)  # the commit
        else:
            now = self._logged(now, Entry(now.t + 1, count, admitted, None, bad), outlet, after, release, sums)
        return now, None if release is None else now.release, rewards

    def _absorb_block(self, now: _Now, block: BlockGram, recorded: Sequence[bytes] | None = None) -> BlockStep:
        """Score, absorb, release, log and commit a block."""
        processor = _running(now)
        outlet = processor.outlet(recorded)
        after, release = processor.absorb_gram(block.count, block.high, block.low, outlet)
        reward, sums = float("nan"), None
        if now.regret is not None:
            reward = block.rewards(_scoring(now))
            gram = GramSum(processor.n_features).add_words(block.high, block.low)
            sums = now.regret.observe_block(block.count, gram, reward, processor.n_components)
        entry = Entry(now.t + 1, block.count, None, block, block.bad)
        now = self._logged(now, entry, outlet, after, release, sums)
        return BlockStep(now.t, block.count, reward * now.unit, None if release is None else now.release, self._log)

    def _logged(
        self,
        now: _Now,
        entry: Entry,
        outlet: Outlet,
        after: Processor,
        release: Release | None,
        sums: RegretSums | None,
    ) -> _Now:
        """Log a piece, and put the stream where it stands after it: by one assignment."""
        following, log = self._following(now, entry.count, entry.bad, after, release, sums), self._log
        if log is not None:
            made = None if release is None else following.release
            log.append(entry._replace(fresh=tuple(outlet.fresh), link=outlet.chain.link, release=made))
        self._now = following  # the commit
        if log is not None:
            log.appended()
        return following

    def _following(
        self, now: _Now, count: int, bad: int, after: Processor, release: Release | None, sums: RegretSums | None
    ) -> _Now:
        """Where the stream stands after a piece."""
        t, admission, _, latest, _, private, scoring, bad_rows, _, unit, entries = now
        if release is not None:
            latest = release if not admission.center else centered_if_possible(release, admission.row_norm)
            if private is not None:
                private = private.observe(latest)
            if scoring is not None:
                scoring = scoring_basis(latest.subspace.basis if latest.own_span is None else latest.own_span)
        due = after.rows_until_release
        if sums is not None:
            rows, step = sums.t, sums.history.step
            if count and rows // step != (rows - count) // step:
                sums = sums.recorded(after, latest.subspace if latest is not None else self._played(now), unit)
            due = min(due, sums.rows_until_record)
        values = (t + count, admission, after, latest, sums, private, scoring, bad_rows + bad, due, unit, entries + 1)
        return tuple.__new__(_Now, values)

    def _check_blocks(self) -> None:
        algorithm = self._algorithm
        if not algorithm.absorbs_grams or getattr(algorithm, "max_rows_per_user", None) is not None:
            raise BadParameter(
                f"{type(algorithm).__name__} with these parameters needs rows, not Gram matrices of blocks; "
                "use PrivateFPL without publish_regret= and max_rows_per_user=, or push rows"
            )

    # -- copies, snapshots and replay -----------------------------------------------

    def state(self) -> dict[str, Any]:
        """Where the stream stands, as plain values and arrays. As secret as the rows, and the key with it.

        Single rows that wait are absorbed first. Arrays are not to be written to.
        """
        with self.lock:
            self.settle()
            return self.committed_state()

    def committed_state(self) -> dict[str, Any]:
        """`state` without the single rows that wait, and without a lock; ``entries`` counts those of the log."""
        now = self._now
        sums, private = now.regret, now.private
        return {
            "t": now.t,
            "entries": now.entries,
            "features": None if now.admission.features is None else list(now.admission.features),
            "n_features": now.admission.n_features,
            "start": None if now.processor is None else now.processor.source.start.hex(),
            "processor": None if now.processor is None else now.processor.snapshot(),
            "bad_rows": now.bad_rows,
            "release": None if now.release is None else now.release.t,
            "regret": None if sums is None else sums.snapshot(),
            "private_regret": None if private is None else private.snapshot(),
        }

    @property
    def entries(self) -> int:
        """How many entries of a commit log led to where the stream stands. It takes no lock."""
        return self._now.entries

    def settle(self) -> None:
        """Absorb the single rows that wait. What a stream releases does not depend on when."""
        with self.lock:
            self._settled()

    def restore(self, state: dict[str, Any], release: Release | None, *, copied: bool = True) -> None:
        """Put a stream that has seen no row where `state` found one of the same parameters and key.

        Parameters
        ----------
        state : from `state`.
        release : its latest release.
        copied : go on as another run: with noise of its own, which a ledger pays for. False only
            where it is known that nothing else goes on from this state.

        Raises
        ------
        BadParameter
            If this stream has seen a row, or the state is of other parameters.
        """
        with self.lock:
            if self._now.processor is not None or self._taken:
                raise BadParameter("a state can be restored only into a stream that has seen no row")
            names = state["features"]
            admission = self._now.admission.fixed(None if names is None else tuple(names), state["n_features"])
            if state["processor"] is None:
                self._now = self._now._replace(admission=admission)
                return
            processor = self._processor(admission, bytes.fromhex(state["start"]), state["processor"])
            log, private = self._regret_log, self._private_log
            sums = None if log is None else log.resume(state["regret"], processor.n_features)
            records = None if private is None else private.resume(state["private_regret"], release)
            now = self._first(admission, processor)._replace(
                t=int(state["t"]), release=release, regret=sums, private=records, bad_rows=int(state["bad_rows"]),
                due=_due(processor, sums),
            )  # fmt: skip
            if release is not None and now.scoring is not None:
                now = now._replace(scoring=scoring_basis(release.span))
            self._now = now
            if copied:
                self._mark_copied()

    def replay(self, entry: Entry) -> list[Release]:
        """Absorb an entry of a commit log again, with the fresh bytes of its noise; return its releases.

        An entry of rows may hold several pieces, one after the other.
        """
        with self.lock:
            if self._now.processor is None:
                self._now = self._first(self._now.admission, self._processor(self._now.admission))
            now = self._now
            if entry.block is not None:
                self._absorb_block(now, entry.block, entry.fresh)
            elif entry.kind == "rows":
                return self._replay_rows(entry)
            else:
                outlet, processor = _running(now).outlet(entry.fresh), _running(now)
                finish = entry.kind == "finish"
                after, made = processor.finish(outlet) if finish else (_regenerated(processor, outlet), None)
                self._logged(now, entry, outlet, after, made, now.regret)
            release = self._now.release
            return [] if release is None or release is now.release else [release]

    def _replay_rows(self, entry: Entry) -> list[Release]:
        rows, used, bad, place = entry.rows, 0, entry.bad, 0
        releases = []
        while rows is not None and place < len(rows):
            now = self._now
            count = min(now.due, len(rows) - place)
            piece, recorded = rows[place : place + count], entry.fresh[used:]
            following, release, _ = self._absorb(now, piece, bad, recorded)
            if release is not None:
                releases.append(release)
            used += _running(following).chain.n - _running(now).chain.n
            place, bad = place + count, 0
        return releases

    def attach(self, log: CommitLog, account: Account | None, *, copied: bool) -> None:
        """Keep a commit log, and an account that pays, from here on. Called by a store once it has replayed its run."""
        with self.lock:
            self._checked = True
            self._log, self._account = log, account
            if copied:
                self._mark_copied()

    def _mark_copied(self) -> None:
        """From the next change on, go on as another run."""
        self._checked = True
        if self._now.processor is None:
            self.start_id = os.urandom(NAME_BYTES)
        else:
            self._generation = os.urandom(NAME_BYTES)

    def _go_on_as_copy(self, generation: bytes) -> None:
        """Pay as another run, and chain the 16 bytes of this generation into the noise to come."""
        now = self._now
        if self._account is not None:
            self._account.debit(self.guarantee, generation)
        if not self._randomness.is_seeded:
            outlet = _running(now).outlet([generation])
            after = _regenerated(_running(now), outlet)
            self._logged(now, Entry(now.t + 1, 0, None, None, 0, kind="generation"), outlet, after, None, now.regret)
        self._generation = None

    def after_fork(self) -> None:
        """Go on in the child of a fork: with a lock of its own and as another run, or not at all if durable."""
        self.lock, self._checked = RLock(), True
        if self._log is not None:
            self._lost = (
                "this is a copy of a durable stream in a child process, and the parent process writes its store; "
                "use the stream in the process that made it"
            )
        else:
            self._mark_copied()

    def __getstate__(self) -> dict[str, Any]:
        """Everything a copy needs. As secret as the rows."""
        if self._log is not None:
            raise BadParameter(
                "a durable stream cannot be copied or pickled: its store is the one place that it goes on from; "
                "open it elsewhere with Stream.resume(store)"
            )
        with self.lock:
            return {
                "algorithm": self._algorithm,
                "randomness": self._randomness,
                "regret_log": self._regret_log,
                "private_log": self._private_log,
                "account": self._account,
                "admission": self._now.admission,
                "state": self.state(),
                "release": self._now.release,
            }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self._algorithm, self._randomness = saved["algorithm"], saved["randomness"]
        self._regret_log, self._private_log = saved["regret_log"], saved["private_log"]
        self._account, self._log = saved["account"], None
        self._now = _before(saved["admission"])
        self._taken, self._waiting, self._generation, self._lost, self._checked = 0, None, None, "", False
        self.lock, self.start_id = RLock(), os.urandom(NAME_BYTES)
        tell_of_forks(self)
        self.restore(saved["state"], saved["release"])


def _before(admission: Admission) -> _Now:
    """Where a stream stands that has not started."""
    return _Now(0, admission, None, None, None, None, None, 0, 0, admission.row_norm**2, 0)


def _due(processor: Processor, sums: RegretSums | None) -> int:
    """How many rows may be absorbed at once."""
    due = processor.rows_until_release
    return due if sums is None else min(due, sums.rows_until_record)


def _running(now: _Now) -> Processor:
    if now.processor is None:
        raise BadParameter("the stream has not started; push a row first")
    return now.processor


def _scoring(now: _Now) -> FloatArray:
    if now.scoring is None:
        raise BadParameter("this stream keeps no regret; leave out regret=None")
    return now.scoring


def _regenerated(processor: Processor, outlet: Outlet) -> Processor:
    """The same processor with 16 bytes of a new generation in its chain value."""
    outlet.hide("generation")
    made = copy.copy(processor)
    made.chain = outlet.chain
    return made


def _past_horizon(t: int, count: int, left: int) -> HorizonReached:
    return HorizonReached(
        f"{count} rows given, but the horizon of {t + left} rows leaves room for {left}: noise is "
        "calibrated for no more; use horizon=None for a stream of unknown length"
    )


class Forkable(Protocol):
    """What has to be told that this process is the child of a fork."""

    def after_fork(self) -> None:
        """Called in the child."""


#: What is told of a fork, in the child.
_TOLD: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_of_forks(thing: Forkable) -> None:
    """Call ``after_fork`` of an object in the child of every fork, for as long as the object lives."""
    _TOLD.add(thing)


def _renew() -> None:
    for thing in list(_TOLD):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
