"""Many small streams of one algorithm: one record a tenant, one key, one lock, one log.

*Theorem (parallel composition, adaptive).* Every row has a public key, its *tenant*. Let the noise of tenants be
independent, and let the mechanism of each tenant be mu-GDP for one of its rows, also if rows depend on earlier
releases. Then all releases of all tenants together are mu-GDP for one row, also if the rows of a tenant depend on the
releases of the others. If one unit owns rows of at most m tenants, one of each, they are sqrt(m) mu-GDP for the unit.
With totals of parameters mu_1, mu_2, ..., in which the unit has its m rows, they are sqrt(m mu**2 + m**2 (mu_1**2 +
mu_2**2 + ...))-GDP.

*Proof.* An adversary against the fleet that changes a row of tenant i is one against the mechanism of tenant i:
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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Literal, Self, cast

import numpy as np

from streampca.conversion import as_block
from streampca.errors import BadParameterError, StoreLockedError, StoreUnwritableError, TenantRetiredError, UsageError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import STEP
from streampca.linalg.types import FloatArray, IntArray, Mask
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Account, Guarantee
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.rows.admission import NO_COUNTS, Marks
from streampca.rows.owners import mapping_of
from streampca.rows.protocol import NumberedRows, Position, PositionedSource, as_source
from streampca.rows.report import AdmissionReport, logger, tell_curator
from streampca.store.config import label_of
from streampca.store.fleet import FleetStore, Kept, opened, packed_for, secret_of
from streampca.store.records import decode, encode
from streampca.store.row_digest import words_of
from streampca.stream.feed import ROWS
from streampca.stream.keys import is_part, key_of, keys_of, no_key, plain_keys
from streampca.stream.stream import Stream
from streampca.stream.tenants import INSTEAD, Change, FleetStep, OjaRecords, Published, Records, check_algorithm

#: Seconds that the replay of a row and of a release take, and seconds of replay after which records replace the log.
_ROW_SECONDS, _RELEASE_SECONDS, _REPLAY = 2e-6, 8e-5, 10.0
#: Records that are sealed together; seconds for which a row of an iterable waits for others of its commit.
_SHARD, _WAIT = 64, 0.05

#: Algorithms of tenants and totals.
Tenants = PrivateFPL | PrivateOja
#: A release of a call, or of a store: its records, its key, and its kept form.
Found = tuple[Records, Any, Published]


class Fleet(AbstractContextManager["Fleet"]):
    """Many small streams of one algorithm, one for each key.

    Parameters
    ----------
    algorithm : for every tenant, a `PrivateFPL` with ``noise=BLT()`` and the solver `Exact` or `Tracking`, or a
        `PrivateOja`, whose rows take about ten times as long.
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
    (`streampca.fleet` states the theorem). Every call is one commit: an error in its rows absorbs none of them, and an
    interrupt, or a failure of the disk, all or none. A tenant has at most 2**23 - 1 rows. A fleet cannot be copied, and
    a forked child cannot use it.

    Examples
    --------
    >>> import streampca as sp
    >>> algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=2)
    >>> fleet = sp.Fleet(algorithm, features=2, row_norm=1.0)
    >>> steps = fleet.push_many(["shop-1", "shop-2", "shop-1"], [[0.5, 0.1], [0.2, 0.3], [0.4, 0.1]])
    >>> [(step.key, step.t) for step in steps], fleet["shop-2"].t, len(fleet)
    ([('shop-1', 2)], 1, 2)
    """

    _store: FleetStore | None = None

    def __init__(
        self, algorithm: Tenants, *, features: Sequence[str] | int, bounds: Any = None,
        row_norm: float | None = None, store: str | os.PathLike[str] | None = None,
        totals: Mapping[Any, Tenants] | None = None, max_tenants_per_user: int = 1,
        on_exhausted: Literal["raise", "drop"] = "raise", account: Account | None = None, seed: int | None = None,
        key: bytes | None = None,
    ) -> None:  # fmt: skip
        if isinstance(bounds, str):
            raise BadParameterError("bounds", bounds, "public bounds", advice=INSTEAD)
        check_algorithm("algorithm", algorithm)
        if features is None:
            raise BadParameterError("features", None, "names, or their number")
        settings: dict[str, Any] = {"bounds": bounds, "row_norm": row_norm, "features": features, "account": account}
        template = Stream(algorithm, **settings, regret=None, seed=seed, key=key)
        options: dict[str, Any] = {"max_tenants_per_user": max_tenants_per_user, "on_exhausted": on_exhausted}
        self.begin(template, totals or {}, **options)
        if store is not None:
            self._store = FleetStore(store, options | {"totals": self._totals})
            self._store.begin(template.engine)

    def begin(
        self, template: Stream, totals: Mapping[Any, Tenants], max_tenants_per_user: int, on_exhausted: str
    ) -> None:  # fmt: skip
        """Begin without rows; ``template`` has the settings of a tenant."""
        engine, admission, algorithm = template.engine, template.engine.now.admission, cast(Tenants, template.algorithm)
        check_count("max_tenants_per_user", max_tenants_per_user)
        if on_exhausted not in ("raise", "drop"):
            raise BadParameterError("on_exhausted", on_exhausted, "'raise' or 'drop'")
        depths = [str(depth or 0) for depth in totals] if isinstance(totals, Mapping) else [""]
        if not all(map(str.isdecimal, depths)) or len({*map(int, depths)}) < len(depths):
            raise BadParameterError("totals", totals, "algorithms by numbers of first parts of a key, from 0")
        self._totals = dict(zip(map(int, depths), totals.values(), strict=True))
        for total in self._totals.values():
            check_algorithm("totals", total)
            if (total.center, total.adjacency) != (algorithm.center, algorithm.adjacency):
                raise BadParameterError("totals", total, "center= and adjacency= of the algorithm of the tenants")
        self._engine, self._admission, self._drops = engine, admission, on_exhausted == "drop"
        self._depth = 1 + max(self._totals, default=0)  # parts of a key; a key of one part is no tuple
        self.guarantee = self._composed(engine.guarantee_of(admission), max_tenants_per_user)
        source, of = (engine.randomness, engine.start_id), {self._depth: algorithm, **self._totals}
        kinds = {PrivateFPL: Records, PrivateOja: OjaRecords}
        self._levels = [kinds[type(one)](one, admission, self.guarantee, source, depth) for depth, one in of.items()]
        self._tenants = self._levels[0]
        # Numbers; packets by keys and address; their nonces; the run to be paid for before the next row, or None.
        self._now: dict[str, Any] = {"retired": 0, "releases": 0, "commits": 0, "position": None}
        self._now |= {"packets": {}, "taken": [], "debit": engine.start_id}
        self._pending: tuple[Change, int] | None = None
        self._replay_seconds, self._lost = 0.0, ""
        self.guard = Guard("fleet")
        tell_of_forks(self)

    def _composed(self, one: Guarantee, m: int) -> Guarantee:
        """Return the guarantee of the whole fleet from that of one tenant, by the theorem of this module."""
        assert one.mu is not None
        mu = math.sqrt(m * one.mu**2 + m**2 * math.fsum(total.mu**2 for total in self._totals.values()))
        return replace(
            one, mu=mu, epsilon=one.epsilon if mu == one.mu else gaussian.epsilon_at(mu, one.delta),
            unit="one row" if m == 1 else f"one unit in up to {m} tenants, with one row of each",
            contribution="one row" if m == 1 else f"{m} rows",
            scope=f"{one.scope} of each tenant, all together; the tenant of a row, and when it comes, are public",
            theorem=f"{one.theorem}; parallel composition over tenants, adaptive",
        )  # fmt: skip

    @classmethod
    def resume(cls, store: str | os.PathLike[str], *, moved: bool = False) -> Self:
        """Continue the fleet of a store, with the releases of an uninterrupted one; see `Stream.resume`."""
        FleetStore(store).rebuild(self := cls.__new__(cls), moved=moved)
        return self

    def attach(self, store: FleetStore, account: Account | None, *, moved: bool) -> None:
        """Continue with a store, all of whose entries were replayed."""
        self._store, self._engine.account = store, account
        if moved:
            # Noise after the rows of the store is fresh in every copy. This one is named and paid for as another run,
            # before witness and ledger follow it, so that a refusal leaves them to the other copy.
            self._now["debit"] = start = os.urandom(16)
            self._event("moved", [], start)
        else:
            store.noted()

    @exclusive
    def push(self, key: Any, row: Any) -> FleetStep:
        """Feed one row of a tenant. Raises as `push_many`."""
        self._ready()
        tenants = self._tenants
        if self._store is None and not self._totals and type(key) in (str, bytes, int):
            place = tenants.places.get(key, -1)
            if place >= 0 and (t := tenants.push(place, row)):
                return FleetStep(key, t, tenants)
        names = plain_keys([key], self._depth)
        own = [one for records, _, one in self._admit(names, [row], None)[0] if records is tenants]
        return FleetStep(key, int(tenants.t[tenants.places[names[0]]]), tenants, own[0] if own else None)

    @exclusive
    def push_many(self, keys: Any, rows: Any, position: tuple[str, Any] | None = None) -> list[FleetStep]:
        """Feed rows of tenants, one key a row; return a step for each release, in order.

        Parameters
        ----------
        keys : sequence of keys, or a column of a table.
        rows : as for `Stream.push_many`.
        position : name of their source and its place after these rows, kept in the same commit (`position`).

        Raises
        ------
        BadRowError, BadParameterError, HorizonReachedError, TenantRetiredError
            If a row has the wrong shape, a key is none or is retired, or a tenant has no row left. No row is absorbed.
        """
        if position is not None and not (isinstance(position, (tuple, list)) and len(position) == 2):
            raise BadParameterError("position", position, "the name of a source, and its place")
        names, values = keys_of(keys), as_block(rows)
        return [FleetStep(key, one.t, records, one) for records, key, one in self._admit(names, values, position)[0]]

    def _admit(self, names: list[Any], rows: Any, position: tuple[str, Any] | None) -> tuple[list[Found], Marks]:
        """Admit and absorb rows in one commit."""
        self._ready()
        values, names = self._admission.all_values(rows, 1), plain_keys(names, self._depth)
        if len(names) != len(values):
            raise BadParameterError("keys", len(names), f"one for each of {len(values)} rows")
        admitted, marks = self._admission.block(values, 1)
        # Privacy: a mask in any case, so that the size of a store does not show whether there are bad rows.
        bad = np.zeros(len(values), dtype=bool) if marks.reasons is None else marks.reasons >= 0
        return self._absorb(names, admitted, bad, position) if names or position else [], marks

    def _absorb(
        self, names: list[Any], rows: FloatArray, bad: Mask, position: Any, fresh: Sequence[bytes] | None = None
    ) -> list[Found]:
        """Absorb admitted rows in one commit; ``fresh`` are the bytes of a replay."""
        change, found, drawn, now = Change(), list[Found](), list[bytes](), dict(self._now)
        for records in self._levels:
            own = records is self._tenants
            keys = names if own else [name[: records.depth] if self._depth > 1 else () for name in names]
            places = self._places(records, keys, change)
            left = None if fresh is None else fresh[len(drawn) :]
            more, released, used = records.absorb(keys, places, rows, bad, self._drops, now["releases"], left)
            change += more
            drawn += used
            now["releases"] += len(released)
            found += [(records, keys[i], one) for i, one in released]
        now["position"] = position
        entry = None if self._store is None else ["rows", names, words_of(rows), bad, position, drawn]
        self._commit(change, now, entry, found, _ROW_SECONDS * len(rows) + _RELEASE_SECONDS * len(found))
        return found

    def _places(self, records: Records, keys: list[Any], change: Change) -> IntArray:
        """Return the places of keys; new ones are begun by ``change``."""
        found: list[Any] = list(map(records.places.get, keys))
        if None in found:
            begun, count = dict[Any, int](), len(records.places)
            for i, key in enumerate(keys):
                if found[i] is None:
                    if key not in begun:
                        if not self._is_key(key, records.depth):
                            raise no_key(key, self._depth)
                        begun[key] = count + len(begun)
                    found[i] = begun[key]
            records.reserve(count + len(begun))
            for key, place in begun.items():
                # Nothing refers to the place before the commit. Its number does not depend on how rows are batched.
                records.all["number"][place] = place + 1
                change.append((records.places, key, place))
        places = np.array(found, dtype=np.int64)
        if (places < 0).any():
            key = keys[int(places.argmin())]
            raise TenantRetiredError(f"tenant {key!r} was retired, and its budget is spent. Use another key")
        return places

    def _is_key(self, key: Any, depth: int) -> bool:
        """Return whether a key, or the first parts of one, can begin a record."""
        parts = key if self._depth > 1 or depth == 0 else (key,)
        return type(parts) is tuple and len(parts) == depth and all(map(is_part, parts))

    def run(self, rows: Any, key: str | Sequence[str]) -> Iterator[FleetStep]:
        """Feed rows with a column of keys, lazily; yield a step for each release.

        Parameters
        ----------
        rows : an iterable of mappings, a table, or a source of `streampca.sources`. A source with positions, such as a
            topic of Kafka, continues at that of the latest commit, so that each of its rows counts once. Rows of an
            iterable wait for others for at most 0.05 seconds, or until the next one comes.
        key : name of the column of keys; of a fleet whose keys are tuples, one for each part.

        Notes
        -----
        A row whose key is missing, or cannot be one, belongs to no tenant: it enters no sum, and does not end the run.
        With ``on_exhausted="drop"``, so does a row of a retired tenant. Floats that are whole numbers are integers, as
        which a table has them if a key is missing. The logger ``streampca.curator`` reports bad rows at the end.
        """
        columns = (key,) if isinstance(key, str) else tuple(key)
        if len(columns) != self._depth:
            raise BadParameterError("key", key, f"the name of one column for each of the {self._depth} parts of a key")
        places, counts, seen, absorbed = self._tenants.places, NO_COUNTS, 0, 0
        for cells, values, at in self._batches(rows, columns):
            keys = [list(map(key_of, column)) for column in cells]
            names = keys[0] if self._depth == 1 else list(zip(*keys, strict=True))
            kept = [i for i, name in enumerate(names) if self._is_key(name, self._depth)]
            if self._drops:
                kept = [i for i in kept if places.get(names[i]) != -1]
            found, marks = self._feed([names[i] for i in kept], values[kept], at)
            counts, seen, absorbed = counts.plus(marks.counts()), seen + len(names), absorbed + len(kept)
            yield from (FleetStep(name, one.t, records, one) for records, name, one in found)
        if lost := seen - absorbed:
            logger.warning("%d of %d rows belong to no tenant and count for nothing (curator only)", lost, seen)
        if absorbed:
            tell_curator(AdmissionReport.of(self._admission, counts, absorbed))

    _feed = exclusive(_admit)

    def _batches(self, rows: Any, columns: Sequence[str]) -> Iterator[tuple[Any, FloatArray, Position | None]]:
        """Yield the cells of the columns of keys, and rows, with the position of their source after them."""
        features, last = self._admission.features, self.position
        if features is None:
            raise UsageError("features: their names are needed to find columns. Begin a fleet with features=[...]")
        source = as_source(rows, features, columns)
        if source is None:
            left, batch, problem = iter(rows), list[Any](), None
            while problem is None:
                batch.clear()
                until = time.monotonic() + _WAIT
                try:
                    for row in islice(left, ROWS):
                        batch.append(row)
                        if time.monotonic() > until:
                            break
                except Exception as error:  # after the rows before it
                    problem = error
                if not batch:
                    break
                fields = [row for row in map(mapping_of, batch) if row is not None]
                if len(fields) < len(batch):
                    raise UsageError("key: a row without names has no column of keys. Use push_many(keys, rows)")
                cells = [[row.get(name) for row in fields] for name in columns]
                yield cells, self._admission.all_values(batch, 1), None
            if problem is not None:
                raise problem
            return
        if absent := [name for name in features if name not in source.features]:
            raise UsageError(f"the source lacks features of this fleet: {', '.join(absent[:9])}")
        positioned = source if isinstance(source, PositionedSource) else NumberedRows(source, None)
        name = positioned.name
        if name and self._now["commits"] and (last is None or last.source != name):
            raise UsageError("the previous rows came from another source. Continue that one, or begin a fleet")
        chosen = [source.features.index(feature) for feature in features]
        for block in positioned.blocks_from(last.at if last and name else None, columns):
            for start in range(0, len(block.rows), ROWS):
                part = slice(start, min(start + ROWS, len(block.rows)))
                at = Position(name, block.after(part.stop)) if name else None
                if at is not None and self.position not in (None, last):  # two iterators would count rows twice
                    raise UsageError("another run read rows of this source meanwhile. Call run again to continue")
                yield [column[part] for column in block.cells], block.rows[part][:, chosen], at
                last = at
                if at is not None:
                    positioned.durable(at.at)

    @property
    @exclusive
    def position(self) -> Position | None:
        """Position of the source after the latest call that had one. Curator only."""
        self._settle()
        return None if self._now["position"] is None else Position(*self._now["position"])

    @exclusive
    def retire(self, *keys: Any) -> None:
        """End tenants: their keys are refused from then on, because their budget is spent, and their records erased.

        A store holds their rows, sealed, until records replace its log.
        """
        self._ready()
        if keys:
            self._event("retire", plain_keys(keys, self._depth))

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
        keys = plain_keys(keys_of(keys), self._depth)
        if not keys or to == self.address:
            raise UsageError("keys, to: expected at least one key, and the address of another fleet")
        name = encode([keys, to])
        if name not in self._now["packets"]:
            records = [self._tenants.all[self._place(self._tenants, key)].tobytes() for key in keys]
            # In the commit that retires them: no crash loses the tenants, or lets both fleets continue them.
            packet = packed_for(to, encode([self._law, keys, records]))
            self._event("hand_over", keys, name, packet)
        return bytes(self._now["packets"][name])

    @exclusive
    def take(self, packet: bytes) -> None:
        """Continue the tenants of a packet from `hand_over`. `UsageError` unless it is for this fleet, and new.

        Take packets of your own fleets only: who knows the address can make one.
        """
        self._ready()
        nonce, data = opened(*secret_of(self._engine, self._tenants.generation), packet)
        law, keys, records = decode(data)
        if law != self._law:
            raise UsageError("packet: from a fleet with other parameters, or of another version. Make both alike")
        if nonce in self._now["taken"] or any(_key(key) in self._tenants.places for key in keys):
            raise UsageError("packet: it was taken before, or this fleet knows its tenants. Each is taken once")
        self._event("take", keys, nonce, records)

    @property
    def _law(self) -> dict[str, Any]:
        """What two fleets must share to continue each other's tenants. Public."""
        label = label_of(self._tenants.algorithm, self._admission)
        # The buffers of a seeded fleet are no secret from those who know its seed.
        more = {"seeded": self._engine.randomness.is_seeded, "depth": self._depth}
        return {**label, **more, "features": list(self._admission.features or ())}

    def _event(self, kind: str, stored: list[Any], *parts: Any) -> None:
        """Commit an entry without rows; also in a replay."""
        change, now, tenants, keys = Change(), dict(self._now), self._tenants, [_key(key) for key in stored]
        if kind == "moved":
            change = [(vars(records), "generation", parts[0]) for records in self._levels]
        elif kind == "take":
            nonce, records = parts
            places = self._places(tenants, keys, change)
            rows = np.frombuffer(b"".join(records), tenants.dtype).copy()
            # Later vectors are drawn with the keys of this fleet. Numbers name chains here, and releases count from 0.
            rows["number"], rows["order"] = tenants.all["number"][places], 0
            now["taken"] = [*now["taken"], nonce]
            change.append((tenants.all, places, rows))
        else:
            places = np.unique([self._place(tenants, key) for key in keys])
            change = [(tenants.all, places, np.zeros(len(places), tenants.dtype))]
            change += [(tenants.places, key, -1) for key in keys]
            now["retired"] += len(places)
            now["packets"] = {**now["packets"], **({parts[0]: parts[1]} if parts else {})}
        self._commit(change, now, [kind, stored, *parts])

    def _ready(self) -> None:
        """Raise if no row is accepted; complete an interrupted commit."""
        if self._lost:
            raise StoreLockedError(self._lost)
        self._settle()

    def _commit(
        self, change: Change, now: dict[str, Any], entry: Any, found: Sequence[Found] = (), seconds: float = 0.0
    ) -> None:  # fmt: skip
        """Pay before the first change, and commit a change: to the store, if there is one, then here."""
        # After all checks: a refused call costs nothing. Privacy: a start that is not paid for is part of the state, so
        # that no crash forgets it, and accounts book it once.
        if self._now["debit"] is not None and self._engine.account is not None:
            self._engine.account.debit(self.guarantee, self._now["debit"])
        now["debit"] = None
        now["commits"] += 1
        change += [(self._now, name, value) for name, value in now.items()]
        # Without a store this is the commit point, else the transaction: `_settle` decides after an interrupt.
        self._pending = change, now["commits"]
        if self._store is not None:
            self._store.append(encode(entry), self._kept(found))
        try:
            self._settle()
        except (StoreLockedError, StoreUnwritableError) as problem:
            # Witness or ledger cannot follow, but the transaction holds: the same call would count its rows twice.
            kept = f"This call is committed: do not repeat its rows, and read releases(since={self._now['releases']})"
            raise type(problem)(f"{str(problem).partition('. ')[0]}. {kept}") from problem
        self._replay_seconds += seconds
        if self._store is not None:
            size = sum(len(records.places) * records.dtype.itemsize for records in self._levels)
            if self._replay_seconds > _REPLAY or self._store.logged > max(size, 2**20):
                with suppress(StoreUnwritableError, StoreLockedError):  # the log serves as well
                    self._fold()

    def _settle(self) -> None:
        """Make the assignments of the latest commit, unless its transaction failed."""
        if self._pending is not None:
            change, number = self._pending
            if self._store is None or self._store.noted() >= number:
                for target, place, value in change:
                    target[place] = value
            self._pending = None

    def _kept(self, found: Sequence[Found]) -> list[Kept]:
        """Return the records of releases, with their numbers. Publishable."""
        parts = [(one.order, [self._levels.index(records), key, *one]) for records, key, one in found]
        # Bits of a span depend on the kernels, and another machine may replay the log.
        return [(order, encode(part), encode(part[:-1])) for order, part in parts]

    def _fold(self) -> None:
        """Replace the log of the store by the records."""
        assert self._store is not None
        keys = [[list(records.places), list(records.places.values()), records.generation] for records in self._levels]
        state = encode([self._now | {"packets": list(self._now["packets"].items())}, keys])
        self._store.fold(chain([state], (part.tobytes() for part in self._shards())))
        self._replay_seconds = 0.0

    def _shards(self) -> Iterator[Any]:
        """Yield views of the records that are sealed together."""
        for records in self._levels:
            for start in range(0, len(records.places), _SHARD):
                yield records.all[start : min(start + _SHARD, len(records.places))]

    def restore(self, pieces: Iterator[bytes]) -> None:
        """Set an empty fleet to the state of `_fold`."""
        now, keys = decode(next(pieces))
        self._now |= now | {"packets": dict(now["packets"])}
        for records, (names, places, generation) in zip(self._levels, keys, strict=True):
            records.generation = generation
            records.reserve(len(names))
            records.places.update(zip(map(_key, names), places, strict=True))
        for part in self._shards():
            part[:] = np.frombuffer(next(pieces), part.dtype)

    def replay(self, entry: list[Any]) -> list[Kept]:
        """Make an entry of the log again; return the records of its releases."""
        if entry[0] != "rows":
            self._event(*entry)
            return []
        names, words, bad, position, fresh = entry[1:]
        return self._kept(self._absorb([_key(name) for name in names], words * STEP, bad, position, fresh))

    def _place(self, records: Records, key: Any) -> int:
        place = records.places.get(key)
        if place is None:
            raise KeyError(key)
        if place < 0:
            raise TenantRetiredError(f"tenant {key!r} was retired, and its record is erased")
        return place

    @exclusive
    def _view(self, records: Records, key: Any) -> FleetStep:
        self._settle()
        t, bad, over = records.all[["t", "bad", "over"]][place := self._place(records, key)].tolist()
        return FleetStep(key, t, records, records.latest(place), bad, over)

    def __getitem__(self, key: Any) -> FleetStep:
        return self._view(self._tenants, key)

    def total(self, *prefix: Any) -> FleetStep:
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
            if self._lost:
                raise StoreLockedError(self._lost)
            stored = ((level, key, Published(*one)) for level, key, *one in map(decode, self._store.kept(since)))
            return (FleetStep(_key(key), one.t, self._levels[level], one) for level, key, one in stored)
        found = []
        for records in self._levels:
            for key, place in records.places.items():
                one = records.latest(place) if place >= 0 else None
                if one is not None and one.order > since:
                    found.append(FleetStep(key, one.t, records, one))
        return iter(sorted(found, key=lambda step: step.number or 0))

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

    @exclusive
    def close(self) -> None:
        """Close the store; the fleet accepts no more rows."""
        if self._store is not None:
            self._store.close()
            self._lost = "the store of this fleet was closed. Continue with Fleet.resume(store)"

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(stored: Any) -> Any:
    """Return a key as it was before it was encoded."""
    return tuple(stored) if isinstance(stored, list) else stored
