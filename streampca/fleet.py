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
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np

from streampca.conversion import as_block
from streampca.errors import BadParameterError, HorizonReachedError, StoreLockedError, TenantRetiredError, UsageError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import LOW, UNIT, UNIT_BITS, GramSum
from streampca.linalg.types import FloatArray, IntArray, Mask
from streampca.matrix_factorization.blt import BufferedNoise
from streampca.matrix_factorization.noises import BLT
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Account, Guarantee
from streampca.privacy.outlet import Chain, Outlet
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Setting, run_name
from streampca.processors.private_fpl import FPLProcessor, PrivateFPL
from streampca.processors.solvers import Exact, Reading, Tracked, Tracking
from streampca.release.release import Release
from streampca.release.subspace import Subspace
from streampca.release.terms import Terms
from streampca.rows.admission import REASONS, Admission
from streampca.rows.protocol import Position
from streampca.stream.stream import Stream

Key = str | bytes | int
#: Assignments ``target[place] = value``. Making them twice has the effect of making them once.
Change = list[tuple[Any, Any, Any]]

#: Rows of a tenant below which its sum fits 64 bits: entries of at most one unit a row, in units of 2**-40.
MOST_ROWS = 2**23 - 1
_KEYS = "text, bytes (1 to 255 bytes) or an integer of 64 bits"
_INSTEAD = "Use a Stream a tenant"
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


class Draft(NamedTuple):
    """Copies of records, which releases change before they are committed, and views of their columns."""

    places: IntArray
    records: Any
    counts: list[IntArray]  # number, order and n
    link: Any
    noise: FloatArray
    packed: FloatArray
    buffers: FloatArray
    span: FloatArray | None


class Records:
    """Records of one algorithm, one a key, in one structured array. As secret as the rows.

    A record of zeros is that of a tenant without rows. ``places`` has the place of each key; -1 of a retired one.
    """

    def __init__(self, algorithm: PrivateFPL, admission: Admission, guarantee: Guarantee, source: Any, depth: int) -> None:
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
        self.keys: dict[int, Hashable] = {}
        self._pairs = np.triu_indices(d)
        self.reserve(0)

    def reserve(self, count: int) -> None:
        """Make room for ``count`` records."""
        if count > len(getattr(self, "all", ())) or not count:
            more = np.zeros(max(64, count, 2 * len(self.keys)), self.dtype)
            if count:
                more[: len(self.all)] = self.all
            self.all = more
            self.t, self.sums = more["t"], more["sum"]

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
                key = self.keys.get(int(ordered[over.argmax()]), "a new one")
                raise HorizonReachedError(
                    f"tenant {key!r} has reached its horizon of {self.limit} rows. No row of this call was absorbed; "
                    "on_exhausted='drop' leaves such rows out"
                )
            further.append((self.all["over"], touched, self.all["over"][touched] + np.bincount(group[over], minlength=len(at))))
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
        change: Change = [(self.all, draft.places, draft.records)] if released else []
        change += [(self.sums, touched, sums_after), (self.t, touched, rows_after), *further]
        return change, released, drawn

    def draft(self, places: IntArray) -> Draft:
        """Return copies of some records, which the next releases change."""
        records = self.all[places]
        return Draft(places, records, [records[name] for name in self.dtype.names[:3]], *self._columns(records))

    def _columns(self, records: Any) -> tuple[Any, ...]:
        names = "link", "noise", "packed", "buffers", "span"
        return tuple(records[name] if name in self.dtype.names else None for name in names)

    def release_in(
        self, draft: Draft, i: int, sums: IntArray, t: int, before: int, fresh: Sequence[bytes] | None,
        drawn: list[bytes],
    ) -> Published:  # fmt: skip
        """Release the sum of record i of a draft after t rows; its fresh bytes are appended to ``drawn``.

        ``before`` releases of the fleet precede it.
        """
        (numbers, orders, ns), first = draft.counts, self.first
        number, n = int(numbers[i]), int(ns[i])
        chain = Chain(n, draft.link[i].tobytes() if n else self.link(number))
        outlet = Outlet(first.source, chain, None if fresh is None else fresh[len(drawn) : len(drawn) + 1])
        rule, std = first.noise.rule, self.algorithm.mechanism.std_chunks.at(n + 1)  # type: ignore[attr-defined]
        parts = np.empty((2, sums.size))
        parts[0] = sums >> UNIT_BITS
        np.multiply(sums & LOW, 1.0 / UNIT, out=parts[1])
        noise = BufferedNoise(rule, n, draft.buffers[i], draft.noise[i])
        noise, packed = outlet.running("gram", GramSum(first.n_features, parts), noise, std)
        span = None
        if draft.span is not None:
            reading = Tracked(draft.span[i].T) if n else first.reading
            span = first.published(t, packed, std, reading, {})[0].span
            assert span is not None
            draft.span[i] = span.T
        ns[i], orders[i], draft.link[i], draft.packed[i] = n + 1, before + 1, outlet.chain.link, packed
        draft.noise[i], draft.buffers[i] = noise.noise, noise.buffers
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
        run = {**(first.terms.run or {}), "name": run_name(self.link(one.number))}
        named = first.after(one.t, first.chain, terms=replace(first.terms, run=run))
        reading = Reading() if one.span is None else _Known(one.span)
        return named.published(one.t, one.packed, std, reading, {})[1]


