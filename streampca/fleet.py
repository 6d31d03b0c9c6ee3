"""Many small streams of one algorithm: one record a tenant, one key, one lock, one log.

*Theorem (parallel composition, adaptive).* Every row has a public key, its *tenant*. Let the noise of tenants be
independent, and let the mechanism of each tenant be mu-GDP for one of its rows, also if rows depend on earlier
releases. Then all releases of all tenants together are mu-GDP for one row, also if the rows of a tenant depend on the
releases of the others. If one unit owns rows of at most m tenants, one of each, they are sqrt(m) mu-GDP for the unit.
With totals of parameters mu_1, mu_2, ..., in which the unit has its m rows, they are sqrt(m mu**2 + m**2 (mu_1**2 +
mu_2**2 + ...))-GDP.

*Proof.* An adversary against the fleet that changes a row of tenant i is one against the mechanism of tenant i alone:
it simulates all others, whose rows are the same in both worlds and whose noise is independent. For m tenants, compose m
such games, in which squares of mu add up; m rows in one total cost m times its mu by group privacy.

Nothing is summed over tenants. The key of a row, and when it comes, are public: a fleet does not hide to which tenant a
row belongs. Statements about the best or worst of many tenants hold for privacy, not for error bars.

*Noise.* All vectors are drawn under the keys of one fleet. The first chain value of a tenant is a keyed hash of its
number, so that vectors of different tenants have different inputs (`privacy.outlet`); two of Q vectors have one name
with probability below Q**2 / 2**129.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from streampca.conversion import as_block, is_frame
from streampca.errors import BadParameterError, HorizonReachedError, StoreLockedError, TenantRetiredError, UsageError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import LOW, STEP, UNIT, UNIT_BITS, GramSum
from streampca.linalg.types import FloatArray, IntArray, Mask
from streampca.matrix_factorization.blt import BufferedNoise
from streampca.matrix_factorization.noises import BLT
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Account, Guarantee
from streampca.privacy.outlet import Chain, Outlet
from streampca.processors.base import Setting, run_name
from streampca.processors.private_fpl import FPLProcessor, PrivateFPL
from streampca.processors.solvers import Exact, Reading, Tracked, Tracking
from streampca.release.release import Release
from streampca.release.subspace import Subspace
from streampca.release.terms import Terms
from streampca.rows.admission import REASONS, Admission
from streampca.rows.protocol import Position, PositionedSource, RowSource
from streampca.store.config import label_of
from streampca.store.fleet import FleetStore, opened, packed_for, secret_of
from streampca.store.records import decode, encode
from streampca.store.row_digest import words_of
from streampca.stream.stream import Stream

Key = str | bytes | int
#: Assignments ``target[place] = value``. Making them twice has the effect of making them once.
Change = list[tuple[Any, Any, Any]]

#: Rows of a tenant below which its sum fits 64 bits: entries of at most one unit a row, in units of 2**-40.
MOST_ROWS = 2**23 - 1
_KEYS = "text, bytes (1 to 255 bytes) or an integer of 64 bits"
_INSTEAD = "Use a Stream a tenant"
#: Rows that `Fleet.run` pushes together.
_ROWS = 4096
#: Seconds that the replay of a row and of a release take; the log is folded into the records before it takes `_REPLAY`.
_ROW_SECONDS, _RELEASE_SECONDS, _REPLAY = 2e-6, 8e-5, 10.0
_SHARD = 64  # records that are sealed together
_NUMBERS = 2**17  # products that are summed together, which fit the cache


def check_algorithm(name: str, algorithm: Any) -> None:
    """Raise `BadParameterError` unless a fleet can run the algorithm."""
    fits = isinstance(algorithm, PrivateFPL) and isinstance(algorithm.noise, BLT)
    fits = fits and isinstance(algorithm.solver, (Exact, Tracking)) and not algorithm.publish_regret
    if not fits or algorithm.guarantee.unit != "one row":
        expected = "PrivateFPL with noise=BLT(), solver=Exact() or Tracking(), one row as its unit, and no regret"
        raise BadParameterError(name, algorithm, expected, advice=_INSTEAD)


class _Known(Tracked):
    """State of `Tracking` at a release that is read again."""

    def follow(self, packed_gram: FloatArray, shift: float, *, plain: bool) -> Tracked:
        return self


class Published(NamedTuple):
    """A release as it is kept. Publishable, with the public facts of its records."""

    order: int  #: number of the release in the fleet
    number: int  #: of the tenant
    t: int
    n: int  #: number of the release of this tenant
    packed: FloatArray  #: noisy sum
    span: FloatArray | None  #: of the solver; None if it keeps none


class Records:
    """Records of one algorithm, one a key, in one structured array. As secret as the rows.

    A record of zeros is that of a tenant without rows. ``places`` has the place of each key, in order; -1 once it is
    retired. Its place is not used again.
    """

    def __init__(
        self, algorithm: PrivateFPL, admission: Admission, guarantee: Guarantee, source: Any, depth: int
    ) -> None:  # fmt: skip
        self.algorithm, self.depth = algorithm, depth
        randomness, start = source
        terms = Terms(guarantee, admission.row_norm, admission.features, *admission.ranges())
        setting = Setting(terms, (*admission.settings, "fleet", depth))
        d = admission.admitted_features or 0
        first = algorithm.start(d, randomness, setting, start=start)
        assert isinstance(first, FPLProcessor)
        self.first = first
        #: Rows of a tenant at which its records end.
        self.limit = min(MOST_ROWS, algorithm.horizon or MOST_ROWS)
        buffers, span = first.noise.buffers.shape, first.reading.span  # type: ignore[attr-defined]
        size = buffers[1]
        columns: list[Any] = [(name, "i8") for name in ("number", "order", "n", "t", "bad", "over")]
        columns += [("link", "V32"), ("sum", "i8", size), ("noise", "f8", size), ("packed", "f8", size), ("buffers", "f8", buffers)]
        columns += [] if span is None else [("span", "f8", span.shape[::-1])]
        self.dtype = np.dtype(columns)
        self.places: dict[Hashable, int] = {}
        self._pairs = np.triu_indices(d)
        self.all = np.zeros(0, self.dtype)
        self.generation = b""  # names the copy of a moved store
        self.reserve(1)

    def reserve(self, count: int) -> None:
        """Make room for ``count`` records."""
        if count > len(self.all):
            before, self.all = self.all, np.zeros(max(64, count, 2 * len(self.all)), self.dtype)
            self.all[: len(before)] = before
            self.t, self.sums = self.all["t"], self.all["sum"]

    def link(self, number: int) -> bytes:
        """Return the first chain value of a tenant."""
        key = self.first.source.first.link
        return blake2b(b"%d" % number, key=key, digest_size=32, person=b"streampca tenant").digest()

    def products(self, rows: FloatArray) -> IntArray:
        """Return the packed products of admitted rows, (n, size), in units of 2**-40."""
        steps = (rows * math.sqrt(UNIT)).astype(np.int64)
        first, second = self._pairs
        return steps.take(first, axis=-1) * steps.take(second, axis=-1)

    def absorb(
        self, places: IntArray, rows: FloatArray, bad: Mask | None, drop: bool, before: int,
        fresh: Sequence[bytes] | None,
    ) -> tuple[Change, list[tuple[int, Published]], list[bytes]]:
        """Return the change that absorbs rows, the releases with the row that completed each, and fresh bytes.

        Raises `HorizonReachedError` before any row unless rows past the limit are dropped.
        """
        algorithm, every = self.algorithm, self.algorithm.release_every
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        at = np.flatnonzero(np.diff(ordered, prepend=-1))
        touched = ordered[at]
        # The number of each row in its tenant.
        group = np.repeat(np.arange(len(at)), np.diff(at, append=len(ordered)))
        rows_after = self.t[touched]
        t = rows_after[group] + np.arange(1, len(ordered) + 1) - at[group]
        further = Change()
        if (over := t > self.limit).any():
            if not drop:
                key = [*self.places, "a new one"][int(ordered[over.argmax()])]
                raise HorizonReachedError(
                    f"tenant {key!r} has reached its horizon of {self.limit} rows. No row of this call was absorbed; "
                    "on_exhausted='drop' leaves such rows out"
                )
            counts = np.bincount(group[over], minlength=len(at))
            further.append((self.all["over"], touched, self.all["over"][touched] + counts))
            order, group, t = order[~over], group[~over], t[~over]
        np.maximum.at(rows_after, group, t)
        if bad is not None:
            counts = np.bincount(group, bad[order], len(at)).astype(np.int64)
            further.append((self.all["bad"], touched, self.all["bad"][touched] + counts))
        # Rows of a tenant between two of its releases are summed together. Integers: no order changes the sum.
        ends = (t % every == 0) | (t == algorithm.horizon)
        part = np.cumsum((np.diff(group, prepend=-1) != 0) | np.append(False, ends[:-1])) - 1
        last = np.flatnonzero(np.diff(part, append=len(part)))
        sums = np.zeros((len(last), self.sums.shape[1]), np.int64)
        for start in range(0, len(part), step := max(1, _NUMBERS // sums.shape[1])):
            some = part[start : start + step]
            cuts = np.flatnonzero(np.diff(some, prepend=-1))
            sums[some[cuts]] += np.add.reduceat(self.products(rows[order[start : start + step]]), cuts)
        done, owner = ends[last], group[last]
        sums_after, drawn, released = self.sums[touched], list[bytes](), []
        # Only records that release are copied as a whole.
        those, copied = np.unique(owner[done], return_inverse=True)
        draft = self.draft(touched[those])
        # In the order of arrival, so that the fresh bytes of a replay meet their vectors.
        arrived = np.argsort(order[last[done]])
        due = np.flatnonzero(done)[arrived]
        found = due, owner[due], copied[arrived], t[last[due]], order[last[due]]
        for j, g, i, at_row, row in zip(*(each.tolist() for each in found), strict=True):
            sums_after[g] += sums[j]
            released.append((row, self.release_in(draft, i, sums_after[g], at_row, before + len(released), fresh, drawn)))
        sums_after[owner[~done]] += sums[~done]
        change: Change = [(self.all, touched[those], draft[""])] if released else []
        change += [(self.sums, touched, sums_after), (self.t, touched, rows_after), *further]
        return change, released, drawn

    def draft(self, places: IntArray) -> dict[str, Any]:
        """Return copies of some records, which the next releases change, and of each column a view of them."""
        records = self.all[places]
        return {name: records[name] for name in self.dtype.names or ()} | {"": records}

    def release_in(
        self, draft: dict[str, Any], i: int, sums: IntArray, t: int, before: int, fresh: Sequence[bytes] | None,
        drawn: list[bytes],
    ) -> Published:  # fmt: skip
        """Release the sum of record i of a draft after t rows; its fresh bytes are appended to ``drawn``.

        ``before`` releases of the fleet precede it.
        """
        first, number, n = self.first, int(draft["number"][i]), int(draft["n"][i])
        chain = Chain(n, draft["link"][i].tobytes() if n else self.link(number))
        outlet = Outlet(first.source, chain, None if fresh is None else fresh[len(drawn) : len(drawn) + 1])
        rule, std = first.noise.rule, self.algorithm.mechanism.std_chunks.at(n + 1)  # type: ignore[attr-defined]
        parts = np.empty((2, sums.size))
        parts[0] = sums >> UNIT_BITS
        np.multiply(sums & LOW, 1.0 / UNIT, out=parts[1])
        noise = BufferedNoise(rule, n, draft["buffers"][i], draft["noise"][i])
        noise, packed = outlet.running("gram", GramSum(first.n_features, parts), noise, std)
        after = {"n": n + 1, "order": before + 1, "link": outlet.chain.link, "packed": packed, "noise": noise.noise}
        after["buffers"], span = noise.buffers, None
        if "span" in draft:
            reading = Tracked(draft["span"][i].T) if n else first.reading
            span = first.published(t, packed, std, reading, {})[0].span
            assert span is not None
            after["span"] = span.T
        for name, value in after.items():
            draft[name][i] = value
        drawn += outlet.fresh
        return Published(before + 1, number, t, n + 1, packed, span)

    def latest(self, place: int) -> Published | None:
        """Return the latest release of a record."""
        record, algorithm = self.all[place], self.algorithm
        if not (n := int(record["n"])):
            return None
        span = record["span"].T.copy(order="F") if "span" in self.dtype.names else None
        t = min(n * algorithm.release_every, algorithm.horizon or MOST_ROWS)
        return Published(int(record["order"]), int(record["number"]), t, n, record["packed"].copy(), span)

    def release(self, one: Published) -> Release:
        """Return a release with its public facts. Only releases of one tenant have one name of a run."""
        first, std = self.first, self.algorithm.mechanism.std_chunks.at(one.n)
        run = {**(first.terms.run or {}), "name": run_name(self.link(one.number) + self.generation)}
        named = first.after(one.t, first.chain, terms=replace(first.terms, run=run))
        reading = Reading() if one.span is None else _Known(one.span)
        return named.published(one.t, one.packed, std, reading, {})[1]


@dataclass(slots=True, eq=False)
class FleetStep:
    """A row of a tenant, with the release that it completed.

    Attributes
    ----------
    key : key of the tenant; in a total, the first parts of the keys, a tuple.
    t : number of rows of this tenant.
    number : number of the release in the fleet, or None.
    release : the release, or None. Publishable. It is computed when it is read.
    """

    key: Any
    t: int
    _records: Records = field(repr=False)
    _published: Published | None = field(default=None, repr=False)

    @property
    def number(self) -> int | None:
        """Number of the release in the fleet, or None."""
        return None if self._published is None else self._published.order

    @property
    def release(self) -> Release | None:
        """The release, or None. Publishable."""
        return None if self._published is None else self._records.release(self._published)


@dataclass(slots=True, eq=False)
class Tenant(FleetStep):
    """A tenant, or a total, after its latest row; ``release`` is its latest.

    Attributes
    ----------
    bad_rows, dropped : numbers of bad rows, and of rows after the horizon. Curator only.
    subspace : that of the release; the first coordinate axes before any. Publishable.
    guarantee : of all releases of the fleet together.
    """

    bad_rows: int = 0
    dropped: int = 0

    @property
    def subspace(self) -> Subspace:
        """Subspace of the latest release; the first coordinate axes before any. Publishable."""
        first, release = self._records.first, self.release
        d, k = first.n_features - int(first.algorithm.center), first.algorithm.n_components
        return Subspace(np.eye(d, k)) if release is None else release.subspace

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all releases of the fleet together."""
        return self._records.first.terms.guarantee


