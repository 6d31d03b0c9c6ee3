"""State of a stream, and its transitions.

All that changes is one immutable value, `State`. Some rows, or a block, are absorbed by computing the next value and
assigning it: an exception in between, in any thread, leaves the stream before them or after them. Every method that
changes the state is `exclusive`, and calls no other such method. Reading takes no lock.

Stores, the command line and adapters are given the `Engine` of a `Stream`; `streampca.stream.replay` saves, restores
and replays its state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from streampca.errors import BadParameterError, StoreLockedError, StreamBusyError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg.lattice import GramSum
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Account, Guarantee
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import NAME_BYTES, Randomness
from streampca.processors.base import Algorithm, Processor, Setting
from streampca.regret.private_regret import PrivateRegret, PrivateRegretRecords
from streampca.regret.regret import Moment, RegretLog, RegretSums
from streampca.release.release import Release, Scoring, Subspace, Terms, scoring_basis
from streampca.rows.admission import NO_COUNTS, Admission, Counts
from streampca.rows.advice import delta_warnings, dimension_warnings, memory_warnings, release_warnings, warn
from streampca.rows.bounds import PrivateBounds
from streampca.rows.protocol import Position, RowSource
from streampca.stream.blocks import BlockGram, CommitLog, Entry
from streampca.stream.step import BlockStep, Step, Steps, Waiting, WaitingStep, no_rewards, step_of

#: Most single rows that wait to be absorbed together.
_WAITING_ROWS = 256
#: Most numbers of a block that are admitted at a time, and how many are worth being admitted by themselves.
_BLOCK_NUMBERS, _WORTH = 2**17, 2**14

#: Makes a named tuple without a Python call.
_new = tuple.__new__


class State(NamedTuple):
    """State of a stream. Never changed; replaced as a whole.

    ``due`` rows may be absorbed together, up to the next release or record. ``unit`` is row_norm**2.
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

    @classmethod
    def first(cls, admission: Admission) -> State:
        """The state of a stream that has not started."""
        return cls(0, admission, None, None, None, None, None, NO_COUNTS, 0, admission.row_norm**2, 0)


