"""Streams: rows go in; private releases come out, and the live regret for the curator.

`Stream` is the interface, with its checks; `streampca.stream.engine` holds the state and its transitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, Protocol, Self

import numpy as np

from streampca.calendar import Calendar
from streampca.conversion import as_block, check_iterable, framed
from streampca.errors import Answered, BadParameterError, UsageError, answered
from streampca.linalg.counts import check_count
from streampca.linalg.scale import Bounds, check_scale
from streampca.privacy.configuration import for_missing
from streampca.privacy.guarantee import Account, Guarantee, check_account
from streampca.privacy.randomness import Randomness
from streampca.privacy.unit import columns_of
from streampca.processors.base import Algorithm
from streampca.regret.private_regret import PrivateRegret, PrivateRegretRecords
from streampca.regret.regret import Regret, RegretLog
from streampca.release.release import Release
from streampca.rows.admission import Admission, Shares
from streampca.rows.advice import delta_warnings, settings_warnings, warn
from streampca.rows.bounds import PrivateBounds
from streampca.rows.owners import check_features, owned
from streampca.rows.protocol import as_source
from streampca.rows.report import AdmissionReport, tell_curator
from streampca.stream import periods
from streampca.stream.absorb import absorb
from streampca.stream.blocks import BlockCutter, BlockGram, CommitLog
from streampca.stream.engine import Engine
from streampca.stream.executors import Executor
from streampca.stream.feed import feed, feed_timed
from streampca.stream.replay import restore, restore_people, saved
from streampca.stream.step import Step, Steps
from streampca.tables import render

#: Types of rows that are not tables.
_ROWS = frozenset({np.ndarray, list, dict})


class RunStore(Protocol):
    """Store in which streams can be begun and resumed: `streampca.Store`."""

    def begin(self, engine: Engine) -> CommitLog:
        """Begin a durable run."""

    def resume(self, kind: type[Any], *, moved: bool = False) -> Any:
        """Rebuild the stream of a run."""


class Stream(Answered):
    """Feed rows to an algorithm; get private releases, and the live regret for the curator.

    Parameters
    ----------
    algorithm : e.g. `PrivateFPL`. It may serve any number of streams.
    bounds : public ranges of the features, mapped into the unit ball: ``(lower, upper)`` or a mapping by name (see
        `Admission`). ``"private"`` estimates them from the first rows (`PrivateBounds`), which spend their whole budget
        on the bounds: they are absent from all releases and from the regret, and no release precedes their end.
        Exactly one of ``bounds`` and ``row_norm`` must be given, and not computed from the rows.
    row_norm : norm onto which longer rows are scaled, 1 for rows of at most unit norm. Public. Gram matrices,
        eigenvalues and rewards are in units of its square.
    warmup : number of these rows for ``bounds="private"``. If None, chosen from epsilon, delta, the number of features
        and the horizon.
    features : names of the features, or their number. If None, those of the source, or else of the first row or block,
        whose shape is public. Mappings need the names, because one row must not determine them.
    regret : a `RegretLog`. None computes no rewards and keeps no d x d matrix beyond the processor's own.
    private_regret : settings of the publishable regret for an algorithm that releases rewards
        (``PrivateFPL(publish_regret=True)``). If None, ``PrivateRegret()``.
    on_missing : ``"bad"``, a row with a missing cell is a bad row; or ``"cell"``, the cell is filled with the middle of
        its bounds (0 without bounds), and mean and components are corrected by the shares of cells present
        (`linalg.completion`): no bias if cells are missing independently of their values and of each other.
    missing_rates : these shares: ``"private"``, the default with ``"cell"``, counts the cells with the noise of the
        release, 4 to 5 % more; public ones from .05 to 1, a number, one for each feature or a mapping by name, cost
        nothing.
    correct : False fills only, which moves the mean to the middle of the bounds.
    account : account that the budget is charged to, ``Ledger(file).account(data_set)``. The whole stream is charged
        before its first row; if the budget does not cover it, that row raises `BudgetExhaustedError`.
    seed : integer for reproducible noise in tests and scenarios: not private against a reader who knows it. If None,
        that of the algorithm; without one, noise is fresh from the system.
    key : 32 secret bytes in place of a fresh key. Two streams with one key have independent noise.
    start : start of the first period of a calendar (``release_every="1d"``), a datetime or an ISO text with its time
        zone. Public.
    store : a `Store` that makes the run durable. Reading a release then waits until its rows are durable; `resume`
        continues after a crash.

    Attributes
    ----------
    engine : state of the stream, for stores and adapters. As secret as the rows.

    Raises
    ------
    UsageError
        If a parameter is outside its domain.

    Notes
    -----
    *Bad rows.* A row with a value that is infinite, no number or missing (``on_missing``) counts for nothing: it is
    absorbed as the zero vector, is absent from the mean, and advances `t`. `admission` counts such rows, and the logger
    ``streampca.curator`` reports them at the end of `run`. In mappings an absent name is a missing value, and an
    unknown name is ignored. A row of the wrong shape raises before anything changes.

    *Interrupts and threads.* After any exception the stream is exactly before or exactly after some of the rows, and
    `t` is their number: continue with row t + 1. Methods may be called from any thread.

    *Calendars.* With ``PrivateFPL(release_every="1d")`` a release ends each period of a public grid
    (`streampca.calendar`), and `t` counts periods. Rows count in the period in which they arrive, or with
    ``run(time=...)`` in that of their own time. `tick` closes what is due without a row: call it once before the first
    row, and from time to time. `push`, `close` and `resume` do, too. A durable stream closes no period twice.

    *Nested calls.* Signal handlers, finalizers and methods of a row may run inside `push`. They may read the stream.
    Calls that would change it raise `StreamBusyError`, so that no row number is released twice.

    *Copies.* A copy, a pickle, and the child of a fork continue as another run with noise of its own: two runs on the
    same rows cost sqrt(2) times mu. With a ledger the copy pays before its next row; without one, nothing counts the
    copies.
    """

    @answered
    def __init__(
        self,
        algorithm: Algorithm,
        *,
        bounds: Bounds | Literal["private"] | None = None,
        row_norm: float | None = None,
        warmup: int | None = None,
        features: Sequence[str] | int | None = None,
        regret: RegretLog | Literal["exact"] | None = "exact",
        private_regret: PrivateRegret | None = None,
        on_missing: Literal["bad", "cell"] = "bad",
        missing_rates: Shares = None,
        correct: bool = True,
        account: Account | None = None,
        seed: int | None = None,
        key: bytes | None = None,
        start: Any = None,
        store: RunStore | None = None,
    ) -> None:
        if not isinstance(algorithm, Algorithm):
            raise BadParameterError("algorithm", algorithm, "an algorithm, e.g. PrivateFPL(...)")
        if regret is not None and regret != "exact" and not isinstance(regret, RegretLog):
            raise BadParameterError("regret", regret, "a RegretLog, 'exact' or None")
        if private_regret is not None and not isinstance(private_regret, PrivateRegret):
            raise BadParameterError("private_regret", private_regret, "a PrivateRegret or None")
        count = None
        if isinstance(features, (int, np.integer)):
            check_count("features", features)
            count = int(features)
            features = None
        if isinstance(features, str) or not isinstance(features, Iterable | None):
            raise BadParameterError("features", features, "a sequence of names, or their number")
        check_features(features, columns_of(algorithm.unit))
        check_scale(bounds, row_norm)
        check_account(account)
        horizon: int | None = getattr(algorithm, "horizon", None)
        publishes = bool(getattr(algorithm, "publish_regret", False))
        if private_regret is not None and not publishes:
            raise UsageError(
                f"private_regret={private_regret!r}: the algorithm releases no rewards. Use PrivateFPL(..., "
                "publish_regret=True)"
            )
        calendar = Calendar.of(getattr(algorithm, "release_every", None), start)
        if calendar is not None and bounds == "private":
            raise UsageError(
                f"bounds='private', release_every={calendar.every!r}: not supported together, because the first rows "
                "have no public number. Pass bounds=(lower, upper)"
            )
        if seed is not None and key is not None:
            raise UsageError("seed, key: expected one of them, not both")
        if warmup is not None and bounds != "private":
            raise UsageError(f"warmup={warmup!r}: only valid with bounds='private'")
        ranges: Bounds | PrivateBounds | None
        if not isinstance(bounds, str):
            # A list has the pair of each feature. Stores keep tuples as lists, and read them as tuples.
            if isinstance(bounds, list):
                lower, upper = zip(*bounds, strict=True)
                bounds = lower, upper
            ranges = bounds
        elif bounds != "private":
            raise BadParameterError("bounds", bounds, "(lower, upper), a mapping by feature name or 'private'")
        else:
            ranges = PrivateBounds.of(algorithm.guarantee, warmup, horizon)
        admission = Admission(
            row_norm=1.0 if row_norm is None else row_norm, bounds=ranges, center=algorithm.center,
            features=None if features is None else tuple(features), n_features=count, on_missing=on_missing,
            missing_rates=missing_rates, correct=correct,
        )  # fmt: skip
        algorithm = for_missing(algorithm, admission.present)
        # Refuse before anything is paid for. Without known features, the first row is checked in the same way.
        if admission.n_features is not None:
            algorithm.check(admission.n_features)
        warn(settings_warnings(algorithm.guarantee, None if calendar is not None else horizon))
        # A seed fixes all noise: the guarantee of the stream says so (`Guarantee.seeded`).
        randomness = Randomness(key) if seed is None else Randomness.from_seed(seed)
        exact = RegretLog() if isinstance(regret, str) else regret
        private = (private_regret or PrivateRegret()) if publishes else None
        self.engine = Engine(algorithm, randomness, admission, exact, private, account, calendar)
        if store is not None:
            if not hasattr(store, "begin"):
                raise BadParameterError("store", store, "a store", advice="Pass Store(path)")
            self.engine.attach(store.begin(self.engine), account, copied=False)

    @classmethod
    def resume(cls, store: RunStore, *, moved: bool = False) -> Self:
        """Continue the run of a store, with the releases of an uninterrupted run.

        Parameters
        ----------
        store : a `Store` that holds a run. Rows up to `t` are durable; the next row to push is ``t + 1``.
        moved : accept a store that was copied or restored although another copy may have continued. The stream
            continues as another run with noise of its own; both together cost sqrt(2) times mu.

        Raises
        ------
        StoreCorruptError, StoreForkedError, StoreLockedError, StoreUnwritableError, WrongKeyError
            If the run cannot be continued. Nothing has changed.
        """
        if not hasattr(store, "resume"):
            raise BadParameterError("store", store, "a store", advice="Pass Store(path)")
        resumed: Self = store.resume(cls, moved=moved)
        periods.tick_quietly(resumed.engine)
        return resumed

    def push(self, row: Any, person: Any = ...) -> Step:
        """Feed one row.

        Parameters
        ----------
        row : 1-D array or sequence of numbers, mapping from feature name to number, or named tuple.
        person : name of the row's person, for an algorithm with ``unit=Person()``: a text, a whole number, or a tuple
            of these. By default the values of the unit's columns in a row with names. A row of nobody is a bad row.

        Raises
        ------
        BadRowError, HorizonReachedError
            If the row has the wrong shape, or the horizon is reached. Nothing has changed.
        StreamBusyError
            If another call in this thread is changing the stream. Nothing has changed.
        """
        engine, names = self.engine, None
        if person is not ... or engine.budgets is not None:
            (row,), names = owned(engine.algorithm.unit, [row], person if person is ... else [person])
        return engine.push(row, names) if engine.calendar is None else periods.push(engine, row, names)

    def push_many(self, rows: Any, person: Any = ...) -> Steps:
        """Feed a block of rows: the same releases as one by one, bit for bit.

        Parameters
        ----------
        rows : (n, d) array; a table, as for `run`; or an iterable of rows.
        person : names of the people of the rows, one for each row, as for `push`.

        Raises
        ------
        BadRowError, HorizonReachedError
            If a row has the wrong shape, or the horizon does not allow all of them. No row was absorbed.
        """
        block = as_block(rows)  # outside the exclusive call: an iterable of rows may push
        engine = self.engine
        block, names = owned(engine.algorithm.unit, block, person)
        if engine.calendar is not None:
            return periods.push_many(engine, block, names=names)
        return engine.push_many(block, names=names)

    def push_block(self, block: BlockGram) -> Step:
        """Feed rows that were admitted and summed elsewhere: the same release as from the rows, bit for bit.

        For algorithms that need Gram matrices only: `PrivateFPL` (without ``publish_regret``) and `PerturbedLeader`.

        Parameters
        ----------
        block : from `leaves` or `BlockGram.of`. It ends at the next release or before.

        Raises
        ------
        UsageError, BadRowError, HorizonReachedError
            If the algorithm needs rows or has reached its horizon; if the block crosses a release; if it has other
            features, another admission or another first row; or if it is no Gram matrix of ``count`` rows of the unit
            ball. Nothing has changed.
        """
        return self.engine.push_block(block)

    def absorb(
        self, dataset: Any, executor: Executor | int | None = None, *, columns: Sequence[str] | None = None,
        rows_per_task: int | None = None, in_flight: int | None = None, memory: int = 2**30, commit_every: float = 30.0,
        before: int = 0, storage: Any = None,
    ) -> Iterator[Step]:  # fmt: skip
        """Feed Parquet files that workers read and sum; yield a `Step` for each block.

        The releases are those of one process that is fed the rows in order, bit for bit: files in the order given (of a
        folder or pattern, by the bytes of their paths), then row groups, then rows. A durable stream keeps its place in
        the files, in the transaction of the rows: after a crash, the same call continues, and each row counts once.

        Parameters
        ----------
        dataset : path or address (``file``, ``s3``, ``gs``, ``hdfs``, ``abfs``) of a file or folder, a pattern,
            a list of files, or a `pyarrow.dataset.Dataset` of Parquet files.
        executor : None reads in this process, a number in so many processes of this machine. Else an object with
            ``submit(function, item)``, such as a `concurrent.futures.ProcessPoolExecutor`, loky, Dask's
            ``client.get_executor()``, `streampca.spark.SparkExecutor` or `streampca.ray.RayExecutor`.
        columns : names of the columns, in the order of the features; by default those of the stream.
            ``name[0]``, ``name[1]``, ... are the entries of a column of lists, whose name stands for all of them.
        rows_per_task : minimum number of rows of a task; by default 2**18, more with many workers, fewer of few rows.
        in_flight : number of unfinished tasks; by default two a worker. Give it for a cluster.
        memory : bytes of sums that wait for earlier rows.
        commit_every : seconds after which a durable stream takes the rows of an unfinished release.
        before : rows that the stream absorbed from elsewhere, before these files.
        storage : a `pyarrow.fs.FileSystem` for paths without an address.

        Raises
        ------
        UsageError, HorizonReachedError, SourceError
            Before any row, if a parameter, the rows or a file do not fit; `SourceError` also where a file is damaged,
            or has another size or number of rows than at the start, after every row before that.
        AbsorbInterruptedError
            If a worker fails. The same call continues.
        StoreForkedError
            If the files are not those that the stream has absorbed, followed by others.

        Notes
        -----
        For algorithms that need Gram matrices only, see `push_block`. Start a number of processes under
        ``if __name__ == "__main__":``.

        *Privacy.* Neighbors differ in one row at the same place, so that the place of a row must not depend on its
        values. If files are sorted, partitioned or clustered by a feature, take one release for all rows
        (``release_every`` of at least their number): a single sum does not depend on their order.
        """
        yield from absorb(
            self.engine, self.leaves, dataset, executor, columns=columns, rows_per_task=rows_per_task,
            in_flight=in_flight, memory=memory, commit_every=commit_every, before=before, storage=storage,
        )  # fmt: skip

    def run(
        self, rows: Any, *, new_source: bool = False, time: str | None = None, end: Any = None
    ) -> Iterator[Step]:  # fmt: skip
        """Feed rows from any iterable or table, lazily; yield a `Step` for each row, or period of a calendar.

        Parameters
        ----------
        rows : an iterable of arrays, mappings, named tuples, ``(mapping, target)`` pairs as in river's datasets (the
            target is ignored), or tables; a source of `streampca.sources`, whose feature names are used if
            this stream has none; or a table: a pandas or polars frame or series, an Arrow table, record batch or
            stream, a DuckDB relation, a scipy sparse matrix. A durable stream continues a
            `streampca.rows.protocol.PositionedSource` at its own position, so that each row counts once.
        new_source : all rows of this source are new, although the previous rows came from another source. If its own
            rows came last, it continues after them.

        Raises
        ------
        UsageError
            If the previous rows came from another source and ``new_source`` is False, or if another run of a durable
            stream reads this source meanwhile.
        """
        rows, beside = framed(rows), (*(() if time is None else (time,)), *columns_of(self.algorithm.unit))
        source = as_source(rows, self.features, beside) if end is None or time is not None else None
        if time is not None or end is not None:
            if source is None or time is None:
                raise UsageError("time, end: expected both, and a source or a table with the column")
            yield from chain.from_iterable(feed_timed(self.engine, source, time, end, new_source=new_source))
        elif source is not None:
            yield from chain.from_iterable(feed(self.engine, source, new_source=new_source))
        else:
            check_iterable(rows)
            for row in rows:
                yield from self._steps(row)
        self._conclude()

    async def arun(self, rows: Any) -> AsyncIterator[Step]:
        """Feed an asynchronous iterable: ``async for step in stream.arun(rows)``.

        Parameters
        ----------
        rows : an asynchronous iterable of rows or tables; or anything that `run` accepts, with a switch to other tasks
            after every row.
        """
        if hasattr(rows, "__aiter__"):
            async for row in rows:
                for step in self._steps(row):
                    yield step
            self._conclude()
        else:
            import asyncio

            for step in self.run(rows):
                yield step
                await asyncio.sleep(0)

    def _conclude(self) -> None:
        """Tell of delta and, the curator only, of the rows, once no more are expected."""
        if getattr(self.algorithm, "horizon", None) is None:  # with a horizon, the constructor has warned
            warn(delta_warnings(self.guarantee, self.t))
        tell_curator(self.admission)

    def _steps(self, row: Any) -> Iterable[Step]:
        """Feed one row, or one table, of an iterable."""
        if type(row) in _ROWS or hasattr(row, "to_frame"):
            return (self.push(row),)
        if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], dict):
            return (self.push(row[0]),)
        source = as_source(row, self.features, columns_of(self.algorithm.unit))
        return (self.push(row),) if source is None else chain.from_iterable(feed(self.engine, source))

    def finish(self) -> Release | None:
        """End the stream; return the release of the remaining rows, or None.

        `Tumbling` with ``keep_short=True`` releases its last, short block. The time of the end must not depend on the
        rows.
        """
        return self.engine.finish()

    def tick(self, now: Any = None) -> Steps:
        """Close the periods of the calendar that are due at a time, by default now, and release each.

        Call it while no row arrives. A time before the present period closes none. Raises `BadParameterError` if more
        than 10 000 periods are due.
        """
        return periods.push_many(self.engine, at=None if now is None else Calendar.time("now", now))

    def close_period(self) -> Step:
        """Close the period of a calendar with ``release_every="manual"``, at a time that does not depend on rows."""
        return periods.close_by_hand(self.engine)

    def close(self) -> None:
        """Close the store of a durable stream, if there is one: all rows are committed. `with` calls it.

        With a calendar, the periods that are due by the clock are closed first.
        """
        periods.tick_quietly(self.engine)
        if self.engine.log is not None:
            self.engine.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def leaves(self) -> BlockCutter:
        """Return the public settings for cutting rows into blocks in another process.

        Raises `UsageError` if the features or bounds are not known yet, or the algorithm needs rows.
        """
        admission, algorithm = self.engine.now.admission, self.algorithm
        algorithm.check_blocks()
        if admission.n_features is None:
            raise UsageError("features=None: the features must be known before blocks are cut. Pass features=")
        if admission.is_warming_up:
            raise BadParameterError("bounds", "private", f"{admission.warmup} rows first", advice="Push them as rows")
        return BlockCutter(admission, getattr(algorithm, "release_every", 1), getattr(algorithm, "horizon", None))

    @property
    def t(self) -> int:
        """Number of rows absorbed or waiting."""
        return self.engine.t

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of the stream."""
        return self.engine.algorithm

    @property
    def warmup_left(self) -> int:
        """Number of rows until private bounds are known."""
        return self.engine.warmup_left

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features, if rows are named."""
        return self.engine.now.admission.features

    @property
    def row_norm(self) -> float:
        """Norm onto which longer rows are scaled."""
        return self.engine.now.admission.row_norm

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all releases of this stream together."""
        return self.engine.guarantee_of(self.engine.now.admission)

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first."""
        return self.engine.committed().release

    @property
    def regret(self) -> Regret:
        """Live view of the exact regret. Curator only."""
        if self.engine.regret_log is None:
            raise UsageError("regret=None: this stream keeps no regret")
        return Regret(self.engine.regret_log, self.engine.moment)

    @property
    def private_regret(self) -> PrivateRegretRecords:
        """The publishable regret so far: intervals, under the guarantee of the releases."""
        config = self.engine.private_log
        if config is None:
            raise UsageError("this stream releases no rewards. Use PrivateFPL(..., publish_regret=True)")
        return self.engine.committed().private or config.start()

    @property
    def admission(self) -> AdmissionReport:
        """Counts of scaled, clamped and zeroed rows, including waiting ones. Curator only: they depend on raw rows."""
        now, waiting = self.engine.seen()
        counts, rows = now.counts, now.t if now.period is None else now.period.rows
        if waiting is not None:
            admitted, further = waiting
            counts, rows = counts.plus(further), rows + len(admitted)
        return AdmissionReport.of(now.admission, counts, rows, None if self.algorithm.unit is None else now.people)

    def watch(self, rows: Any = None, *, every: float = 1.0, total: int | None = None, public: bool = False) -> Any:
        """Show a live card in a notebook: ``with stream.watch():``, or ``for step in stream.watch(rows):``.

        See `streampca.views.card.Watch` for the parameters. Unless ``public``, the card is curator only.
        """
        return render("watch", self, rows, every=every, total=total, public=public)

    def _repr_html_(self) -> str | None:
        """Return the card of the stream for notebooks. Curator only: it shows the exact regret."""
        shown: str | None = render("stream", self)
        return shown

    def __repr__(self) -> str:
        inputs = "rows" if self.engine.calendar is None else "periods"
        return f"<Stream of {self.algorithm!r}, {self.t} {inputs} seen: {self.guarantee}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return all data of a copy. As secret as the rows."""
        return saved(self.engine)

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.engine = Engine(*parts["parts"])
        restore(self.engine, parts["state"], parts["release"])
        if parts["people"] is not None:
            restore_people(self.engine, *parts["people"])