@dataclass(slots=True, eq=False)
class FleetStep:
    """Result of a row of a tenant.

    Attributes
    ----------
    key : key of the tenant; the prefix of the keys, a tuple, in a release of a total.
    t : number of rows of this tenant.
    number : number of the release in the fleet, or None.
    release : the release that the row completed, or None. Publishable. Computed when it is read.
    """

    key: Any
    t: int
    number: int | None = None
    _published: Published | None = None
    _records: Records | None = field(default=None, repr=False)

    @property
    def release(self) -> Release | None:
        """The release that the row completed, or None. Publishable."""
        if self._published is None or self._records is None:
            return None
        return self._records.release(self._published)


@dataclass(frozen=True, slots=True, eq=False)
class Tenant:
    """Read-only view of one tenant, or of a total."""

    _fleet: Fleet
    _records: Records
    key: Any

    @property
    def t(self) -> int:
        """Number of rows."""
        return int(self._fleet.record(self._records, self.key)[0]["t"])

    @property
    def bad_rows(self) -> int:
        """Number of bad rows. Curator only."""
        return int(self._fleet.record(self._records, self.key)[0]["bad"])

    @property
    def dropped(self) -> int:
        """Number of rows after the horizon, which were left out."""
        return int(self._fleet.record(self._records, self.key)[0]["over"])

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first. Publishable."""
        one = self._fleet.record(self._records, self.key)[1]
        return None if one is None else self._records.release(one)

    @property
    def subspace(self) -> Subspace:
        """Subspace of the latest release; the first coordinate axes before any. Publishable."""
        if (release := self.release) is not None:
            return release.subspace
        algorithm, d = self._records.algorithm, self._records.first.n_features
        return Subspace(np.eye(d - algorithm.center, algorithm.n_components))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all releases of the fleet together."""
        return self._fleet.guarantee

    def __repr__(self) -> str:
        return f"<tenant {self.key!r}: {self.t} rows, {self.guarantee.brief}>"


