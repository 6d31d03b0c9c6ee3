"""Streams: rows go in; private releases come out, and live regret for the curator.

`Stream` is the interface, with its checks; `streampca.stream.engine` holds the state and how it changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, Protocol, Self

import numpy as np

from streampca.conversion import as_block, check_iterable, framed
from streampca.errors import BadParameterError
from streampca.linalg.counts import check_switch
from streampca.privacy.guarantee import Account, Guarantee, check_account
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Algorithm
from streampca.regret.private_regret import LivePrivateRegret, PrivateRegret
from streampca.regret.regret import Regret, RegretLog
from streampca.release.release import Release
from streampca.rendering import render
from streampca.rows.admission import Admission, AdmissionReport, Bounds, OnBadRow
from streampca.rows.advice import (
    settings_warnings,
    warn,
)
from streampca.rows.bounds import PrivateBounds
from streampca.rows.protocol import as_source
from streampca.stream.blocks import BlockCutter, BlockGram, CommitLog
from streampca.stream.engine import Engine
from streampca.stream.feed import feed
from streampca.stream.replay import copy_of, saved
from streampca.stream.step import BlockStep, Step, Steps

#: Types of rows that are no tables.
_ROWS = frozenset({np.ndarray, list, dict})


class RunStore(Protocol):
    """Where streams can be begun and resumed: `streampca.Store`."""

    def begin(self, engine: Engine) -> CommitLog:
        """Begin a durable run."""

    def resume(self, kind: type[Any], *, moved: bool = False) -> Any:
        """Rebuild the stream of a run."""


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
    warmup : with ``bounds="private"``, number of these rows. If None, chosen from epsilon, delta, the number of
        features and the horizon.
    features : names of the features. If None, they are those of the first row if it is a mapping
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
    seed : integer for reproducible noise, for tests and scenarios: not private against a reader
        who knows it. If None, that of the algorithm; without one, noise is fresh from the system.
    key : 32 secret bytes instead of a fresh key. They reproduce nothing: two streams with one key
        have independent noise.
    store : a `Store` that makes the run durable. Reading a release then waits until the rows it
        depends on are durable; `resume` continues after a crash.

    Attributes
    ----------
    engine : the state of the stream, for stores and adapters. As secret as the rows.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain.

    Notes
    -----
    *Interrupts and threads.* After any exception the stream is as before or as after some of the rows, and
    `t` is the number of rows absorbed; continue from there. Methods may be called from any thread.

    *Nested calls.* Signal handlers, finalizers and methods of a row may run inside `push`. They may read the stream.
    Calls that would change it raise `StreamBusyError`, so that no row number is released twice.

    *Copies.* A copy, a pickle, and the child of a fork continue as another run with noise of its own:
    two runs on the same rows cost sqrt(2) times mu. With a ledger the copy pays before its next
    row; without one, nothing counts the copies.
    """

    _caps_users = False  # True in the stream of a `UserStream`, which caps the rows of each user

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
        if getattr(algorithm, "max_rows_per_user", None) is not None and not self._caps_users:
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
            if self._caps_users:
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
        self.engine = Engine(algorithm, randomness, admission, exact, private, ledger)
        if store is not None:
            if not hasattr(store, "begin"):
                raise BadParameterError(f"store={store!r} is not a store; pass Store(path)")
            self.engine.attach(store.begin(self.engine), ledger, copied=False)

    @classmethod
    def resume(cls, store: RunStore, *, moved: bool = False) -> Self:
        """Continue the run of a store: the same releases as if nothing had happened.

        Parameters
        ----------
        store : a `Store` that holds a run. Rows up to `t` are durable; the next to push is row ``t + 1``.
        moved : accept a store that was copied or put back although another copy may have continued. It continues
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
        return self.engine.push(row)

    def push_many(self, rows: Any) -> Steps:
        """Feed a block of rows: the same releases as one by one, bit for bit.

        Parameters
        ----------
        rows : (n, d) array; a table as `run` takes it; or an iterable of rows.

        Returns
        -------
        Steps : a sequence of `Step` with ``.releases`` and ``.rewards``.

        Raises
        ------
        BadRowError, HorizonReachedError
            If a row is bad and ``on_bad_row="raise"``, or not all of them can be taken. No row was absorbed.
        """
        return self.engine.push_many(as_block(rows))  # an iterable of rows may push, too

    def push_block(self, block: BlockGram) -> BlockStep:
        """Feed rows that were admitted and summed elsewhere: the same release as from the rows, bit for bit.

        For algorithms that need no more than Gram matrices: `PrivateFPL`
        (without ``publish_regret``) and `PerturbedLeader`.

        Parameters
        ----------
        block : made by `leaves`, or by `BlockGram.of`. It must end where the next release is due, or before.

        Raises
        ------
        BadParameterError, BadRowError, HorizonReachedError
            If the algorithm needs rows, or takes no more; if the block crosses a release or the end
            of a regret window; if it is of other features, of another admission, from another place of
            the stream, or no Gram matrix of ``count`` rows of the unit ball. Nothing has changed.
        """
        return self.engine.push_block(block)

    def run(self, rows: Any, *, new_source: bool = False) -> Iterator[Step]:
        """Feed rows from any iterable or table, lazily; yield a `Step` a row.

        Parameters
        ----------
        rows : an iterable of arrays, mappings, named tuples, ``(mapping, target)`` pairs as river's
            datasets give them (the target is ignored), or tables; a source of `streampca.sources`,
            whose feature names and bounds are taken over if this stream has none; or a table: a pandas
            or polars frame or series, an Arrow table, record batch or stream, a DuckDB relation, a scipy
            sparse matrix. A durable stream continues a `streampca.rows.protocol.PositionedSource` at its own position,
            so that each row counts once.
        new_source : all rows of this source are new, although the rows before came from another source. Where its
            own rows came last, it continues after them.

        Raises
        ------
        BadParameterError
            If the rows before came from elsewhere, and it is not said that all rows of this source are new.
        """
        rows = framed(rows)
        source = as_source(rows, self.features, mixed=self.engine.now.admission.on_bad_row == "zero")
        if source is not None:
            yield from chain.from_iterable(feed(self.engine, source, new_source=new_source))
        else:
            check_iterable(rows)
            for row in rows:
                yield from self._steps(row)
        if self.engine.last_row is None:
            self.engine.warn_of_release()

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
            if self.engine.last_row is None:
                self.engine.warn_of_release()
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
        source = as_source(row, self.features, mixed=self.engine.now.admission.on_bad_row == "zero")
        return (self.push(row),) if source is None else chain.from_iterable(feed(self.engine, source))

    def finish(self) -> Release | None:
        """End the stream: the release of what the processor still holds, where it makes one.

        `Tumbling` with ``keep_short=True`` releases its last, short block.
        When to end must not depend on the rows.
        """
        return self.engine.finish()

    def leaves(self) -> BlockCutter:
        """Public settings for cutting rows into blocks in another process.

        Raises
        ------
        BadParameterError
            If the features are not known yet, or the algorithm needs rows.
        """
        admission, algorithm = self.engine.now.admission, self.algorithm
        algorithm.check_blocks()
        if admission.n_features is None:
            raise BadParameterError(
                "blocks are made elsewhere, so the features must be known: give features= to the stream"
            )
        if admission.is_warming_up:
            raise BadParameterError(f"the bounds are found after {admission.warmup} rows; push those rows first")
        return BlockCutter(admission, getattr(algorithm, "release_every", 1), getattr(algorithm, "horizon", None))

    # -- reading --------------------------------------------------------------------

    @property
    def t(self) -> int:
        """Rows seen."""
        return self.engine.t

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm at work."""
        return self.engine.algorithm

    @property
    def warmup_left(self) -> int:
        """Number of rows that are still needed for private bounds."""
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
        """The guarantee of all releases of this stream together."""
        return self.engine.guarantee

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first."""
        return self.engine.committed().release

    @property
    def regret(self) -> Regret:
        """The exact regret, live. Curator only."""
        if self.engine.regret_log is None:
            raise BadParameterError("this stream keeps no regret; leave out regret=None")
        return Regret(self.engine.regret_log, self.engine.moment)

    @property
    def private_regret(self) -> LivePrivateRegret:
        """The publishable regret: intervals, under the guarantee of the releases."""
        engine, config = self.engine, self.engine.private_log
        if config is None:
            raise BadParameterError("this stream releases no rewards; use PrivateFPL(..., publish_regret=True)")
        return LivePrivateRegret(config, lambda: engine.committed().private or config.start())

    @property
    def admission(self) -> AdmissionReport:
        """Counts of scaled, clamped and zeroed rows so far. Curator only: they depend on raw rows."""
        now, waiting = self.engine.seen()
        counts, rows = now.counts, now.t
        if waiting is not None:
            admitted, further = waiting
            counts, rows = counts.plus(further), rows + len(admitted)
        return AdmissionReport.of(now.admission, counts, rows)

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
        return f"<Stream of {self.algorithm!r}, {self.t} rows seen: {self.guarantee}>"

    def __getstate__(self) -> dict[str, Any]:
        """Everything a copy needs. As secret as the rows."""
        return saved(self.engine)

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.engine = copy_of(parts)
