"""Streams: rows are admitted, scored, absorbed, released, logged and committed.

All that changes is one immutable value, `_now`. Some rows, or a block, are absorbed by computing
the next value and assigning it: an exception in between, in whatever thread, leaves the stream as
it was before them or as it is after them. Every method that changes the stream is `exclusive`, and calls no other
such method. Reading takes no lock.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from threading import get_ident
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np

from streampca.admission import NO_COUNTS, Admission, AdmissionReport, Bounds, Counts, OnBadRow
from streampca.advice import (
    delta_warnings,
    dimension_warnings,
    memory_warnings,
    release_warnings,
    settings_warnings,
    warn,
)
from streampca.bounds import PrivateBounds
from streampca.conversion import as_block, check_iterable, framed
from streampca.errors import BadParameterError, StoreLockedError, StreamBusyError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg.counts import check_switch
from streampca.linalg.lattice import GramSum
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Account, Guarantee, check_account
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import NAME_BYTES, Randomness
from streampca.private_regret import LivePrivateRegret, PrivateRegret, PrivateRegretRecords
from streampca.processors.base import Algorithm, Processor, Setting
from streampca.regret import Moment, Regret, RegretLog, RegretSums
from streampca.release import Release, Scoring, Subspace, Terms, scoring_basis
from streampca.rendering import render
from streampca.rows import Position, PositionedSource, RowSource, as_source
from streampca.stream.blocks import BlockCutter, BlockGram, CommitLog, Entry
from streampca.stream.feed import feed
from streampca.stream.step import BlockStep, Step, Steps, Waiting, WaitingStep, no_rewards, step_of

#: Most single rows that wait to be absorbed together.
_WAITING_ROWS = 256
#: Most numbers of a block that are admitted at a time, and how many are worth being admitted by themselves.
_BLOCK_NUMBERS, _WORTH = 2**17, 2**14
#: Types of rows that are no tables.
_ROWS = frozenset({np.ndarray, list, dict})

#: Makes a named tuple without a Python call.
_new = tuple.__new__


class RunStore(Protocol):
    """Where streams can be begun and resumed: `streampca.Store`."""

    def begin(self, stream: Stream) -> CommitLog:
        """Begin a durable run."""

    def resume(self, kind: type[Any], *, moved: bool = False) -> Any:
        """Rebuild the stream of a run."""


class _Now(NamedTuple):
    """State of a stream. Never changed; replaced as a whole.

    ``due`` rows may be absorbed at once: up to the next release or record. ``unit`` is row_norm**2.
    ``entries`` of a commit log led here.
    """

    t: int
    admission: Admission
    processor: Processor | None
    release: Release | None
    regret: RegretSums | None
    private: PrivateRegretRecords | None
    scoring: Scoring | None
    counts: Counts
    due: int
    unit: float
    entries: int


class Stream:
    """Feed rows to an algorithm; get private releases, and live regret for the curator.

    Parameters
    ----------
    algorithm : e.g. `PrivateFPL`. It may feed any number of streams.
    row_norm : rows longer than this are scaled onto the ball of this radius. Public. Gram matrices,
        eigenvalues and rewards are in units of its square.
    bounds : public ranges of the features, mapped into that ball: ``(lower, upper)`` or a mapping
        by name. See `Admission`. ``"private"`` finds them in the first rows (`PrivateBounds`):
        those spend their whole budget on that, and count as zero rows in all releases, of which
        there are none before the warm-up ends, and in the regret.
    warmup : with ``bounds="private"``, number of these rows. Left out, chosen from epsilon, delta, the number of
        features and the horizon.
    features : names of the features. Left out, they are those of the first row if it is a mapping
        or a named tuple. Where bad rows are absorbed, no row may decide that: names come from here or from the
        source, the number of nameless features from the algorithm or a block.
    on_bad_row : ``"raise"`` stops at a row that is not all numbers, before anything changes;
        ``"zero"`` absorbs a zero row in its place.
    center : release Gram matrices about the private mean, for algorithms that release Gram matrices with Gaussian
        noise: the sum of the rows is released with the sum of their squares (`linalg.centering`), which costs
        11.8 % more noise (zero-out) or 12.5 % (replace). ``details`` give the mean; regret is that of
        `regret.RegretRecord`. The same as ``center=True`` of the algorithm. False is the form of the papers: the
        first component of rows far from 0 is then close to the direction of their mean.
    regret : a `RegretLog`; None keeps none (rewards are not computed and no d x d matrix is held
        beyond the processor's own).
    private_regret : how the publishable regret is kept, for an algorithm that releases rewards
        (``PrivateFPL(publish_regret=True)``), where ``PrivateRegret()`` is the default.
    ledger : the account that pays, ``Ledger(file).account(data_set)``. The whole stream is booked
        before its first row; where the budget does not cover it, that row raises
        `BudgetExhaustedError` and nothing has changed.
    seed : integer for reproducible noise, for tests and scenarios: not private against whoever
        knows it. Left out, that of the algorithm; without one, noise is fresh from the system.
    key : 32 secret bytes instead of a fresh key. They reproduce nothing: two streams with one key
        have independent noise.
    store : a `Store` that makes the run durable. Reading a release then waits until the rows it
        depends on are durable; `resume` continues after a crash.

    Attributes
    ----------
    guard : lock and busy mark of the methods that change the stream.
    start_id : 16 bytes that name this start of a run: a ledger is debited once for them.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain.

    Notes
    -----
    *Interrupts and threads.* After any exception the stream is as it was before some of the rows
    or as it is after them, and `t` says which; it goes on from there. Methods may be called from any thread.

    *Nested calls.* Signal handlers, finalizers and methods of a row may run inside `push`. They may read the stream.
    Calls that would change it raise `StreamBusyError`, so that no row number is released twice.

    *Copies.* A copy, a pickle, and the child of a fork go on as another run with noise of its own:
    two runs on the same rows cost sqrt(2) times mu. With a ledger the copy pays before its next
    row; without one, nothing counts the copies.
    """

    #: True where rows come from `streampca.UserStream`, which caps the rows of each user.
    caps_users: ClassVar[bool] = False

    _log: CommitLog | None

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        row_norm: float = 1.0,
        bounds: Bounds | Literal["private"] | None = None,
        warmup: int | None = None,
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
            raise BadParameterError(f"algorithm={algorithm!r} is not an algorithm; pass e.g. PrivateFPL(...)")
        if getattr(algorithm, "max_rows_per_user", None) is not None and not self.caps_users:
            raise BadParameterError("max_rows_per_user needs to know whose rows they are; use UserStream(algorithm)")
        if regret is not None and regret != "exact" and not isinstance(regret, RegretLog):
            raise BadParameterError(f"regret={regret!r} must be a RegretLog, 'exact' or None")
        if private_regret is not None and not isinstance(private_regret, PrivateRegret):
            raise BadParameterError(f"private_regret={private_regret!r} must be a PrivateRegret or None")
        if isinstance(features, str) or not isinstance(features, Iterable | None):
            raise BadParameterError(f"features={features!r} must be a sequence of names")
        check_switch("center", center)
        check_account(ledger)
        publishes = bool(getattr(algorithm, "publish_regret", False))
        if center:
            algorithm = algorithm.centered()
        if private_regret is not None and not publishes:
            raise BadParameterError(
                f"private_regret={private_regret!r} needs an algorithm that releases rewards, and its noise calibrated "
                "for that; use PrivateFPL(..., publish_regret=True)"
            )
        if seed is None:
            seed = algorithm.seed
        if seed is not None and key is not None:
            raise BadParameterError("give seed= or key=, not both")
        if warmup is not None and bounds != "private":
            raise BadParameterError(f"warmup={warmup!r} goes with bounds='private'")
        ranges: Bounds | PrivateBounds | None
        if not isinstance(bounds, str):
            ranges = bounds
        elif bounds != "private":
            raise BadParameterError(f"bounds={bounds!r} must be (lower, upper), a mapping by feature name or 'private'")
        else:
            if self.caps_users:
                raise BadParameterError(
                    "bounds='private' is not available for users, who may have several rows: it rests on disjoint rows"
                )
            ranges = PrivateBounds.of(algorithm.guarantee, warmup, getattr(algorithm, "horizon", None))
        admission = Admission(
            row_norm=row_norm, bounds=ranges, on_bad_row=on_bad_row, center=algorithm.center,
            features=None if features is None else tuple(features), n_features=algorithm.n_features,
        )  # fmt: skip
        if admission.n_features is not None:
            algorithm.check(admission.n_features)
        warn(settings_warnings(algorithm.guarantee, getattr(algorithm, "horizon", None)))
        randomness = Randomness(key) if seed is None else Randomness.from_seed(seed)
        exact = RegretLog() if isinstance(regret, str) else regret
        private = (private_regret or PrivateRegret()) if publishes else None
        self._assemble(algorithm, randomness, admission, exact, private, ledger)
        if store is not None:
            if not hasattr(store, "begin"):
                raise BadParameterError(f"store={store!r} is not a store; pass Store(path)")
            self._log = store.begin(self)
            self._checked = True

    def _assemble(
        self, algorithm: Algorithm, randomness: Randomness, admission: Admission,
        regret_log: RegretLog | None, private_log: PrivateRegret | None, account: Account | None,
    ) -> None:  # fmt: skip
        """Set every attribute of a stream that has seen no row and has no commit log."""
        self._algorithm, self._randomness = algorithm, randomness
        self._regret_log, self._private_log = regret_log, private_log
        self._account = account
        self._log = None
        self._now = _before(admission)
        self._taken = 0  # rows taken, those that wait included; `_now.t` if that is more
        self._waiting: Waiting | None = None
        self._generation: bytes | None = None  # set: this is a copy that has not gone on yet
        self._lost = ""  # set: why no more rows may be taken
        self._last: int | None = getattr(algorithm, "horizon", None)  # the row after which the release is the last
        self._checked = False  # set: `_ready` has something to look at before rows are taken
        self.guard = Guard("stream")
        self.start_id = os.urandom(NAME_BYTES)
        tell_of_forks(self)

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
        StoreCorruptError, StoreForkedError, StoreLockedError, StoreUnwritableError, WrongKeyError
            If the run cannot be continued. Nothing has changed.
        """
        resumed: Self = store.resume(cls, moved=moved)
        return resumed

    # -- feeding rows ---------------------------------------------------------------

    def push(self, row: Any) -> Step:
        """Feed one row.

        Parameters
        ----------
        row : 1-D array or sequence of numbers, mapping from feature name to number, or named tuple.

        Returns
        -------
        Step : with a release if one was due.

        Raises
        ------
        BadRowError, HorizonReachedError
            If the row is bad and ``on_bad_row="raise"``, or no more are taken. Nothing has changed.
        StreamBusyError
            If another call in this thread is changing the stream. Nothing has changed.
        """
        guard = self.guard
        if guard.helper and guard.helper == get_ident():
            guard.refuse()
        with guard.lock:  # as `exclusive` does, which would be 1 of 25 calls a row
            if guard.is_busy:
                guard.refuse()
            try:
                try:
                    guard.is_busy = True
                    now, overdue = self._now, False
                    if self._checked:
                        overdue = self._ready()
                        now = self._now
                    if now.processor is None:
                        now = self._begun(now.admission.fixed_by(row), row, 1)
                    t = max(now.t, self._taken)
                    place, waiting = t - now.t, self._waiting
                    if place == 0:
                        if now.due == 1:  # one row completes what may be absorbed at once
                            admitted, counts = now.admission.row(row, t + 1)
                            now, release, rewards = self._absorb(now, admitted, counts)
                            if t + 1 == self._last:
                                self._warn_of_release()
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
                    admitted, marks = now.admission.block(waiting.rows[: place + 1], now.t + 1)
                    now, release, rewards = self._absorb(now, admitted, marks.counts())
                    if now.t == self._last:
                        self._warn_of_release()
                    return step_of(t + 1, release, float(rewards[-1]) * now.unit, self._log)
                finally:
                    guard.is_busy = False
            finally:
                guard.is_busy = False

    def push_many(self, rows: Any, *, position: Callable[[int], Position] | None = None) -> Steps:
        """Feed a block of rows: the same releases as one by one, bit for bit.

        Parameters
        ----------
        rows : (n, d) array; a table as `run` takes it; or an iterable of rows.
        position : gives where the source stands after the first m of them. A durable stream keeps it in the
            transaction of the rows.

        Returns
        -------
        Steps : a sequence of `Step` with ``.releases`` and ``.rewards``.

        Raises
        ------
        BadRowError, HorizonReachedError
            If a row is bad and ``on_bad_row="raise"``, or not all of them can be taken. No row was absorbed.
        """
        return self._push_many(as_block(rows), position)  # an iterable of rows may push, too

    @exclusive
    def _push_many(self, rows: Any, position: Callable[[int], Position] | None) -> Steps:
        now = self._ready_for_many()
        admission = now.admission
        if now.processor is None:
            admission = admission.fixed_by_block(rows)
        if not len(rows):
            return Steps(now.t + 1, no_rewards(0), [], self._log)
        with OneThread(admission.n_features or 1, least=1):
            values = admission.all_values(rows, now.t + 1)
            if now.processor is None:
                now = self._begun(admission, None, len(values))
            else:
                now.processor.check_horizon(len(values))
            first, rewards, releases = now.t + 1, [], []
            for _, release, scored in self._absorb_all(values, position):
                rewards.append(scored)
                if release is not None:
                    releases.append(release)
        if self._now.t == self._last:
            self._warn_of_release()
        return Steps(first, np.concatenate(rewards) * now.unit, releases, self._log)

    @exclusive
    def push_block(self, block: BlockGram, *, position: Position | None = None) -> BlockStep:
        """Feed rows that were admitted and summed elsewhere: the same release as from the rows, bit for bit.

        For algorithms that need no more than Gram matrices: `PrivateFPL`
        (without ``publish_regret``) and `PerturbedLeader`.

        Parameters
        ----------
        block : made by `leaves`, or by `BlockGram.of`. It must end where the next release is due, or before.
        position : where the source stands after it; see `push_many`.

        Raises
        ------
        BadParameterError, BadRowError, HorizonReachedError
            If the algorithm needs rows, or takes no more; if the block crosses a release or the end
            of a regret window; if it is of other features, of another admission, from another place of
            the stream, or no Gram matrix of so many rows of the unit ball. Nothing has changed.
        """
        self._algorithm.check_blocks()
        if not isinstance(block, BlockGram):
            raise BadParameterError(
                f"a {type(block).__name__} given; push_block takes a BlockGram, push_many takes rows"
            )
        now = self._ready_for_many()
        admission = now.admission
        if admission.is_warming_up:
            raise BadParameterError("private bounds are not found yet; push the rows of the warm-up as rows")
        if admission.n_features is None:
            admission = admission.fixed(None, block.n_features - int(admission.center))
        block.check(admission, now.t + 1)
        begins = now.processor is None
        if begins:  # not kept, and not paid for, before the block is found good
            now = self._first(admission, self._processor(admission))
        _running(now).check_room(block.count)
        if now.regret is not None:
            now.regret.check_block(block.count)
        if begins:
            now = self._paid(now)
        with OneThread(block.n_features, least=1):
            step = self._absorb_block(now, block, position=position)
        if step.t == self._last:
            self._warn_of_release()
        return step

    def run(self, rows: Any, *, new_source: bool = False) -> Iterator[Step]:
        """Feed rows from any iterable or table, lazily; yield a `Step` a row.

        Parameters
        ----------
        rows : an iterable of arrays, mappings, named tuples, ``(mapping, target)`` pairs as river's
            datasets give them (the target is left out), or tables; a source of `streampca.sources`,
            whose feature names and bounds are taken over if this stream has none; or a table: a pandas
            or polars frame or series, an Arrow table, record batch or stream, a DuckDB relation, a scipy
            sparse matrix. A durable stream goes on with a `streampca.rows.PositionedSource` where it stands,
            so that each row counts once.
        new_source : all rows of this source are new, although the rows before came from another source. Where its
            own rows came last, it goes on after them.

        Raises
        ------
        BadParameterError
            If the rows before came from elsewhere, and it is not said that all rows of this source are new.
        """
        rows = framed(rows)
        source = as_source(rows, self.features, mixed=self.row_admission.on_bad_row == "zero")
        if source is not None:
            yield from chain.from_iterable(feed(self, source, new_source=new_source))
        else:
            check_iterable(rows)
            for row in rows:
                yield from self._steps(row)
        if self._last is None:
            self._warn_of_release()

    async def arun(self, rows: Any) -> AsyncIterator[Step]:
        """`run` for an asynchronous iterable: ``async for step in stream.arun(rows)``.

        Parameters
        ----------
        rows : an asynchronous iterable of what `run` takes one by one; or anything that `run` takes,
            where other tasks get their turn after every row.
        """
        if hasattr(rows, "__aiter__"):
            async for row in rows:
                for step in self._steps(row):
                    yield step
            if self._last is None:
                self._warn_of_release()
        else:
            import asyncio

            for step in self.run(rows):
                yield step
                await asyncio.sleep(0)

    def _steps(self, row: Any) -> Iterable[Step]:
        """Feed one row, or one table, of an iterable."""
        if type(row) in _ROWS or hasattr(row, "to_frame"):
            return (self.push(row),)
        if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], dict):
            return (self.push(row[0]),)
        source = as_source(row, self.features, mixed=self.row_admission.on_bad_row == "zero")
        return (self.push(row),) if source is None else chain.from_iterable(feed(self, source))

    def position_in(self, source: str, *, new_source: bool = False) -> Any:
        """Where the source of a name goes on, by the rows that a durable stream took; None for its start. See `run`."""
        if self._log is None or self.t == 0:
            return None
        self.absorb_waiting()  # rows pushed by hand: the position after them is not known
        found = self._log.position
        if found is None or found.source != source:
            if new_source:
                return None
            origin = "otherwise" if found is None else f"from {found.source}"
            raise BadParameterError(
                f"the rows before came {origin}, this is {source}; "
                "give the source of the run, or say that all rows of this one are new: new_source=True (--continues)"
            )
        return found.at

    def tell_durable(self, source: PositionedSource) -> None:
        """Tell a source up to where its rows are durable."""
        durable = None if self._log is None else self._log.durable_position
        if durable is not None and durable.source == source.name:
            source.durable(durable.at)

    @exclusive
    def finish(self) -> Release | None:
        """End the stream: the release of what the processor still holds, where it makes one.

        `Tumbling` with ``keep_short=True`` releases its last, short block.
        When to end must not depend on the rows.
        """
        now = self._ready_for_many()
        if now.processor is None:
            return None
        outlet = now.processor.outlet()
        after, release = now.processor.finish(outlet)
        self._waiting = None
        entry = Entry(now.t + 1, 0, None, None, kind="finish")
        self._commit(now, self._following(now, 0, NO_COUNTS, after, release, now.regret), entry, outlet)
        return None if release is None else self._committed().release

    def _warn_of_release(self) -> None:
        """Warn of the latest release, and of rows too many for delta. The last thing that a method does."""
        release = self._now.release
        if release is not None:
            with OneThread(release.n_features):
                found = release_warnings(release)
            if self._last is None:  # with a horizon, it was told when the stream was made
                found += delta_warnings(release.guarantee, self._now.t)
            warn(found)

    @exclusive
    def adopt(self, source: RowSource) -> None:
        """Take feature names and public bounds over from a source, where the stream has none."""
        now = self._now
        admission = now.admission
        if source.bounds is not None and now.processor is None:
            admission = admission.with_bounds(source.bounds)
        if source.features and admission.features is None:
            admission = admission.fixed(source.features)
        self._commit(now, now._replace(admission=admission))

    def leaves(self) -> BlockCutter:
        """What other processes need to cut rows into blocks for this stream. Public settings only.

        Raises
        ------
        BadParameterError
            If the features are not known yet, or the algorithm needs rows.
        """
        return BlockCutter.of(self._now.admission, self._algorithm)

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
        """State of the algorithm after the rows absorbed: an immutable value. Curator only.

        Raises
        ------
        BadParameterError
            Before the number of features is known.
        """
        processor = self._now.processor
        if processor is None:
            admission = self._now.admission
            if admission.admitted_features is None:
                raise BadParameterError("the number of features is not known yet; push a row, or give n_features=")
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
    def row_admission(self) -> Admission:
        """How rows are admitted: the settings."""
        return self._now.admission

    @property
    def warmup_left(self) -> int:
        """Rows that are still to serve for private bounds alone."""
        admission, t = self._now.admission, self._now.t
        return admission.warmup - t if admission.is_warming_up and admission.n_features is not None else 0

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
        """The guarantee of all releases of this stream together."""
        return self._promised(self._now.admission)

    def _promised(self, admission: Admission) -> Guarantee:
        algorithm, d = self._algorithm, admission.n_features
        promised = algorithm.guarantee if d is None else algorithm.guarantee_for(d)
        if isinstance(admission.bounds, PrivateBounds):
            rows = "rows" if admission.n_features is None else f"{admission.warmup} rows"
            promised = replace(
                promised,
                scope=f"{promised.scope}, and bounds of the columns from the first {rows}, which enter nothing else",
                theorem=f"{promised.theorem}; parallel composition over disjoint rows",
            )
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
            raise BadParameterError("this stream keeps no regret; leave out regret=None")
        return Regret(self._regret_log, self._moment)

    @property
    def publishes_regret(self) -> bool:
        """True if the algorithm releases rewards, so that there is a `private_regret`."""
        return self._private_log is not None

    @property
    def private_regret(self) -> LivePrivateRegret:
        """The publishable regret: intervals, under the guarantee of the releases."""
        config = self._private_log
        if config is None:
            raise BadParameterError("this stream releases no rewards; use PrivateFPL(..., publish_regret=True)")
        return LivePrivateRegret(config, lambda: self._committed().private or config.start())

    @property
    def admission(self) -> AdmissionReport:
        """What admission did to the rows so far: scaled, clamped, zeroed. Curator only: it depends on raw rows."""
        now, waiting = self._seen()
        counts, rows = now.counts, now.t
        if waiting is not None:
            admitted, further = waiting
            counts, rows = counts.plus(further), rows + len(admitted)
        return AdmissionReport.of(now.admission, counts, rows)

    @property
    def admitted(self) -> AdmissionReport:
        """`admission`. Curator only."""
        return self.admission

    @property
    def bad_rows(self) -> int:
        """Rows absorbed as zero rows because they were bad. Curator only: it depends on raw rows."""
        now, waiting = self._seen()
        return now.counts.bad + (0 if waiting is None else waiting[1].bad)

    def watch(self, rows: Any = None, *, every: float = 1.0, total: int | None = None, public: bool = False) -> Any:
        """A live card in a notebook: ``with stream.watch():``, or ``for step in stream.watch(rows):``.

        Parameters
        ----------
        rows, every, total, public : see `streampca.views.notebook.Watch`. Unless ``public``, the card is curator only.
        """
        return render("watch", self, rows, every=every, total=total, public=public)

    def _repr_html_(self) -> str | None:
        """The card of the stream so far, for notebooks. Curator only: it shows the exact regret."""
        shown: str | None = render("stream", self)
        return shown

    def __repr__(self) -> str:
        return f"<Stream of {self._algorithm!r}, {self.t} rows seen: {self.guarantee}>"

    def _committed(self) -> _Now:
        """The state, once the latest release is durable."""
        if self._lost:
            raise StoreLockedError(self._lost)
        now = self._now
        if self._log is not None and now.release is not None:
            self._log.hold(now.release.t)
        return now

    def _played(self, now: _Now) -> Subspace:
        if now.release is not None:
            return now.release.subspace
        if now.admission.n_features is None:
            raise BadParameterError("the number of features is not known yet; push a row, or give n_features=")
        return Subspace.first_axes(now.admission.n_features, self._algorithm.n_components)

    def _moment(self) -> Moment | None:
        """What the regret of all rows is computed from, those that wait included; None before the first."""
        self._committed()
        now, waiting = self._seen()
        processor, sums, gram = now.processor, now.regret, None
        if processor is None or sums is None or (now.t == 0 and waiting is None):
            return None
        if waiting is not None:
            gram = GramSum.of(waiting[0]) if sums.own is None else None
            sums = sums.observe(waiting[0], _scoring(now), processor.n_components)[0]
        return Moment(sums, processor, self._played(now), now.unit, gram)

    def _seen(self) -> tuple[_Now, tuple[FloatArray, Counts] | None]:
        """The state, and the single rows after it that are not absorbed yet: admitted, with what was done to them."""
        while True:
            # In this order, and once more if the state was replaced: a nested call or another thread may push.
            now, count, waiting = self._now, self._taken - self._now.t, self._waiting
            if now is self._now:
                break
        if waiting is None or count <= 0:
            return now, None
        admitted, marks = now.admission.block(waiting.rows[:count], now.t + 1)
        return now, (admitted, marks.counts())

    # -- how rows are absorbed ------------------------------------------------------

    def _ready(self) -> bool:
        """Raise if no row may be taken; return whether a commit is overdue."""
        if self._lost:
            raise StoreLockedError(self._lost)
        overdue = self._log is not None and self._log.check()
        if self._generation is not None:
            self._go_on_as_copy(self._generation)
        self._checked = self._log is not None
        return overdue

    def _ready_for_many(self) -> _Now:
        """`_ready`, and absorb the single rows that wait."""
        self._ready()
        return self._all_absorbed()

    def _all_absorbed(self) -> _Now:
        """Absorb the single rows that wait; return the state after them."""
        now, waiting = self._seen()
        return now if waiting is None else self._absorb(now, *waiting)[0]

    def _processor(
        self, admission: Admission, start: bytes | None = None, snapshot: dict[str, Any] | None = None
    ) -> Processor:
        """The processor before the first row, or that of a snapshot. Checks that the algorithm fits."""
        setting = Setting(self._terms(admission), admission.settings)
        if start is None and not self._randomness.is_seeded:
            start = self.start_id
        d = admission.admitted_features or 0
        return self._algorithm.start(d, self._randomness, setting, start=start, snapshot=snapshot)

    def _terms(self, admission: Admission) -> Terms:
        names = admission.features
        return Terms(self._promised(admission), admission.row_norm, names, *admission.ranges(), admission.warmup)

    def _begun(self, admission: Admission, row: Any, count: int) -> _Now:
        """Check, pay, start: the state with its features fixed, after the first rows were found good."""
        if row is not None:
            admission.values(row, 1)
        with OneThread():
            processor = self._processor(admission)
        processor.check_horizon(count)
        return self._paid(self._first(admission, processor))

    def _paid(self, now: _Now) -> _Now:
        """Pay, and start from the state before the first row."""
        before, algorithm, d = self._now, self._algorithm, now.admission.n_features
        warn([*dimension_warnings(algorithm.n_components, d), *memory_warnings(algorithm.square_bytes, d)])
        if self._account is not None:
            self._account.debit(self._promised(now.admission), self.start_id)
        return self._commit(before, now)

    def _first(self, admission: Admission, processor: Processor) -> _Now:
        """The state before the first row."""
        sums = None if self._regret_log is None else self._regret_log.start(processor)
        private = None if self._private_log is None else self._private_log.start()
        return self._started(_before(admission), processor, None, sums, private)

    def _started(
        self, before: _Now, processor: Processor, release: Release | None,
        sums: RegretSums | None, private: PrivateRegretRecords | None,
    ) -> _Now:  # fmt: skip
        """A state with a processor, and with what follows from the latest release."""
        now = before._replace(processor=processor, release=release, regret=sums, private=private)
        due, scoring = processor.rows_until_release, None
        if sums is not None:
            due = min(due, sums.rows_until_record)
            algorithm, d = processor.algorithm, processor.n_features
            scoring = (
                Scoring.first(d, algorithm.n_components, center=algorithm.center)
                if release is None
                else Scoring.of_release(release)
            )
        if now.admission.is_warming_up:
            due = min(due, now.admission.warmup - now.t)
        return now._replace(due=due, scoring=scoring)

    def _opened(self, now: _Now) -> Waiting:
        """Room for single rows up to the next release or record."""
        if now.due == 0:
            _running(now).check_horizon(1)
        room = min(now.due, _WAITING_ROWS)
        if self._log is not None and (uncommitted := self._log.room) is not None:
            room = min(room, uncommitted)
        self._waiting = Waiting(now.t, now.admission, now.scoring, now.unit, room)
        return self._waiting

    def _absorb_all(
        self, values: FloatArray, position: Callable[[int], Position] | None = None
    ) -> Iterator[tuple[_Now, Release | None, FloatArray]]:
        """Admit and absorb checked rows, up to each release, record and end of what fits the cache."""
        now, most, start = self._now, max(1, _BLOCK_NUMBERS // values.shape[1]), 0
        while start < len(values):
            size = min(most, now.due) if now.due * values.shape[1] >= _WORTH else most
            batch = values[start : start + (min(size, self.warmup_left) or size)]
            admitted, marks = now.admission.block(batch, now.t + 1)
            start, place = start + len(batch), 0
            while place < len(batch):
                count = min(now.due, len(batch) - place)
                stop = place + count
                at = None if position is None or self._log is None else position(start - len(batch) + stop)
                now, release, rewards = self._absorb(now, admitted[place:stop], marks.counts(place, stop), position=at)
                yield now, release, rewards
                place = stop

    def _absorb(
        self, now: _Now, admitted: FloatArray, counts: Counts, recorded: Sequence[bytes] | None = None,
        position: Position | None = None,
    ) -> tuple[_Now, Release | None, FloatArray]:  # fmt: skip
        """Score, absorb, release, log and commit rows; return the state after them, the release and the rewards.

        Rewards are in units of row_norm**2 = 1.
        """
        before, processor, sums, count = now, now.processor or _running(now), now.regret, len(admitted)
        if sums is None or now.scoring is None:
            rewards = no_rewards(count)
        else:
            sums, rewards = sums.observe(admitted, now.scoring, processor.algorithm.n_components)
        outlet = Outlet(processor.source, processor.chain, recorded)
        after, release = processor.step(admitted, outlet)
        if now.admission.is_warming_up:
            now, after, release = self._warmed_up(now, count, counts, after, outlet)
        following = self._following(now, count, counts, after, release, sums)
        if self._log is None and self._now is before:
            now = self._now = following  # as `_commit` does, which would be 1 of 25 calls a row
        else:
            entry = Entry(now.t + 1, count, admitted, None, counts, position=position)
            now = self._commit(before, following, entry, outlet)
        return now, None if release is None else now.release, rewards

    def _warmed_up(
        self, now: _Now, count: int, counts: Counts, after: Processor, outlet: Outlet
    ) -> tuple[_Now, Processor, None]:
        """Find the bounds if these rows end the warm-up. No release is made of its rows."""
        admission = now.admission
        if isinstance(admission.bounds, PrivateBounds) and now.t + count == admission.warmup:
            bins = np.concatenate(now.counts.plus(counts).votes)
            admission = replace(admission, found=admission.bounds.found(bins, outlet))
            after = after.after(after.t, outlet.chain, terms=self._terms(admission))
            now = now._replace(admission=admission)
        return now, after, None

    def _absorb_block(
        self, now: _Now, block: BlockGram, recorded: Sequence[bytes] | None = None, position: Position | None = None
    ) -> BlockStep:
        """Score, absorb, release, log and commit a block."""
        processor = _running(now)
        outlet = processor.outlet(recorded)
        after, release = processor.absorb_gram(block.count, block.high, block.low, outlet)
        reward, sums = float("nan"), None
        if now.regret is not None:
            reward = block.rewards(_scoring(now))
            gram = GramSum(processor.n_features).add_high_low(block.high, block.low)
            sums = now.regret.observe_block(block.count, gram, reward, processor.n_components)
        entry = Entry(now.t + 1, block.count, None, block, block.counts, position=position)
        now = self._commit(now, self._following(now, block.count, block.counts, after, release, sums), entry, outlet)
        return BlockStep(now.t, block.count, reward * now.unit, None if release is None else now.release, self._log)

    def _commit(self, before: _Now, after: _Now, entry: Entry | None = None, outlet: Outlet | None = None) -> _Now:
        """Log the entry that leads from one state to another, and replace the state, by one assignment.

        The busy mark excludes nested calls. This second check excludes what no mark can: the child of a fork, where
        the outer call continues as a copy that has not paid yet.
        """
        if self._now is not before:
            raise StreamBusyError("the stream changed while rows were absorbed, by a fork. Push the rows again")
        log = self._log
        if log is None or entry is None or outlet is None:
            self._now = after
            return after
        release = after.release if after.release is not before.release else None
        log.append(entry._replace(fresh=tuple(outlet.fresh), link=outlet.chain.link, release=release))
        self._now = after
        log.appended()
        return after

    def _following(
        self, now: _Now, count: int, counts: Counts, after: Processor, release: Release | None, sums: RegretSums | None
    ) -> _Now:
        """The state after some rows."""
        t, admission, _, latest, _, private, scoring, before, _, unit, entries = now
        if release is not None:
            latest = release
            if private is not None:
                private = private.observe(release)
            if admission.center and scoring is not None:
                scoring = Scoring.of_release(release)
            elif scoring is not None:  # the same, with fewer calls
                span = release.subspace.basis if release.own_span is None else release.own_span
                scoring = _new(Scoring, (scoring_basis(span), None))
        due = after.rows_until_release
        if sums is not None:
            if count and sums.t >= sums.next:
                sums = sums.recorded(after, latest.subspace if latest is not None else self._played(now), unit)
            due = min(due, sums.rows_until_record)
        if counts.zeroed is NO_COUNTS.zeroed and counts.clamped is None and not counts.votes:
            zeroed, scaled, clamped, squares, *further = before  # most rows: `Counts.plus` without a call
            counts = _new(Counts, (zeroed, scaled + counts.scaled, clamped, squares + counts.squares, *further))
        else:
            counts = before.plus(counts)
            if not admission.is_warming_up:
                counts = counts._replace(votes=())
        if admission.is_warming_up:
            due = min(due, admission.warmup - t - count)
        values = (t + count, admission, after, latest, sums, private, scoring, counts, due, unit, entries + 1)
        return _new(_Now, values)

    # -- copies, snapshots and replay -----------------------------------------------

    @exclusive
    def state(self) -> dict[str, Any]:
        """The state as plain values and arrays. As secret as the rows, and the key with it.

        Single rows that wait are absorbed first. Arrays are not to be written to.
        """
        self._all_absorbed()
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
            "found": None if now.admission.found is None else list(now.admission.found),
            "start": None if now.processor is None else now.processor.source.start.hex(),
            "processor": None if now.processor is None else now.processor.snapshot(),
            "counts": now.counts.plain(),
            "release": None if now.release is None else now.release.t,
            "regret": None if sums is None else sums.snapshot(),
            "private_regret": None if private is None else private.snapshot(),
        }

    @property
    def entries(self) -> int:
        """How many entries of a commit log led to this state. It takes no lock."""
        return self._now.entries

    @exclusive
    def absorb_waiting(self, then: Callable[[], object] | None = None) -> None:
        """Absorb the single rows that wait. What a stream releases does not depend on when.

        Parameters
        ----------
        then : called before another row can be absorbed.
        """
        self._all_absorbed()
        if then is not None:
            then()

    @exclusive
    def restore(self, state: dict[str, Any], release: Release | None, *, copied: bool = True) -> None:
        """Set a stream that has seen no row to the `state` of one of the same parameters and key.

        Parameters
        ----------
        state : from `state`.
        release : its latest release.
        copied : go on as another run: with noise of its own, which a ledger pays for. False only
            where it is known that nothing else goes on from this state.

        Raises
        ------
        BadParameterError
            If this stream has seen a row, or the state is of other parameters.
        """
        if self._now.processor is not None or self._taken:
            raise BadParameterError("a state can be restored only into a stream that has seen no row")
        names = state["features"]
        admission = self._now.admission.fixed(None if names is None else tuple(names), state["n_features"])
        if state["processor"] is None:
            self._now = self._now._replace(admission=admission)
            return
        if state["found"] is not None:
            admission = replace(admission, found=tuple(state["found"]))
        processor = self._processor(admission, bytes.fromhex(state["start"]), state["processor"])
        log, private = self._regret_log, self._private_log
        sums = None if log is None else log.resume(state["regret"], processor)
        records = None if private is None else private.resume(state["private_regret"], release)
        before = _before(admission)._replace(t=int(state["t"]), counts=Counts.of_plain(state["counts"]))
        self._now = self._started(before, processor, release, sums, records)
        if copied:
            self._mark_copied()

    @exclusive
    def replay(self, entry: Entry) -> list[Release]:
        """Absorb an entry of a commit log again, with the fresh bytes of its noise; return its releases.

        An entry of rows may hold those of several releases.
        """
        now = self._now
        if now.processor is None:
            now = self._commit(now, self._first(now.admission, self._processor(now.admission)))
        if entry.block is not None:
            self._absorb_block(now, entry.block, entry.fresh)
        elif entry.kind == "rows":
            return self._replay_rows(entry)
        else:
            outlet, processor = _running(now).outlet(entry.fresh), _running(now)
            finish = entry.kind == "finish"
            after, made = processor.finish(outlet) if finish else (_regenerated(processor, outlet), None)
            self._commit(now, self._following(now, 0, NO_COUNTS, after, made, now.regret), entry, outlet)
        release = self._now.release
        return [] if release is None or release is now.release else [release]

    def _replay_rows(self, entry: Entry) -> list[Release]:
        rows, used, counts, place = entry.rows, 0, entry.counts, 0
        releases = []
        while rows is not None and place < len(rows):
            now = self._now
            count = min(now.due, len(rows) - place)
            following, release, _ = self._absorb(now, rows[place : place + count], counts, entry.fresh[used:])
            if release is not None:
                releases.append(release)
            used += _running(following).chain.n - _running(now).chain.n
            place, counts = place + count, NO_COUNTS
        return releases

    @exclusive
    def attach(self, log: CommitLog, account: Account | None, *, copied: bool) -> None:
        """Keep a commit log, and an account that pays, from here on. Called by a store once it has replayed its run."""
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
            entry = Entry(now.t + 1, 0, None, None, kind="generation")
            self._commit(now, self._following(now, 0, NO_COUNTS, after, None, now.regret), entry, outlet)
        self._generation = None

    def after_fork(self) -> None:
        """Go on in the child of a fork: as another run, or not at all if durable."""
        self._checked = True
        self._now = self._now._replace()  # another object: a call under way here cannot commit
        if self._log is not None:
            self._lost = (
                "this is a copy of a durable stream in a child process, and the parent process writes its store; "
                "use the stream in the process that made it"
            )
        else:
            self._mark_copied()

    @exclusive
    def __getstate__(self) -> dict[str, Any]:
        """Everything a copy needs. As secret as the rows."""
        if self._log is not None:
            raise BadParameterError(
                "a durable stream cannot be copied or pickled: it can go on from its store only; "
                "open it elsewhere with Stream.resume(store)"
            )
        now = self._all_absorbed()
        return {
            "parts": (
                self._algorithm, self._randomness, now.admission,
                self._regret_log, self._private_log, self._account,
            ),
            "state": self.committed_state(),
            "release": now.release,
        }  # fmt: skip

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self._assemble(*saved["parts"])
        self.restore(saved["state"], saved["release"])


def _before(admission: Admission) -> _Now:
    """The state of a stream that has not started."""
    return _Now(0, admission, None, None, None, None, None, NO_COUNTS, 0, admission.row_norm**2, 0)


def _running(now: _Now) -> Processor:
    if now.processor is None:
        raise BadParameterError("the stream has not started; push a row first")
    return now.processor


def _scoring(now: _Now) -> Scoring:
    if now.scoring is None:
        raise BadParameterError("this stream keeps no regret; leave out regret=None")
    return now.scoring


def _regenerated(processor: Processor, outlet: Outlet) -> Processor:
    """The same processor with 16 bytes of a new generation in its chain value."""
    outlet.hide("generation")
    return processor.after(processor.t, outlet.chain)