class Fleet:
    """Many small streams of one algorithm, one for each key.

    Parameters
    ----------
    algorithm : a `PrivateFPL` with ``noise=BLT()`` and the solver `Exact` or `Tracking`, for every tenant.
    features : names of the features, or their number.
    bounds, row_norm, account, seed, key : as for `Stream`, without private bounds.
    store : path of a database that makes the fleet durable; None keeps it in memory.
    totals : algorithms for sums over tenants, with noise of their own: ``{0: algorithm}`` for the sum of all. If keys
        are tuples, such as ``("eu", "shop-17")``, one for each number of first parts: ``{0: algorithm, 1: algorithm}``.
    max_tenants_per_user : number m of tenants in which one unit has rows, at most one in each. The caller checks it.
    on_exhausted : ``"raise"`` refuses a call with a row after the horizon of its tenant or total; ``"drop"`` counts
        such a row there and does not add it.

    Notes
    -----
    A key is text, bytes (1 to 255) or an integer. Its first row begins the tenant. Keys, and when rows come, are public
    (`streampca.fleet` states the theorem). Every call is one commit: after an exception none of its rows is absorbed. A
    tenant has at most 2**23 - 1 rows. A fleet cannot be copied, and a forked child cannot use it.

    Examples
    --------
    >>> import streampca as sp
    >>> algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=2)
    >>> fleet = sp.Fleet(algorithm, features=2, row_norm=1.0)
    >>> steps = fleet.push_many(["shop-1", "shop-2", "shop-1"], [[0.5, 0.1], [0.2, 0.3], [0.4, 0.1]])
    >>> [(step.key, step.t) for step in steps], fleet["shop-2"].t, len(fleet)
    ([('shop-1', 2)], 1, 2)
    """

    def __init__(
        self, algorithm: PrivateFPL, *, features: Sequence[str] | int, bounds: Any = None, row_norm: float | None = None,
        store: str | os.PathLike[str] | None = None, totals: Mapping[Any, PrivateFPL] | None = None,
        max_tenants_per_user: int = 1, on_exhausted: Literal["raise", "drop"] = "raise",
        account: Account | None = None, seed: int | None = None, key: bytes | None = None,
    ) -> None:  # fmt: skip
        if isinstance(bounds, str):
            raise BadParameterError("bounds", bounds, "public bounds", advice=_INSTEAD)
        check_algorithm("algorithm", algorithm)
        template = Stream(
            algorithm, bounds=bounds, row_norm=row_norm, features=features, regret=None, account=account, seed=seed,
            key=key,
        )  # fmt: skip
        options = {"totals": totals or {}, "max_tenants_per_user": max_tenants_per_user, "on_exhausted": on_exhausted}
        self.begin(template, **options)
        self._debit = template.engine.start_id
        if store is not None:
            self._store = FleetStore(store, {**options, "totals": {str(d): a for d, a in self._totals.items()}})
            self._store.begin(template.engine)

    def begin(
        self, template: Stream, totals: Mapping[Any, PrivateFPL], max_tenants_per_user: int, on_exhausted: str
    ) -> None:  # fmt: skip
        """Begin without rows; ``template`` has the settings of a tenant."""
        engine, m = template.engine, max_tenants_per_user
        admission, algorithm = engine.now.admission, engine.algorithm
        check_count("max_tenants_per_user", m)
        if on_exhausted not in ("raise", "drop"):
            raise BadParameterError("on_exhausted", on_exhausted, "'raise' or 'drop'")
        if admission.n_features is None:
            raise BadParameterError("features", None, "names, or their number")
        self._totals = {int(depth or 0): total for depth, total in totals.items()}
        for total in self._totals.values():
            check_algorithm("totals", total)
            if (total.center, total.adjacency) != (algorithm.center, algorithm.adjacency):
                raise BadParameterError("totals", total, "center= and adjacency= of the algorithm of the tenants")
        self._engine, self._admission, self._drops = engine, admission, on_exhausted == "drop"
        self._depth = 1 + max(self._totals, default=0)  # parts of a key; a key of one part is no tuple
        self.guarantee = self._composed(engine.guarantee_of(admission), m)
        source = engine.randomness, None if engine.randomness.is_seeded else engine.start_id
        self._levels = [
            Records(each, admission, self.guarantee, source, depth)  # type: ignore[arg-type]
            for depth, each in {self._depth: algorithm, **self._totals}.items()
        ]
        self._tenants = self._levels[0]
        # Numbers of tenants begun, of retired ones, of releases and of commits; packets by keys and address; nonces.
        self._now: dict[str, Any] = {"begun": 0, "retired": 0, "releases": 0, "commits": 0, "position": None}
        self._now |= {"packets": {}, "taken": []}
        self._pending: tuple[Change, int] | None = None
        self._store: FleetStore | None = None
        self._debit: bytes | None = None  # to be paid before the next row
        self._replay_seconds, self._lost = 0.0, ""
        self.guard = Guard("fleet")
        tell_of_forks(self)

    def _composed(self, one: Guarantee, m: int) -> Guarantee:
        """Return the guarantee of the whole fleet from that of one tenant, by the theorem of this module."""
        assert one.mu is not None
        mu = math.sqrt(m * one.mu**2 + m**2 * math.fsum(total.mu**2 for total in self._totals.values()))
        return replace(
            one, mu=mu, epsilon=one.epsilon if mu == one.mu else gaussian.epsilon_at(mu, one.delta),
            unit="one row of one tenant" if m == 1 else f"one unit in up to {m} tenants, with one row of each",
            contribution="one row" if m == 1 else f"{m} rows",
            scope=f"{one.scope} of each tenant, all together; the tenant of a row, and when it comes, are public",
            theorem=f"{one.theorem}; parallel composition over tenants, adaptive",
        )  # fmt: skip

    @classmethod
    def resume(cls, store: str | os.PathLike[str], *, moved: bool = False) -> Self:
        """Continue the fleet of a store, with the releases of an uninterrupted one. Parameters and errors as `Stream`."""
        file, fleet = FleetStore(store), cls.__new__(cls)
        file.rebuild(fleet, moved=moved)
        fleet._store = file
        if moved or not fleet._now["commits"]:
            fleet._debit = fleet._engine.start_id
        if moved:
            # Noise after the rows of the store is fresh in every copy. This one is named and paid for as another run.
            fleet._debit = os.urandom(16)
            fleet._commit(fleet._named(fleet._debit), dict(fleet._now), ["moved", fleet._debit])
        return fleet

    def _named(self, generation: bytes) -> Change:
        return [(vars(records), "generation", generation) for records in self._levels]

    # -- rows -----------------------------------------------------------------------

    def push(self, key: Any, row: Any) -> FleetStep:
        """Feed one row of a tenant. Raises as `push_many`."""
        step = self._push_one(key, row)
        if step is None:
            found = [one for one in self.push_many([key], [row]) if one._records is self._tenants]
            step = found[0] if found else FleetStep(key, self[key].t, self._tenants)
        return step

    @exclusive
    def _push_one(self, key: Any, row: Any) -> FleetStep | None:
        """Absorb a row of a tenant in memory, with few calls; None for a row that needs more."""
        tenants, algorithm = self._tenants, self._tenants.algorithm
        self._ready()
        place = tenants.places.get(key, -1) if isinstance(key, Hashable) else -1
        if place < 0 or self._store is not None or self._totals:
            return None
        t = int(tenants.t[place]) + 1
        if t > tenants.limit:
            return None
        admitted, counts = self._admission.row(row, t)
        sums = tenants.sums[place] + tenants.products(admitted[0])
        change: Change = [(tenants.sums, place, sums), (tenants.t, place, t)]
        if counts.bad:
            bad = tenants.all["bad"]
            change.append((bad, place, bad[place] + counts.bad))
        one = None
        if t % algorithm.release_every == 0 or t == algorithm.horizon:
            draft, before = tenants.draft(np.array([place])), self._now["releases"]
            one = tenants.release_in(draft, 0, sums, t, before, None, [])
            change = [(tenants.all, [place], draft[""]), (self._now, "releases", before + 1), *change]
        self._pending = change, 0
        self._settle()
        return FleetStep(key, t, tenants, one)

    def push_many(self, keys: Any, rows: Any, position: Position | None = None) -> list[FleetStep]:
        """Feed rows of tenants, one key a row; return a step for each release, in order.

        Parameters
        ----------
        keys : sequence of keys, or a column of a table.
        rows : as for `Stream.push_many`.
        position : of their source after these rows, kept in the same commit.

        Raises
        ------
        BadRowError, BadParameterError, HorizonReachedError, TenantRetiredError
            If a row has the wrong shape, a key is none or is retired, or a tenant has no row left. No row is absorbed.
        """
        block, names = as_block(rows), keys.tolist() if hasattr(keys, "tolist") else list(keys)
        return self._push_all(names, block, position)

    @exclusive
    def _push_all(self, names: list[Any], block: Any, position: Position | None) -> list[FleetStep]:
        self._ready()
        values = self._admission.all_values(block, 1)
        if len(names) != len(values):
            raise BadParameterError("keys", len(names), f"one for each of {len(values)} rows")
        admitted, marks = self._admission.block(values, 1)
        reasons = marks.reasons
        bad = None if reasons is None else (reasons >= 0) & (reasons < len(REASONS))
        return self._absorb(names, admitted, bad, position) if names else []

    def _absorb(
        self, names: list[Any], rows: FloatArray, bad: Mask | None, position: Any, fresh: Sequence[bytes] | None = None
    ) -> list[FleetStep]:
        """Absorb admitted rows in one commit; ``fresh`` are the bytes of a replay."""
        change, steps, drawn, now = Change(), list[FleetStep](), list[bytes](), dict(self._now)
        for records in self._levels:
            own = records is self._tenants
            keys = names if own else [name[: records.depth] if self._depth > 1 else () for name in names]
            places = self._places(records, keys, change, now)
            left = None if fresh is None else fresh[len(drawn) :]
            more, released, used = records.absorb(places, rows, bad, self._drops, now["releases"], left)
            change += more
            drawn += used
            now["releases"] += len(released)
            steps += [FleetStep(keys[i], one.t, records, one) for i, one in released]
        now["position"] = position
        entry = None if self._store is None else ["rows", names, words_of(rows), bad, position, drawn]
        self._commit(change, now, entry, steps, _ROW_SECONDS * len(rows) + _RELEASE_SECONDS * len(steps))
        return steps

    def _places(self, records: Records, keys: list[Any], change: Change, now: dict[str, Any]) -> IntArray:
        """Return the places of keys; new ones are begun by ``change`` and counted in ``now``."""
        try:
            found: list[Any] = list(map(records.places.get, keys))
        except TypeError:  # not hashable
            raise BadParameterError("keys", ..., _KEYS) from None
        if None in found:
            begun, count = dict[Any, int](), len(records.places)
            for i, key in enumerate(keys):
                if found[i] is None:
                    if key not in begun:
                        self._check_key(key, records.depth)
                        begun[key] = count + len(begun)
                    found[i] = begun[key]
            records.reserve(count + len(begun))
            for key, place in begun.items():
                now["begun"] += 1
                records.all["number"][place] = now["begun"]  # of a place that nothing refers to before the commit
                change.append((records.places, key, place))
        places = np.array(found, dtype=np.int64)
        if places.min() < 0:
            key = keys[int(places.argmin())]
            raise TenantRetiredError(f"tenant {key!r} was retired, and its budget is spent. Use another key")
        return places

    def _check_key(self, key: Any, depth: int) -> None:
        """Raise `BadParameterError` unless a key, or the first parts of one, can begin a record."""
        parts = key if self._depth > 1 or depth == 0 else (key,)
        is_key = isinstance(parts, tuple) and len(parts) == depth
        for part in parts if is_key else ():
            size = len(part.encode() if isinstance(part, str) else part) if isinstance(part, (str, bytes)) else 1
            is_key = is_key and type(part) in (str, bytes, int) and 0 < size < 256
            is_key = is_key and (type(part) is not int or part.bit_length() < 64)
        if not is_key:
            raise BadParameterError("keys", key, f"a tuple of {self._depth}: {_KEYS}" if self._depth > 1 else _KEYS)

    def run(self, rows: Any, key: str) -> Iterator[FleetStep]:
        """Feed rows with a column of keys, lazily; yield a step for each release.

        Parameters
        ----------
        rows : a pandas or polars frame; an iterable of mappings; or a source of `streampca.sources` whose features
            contain ``key``, a column of whole numbers. A fleet continues a source at its own position, which is part of
            each commit: the messages of a Kafka partition count once.
        key : name of the column of keys.
        """
        for names, block, position in self._batches(rows, key):
            yield from self.push_many(names, block, position)
            if position is not None:
                rows.durable(position.at)

    def _batches(self, rows: Any, key: str) -> Iterator[tuple[Any, Any, Position | None]]:
        """Yield keys, rows and the position after them."""
        features = self._admission.features
        if is_frame(rows) and features is not None:
            for start in range(0, len(rows), _ROWS):
                part = rows[start : start + _ROWS]
                yield list(part[key]), part[list(features)], None
        elif isinstance(rows, RowSource):
            if features is None or not {key, *features} <= set(rows.features):
                raise UsageError(f"key={key!r}: the source has no such column, or lacks features of this fleet")
            columns, last = [rows.features.index(name) for name in (key, *features)], self._now["position"]
            positioned = rows if isinstance(rows, PositionedSource) else None
            if positioned is not None and self._now["commits"] and (last is None or last[0] != positioned.name):
                raise UsageError("the previous rows came from another source. Continue that one, or begin a fleet")
            found = rows.blocks() if positioned is None else positioned.blocks_from(None if last is None else last[1])
            for block in found:
                values = block if positioned is None else block.rows  # type: ignore[union-attr]
                for start in range(0, len(values), _ROWS):
                    part = values[start : start + _ROWS][:, columns]
                    if not (part[:, 0] == np.rint(part[:, 0])).all() or np.abs(part[:, 0]).max() > 2.0**53:
                        raise BadParameterError("key", key, "a column of whole numbers in a source of numbers")
                    at = None if positioned is None else block.after(start + len(part))  # type: ignore[union-attr]
                    place = None if positioned is None else Position(positioned.name, at)
                    yield part[:, 0].astype(np.int64), np.ascontiguousarray(part[:, 1:]), place
        else:
            left = iter(rows)
            while batch := list(islice(left, _ROWS)):
                yield [row[key] for row in batch], batch, None

    # -- tenants that end or move -----------------------------------------------------

    @exclusive
    def retire(self, *keys: Any) -> None:
        """End tenants: their records are erased, and their keys refused from then on, because their budget is spent."""
        self._ready()
        self._commit(*self._without(keys), ["retire", list(keys)])

    def _without(self, keys: Sequence[Any]) -> tuple[Change, dict[str, Any]]:
        """Return the change that retires tenants; `KeyError` for an unknown one."""
        places, empty = [self._place(self._tenants, key) for key in dict.fromkeys(keys)], np.zeros(1, self._tenants.dtype)
        change: Change = [(self._tenants.all, [place], empty) for place in places]
        change += [(self._tenants.places, key, -1) for key in keys]
        return change, {**self._now, "retired": self._now["retired"] + len(places)}

    @property
    def address(self) -> str:
        """Address of this fleet, to which another one hands over tenants. Public."""
        return secret_of(self._engine, self._tenants.generation)[1].hex()

    @exclusive
    def hand_over(self, keys: Sequence[Any], to: str) -> bytes:
        """Retire tenants here, and return a packet with which the fleet of address ``to`` continues them.

        The packet is sealed for that fleet. Another call with the same keys and address returns the same packet. The
        rows of the tenants stay in the totals of this fleet, and do not enter those of the other one.
        """
        self._ready()
        name = encode([list(keys), to])
        if name not in self._now["packets"]:
            records = [self._tenants.all[self._place(self._tenants, key)].tobytes() for key in keys]
            packet = packed_for(to, encode([self._law(), list(keys), records]))
            change, now = self._without(keys)
            now["packets"] = {**now["packets"], name: packet}
            self._commit(change, now, ["hand_over", list(keys), name, packet])
        return bytes(self._now["packets"][name])

    @exclusive
    def take(self, packet: bytes) -> None:
        """Continue the tenants of a packet from `hand_over`, once. `UsageError` if it is for another fleet, or known."""
        self._ready()
        nonce, data = opened(*secret_of(self._engine, self._tenants.generation), packet)
        law, keys, records = decode(data)
        if law != self._law():
            raise UsageError("packet: from a fleet with other parameters, or of another version. Make both alike")
        if nonce in self._now["taken"]:
            raise UsageError("packet: it was taken before. Each packet is taken once")
        self._taken(nonce, [_key(key) for key in keys], records)

    def _taken(self, nonce: bytes, keys: list[Any], records: list[bytes]) -> None:
        change, now = Change(), dict(self._now)
        if known := [key for key in keys if key in self._tenants.places]:
            raise BadParameterError("packet", ..., f"tenants that this fleet does not know, unlike {known[0]!r}")
        places = self._places(self._tenants, keys, change, now)
        rows = np.frombuffer(b"".join(records), self._tenants.dtype).copy()
        # Later vectors are drawn with the keys of this fleet. Numbers name chains here, and releases count from 0.
        rows["number"], rows["order"] = self._tenants.all["number"][places], 0
        now["taken"] = [*now["taken"], nonce]
        self._commit([*change, (self._tenants.all, places, rows)], now, ["take", nonce, keys, records])

    def _law(self) -> dict[str, Any]:
        """Return what two fleets must share to continue each other's tenants. Public."""
        label = label_of(self._tenants.algorithm, self._admission)
        return {**label, "features": list(self._admission.features or ()), "depth": self._depth}

    # -- the commit -------------------------------------------------------------------

    def _ready(self) -> None:
        """Raise if no row is accepted; complete an interrupted commit; pay before the first row."""
        if self._lost:
            raise StoreLockedError(self._lost)
        if self._pending is not None:
            self._settle()
        if self._debit is not None:
            if self._engine.account is not None:
                self._engine.account.debit(self.guarantee, self._debit)
            self._debit = None

    def _commit(
        self, change: Change, now: dict[str, Any], entry: Any = None, steps: Sequence[FleetStep] = (), seconds: float = 0.0
    ) -> None:
        """Commit a change: to the store, if there is one, then here."""
        now["commits"] += 1
        change += [(self._now, name, value) for name, value in now.items()]
        # Without a store this assignment is the commit point, else the transaction. `_settle` decides after an interrupt.
        self._pending = change, now["commits"]
        if self._store is not None:
            self._store.append(encode(entry), self._kept(steps))
        self._settle()
        self._replay_seconds += seconds
        if self._store is not None:
            size = sum(len(records.places) * records.dtype.itemsize for records in self._levels)
            if self._replay_seconds > _REPLAY or self._store.logged > max(size, 2**20):
                self._fold()

    def _settle(self) -> None:
        """Make the assignments of the latest commit, unless its transaction failed."""
        if self._pending is not None:
            change, number = self._pending
            if self._store is None or self._store.noted() >= number:
                for target, place, value in change:
                    target[place] = value
            self._pending = None

    def _kept(self, steps: Sequence[FleetStep]) -> list[tuple[int, bytes]]:
        """Return the releases of steps with their numbers, as they are stored. Publishable."""
        return [
            (one.order, encode([self._levels.index(step._records), step.key, *one]))
            for step in steps
            if (one := step._published) is not None
        ]

    def _fold(self) -> None:
        """Replace the log of the store by the records."""
        assert self._store is not None
        keys = [[list(records.places), list(records.places.values())] for records in self._levels]
        packets = list(self._now["packets"].items())
        state = encode([{**self._now, "packets": packets}, keys, [records.generation for records in self._levels]])

        def pieces() -> Iterator[bytes]:
            yield state
            for records in self._levels:
                for start in range(0, len(records.places), _SHARD):
                    yield records.all[start : min(start + _SHARD, len(records.places))].tobytes()

        self._store.fold(pieces())
        self._replay_seconds = 0.0

    def restore(self, pieces: Iterator[bytes]) -> None:
        """Set an empty fleet to the state of `_fold`."""
        now, keys, generations = decode(next(pieces))
        self._now |= {**now, "packets": dict(now["packets"])}
        for records, (names, places), generation in zip(self._levels, keys, generations, strict=True):
            records.reserve(len(names))
            records.places.update(zip(map(_key, names), places, strict=True))
            records.generation = generation
            for start in range(0, len(names), _SHARD):
                part = np.frombuffer(next(pieces), records.dtype)
                records.all[start : start + len(part)] = part

    def replay(self, entry: list[Any]) -> list[tuple[int, bytes]]:
        """Make an entry of the log again; return its releases as they are stored."""
        kind, *parts = entry
        steps: list[FleetStep] = []
        if kind == "rows":
            names, words, bad, position, fresh = parts
            steps = self._absorb(list(map(_key, names)), words * STEP, bad, position, fresh)
        elif kind == "take":
            self._taken(parts[0], list(map(_key, parts[1])), parts[2])
        elif kind == "moved":
            self._commit(self._named(parts[0]), dict(self._now))
        else:
            change, now = self._without(list(map(_key, parts[0])))
            if kind == "hand_over":
                now["packets"] = {**now["packets"], parts[1]: parts[2]}
            self._commit(change, now)
        return self._kept(steps)

    # -- reading ----------------------------------------------------------------------

    def _place(self, records: Records, key: Any) -> int:
        place = records.places.get(key)
        if place is None:
            raise KeyError(key)
        if place < 0:
            raise TenantRetiredError(f"tenant {key!r} was retired, and its record is erased")
        return place

    @exclusive
    def _view(self, records: Records, key: Any) -> Tenant:
        self._settle()
        place = self._place(records, key)
        counts = (int(records.all[name][place]) for name in ("bad", "over"))
        return Tenant(key, int(records.t[place]), records, records.latest(place), *counts)

    def __getitem__(self, key: Any) -> Tenant:
        return self._view(self._tenants, key)

    def total(self, *prefix: Any) -> Tenant:
        """Return the sum over all tenants, or over those whose keys begin with these parts."""
        for records in self._levels[1:]:
            if records.depth == len(prefix):
                return self._view(records, prefix)
        raise UsageError(f"totals: none for keys of {len(prefix)} parts. Pass totals=")

    @exclusive
    def releases(self, since: int = 0) -> Iterator[FleetStep]:
        """Return the releases after that of number ``since``, in order. Publishable.

        In memory these are the latest of each tenant and total; a store has all.
        """
        self._settle()
        if self._store is not None:
            return map(self._read, self._store.kept(since))
        found = []
        for records in self._levels:
            for key, place in records.places.items():
                one = records.latest(place) if place >= 0 else None
                if one is not None and one.order > since:
                    found.append(FleetStep(key, one.t, records, one))
        return iter(sorted(found, key=lambda step: step.number or 0))

    def _read(self, data: bytes) -> FleetStep:
        level, key, *one = decode(data)
        published = Published(*one)
        return FleetStep(_key(key), published.t, self._levels[level], published)

    def __len__(self) -> int:
        return len(self._tenants.places) - int(self._now["retired"])

    def __contains__(self, key: object) -> bool:
        return self._tenants.places.get(key, -1) >= 0

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, place in self._tenants.places.items() if place >= 0])

    def __repr__(self) -> str:
        return f"<Fleet of {self._tenants.algorithm!r}, {len(self)} tenants: {self.guarantee.brief}>"

    def __reduce__(self) -> Any:
        raise UsageError("a fleet cannot be copied or pickled. Two copies would spend the budget of each tenant twice")

    def after_fork(self) -> None:
        """Leave the fleet to the parent."""
        self._lost = "this fleet belongs to the parent process of this one. Use it there"

    def close(self) -> None:
        """Close the store; the fleet accepts no more rows."""
        if self._store is not None:
            self._store.close()
            self._lost = "the store of this fleet was closed. Continue with Fleet.resume(store)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(stored: Any) -> Any:
    """Return a key as it was before it was encoded."""
    return tuple(stored) if isinstance(stored, list) else stored