class Engine:
    """The state of one stream, with all that changes it. As secret as the rows.

    Attributes
    ----------
    algorithm, regret_log, private_log : public parameters of the stream; None where no regret is kept.
    randomness : the master key.
    account : the account that pays; None for none.
    log : commit log of a durable stream.
    now : the state of the rows absorbed.
    guard : lock and busy mark of the methods that change the state.
    start_id : 16 bytes that name this start of a run: a ledger is debited once for them.
    """

    log: CommitLog | None

    def __init__(
        self, algorithm: Algorithm, randomness: Randomness, admission: Admission,
        regret_log: RegretLog | None, private_log: PrivateRegret | None, account: Account | None,
    ) -> None:  # fmt: skip
        self.algorithm, self.randomness = algorithm, randomness
        self.regret_log, self.private_log = regret_log, private_log
        self.account = account
        self.log = None
        self.now = State.first(admission)
        self.taken = 0  # rows taken, those that wait included; `now.t` if that is more
        self._waiting: Waiting | None = None
        self._generation: bytes | None = None  # set: this is a copy that has not gone on yet
        self._lost = ""  # set: why no more rows may be taken
        self.last_row: int | None = getattr(algorithm, "horizon", None)  # the row after which the release is the last
        self.checked = False  # set: `_ready` has something to look at before rows are taken
        self.guard = Guard("stream")
        self.start_id = os.urandom(NAME_BYTES)
        tell_of_forks(self)

    # -- feeding rows ---------------------------------------------------------------

    def push(self, row: Any) -> Step:
        """Feed one row; see `Stream.push`."""
        guard = self.guard
        if guard.helper and guard.helper == get_ident():
            guard.refuse()
        with guard.lock:  # as `exclusive` does, which would be 1 of 25 calls a row
            if guard.is_busy:
                guard.refuse()
            try:
                try:
                    guard.is_busy = True
                    now, overdue = self.now, False
                    if self.checked:
                        overdue = self._ready()
                        now = self.now
                    if now.processor is None:
                        now = self._begun(now.admission.fixed_by(row), row, 1)
                    t = max(now.t, self.taken)
                    place, waiting = t - now.t, self._waiting
                    if place == 0:
                        if now.due == 1:  # one row completes what may be absorbed together
                            admitted, counts = now.admission.row(row, t + 1)
                            now, release, rewards = self.absorb(now, admitted, counts)
                            if t + 1 == self.last_row:
                                self.warn_of_release()
                            if self.log is not None:
                                return step_of(t + 1, release, float(rewards[0]) * now.unit, self.log)
                            step = Step.__new__(Step)  # this runs once a row: no call of __init__
                            step.t, step.release, step.reward = t + 1, release, float(rewards[0]) * now.unit
                            return step
                        waiting = None
                    waiting = waiting or self._opened(now)
                    waiting.rows[place] = now.admission.values(row, t + 1)
                    if place + 1 < len(waiting.rows) and not overdue:
                        self.taken = t + 1
                        return WaitingStep(t + 1, waiting, place)
                    admitted, marks = now.admission.block(waiting.rows[: place + 1], now.t + 1)
                    now, release, rewards = self.absorb(now, admitted, marks.counts())
                    if now.t == self.last_row:
                        self.warn_of_release()
                    return step_of(t + 1, release, float(rewards[-1]) * now.unit, self.log)
                finally:
                    guard.is_busy = False
            finally:
                guard.is_busy = False

    @exclusive
    def push_many(self, rows: Any, position: Callable[[int], Position] | None = None) -> Steps:
        """Feed rows that `conversion.as_block` returned; see `Stream.push_many`.

        ``position`` returns the position of their source after the first m of them. A durable stream keeps it in the
        transaction of the rows.
        """
        self._ready()
        now = self.all_absorbed()
        admission = now.admission
        if now.processor is None:
            admission = admission.fixed_by_block(rows)
        if not len(rows):
            return Steps(now.t + 1, no_rewards(0), [], self.log)
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
        if self.now.t == self.last_row:
            self.warn_of_release()
        return Steps(first, np.concatenate(rewards) * now.unit, releases, self.log)

    @exclusive
    def push_block(self, block: BlockGram, *, position: Position | None = None) -> BlockStep:
        """Feed a block, after which its source is at ``position``; see `Stream.push_block`."""
        self.algorithm.check_blocks()
        if not isinstance(block, BlockGram):
            raise BadParameterError(
                f"a {type(block).__name__} given; push_block takes a BlockGram, push_many takes rows"
            )
        self._ready()
        now = self.all_absorbed()
        admission = now.admission
        if admission.is_warming_up:
            raise BadParameterError("private bounds are not found yet; push the rows of the warm-up as rows")
        if admission.n_features is None:
            admission = admission.fixed(None, block.n_features - int(admission.center))
        block.check(admission, now.t + 1)
        begins = now.processor is None
        if begins:  # not kept, and not paid for, before the block is found good
            now = self.first(admission, self.new_processor(admission))
        running(now).check_room(block.count)
        if now.regret is not None:
            now.regret.check_block(block.count)
        if begins:
            now = self._paid(now)
        with OneThread(block.n_features, least=1):
            step = self.absorb_block(now, block, position=position)
        if step.t == self.last_row:
            self.warn_of_release()
        return step

    @exclusive
    def finish(self) -> Release | None:
        """End the stream; see `Stream.finish`."""
        self._ready()
        now = self.all_absorbed()
        if now.processor is None:
            return None
        outlet = now.processor.outlet()
        after, release = now.processor.finish(outlet)
        self._waiting = None
        entry = Entry(now.t + 1, 0, None, None, kind="finish")
        self.commit(now, self.following(now, 0, NO_COUNTS, after, release, now.regret), entry, outlet)
        return None if release is None else self.committed().release

    @exclusive
    def adopt(self, source: RowSource) -> None:
        """Take feature names and public bounds over from a source, where the stream has none."""
        now = self.now
        admission = now.admission
        if source.bounds is not None and now.processor is None:
            admission = admission.with_bounds(source.bounds)
        if source.features and admission.features is None:
            admission = admission.fixed(source.features)
        self.commit(now, now._replace(admission=admission))

    @exclusive
    def absorb_waiting(self, then: Callable[[], object] | None = None) -> None:
        """Absorb the single rows that wait. What a stream releases does not depend on when.

        Parameters
        ----------
        then : called before another row can be absorbed.
        """
        self.all_absorbed()
        if then is not None:
            then()

    def position_in(self, source: str, *, new_source: bool = False) -> Any:
        """Where the source of a name continues, by the rows that a durable stream took; None for its start."""
        if self.log is None or self.t == 0:
            return None
        self.absorb_waiting()  # rows pushed by hand: the position after them is not known
        found = self.log.position
        if found is None or found.source != source:
            if new_source:
                return None
            origin = "otherwise" if found is None else f"from {found.source}"
            raise BadParameterError(
                f"the rows before came {origin}, this is {source}; "
                "give the source of the run, or say that all rows of this one are new: new_source=True (--continues)"
            )
        return found.at

    @property
    def t(self) -> int:
        """Rows seen."""
        return max(self.now.t, self.taken)

    @property
    def processor(self) -> Processor:
        """State of the algorithm after the rows absorbed: an immutable value. Curator only.

        Raises
        ------
        BadParameterError
            Before the number of features is known.
        """
        processor = self.now.processor
        if processor is None:
            admission = self.now.admission
            if admission.admitted_features is None:
                raise BadParameterError("the number of features is not known yet; push a row, or give n_features=")
            processor = self.new_processor(admission)
        return processor

    @property
    def warmup_left(self) -> int:
        """Number of rows that are still needed for private bounds."""
        admission, t = self.now.admission, self.now.t
        return admission.warmup - t if admission.is_warming_up and admission.n_features is not None else 0

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases of the stream together."""
        return self.promised(self.now.admission)

    def promised(self, admission: Admission) -> Guarantee:
        """The guarantee of all releases together, under these settings of admission."""
        algorithm, d = self.algorithm, admission.n_features
        promised = algorithm.guarantee if d is None else algorithm.guarantee_for(d)
        if isinstance(admission.bounds, PrivateBounds):
            rows = "rows" if admission.n_features is None else f"{admission.warmup} rows"
            promised = replace(
                promised,
                scope=f"{promised.scope}, and bounds of the columns from the first {rows}, which enter nothing else",
                theorem=f"{promised.theorem}; parallel composition over disjoint rows",
            )
        return promised.seeded() if self.randomness.is_seeded else promised

    def committed(self) -> State:
        """The state, once the latest release is durable."""
        if self._lost:
            raise StoreLockedError(self._lost)
        now = self.now
        if self.log is not None and now.release is not None:
            self.log.hold(now.release.t)
        return now

    @property
    def subspace(self) -> Subspace:
        """The subspace in play."""
        return self.played(self.committed())

    def played(self, now: State) -> Subspace:
        """The subspace in play at a state: of its release, or the first coordinate axes before any."""
        if now.release is not None:
            return now.release.subspace
        if now.admission.n_features is None:
            raise BadParameterError("the number of features is not known yet; push a row, or give n_features=")
        return Subspace.first_axes(now.admission.n_features, self.algorithm.n_components)

    def moment(self) -> Moment | None:
        """Data of the regret of all rows, those that wait included; None before the first."""
        self.committed()
        now, waiting = self.seen()
        processor, sums, gram = now.processor, now.regret, None
        if processor is None or sums is None or now.scoring is None or (now.t == 0 and waiting is None):
            return None
        if waiting is not None:
            gram = GramSum.of(waiting[0]) if sums.own is None else None
            sums = sums.observe(waiting[0], now.scoring, processor.n_components)[0]
        return Moment(sums, processor, self.played(now), now.unit, gram)

    def seen(self) -> tuple[State, tuple[FloatArray, Counts] | None]:
        """The state, and the single rows after it that are not absorbed yet: admitted, with what was done to them."""
        while True:
            # In this order, and once more if the state was replaced: a nested call or another thread may push.
            now, count, waiting = self.now, self.taken - self.now.t, self._waiting
            if now is self.now:
                break
        if waiting is None or count <= 0:
            return now, None
        admitted, marks = now.admission.block(waiting.rows[:count], now.t + 1)
        return now, (admitted, marks.counts())

    def _ready(self) -> bool:
        """Raise if no row may be taken; return whether a commit is overdue."""
        if self._lost:
            raise StoreLockedError(self._lost)
        overdue = self.log is not None and self.log.check()
        if (generation := self._generation) is not None:
            # Pay as another run, and chain the 16 bytes of this generation into the noise to come.
            now = self.now  # before `debit`, which may fork: then the commit below is refused
            if self.account is not None:
                self.account.debit(self.guarantee, generation)
            if not self.randomness.is_seeded:
                outlet = running(now).outlet([generation])
                after = regenerated(running(now), outlet)
                entry = Entry(now.t + 1, 0, None, None, kind="generation")
                self.commit(now, self.following(now, 0, NO_COUNTS, after, None, now.regret), entry, outlet)
            self._generation = None
        self.checked = self.log is not None
        return overdue

    def all_absorbed(self) -> State:
        """Absorb the single rows that wait; return the state after them."""
        now, waiting = self.seen()
        return now if waiting is None else self.absorb(now, *waiting)[0]

    def new_processor(
        self, admission: Admission, start: bytes | None = None, snapshot: dict[str, Any] | None = None
    ) -> Processor:
        """The processor before the first row, or that of a snapshot. Checks that the algorithm fits."""
        setting = Setting(self._terms(admission), admission.settings)
        if start is None and not self.randomness.is_seeded:
            start = self.start_id
        d = admission.admitted_features or 0
        return self.algorithm.start(d, self.randomness, setting, start=start, snapshot=snapshot)

    def _terms(self, admission: Admission) -> Terms:
        names = admission.features
        return Terms(self.promised(admission), admission.row_norm, names, *admission.ranges(), admission.warmup)

    def _begun(self, admission: Admission, row: Any, count: int) -> State:
        """Check, pay, start: the state with its features fixed, after the first rows were found good."""
        if row is not None:
            admission.values(row, 1)
        with OneThread():
            processor = self.new_processor(admission)
        processor.check_horizon(count)
        return self._paid(self.first(admission, processor))

    def _paid(self, now: State) -> State:
        """Pay, and start from the state before the first row."""
        before, algorithm, d = self.now, self.algorithm, now.admission.n_features
        warn([*dimension_warnings(algorithm.n_components, d), *memory_warnings(algorithm.square_bytes, d)])
        if self.account is not None:
            self.account.debit(self.promised(now.admission), self.start_id)
        return self.commit(before, now)

    def first(self, admission: Admission, processor: Processor) -> State:
        """The state before the first row."""
        sums = None if self.regret_log is None else self.regret_log.start(processor)
        private = None if self.private_log is None else self.private_log.start()
        return self.started(State.first(admission), processor, None, sums, private)

    def started(
        self, before: State, processor: Processor, release: Release | None,
        sums: RegretSums | None, private: PrivateRegretRecords | None,
    ) -> State:  # fmt: skip
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

    def _opened(self, now: State) -> Waiting:
        """Room for single rows up to the next release or record."""
        if now.due == 0:
            running(now).check_horizon(1)
        room = min(now.due, _WAITING_ROWS)
        if self.log is not None and (uncommitted := self.log.room) is not None:
            room = min(room, uncommitted)
        self._waiting = Waiting(now.t, now.admission, now.scoring, now.unit, room)
        return self._waiting

    def _absorb_all(
        self, values: FloatArray, position: Callable[[int], Position] | None = None
    ) -> Iterator[tuple[State, Release | None, FloatArray]]:
        """Admit and absorb checked rows, up to each release, record and end of what fits the cache."""
        now, most, start = self.now, max(1, _BLOCK_NUMBERS // values.shape[1]), 0
        while start < len(values):
            size = min(most, now.due) if now.due * values.shape[1] >= _WORTH else most
            batch = values[start : start + (min(size, self.warmup_left) or size)]
            admitted, marks = now.admission.block(batch, now.t + 1)
            start, place = start + len(batch), 0
            while place < len(batch):
                count = min(now.due, len(batch) - place)
                stop = place + count
                at = None if position is None or self.log is None else position(start - len(batch) + stop)
                now, release, rewards = self.absorb(now, admitted[place:stop], marks.counts(place, stop), position=at)
                yield now, release, rewards
                place = stop

    def absorb(
        self, now: State, admitted: FloatArray, counts: Counts, recorded: Sequence[bytes] | None = None,
        position: Position | None = None,
    ) -> tuple[State, Release | None, FloatArray]:  # fmt: skip
        """Score, absorb, release, log and commit rows; return the state after them, the release and the rewards.

        Rewards are in units of row_norm**2 = 1.
        """
        before, processor, sums, count = now, now.processor or running(now), now.regret, len(admitted)
        if sums is None or now.scoring is None:
            rewards = no_rewards(count)
        else:
            sums, rewards = sums.observe(admitted, now.scoring, processor.algorithm.n_components)
        outlet = Outlet(processor.source, processor.chain, recorded)
        after, release = processor.step(admitted, outlet)
        admission = now.admission
        if admission.is_warming_up:  # no release is made of these rows
            release = None
            if isinstance(admission.bounds, PrivateBounds) and now.t + count == admission.warmup:
                bins = np.concatenate(now.counts.plus(counts).votes)
                admission = replace(admission, found=admission.bounds.found(bins, outlet))
                after = after.after(after.t, outlet.chain, terms=self._terms(admission))
                now = now._replace(admission=admission)
        following = self.following(now, count, counts, after, release, sums)
        if self.log is None and self.now is before:
            now = self.now = following  # as `_commit` does, which would be 1 of 25 calls a row
        else:
            entry = Entry(now.t + 1, count, admitted, None, counts, position=position)
            now = self.commit(before, following, entry, outlet)
        return now, None if release is None else now.release, rewards

    def absorb_block(
        self, now: State, block: BlockGram, recorded: Sequence[bytes] | None = None, position: Position | None = None
    ) -> BlockStep:
        """Score, absorb, release, log and commit a block."""
        processor = running(now)
        outlet = processor.outlet(recorded)
        after, release = processor.absorb_gram(block.count, block.high, block.low, outlet)
        reward, sums = float("nan"), None
        if now.regret is not None and now.scoring is not None:
            reward = block.rewards(now.scoring)
            gram = GramSum(processor.n_features).add_high_low(block.high, block.low)
            sums = now.regret.observe_block(block.count, gram, reward, processor.n_components)
        entry = Entry(now.t + 1, block.count, None, block, block.counts, position=position)
        now = self.commit(now, self.following(now, block.count, block.counts, after, release, sums), entry, outlet)
        return BlockStep(now.t, block.count, reward * now.unit, None if release is None else now.release, self.log)

    def commit(self, before: State, after: State, entry: Entry | None = None, outlet: Outlet | None = None) -> State:
        """Log the entry that leads from one state to another, and replace the state, by one assignment.

        The busy mark excludes nested calls. This second check excludes what no mark can: the child of a fork, where
        the outer call continues as a copy that has not paid yet.
        """
        if self.now is not before:
            raise StreamBusyError("the stream changed while rows were absorbed, by a fork. Push the rows again")
        log = self.log
        if log is None or entry is None or outlet is None:
            self.now = after
            return after
        release = after.release if after.release is not before.release else None
        log.append(entry._replace(fresh=tuple(outlet.fresh), link=outlet.chain.link, release=release))
        self.now = after
        log.appended()
        return after

    def following(
        self, now: State, count: int, counts: Counts, after: Processor, release: Release | None, sums: RegretSums | None
    ) -> State:
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
                sums = sums.recorded(after, latest.subspace if latest is not None else self.played(now), unit)
            # Without a window, `rows_until_record` without the call, which would be 1 of 25 a row.
            due = min(due, sums.next - sums.t if sums.log.window is None else sums.rows_until_record)
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
        return _new(State, values)

    def warn_of_release(self) -> None:
        """Warn of the latest release, and of rows too many for delta. The last thing that a method does."""
        release = self.now.release
        if release is not None:
            with OneThread(release.n_features):
                found = release_warnings(release)
            if self.last_row is None:  # with a horizon, the constructor warned
                found += delta_warnings(release.guarantee, self.now.t)
            warn(found)

    @exclusive
    def attach(self, log: CommitLog, account: Account | None, *, copied: bool) -> None:
        """Keep a commit log, and an account that pays, from here on. Called by a store, or for one."""
        self.checked = True
        self.log, self.account = log, account
        if copied:
            self.mark_copied()

    def mark_copied(self) -> None:
        """Continue as another run from the next change on."""
        self.checked = True
        if self.now.processor is None:
            self.start_id = os.urandom(NAME_BYTES)
        else:
            self._generation = os.urandom(NAME_BYTES)

    def after_fork(self) -> None:
        """Continue in the child of a fork as another run; a durable stream accepts no more rows there."""
        self.checked = True
        self.now = self.now._replace()  # another object: a call under way here cannot commit
        if self.log is not None:
            self._lost = (
                "this is a copy of a durable stream in a child process, and the parent process writes its store; "
                "use the stream in the process that made it"
            )
        else:
            self.mark_copied()


def running(now: State) -> Processor:
    """The processor of a stream that has started."""
    if now.processor is None:
        raise BadParameterError("the stream has not started; push a row first")
    return now.processor


def regenerated(processor: Processor, outlet: Outlet) -> Processor:
    """The same processor with 16 bytes of a new generation in its chain value."""
    outlet.hide("generation")
    return processor.after(processor.t, outlet.chain)