class Fleet:
    """Many small streams of one algorithm, one for each key.

    Parameters
    ----------
    algorithm : a `PrivateFPL` with ``noise=BLT()`` and the solver `Exact` or `Tracking`, for every tenant.
    features : names of the features, or their number.
    bounds, row_norm, account, seed, key : as for `Stream`; ``bounds="private"`` is refused.
    store : path of the database that makes the fleet durable; None keeps it in memory.
    totals : algorithms for sums over tenants, with noise of their own: ``{"": algorithm}`` for the sum of all; with
        tuples as keys one for each length of a prefix, ``{0: algorithm, 1: algorithm}``.
    max_tenants_per_user : number m of tenants in which one unit has rows, at most one in each. The caller checks it.
    on_exhausted : ``"raise"`` refuses a call with a row after the horizon of its tenant; ``"drop"`` counts such rows
        and leaves them out.

    Notes
    -----
    A key is text, bytes of 1 to 255, or an integer. Its first row creates the tenant. Keys, and when rows come, are
    public. Every call is one commit: after an exception none of its rows is absorbed. A fleet cannot be copied, and
    the child of a fork must not use it. One tenant has at most 2**23 - 1 rows.

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
        store: str | None = None, totals: Mapping[Any, PrivateFPL] | None = None, max_tenants_per_user: int = 1,
        on_exhausted: Literal["raise", "drop"] = "raise", account: Account | None = None, seed: int | None = None,
        key: bytes | None = None,
    ) -> None:  # fmt: skip
        check_algorithm("algorithm", algorithm)
        check_count("max_tenants_per_user", max_tenants_per_user)
        if on_exhausted not in ("raise", "drop"):
            raise BadParameterError("on_exhausted", on_exhausted, "'raise' or 'drop'")
        if bounds == "private":
            raise BadParameterError("bounds", bounds, "public bounds", advice=_INSTEAD)
        levels = {0 if depth == "" else depth: total for depth, total in (totals or {}).items()}
        for depth, total in levels.items():
            check_count("totals", depth, least=0)
            check_algorithm("totals", total)
            if total.center != algorithm.center or total.adjacency != algorithm.adjacency:
                raise BadParameterError("totals", total, "center= and adjacency= of the algorithm of the tenants")
        template = Stream(
            algorithm, bounds=bounds, row_norm=row_norm, features=features, regret=None, account=account, seed=seed, key=key
        )
        if template.engine.now.admission.n_features is None:
            raise BadParameterError("features", features, "names, or a number")
        self._begin(template, levels, max_tenants_per_user, on_exhausted)

    def _begin(self, template: Stream, levels: dict[int, PrivateFPL], m: int, on_exhausted: str) -> None:
        """Begin without rows; ``template`` has the settings of a tenant."""
        engine = template.engine
        self._engine, self._admission, self._drops = engine, engine.now.admission, on_exhausted == "drop"
        self.algorithm: PrivateFPL = engine.algorithm  # type: ignore[assignment]
        self._depth = 1 + max(levels, default=0)  # parts of a key; a key of one part is no tuple
        self.guarantee = self._composed(engine.guarantee_of(self._admission), list(levels.values()), m)
        source = engine.randomness, None if engine.randomness.is_seeded else engine.start_id
        of = {self._depth: self.algorithm, **levels}
        self._levels = [Records(each, self._admission, self.guarantee, source, depth) for depth, each in of.items()]
        #: Number of tenants that were begun, of releases, and of commits; position of the source.
        self._now: dict[str, Any] = {"begun": 0, "releases": 0, "commits": 0, "position": None}
        self._pending: tuple[Change, int] | None = None
        self._store: Any = None
        self._paid, self._lost = False, ""
        self.guard = Guard("fleet")
        tell_of_forks(self)

    def _composed(self, one: Guarantee, totals: list[PrivateFPL], m: int) -> Guarantee:
        """Return the guarantee of the whole fleet from that of one tenant, by the theorem of this module."""
        assert one.mu is not None
        mu = math.sqrt(m * one.mu**2 + m**2 * math.fsum(total.mu**2 for total in totals))
        unit = "one row of one tenant" if m == 1 else f"one unit in up to {m} tenants, with one row of each"
        rows = "the tenant of a row, and when it comes, are public"
        return replace(
            one, mu=mu, epsilon=one.epsilon if mu == one.mu else gaussian.epsilon_at(mu, one.delta), unit=unit,
            contribution="one row" if m == 1 else f"{m} rows", scope=f"{one.scope} of each tenant, all together; {rows}",
            theorem=f"{one.theorem}; parallel composition over tenants, adaptive",
        )  # fmt: skip

    @property
    def _tenants(self) -> Records:
        return self._levels[0]

    # -- rows -----------------------------------------------------------------------

    def push(self, key: Key | tuple[Key, ...], row: Any) -> FleetStep:
        """Feed one row of a tenant. Raises as `push_many`."""
        step = self._push_one(key, row)
        if step is None:
            steps = self.push_many([key], [row])
            step = steps[0] if steps else FleetStep(key, self[key].t)
        return step

    @exclusive
    def _push_one(self, key: Any, row: Any) -> FleetStep | None:
        """Absorb a row of a tenant in memory, with few calls; None for a row that needs more."""
        tenants = self._tenants
        place = tenants.places.get(key, -1)
        self._ready()
        if place < 0 or self._store is not None or len(self._levels) > 1:
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
        step = FleetStep(key, t)
        if t % self.algorithm.release_every == 0 or t == self.algorithm.horizon:
            draft, before = tenants.draft(np.array([place])), self._now["releases"]
            one = tenants.release_in(draft, 0, sums, t, before, None, [])
            change = [(tenants.all, draft.places, draft.records), (self._now, "releases", before + 1), *change]
            step = FleetStep(key, t, before + 1, one, tenants)
        self._pending = change, 0
        self._settle()
        return step

    def push_many(self, keys: Any, rows: Any, position: Position | None = None) -> list[FleetStep]:
        """Feed rows of tenants, one key a row; return a step for each release, in order.

        Parameters
        ----------
        keys : sequence of keys, or a column of a table.
        rows : as for `Stream.push_many`.
        position : of the source after these rows; a durable fleet keeps it in their commit.

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
        if not names:
            return []
        admitted, marks = self._admission.block(values, 1)
        reasons = marks.reasons
        bad = None if reasons is None else (reasons >= 0) & (reasons < len(REASONS))
        return self._absorb(names, admitted, bad, position)

    def _absorb(
        self, names: list[Any], rows: FloatArray, bad: Mask | None, position: Position | None,
        fresh: Sequence[bytes] | None = None,
    ) -> list[FleetStep]:  # fmt: skip
        """Absorb admitted rows in one commit; ``fresh`` are the bytes of a replay."""
        change, steps, drawn, now = Change(), list[FleetStep](), list[bytes](), dict(self._now)
        for records in self._levels:
            keys = names if records is self._tenants else [self._prefix(name, records.depth) for name in names]
            places = self._places(records, keys, change, now)
            left = None if fresh is None else fresh[len(drawn) :]
            more, released, used = records.absorb(places, rows, bad, self._drops, now["releases"], left)
            change += more
            drawn += used
            now["releases"] += len(released)
            steps += [FleetStep(keys[i], one.t, one.order, one, records) for i, one in released]
        now |= {"commits": now["commits"] + 1, "position": position}
        self._commit(change, now)
        return steps

    def _prefix(self, name: Any, depth: int) -> tuple[Any, ...]:
        return tuple(name[:depth]) if self._depth > 1 else ()

    def _places(self, records: Records, keys: list[Any], change: Change, now: dict[str, Any]) -> IntArray:
        """Return the places of keys; new ones are begun by ``change`` and counted in ``now``."""
        try:
            found: list[Any] = list(map(records.places.get, keys))
        except TypeError:  # not hashable
            raise BadParameterError("keys", ..., _KEYS) from None
        if None in found:
            begun = dict[Any, int]()
            count = len(records.keys)
            for i, place in enumerate(found):
                if place is None and (key := keys[i]) not in begun:
                    self._check_key(key, records.depth)
                    begun[key] = count
                    count += 1
                if place is None:
                    found[i] = begun[keys[i]]
            records.reserve(count)
            for key, place in begun.items():
                now["begun"] += 1
                records.all["number"][place] = now["begun"]  # of a place that nothing refers to before the commit
                change += [(records.places, key, place), (records.keys, place, key)]
        places = np.array(found, dtype=np.int64)
        if places.min() < 0:
            raise TenantRetiredError(
                f"tenant {keys[int(places.argmin())]!r} was retired, and its budget is spent. Its rows need another key"
            )
        return places

    def _check_key(self, key: Any, depth: int) -> None:
        """Raise `BadParameterError` unless a key can begin a tenant."""
        parts = key if self._depth > 1 or depth < self._depth else (key,)
        is_key = isinstance(parts, tuple) and len(parts) == depth or (depth == 0 and parts == ())
        for part in parts if is_key else ():
            size = len(part.encode()) if isinstance(part, str) else len(part) if isinstance(part, bytes) else 1
            is_key = is_key and type(part) in (str, bytes, int) and 0 < size < 256
            is_key = is_key and not (type(part) is int and part.bit_length() > 63)
        if not is_key:
            tuples = f"a tuple of {self._depth}, each " if self._depth > 1 else ""
            raise BadParameterError("keys", key, tuples + _KEYS)

    # -- the commit -------------------------------------------------------------------

    def _ready(self) -> None:
        """Raise if no row is accepted; complete a commit that was interrupted; pay before the first row."""
        if self._lost:
            raise StoreLockedError(self._lost)
        self._settle()
        if not self._paid:
            if self._engine.account is not None:
                self._engine.account.debit(self.guarantee, self._engine.start_id)
            self._paid = True

    def _commit(self, change: Change, now: dict[str, Any]) -> None:
        change += [(self._now, name, value) for name, value in now.items()]
        # The commit point. `_settle` makes the assignments, again if an interrupt stopped it.
        self._pending = change, now["commits"]
        self._settle()

    def _settle(self) -> None:
        """Make the assignments of the latest commit."""
        if self._pending is not None:
            for target, place, value in self._pending[0]:
                target[place] = value
            self._pending = None

    # -- reading ----------------------------------------------------------------------

    @exclusive
    def record(self, records: Records, key: Any) -> tuple[Any, Published | None]:
        """Return a copy of a record, and its latest release. As secret as the rows."""
        self._settle()
        place = records.places.get(key)
        if place is None:
            raise KeyError(key)
        if place < 0:
            raise TenantRetiredError(f"tenant {key!r} was retired: its record is gone")
        return records.all[place].copy(), records.latest(place)

    def __getitem__(self, key: Any) -> Tenant:
        self.record(self._tenants, key)
        return Tenant(self, self._tenants, key)

    def total(self, *prefix: Key) -> Tenant:
        """Return the view of a total: that of all tenants, or of those whose keys begin with ``prefix``."""
        for records in self._levels[1:]:
            if records.depth == len(prefix):
                self.record(records, prefix)
                return Tenant(self, records, prefix)
        raise UsageError(f"totals: none of depth {len(prefix)}. Pass totals= for it")

    @exclusive
    def releases(self, since: int = 0) -> Iterator[FleetStep]:
        """Return an iterator over the releases after the one of number ``since``, in order. Publishable.

        In memory these are the latest of each tenant and total; a store holds all.
        """
        self._settle()
        found: list[FleetStep] = []
        for records in self._levels:
            for place in np.flatnonzero(records.all["order"] > since).tolist():
                if place in records.keys and (one := records.latest(place)) is not None:
                    found.append(FleetStep(records.keys[place], one.t, one.order, one, records))
        return iter(sorted(found, key=lambda step: step.number or 0))

    def __len__(self) -> int:
        return len(self._tenants.keys)

    def __contains__(self, key: object) -> bool:
        return self._tenants.places.get(key, -1) >= 0

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._tenants.keys.values()))

    def __repr__(self) -> str:
        return f"<Fleet of {self.algorithm!r}, {len(self)} tenants: {self.guarantee}>"

    def __reduce__(self) -> Any:
        raise UsageError("a fleet cannot be copied or pickled. Two copies would spend the budget of each tenant twice")

    def after_fork(self) -> None:
        """Leave the fleet to the parent."""
        self._lost = "this fleet belongs to the parent process of this one. Use it there"
