"""State of a stream, and its transitions.

All that changes is one immutable value, `State`. Rows, or a block, are absorbed by computing the next value and
assigning it: an exception in between, in any thread, leaves the stream before them or after them. Every method that
changes the state is `exclusive`, and calls no other such method. Reading requires no lock.

Stores, the command line and adapters use the `Engine` of a `Stream`; `streampca.stream.replay` saves, restores and
replays its state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streampca import _native
from streampca.calendar import Calendar
from streampca.errors import BadParameterError, StoreLockedError, StreamBusyError, UsageError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg.lattice import GramSum
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Account, Guarantee
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import NAME_BYTES, Randomness
from streampca.privacy.unit import columns_of
from streampca.processors.base import Algorithm, Processor, Setting, run_name
from streampca.regret.private_regret import PrivateRegret
from streampca.regret.regret import Moment, RegretLog, RegretSums
from streampca.release.release import Release
from streampca.release.scoring import Scoring
from streampca.release.subspace import Subspace
from streampca.release.terms import Terms
from streampca.rows.admission import NO_COUNTS, Admission, Counts
from streampca.rows.advice import size_warnings, warn
from streampca.rows.bounds import PrivateBounds
from streampca.rows.owners import Names, check_features, named_values
from streampca.rows.people import People
from streampca.rows.protocol import Position, RowSource
from streampca.stream import lane as lanes
from streampca.stream.blocks import BlockGram, CommitLog, Entry
from streampca.stream.lane import Lane
from streampca.stream.step import State, Step, Steps, Waiting, WaitingStep, running, vectors_of

#: Maximum number of single rows that wait to be absorbed together.
_WAITING_ROWS = 256
#: Maximum number of entries of a block admitted in one call, which fit the cache. Rows up to a release are admitted in
#: a call of their own from the second number of entries on.
_BLOCK_NUMBERS, _OWN_CALL = 2**17, 2**14


class Engine:
    """State of one stream, with its transitions. As secret as the rows."""

    def __init__(
        self, algorithm: Algorithm, randomness: Randomness, admission: Admission,
        regret_log: RegretLog | None, private_log: PrivateRegret | None, account: Account | None,
        calendar: Calendar | None = None,
    ) -> None:  # fmt: skip
        self._algorithm, self.randomness, self.account = algorithm, randomness, account
        self.calendar = calendar  # its periods are the inputs (`streampca.stream.periods`); None for rows
        self.regret_log, self.private_log = regret_log, private_log
        self.budgets = algorithm.budgets(randomness.derived("people"))
        self.log: CommitLog | None = None
        self.lane: Lane | None = None
        self._has_lanes: bool | None = None  # unknown before the first release
        self._plan: Any = None  # constants of all lanes
        self.now = State(admission, admission.row_norm**2)
        self.taken = 0  # accepted rows, including waiting ones; `now.t` if that is more
        self._waiting: Waiting | None = None
        self._generation: bytes | None = None  # name of the next generation, if this is a copy before its first row
        self._lost = ""  # reason why no more rows are accepted
        self.checked = False  # whether `ready` must run before rows are accepted
        self.guard = Guard("stream")
        self.start_id = os.urandom(NAME_BYTES)  # names this start of a run, for which a ledger is debited once
        tell_of_forks(self)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, once the features are known with numbers for defaults that depend on them."""
        d = self._now.admission.n_features
        return self._algorithm if d is None else self._algorithm.resolved(d)

    @property
    def now(self) -> State:
        """State after the absorbed rows."""
        lane = self.lane
        return self._now if lane is None else lane.now()

    @now.setter
    def now(self, state: State) -> None:
        # State first, lane second: a reader in between sees the state before or the state after.
        self._now, lane = state, self.lane
        if lane is not None:
            self.lane, lane.is_open = None, False

    # -- feeding rows ---------------------------------------------------------------

    @exclusive
    def push(self, row: Any, names: Names | None = None) -> Step:
        lane, people = self.lane, None
        if lane is not None and not self.checked and (step := lane.push(row)) is not None:
            return step
        overdue = self.checked and self.ready()
        now = self.now
        if now.processor is None:
            now = self.begun(now.admission.fixed_by(row), row, 1)
        # Invariant: rows `now.t` + 1 to `taken` wait in the buffer, in order.
        t = max(now.t, self.taken)
        place, waiting = t - now.t, self._waiting
        if place == now.due == 0:
            running(now).check_horizon(1)
        if names is not None or (place == 0 and now.due == 1):  # every row is absorbed on its own
            if names is not None and names[0] is None:
                row = named_values(now.admission.values(row, t + 1)[None, :], names)[0]
            admitted, counts = now.admission.row(row, t + 1)
            if names is not None:
                admitted, counts, people = self.weighted(now, admitted, counts, names)
        else:
            # Rows up to the next release are absorbed together, which changes no bit and costs a tenth.
            if place == 0:
                room = min(now.due, _WAITING_ROWS)
                if self.log is not None and (uncommitted := self.log.room) is not None:
                    room = min(room, uncommitted)
                rows = np.empty((room, now.admission.n_features or 0))
                waiting = self._waiting = Waiting(now.t, now.admission, now.scoring, now.unit, rows)
            assert waiting is not None
            waiting.rows[place] = now.admission.values(row, t + 1)
            if place + 1 < len(waiting.rows) and not overdue:
                self.taken = t + 1  # one assignment accepts the row
                return WaitingStep(t + 1, waiting, place)
            admitted, marks = now.admission.block(waiting.rows[: place + 1], now.t + 1)
            counts = marks.counts()
        now, release, rewards = self.absorb(now, admitted, counts, people=people)
        if release is not None:
            self._open_lane(now)
        return Step(now.t, release, float(rewards[-1]) * now.unit, self.log)

    def _open_lane(self, now: State) -> None:
        """Continue in a lane after a release if the next rows fit one."""
        if self._has_lanes is None:
            self._has_lanes = self.private_log is None and self.budgets is None and lanes.fits(now)
        # A log records rows and fresh bytes, which the compiled step does not hand out.
        if not self._has_lanes or self.log is not None or _native.compiled is None:
            return
        reach = lanes.reach(now)
        if reach[0] > now.t:
            self._plan = self._plan or lanes.plan_of(now.processor, now.admission)
            self.lane = Lane(now, self._plan, *reach)

    @exclusive
    def push_many(
        self, rows: Any, position: Callable[[int], Position | None] | None = None, names: Names | None = None
    ) -> Steps:
        """Feed rows that `conversion.as_block` returned; see `Stream.push_many`.

        ``position`` returns the position of their source after the first m rows. A durable stream keeps it in the
        transaction of the rows. ``names`` are those of the people, as of `rows.owners.owned`.
        """
        return self._push_many(rows, position, names)

    def _push_many(
        self, rows: Any, position: Callable[[int], Position | None] | None, names: Names | None
    ) -> Steps:  # fmt: skip
        self.ready()
        now = self.all_absorbed()
        admission = now.admission
        if now.processor is None:
            admission = admission.fixed_by_block(rows)
        if not len(rows):
            return Steps(now.t + 1, np.empty(0), [], self.log)
        # Small products are faster on one thread, and their bits do not depend on the number of cores then.
        with OneThread(admission.n_features or 1, least=1):
            values = named_values(admission.all_values(rows, now.t + 1), names)
            if now.processor is None:
                now = self.begun(admission, None, len(values))
            else:
                now.processor.check_horizon(len(values))
            first, place, rewards, releases = now.t + 1, 0, np.empty(len(values)), []
            # A batch of many features has so many rows that adding its product costs less than the product itself.
            d = values.shape[1]
            largest = max(_BLOCK_NUMBERS // d, min(1000, d))
            while place < len(values):
                if (lane := self.lane) is not None and (step := lane.push(values[place])) is not None:
                    rewards[place] = step.reward
                    releases += [] if step.release is None else [step.release]
                    place += 1
                    continue
                # Admit a batch up to the end of the warm-up or of the cache, and up to a release if there are
                # many rows before it. Then absorb it up to each release and record, or to the first row of a lane.
                now = self.now
                size = min(largest, now.due) if now.due * d >= _OWN_CALL or self._plan is not None else largest
                batch = values[place : place + (min(size, self.warmup_left) or size)]
                admitted, marks = now.admission.block(batch, now.t + 1)
                start = 0
                while start < len(batch) and self.lane is lane:
                    stop = min(start + now.due, len(batch))
                    at = None if position is None or self.log is None else position(place + stop - start)
                    part, counts, people = admitted[start:stop], marks.counts(start, stop), now.people
                    if names is not None:
                        part, counts, people = self.weighted(now, part, counts, names[place : place + stop - start])
                    now, release, scores = self.absorb(now, part, counts, position=at, people=people)
                    rewards[place : place + len(scores)] = scores * now.unit
                    place += len(scores)
                    if release is not None:
                        releases.append(release)
                        self._open_lane(now)
                    start = stop
        return Steps(first, rewards, releases, self.log)

    @exclusive
    def push_block(self, block: BlockGram, *, position: Position | None = None) -> Step:
        """Feed a block, after which its source is at ``position``; see `Stream.push_block`."""
        self.algorithm.check_blocks()
        if not isinstance(block, BlockGram):
            raise BadParameterError("block", ..., f"a BlockGram, not {type(block).__name__}", advice="Use push_many")
        self.ready()
        now = self.all_absorbed()
        admission = now.admission
        # Rows of the warm-up vote for the bounds one by one, which no sum of them can do.
        if admission.is_warming_up:
            raise BadParameterError("block", ..., "rows during the warm-up of bounds='private'", advice="Use push_many")
        if admission.n_features is None:
            admission = admission.fixed(None, block.n_features - int(admission.center))
        block.check(admission, now.t + 1)
        begins = now.processor is None
        if begins:  # neither committed nor charged before all checks of the block
            now = self.started(admission, self.new_processor(admission))
        running(now).check_room(block.count)
        if begins:
            now = self._paid(now)
        with OneThread(block.n_features, least=1):
            step = self.absorb_block(now, block, position=position)
        return step

    @exclusive
    def finish(self) -> Release | None:
        self.ready()
        now = self.all_absorbed()
        if now.processor is None:
            return None
        release = self.absorb_event(now, "finish")
        # Waiting rows were absorbed above; none may follow the end.
        self._waiting = None
        return None if release is None else self.committed().release

    @exclusive
    def adopt(self, source: RowSource, beside: Sequence[str] = ()) -> None:
        """Use the feature names of a source if the stream has none. The columns ``beside`` and of people are none."""
        now = self.now
        check_features(source.features, [*beside, *columns_of(self.algorithm.unit)])
        admission = now.admission
        if source.features and admission.features is None:
            admission = admission.fixed(source.features)
        self.commit(now, now._replace(admission=admission))

    @exclusive
    def absorb_waiting(self, then: Callable[[], object] | None = None) -> None:
        """Absorb the waiting rows, then call ``then`` before another row. Releases do not depend on when."""
        self.all_absorbed()
        if then is not None:
            then()

    def position_in(self, source: str, *, new_source: bool = False) -> Any:
        """Return the position at which a source continues, by the rows of a durable stream; None for its start."""
        # Periods that closed before the first row, such as by a tick, came from no source.
        if self.log is None or (self.t if self.now.period is None else self.now.period.rows) == 0:
            return None
        self.absorb_waiting()  # rows pushed by hand have no position, and make it unknown
        last = self.log.position(durable=False)
        if last is not None and last.source == source:
            return last.at
        if new_source:
            return None
        raise UsageError(
            f"the previous rows came {'otherwise' if last is None else f'from {last.source}'}, these from {source}. "
            "Continue the source of the run, or declare all rows of this one new: new_source=True (--continues)"
        )

    @property
    def t(self) -> int:
        """Number of rows absorbed or waiting."""
        return max(self.now.t, self.taken)

    @property
    def processor(self) -> Processor:
        """State of the algorithm after the absorbed rows: an immutable value. Curator only."""
        if self.now.processor is not None:
            return self.now.processor
        self.now.admission.known_features()  # raises where a processor could not be created
        return self.new_processor(self.now.admission)

    @property
    def is_lost(self) -> bool:
        """Whether no more rows are accepted."""
        return bool(self._lost)

    @property
    def warmup_left(self) -> int:
        """Number of rows until private bounds are known."""
        now = self.now
        return now.admission.warmup - now.t if now.admission.is_warming_up else 0

    def guarantee_of(self, admission: Admission) -> Guarantee:
        """Return the guarantee of all releases together under these settings of admission."""
        algorithm, d = self.algorithm, admission.n_features
        guarantee = algorithm.guarantee if d is None else algorithm.guarantee_for(d)
        if guarantee.period is not None and self.calendar is not None:
            guarantee = replace(guarantee, unit=guarantee.unit + self.calendar.phase(guarantee.period))
        if isinstance(admission.bounds, PrivateBounds):
            rows, unit = "rows" if d is None else f"{admission.warmup} rows", algorithm.unit
            who = "which enter" if unit is None else f"in which every {unit.name} has one vote and then enters"
            guarantee = replace(
                guarantee,
                scope=f"{guarantee.scope}, and bounds of the columns from the first {rows}, {who} nothing else",
                theorem=f"{guarantee.theorem}; parallel composition over disjoint {'people' if unit else 'rows'}",
            )
        return guarantee.seeded() if self.randomness.is_seeded else guarantee

    def committed(self) -> State:
        """Return the state once its latest release is durable."""
        # Releases that a crash would forget must not be seen: after it the same row number could be released again.
        if self._lost:
            raise StoreLockedError(self._lost)
        now = self.now
        if self.log is not None and now.release is not None:
            self.log.hold(now.release.t)
        return now

    def subspace(self, now: State | None = None) -> Subspace:
        """Return the subspace of the latest release at a state, or the first coordinate axes before any.

        It scores the next row. If ``now`` is None, the state is the present one, once its release is durable.
        """
        now = now or self.committed()
        if now.release is not None:
            return now.release.subspace
        return Subspace(np.eye(now.admission.known_features(), self.algorithm.n_components))

    def moment(self) -> Moment | None:
        """Return the data of the regret of all rows, including waiting ones; None before the first row."""
        self.committed()
        now, waiting = self.seen()
        processor, sums, gram = now.processor, now.regret, None
        if processor is None or sums is None or now.scoring is None or (now.t == 0 and waiting is None):
            return None
        if waiting is not None:
            vectors = vectors_of(waiting[0], processor.n_features)
            gram = GramSum.of(vectors) if sums.own is None else None
            sums = sums.observe(vectors, now.scoring)[0]
        return Moment(sums, processor, self.subspace(now), now.unit, gram)

    def seen(self) -> tuple[State, tuple[FloatArray, Counts] | None]:
        """Return the state, and the waiting rows after it: admitted, with their counts."""
        while True:
            # Read in this order, and again if the state was replaced: a nested call or another thread may push.
            now, count, waiting = self.now, self.taken - self.now.t, self._waiting
            if now is self.now:
                break
        if waiting is None or count <= 0:
            return now, None
        admitted, marks = now.admission.block(waiting.rows[:count], now.t + 1)
        return now, (admitted, marks.counts())

    def ready(self) -> bool:
        """Return whether a commit is overdue. Raise if no row is accepted. Pay for a copy before its first row."""
        if self._lost:
            raise StoreLockedError(self._lost)
        overdue = self.log is not None and self.log.check()
        if (generation := self._generation) is not None:
            # Pay as another run, and chain the 16 bytes of this generation into all further noise. Read the state
            # before `debit`, which may fork: the commit below is then refused in the child.
            now = self.now
            if self.account is not None:
                self.account.debit(self.guarantee_of(now.admission), generation)
            if not self.randomness.is_seeded:
                self.absorb_event(now, "generation", [generation])
            self._generation = None
        self.checked = self.log is not None
        return overdue

    def all_absorbed(self) -> State:
        """Absorb the waiting rows and return the state after them."""
        now, waiting = self.seen()
        return now if waiting is None else self.absorb(now, *waiting)[0]

    def new_processor(
        self, admission: Admission, start: bytes | None = None, snapshot: dict[str, Any] | None = None
    ) -> Processor:
        """Create the processor before the first row, or restore that of a snapshot."""
        calendar = () if self.calendar is None else (self.calendar,)
        setting = Setting(self._terms(admission), (*admission.settings, *calendar))
        # Privacy: a start has a name of its own, so that two streams with one key draw independent noise.
        if start is None and not self.randomness.is_seeded:
            start = self.start_id
        d = admission.admitted_features or 0
        return self.algorithm.start(d, self.randomness, setting, start=start, snapshot=snapshot)

    def _terms(self, admission: Admission) -> Terms:
        guarantee, names = self.guarantee_of(admission), admission.features
        noise = self.algorithm.noise_law(admission.admitted_features or 0)
        calendar = None if self.calendar is None else self.calendar.terms()
        more: dict[str, Any] = {"calendar": calendar, "present": admission.present}
        return Terms(guarantee, admission.row_norm, names, *admission.ranges(), admission.warmup, noise, **more)

    def begun(self, admission: Admission, row: Any, count: int) -> State:
        """Check the first rows, pay and start; return the state with its features fixed."""
        if row is not None:
            admission.values(row, 1)
        with OneThread():
            processor = self.new_processor(admission)
        processor.check_horizon(count)
        return self._paid(self.started(admission, processor))

    def _paid(self, now: State) -> State:
        """Pay for the stream and commit the state before its first row."""
        # Read the state before `debit`, which may run code of the caller: `commit` then refuses a changed state.
        before, algorithm, d = self.now, self.algorithm, now.admission.n_features
        warn(size_warnings(algorithm.n_components, d, algorithm.square_bytes))
        if self.account is not None:
            self.account.debit(self.guarantee_of(now.admission), self.start_id)
        return self.commit(before, now)

    def started(
        self, admission: Admission, processor: Processor, saved: Mapping[str, Any] | None = None,
        release: Release | None = None,
    ) -> State:  # fmt: skip
        """Return the state before the first row, or that of `committed_state` with its latest release."""
        sums = None if self.regret_log is None else self.regret_log.start(processor)
        private = None if self.private_log is None else self.private_log.start()
        now = State(admission, admission.row_norm**2)
        if saved is not None:
            sums = None if sums is None else sums.restored(saved["regret"])
            private = None if private is None else replace(private.restored(saved["private_regret"]), latest=release)
            now = now._replace(t=int(saved["t"]), counts=Counts.of_plain(saved["counts"]))
        now = now._replace(processor=processor, release=release, regret=sums, private=private)
        due, scoring = processor.rows_until_release, None
        if sums is not None:
            due = min(due, sums.next - sums.t)
            k, center = processor.algorithm.n_components, processor.algorithm.center
            first = Scoring.first(processor.n_features, k, center=center)
            scoring = first if release is None else Scoring.of_release(release)
        if now.admission.is_warming_up:
            due = min(due, now.admission.warmup - now.t)
        return now._replace(due=due, scoring=scoring)

    def weighted(
        self, now: State, admitted: FloatArray, counts: Counts, names: Names
    ) -> tuple[FloatArray, Counts, People]:
        """Return the next admitted rows and votes as they count, and the people after them. Nothing has changed."""
        assert self.budgets is not None
        if now.admission.is_warming_up:
            bins, people = self.budgets.voted(now.people, counts.votes[0], names)
            return admitted, counts._replace(votes=(bins,)), people
        numbers = running(now).inputs_of(len(admitted))
        admitted, people = self.budgets.weighted(now.people, admitted, names, numbers)
        return admitted, counts, people

    def absorb(
        self, now: State, admitted: FloatArray, counts: Counts, recorded: Sequence[bytes] | None = None,
        position: Position | None = None, people: People | None = None,
    ) -> tuple[State, Release | None, FloatArray]:  # fmt: skip
        """Score, absorb, release, log and commit rows; return the state after them, the release and the rewards.

        Rewards are in units of row_norm**2 = 1. ``recorded`` are the fresh bytes of an entry that is replayed, whose
        rows have their weights.
        """
        before, processor, sums, count = now, now.processor or running(now), now.regret, len(admitted)
        if people is not None:
            now = now._replace(people=people)
        # nan, not 0: a stream without regret has no rewards.
        if sums is None or now.scoring is None:
            rewards = np.full(count, np.nan)
        else:
            sums, rewards = sums.observe(vectors_of(admitted, processor.n_features), now.scoring)
        # All noise of the step passes through this outlet, and the log records its fresh bytes.
        outlet = Outlet(processor.source, processor.chain, recorded)
        after, release = processor.step(admitted, outlet)
        admission = now.admission
        if admission.is_warming_up:
            release = None  # rows of the warm-up spend their budget on the bounds
            if isinstance(admission.bounds, PrivateBounds) and now.t + count == admission.warmup:
                bins = np.concatenate(now.counts.plus(counts).votes)
                admission = replace(admission, found=admission.bounds.found(bins, outlet))
                terms = replace(self._terms(admission), run=after.terms.run)
                after = after.after(after.t, outlet.chain, terms=terms)
                now = now._replace(admission=admission)
        entry = None
        if self.log is not None:
            entry = Entry(now.t + 1, count, admitted, None, counts, position=position, people=people)
        now = self.commit(before, self.following(now, count, counts, after, release, sums), entry, outlet)
        return now, None if release is None else now.release, rewards

    def absorb_block(
        self, now: State, block: BlockGram, recorded: Sequence[bytes] | None = None, position: Position | None = None
    ) -> Step:
        """Score, absorb, release, log and commit a block."""
        processor = running(now)
        outlet = processor.outlet(recorded)
        after, release = processor.absorb_gram(block.count, block.high, block.low, outlet)
        reward, sums = float("nan"), None
        if now.regret is not None and now.scoring is not None:
            reward = block.rewards(now.scoring)
            gram = GramSum(processor.n_features).add_high_low(block.high, block.low)
            sums = now.regret.observe_block(block.count, gram, reward)
        entry = Entry(now.t + 1, block.count, None, block, block.counts, position=position)
        now = self.commit(now, self.following(now, block.count, block.counts, after, release, sums), entry, outlet)
        return Step(now.t, None if release is None else now.release, reward * now.unit, self.log, block.count)

    def absorb_event(self, now: State, kind: str, recorded: Sequence[bytes] | None = None) -> Release | None:
        """Log and commit the end of the stream, or a generation, which has 16 bytes in its chain and a name."""
        processor, release = running(now), None
        outlet = processor.outlet(recorded)
        if kind == "finish":
            after, release = processor.finish(outlet)
        else:
            outlet.hide("generation")
            after = processor.after(processor.t, outlet.chain)
            after.run = run_name(outlet.fresh[-1])
        entry = Entry(now.t + 1, 0, None, None, kind=kind)
        self.commit(now, self.following(now, 0, NO_COUNTS, after, release, now.regret), entry, outlet)
        return release

    def commit(self, before: State, after: State, entry: Entry | None = None, outlet: Outlet | None = None) -> State:
        """Log the entry that leads from one state to another, and replace the state by one assignment."""
        # The busy mark excludes nested calls. This check excludes the child of a fork, where the outer call would
        # continue as a copy that has not paid.
        if self.now is not before:
            raise StreamBusyError("a fork replaced the stream while rows were absorbed. Push the rows again")
        log = self.log
        if log is None or entry is None or outlet is None:
            self.now = after
            return after
        release = after.release if after.release is not before.release else None
        # Log first, state second: a row of the state is never missing in the log.
        log.append(entry._replace(fresh=tuple(outlet.fresh), link=outlet.chain.link, release=release))
        self.now = after
        log.appended()
        return after

    def following(
        self, now: State, count: int, counts: Counts, after: Processor, release: Release | None, sums: RegretSums | None
    ) -> State:
        """Return the state after ``count`` rows."""
        admission, latest, private, scoring = now.admission, now.release, now.private, now.scoring
        if release is not None:
            latest = release
            private = None if private is None else private.observe(release)
            scoring = None if scoring is None else Scoring.of_release(release)
        due, counts = after.rows_until_release, now.counts.plus(counts)
        if sums is not None:
            if count and sums.t >= sums.next:
                sums = sums.recorded(after, self.subspace(now) if latest is None else latest.subspace, now.unit)
            due = min(due, sums.next - sums.t)
        if admission.is_warming_up:
            due = min(due, admission.warmup - now.t - count)
        elif counts.votes:  # the bounds are known, so that votes are not needed any more
            counts = counts._replace(votes=())
        return State(
            admission, now.unit, now.t + count, after, latest, sums, private, scoring, counts, due, now.entries + 1,
            now.period, now.people,
        )  # fmt: skip

    @exclusive
    def attach(self, log: CommitLog, account: Account | None, *, copied: bool) -> None:
        """Use a commit log and an account from the next row on."""
        self.checked = True
        self.log, self.account = log, account
        if copied:
            self.mark_copied()

    def mark_copied(self) -> None:
        """Continue as another run from the next change on."""
        # Without rows, another start gives other noise. With rows, `ready` chains the name into all further noise.
        self.checked = True
        if self.now.processor is None:
            self.start_id = os.urandom(NAME_BYTES)
        else:
            tape = self.randomness.tape  # an audit replays the bytes, which name the run in public
            self._generation = (os.urandom if tape is None else tape.random)(NAME_BYTES)

    def after_fork(self) -> None:
        """Continue in the child of a fork as another run; a durable stream accepts no more rows there."""
        self.checked = True
        # Parent and child would release the same row numbers with the same noise, from different rows.
        self.now = self.now._replace()  # a new object, so that a call in progress cannot commit
        if self.log is not None:
            self._lost = (
                "this copy of a durable stream is in a child process, and its parent writes the store. "
                "Use the stream in the process that created it."
            )
        else:
            self.mark_copied()
