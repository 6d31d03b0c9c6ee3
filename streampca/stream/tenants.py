"""Records of the tenants of a fleet: exact sums, noise and latest releases in one array (`streampca.fleet`).

Compiled kernels (`_native/plan.h`) and numpy have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import numpy as np

from streampca import _native
from streampca.errors import BadParameterError, HorizonReachedError, UsageError
from streampca.linalg.centering import least_count, sum_variance
from streampca.linalg.lattice import BITS, LOW, UNIT, UNIT_BITS, GramSum, onto_ball
from streampca.linalg.memory import Rows
from streampca.linalg.scale import in_norm
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray, IntArray, Mask
from streampca.matrix_factorization.blt import BufferedNoise
from streampca.matrix_factorization.noises import BLT
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Chain, Outlet
from streampca.processors.base import Algorithm, Setting, run_name
from streampca.processors.private_fpl import FPLProcessor, PrivateFPL
from streampca.processors.private_oja import CHUNK, PrivateOja, PrivateOjaProcessor
from streampca.processors.solvers import Exact, Reading, Tracked, Tracking
from streampca.release.release import Release
from streampca.release.subspace import Subspace
from streampca.release.terms import Terms
from streampca.rows.admission import Admission
from streampca.stream.lane import has_size, plan_of

#: Assignments ``target[place] = value``. Making them twice has the effect of making them once.
Change = list[tuple[Any, Any, Any]]

#: Rows of a tenant up to which its sum fits 64 bits: entries of at most one unit a row, in units of 2**-40.
MOST_ROWS = 2**23 - 1
INSTEAD = "Or use one Stream for each tenant"  #: advice for what a fleet does not support
#: Keys that a fleet may ever begin.
MOST_TENANTS = 2**32 - 1


def check_algorithm(name: str, algorithm: Any) -> None:
    """Raise `BadParameterError` unless a fleet can run the algorithm."""
    if type(algorithm) not in (PrivateFPL, PrivateOja):
        raise BadParameterError(name, algorithm, "PrivateFPL or PrivateOja", advice=INSTEAD)
    fits = {"unit": (algorithm.unit is None, "None, a row")}
    if isinstance(algorithm, PrivateFPL):
        fits["noise"] = isinstance(algorithm.noise, BLT), "BLT()"
        fits["solver"] = isinstance(algorithm.solver, (Exact, Tracking)), "Exact() or Tracking()"
        fits["publish_regret"] = not algorithm.publish_regret, "False"
        fits["release_every"] = not algorithm.has_calendar, "a number of rows"
    for setting, (is_fit, expected) in fits.items():
        if not is_fit:
            raise BadParameterError(f"{name}.{setting}", getattr(algorithm, setting), expected, advice=INSTEAD)


class _Known(Tracked):
    """State of `Tracking` at a release that is read again."""

    def follow(self, packed_gram: FloatArray, shift: float, *, plain: bool) -> Tracked:
        return self


class Published(NamedTuple):
    """Kept form of a release. Publishable, with the public facts of its records."""

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

    all: Any  #: the records
    t: IntArray  # views of them: their numbers of rows, their bytes, and rows of words
    bytes: Any
    words: IntArray
    often: IntArray

    def __init__(
        self, algorithm: Algorithm, admission: Admission, guarantee: Guarantee, source: Any, depth: int
    ) -> None:  # fmt: skip
        self.algorithm: Any = algorithm
        self.admission, self.depth, d = admission, depth, admission.admitted_features or 0
        terms = Terms(guarantee, admission.row_norm, admission.features, *admission.ranges())
        setting = Setting(terms, (*admission.settings, "fleet", depth))
        randomness, start = source
        self.first: Any = algorithm.start(d, randomness, setting, start=None if randomness.is_seeded else start)
        self.limit = self.horizon = int(getattr(algorithm, "horizon", None) or 0)
        # ``n`` releases, the last one the fleet's of number ``order``; ``over`` rows after the limit. The kernels know
        # the layout (`_native/plan.h`).
        columns: dict[str, Any] = dict.fromkeys(("number", "order", "n", "t", "bad", "over"), "i8") | {"link": "V32"}
        self._plan: Any = None
        self.dtype = np.dtype(list((columns | self._columns(d)).items()))
        # The words before ``packed`` change with every row.
        self._often = dict(self.dtype.fields or {}).get("packed", (None, self.dtype.itemsize))[1] // 8
        self.places: dict[Hashable, int] = {}
        self.all = np.zeros(0, self.dtype)
        self.generation = b""  # names the copy of a moved store
        self.reserve(1)

    def _columns(self, d: int) -> dict[str, Any]:
        """Return the columns of `PrivateFPL`, and set what belongs to them."""
        algorithm, admission, first = self.algorithm, self.admission, cast(FPLProcessor, self.first)
        self.every, self.limit = algorithm.every, min(MOST_ROWS, self.horizon or MOST_ROWS)
        self.noise, self.span = cast(BufferedNoise, first.noise), first.reading.span
        self._pairs = np.triu_indices(d)
        if _native.compiled is not None and has_size(d, algorithm.n_components):
            self._plan = plan_of(first, admission)
        self._factor = math.nan if admission.bounds is not None else float(admission.factor)
        size, span = svec_size(d), {} if self.span is None else {"span": ("f8", self.span.shape[::-1])}
        columns: dict[str, Any] = {"sum": ("i8", size)} | dict.fromkeys(("packed", "noise"), ("f8", size))
        return columns | {"buffers": ("f8", self.noise.buffers.shape)} | span

    def reserve(self, count: int) -> None:
        """Make room for ``count`` records."""
        if count > MOST_TENANTS:
            raise UsageError(f"a fleet has at most {MOST_TENANTS} tenants. Begin another one for further keys")
        if count > len(self.all):
            grown = np.zeros(max(64, count, 2 * len(self.all)), self.dtype)
            grown[: len(self.all)] = self.all
            # As rows of words, which numpy copies faster; ``often`` are those that change with every row.
            words = grown.view(np.int64).reshape(len(grown), -1)
            views = {"all": grown, "t": grown["t"], "bytes": grown.view(np.uint8), "words": words}
            # One update: an interrupt leaves the array of before, with its views, or this one.
            vars(self).update(views, often=words[:, : self._often])

    def link(self, number: int) -> bytes:
        """Return the first chain value of a tenant."""
        key = self.first.source.first.link
        return blake2b(b"%d" % number, key=key, digest_size=32, person=b"streampca tenant").digest()

    def push(self, place: int, row: Any) -> int:
        """Add a row to a record in one step, and return the number of its rows; 0 if the row needs `absorb`."""
        t, plan, admission = int(self.t[place]) + 1, self._plan, self.admission
        if plan is None or t >= self.limit or not t % self.every:
            return 0
        # Privacy: the buffer of a masked array, a subclass, has the values behind its mask, which are missing.
        square = plan.push(row, self._factor, self.bytes, place) if type(row) is np.ndarray else None
        if square is None or not square <= 1.0:
            if square is not None and square < math.inf and admission.bounds is None:  # long
                admitted = onto_ball(in_norm(row[None], admission.row_norm))
            else:  # of another kind, bad, or outside its bounds
                admitted, counts = admission.row(row, t)
                if counts.bad:
                    return 0
            plan.push(admitted[0, : admission.n_features], 1.0, self.bytes, place)
        return t

    def absorb(
        self, keys: Sequence[Any], places: IntArray, rows: FloatArray, bad: Mask, drop: bool, before: int,
        fresh: Sequence[bytes] | None,
    ) -> tuple[Change, list[tuple[int, Published]], list[bytes]]:  # fmt: skip
        """Return the change that absorbs rows, the releases with the row that completed each, and fresh bytes.

        Raises `HorizonReachedError` before any row unless rows past the limit are dropped.
        """
        touched, where = np.unique(places, return_inverse=True)
        before_these = self.t[touched]
        after = before_these + np.bincount(where)
        if not drop and (over := after > self.limit).any():
            key = keys[int(over[where].argmax())]
            raise HorizonReachedError(
                f"tenant or total {key!r} has reached its horizon of {self.limit} rows. No row of this call was "
                "absorbed; on_exhausted='drop' leaves such rows out"
            )
        # Only records that may release are copied as a whole.
        due = after // self.every > before_these // self.every
        due |= (before_these < self.horizon) & (after >= self.limit)
        draft = self._draft(touched, due)
        where = np.where(bad, ~where, where)
        outlet, released, at = Outlet(self.first.source, self.first.chain, fresh), list[tuple[int, Published]](), -1
        while (at := self._add(draft, where, rows, at + 1, outlet)) < len(rows):
            i = int(where[at])
            released.append((at, self._release(draft, max(i, ~i), before + len(released) + 1, outlet)))
        words = draft[""]
        change = [(self.often, touched, words[:, : self._often]), (self.words, touched[due], words[due])]
        return change, released, outlet.fresh

    def _draft(self, places: IntArray, whole: Mask) -> dict[str, Any]:
        """Return copies of records, as words, as bytes, and of each column a view of them."""
        words = np.empty((len(places), self.words.shape[1]), np.int64)
        words[:, : self._often] = self.often[places]
        words[whole] = self.words[places[whole]]
        records = words.view(self.dtype)[:, 0]
        columns = {name: records[name] for name in self.dtype.fields or ()}
        return columns | {"": words, "bytes": words.view(np.uint8).reshape(-1)}

    def _add(self, draft: dict[str, Any], where: IntArray, rows: FloatArray, start: int, outlet: Outlet) -> int:
        """Add rows from ``start`` on to a draft; return the first that completes a release, or the number of rows.

        Row i is added to record ``where[i]``, or as a bad row to ``~where[i]``.
        """
        every, horizon = self.every, self.horizon
        if self._plan is not None:
            return int(self._plan.add(rows, where, start, every, horizon, self.limit, draft["bytes"]))
        first, second = self._pairs
        for at in range(start, len(rows)):
            i = max(int(where[at]), ~int(where[at]))
            if draft["t"][i] >= self.limit:
                draft["over"][i] += 1
                continue
            steps = (rows[at] * 2.0**BITS).astype(np.int64)
            draft["sum"][i] += steps.take(first) * steps.take(second)  # integers: no order changes the sum
            draft["t"][i] += 1
            draft["bad"][i] += where[at] < 0
            if draft["t"][i] % every == 0 or draft["t"][i] == horizon:
                return at
        return len(rows)

    def _release(self, draft: dict[str, Any], i: int, order: int, outlet: Outlet) -> Published:
        """Release the sum of record i of a draft, as the fleet's release of number ``order``."""
        first, rule, plan, tape = self.first, self.noise.rule, self._plan, self.first.source.tape
        n, t = int(draft["n"][i]), int(draft["t"][i])
        outlet.chain = Chain(n, draft["link"][i].tobytes() if n else self.link(int(draft["number"][i])))
        std, n = self.algorithm.mechanism.std_chunks.at(n + 1), n + 1
        reading = Tracked(draft["span"][i].T.copy()) if self.span is not None and n > 1 else first.reading
        if plan is not None:
            exact, rows, least, variance = plan.exact(draft["bytes"], i), 1.0, 0.0, 0.0
            draws = outlet.hide("gram", exact)
            if self.span is not None and self.algorithm.center:
                rows, least, variance = first.terms.count(1, t), least_count(std), sum_variance(std)
            numbers = rule.scale_at(n), std, outlet.chain.link, order, float(rows), least, variance
            plan.publish(draws.name, draws.keys.first, draws.keys.more, *numbers, draft["bytes"], i)
            if tape is None:
                return cast(Published, self.latest(i, draft))
            # Of a neighbor whose release is that of the other, the auditor replaces what the kernels have released.
            gram = GramSum(first.n_features, np.frombuffer(exact).reshape(2, -1))
            packed = tape.released(draws, gram, draft["noise"][i].copy(), draft["packed"][i].copy(), std)
            after = {"packed": packed}
        else:
            sums = draft["sum"][i]
            gram = GramSum(first.n_features, np.array([sums >> UNIT_BITS, (sums & LOW) * (1.0 / UNIT)]))
            noise = BufferedNoise(rule, n - 1, draft["buffers"][i], draft["noise"][i])
            noise, packed = outlet.running("gram", gram, noise, std)
            after = {"n": n, "order": order, "packed": packed, "noise": noise.noise, "buffers": noise.buffers}
            after["link"] = outlet.chain.link
        if self.span is not None:
            after["span"] = cast(Tracked, first.published(t, packed, std, reading, {})[0]).span.T
        for name, value in after.items():
            draft[name][i] = value
        return cast(Published, self.latest(i, draft))

    def latest(self, i: int, draft: Any = None) -> Published | None:
        """Return the latest release of record i, or of that of a draft."""
        of = self.all if draft is None else draft
        if not (n := int(of["n"][i])):
            return None
        t = min(n * self.every, self.horizon or MOST_ROWS)
        span = None if self.span is None else of["span"][i].copy().T
        return Published(int(of["order"][i]), int(of["number"][i]), t, n, of["packed"][i].copy(), span)

    def release(self, one: Published) -> Release:
        """Return a release with its public facts. Only releases of one tenant have one name of a run."""
        first, std = self._named(one), self.algorithm.mechanism.std_chunks.at(one.n)
        reading = Reading() if one.span is None else _Known(one.span)
        return cast(Release, first.published(one.t, one.packed, std, reading, {})[1])

    def _named(self, one: Published) -> Any:
        """Return the processor with the terms of a tenant."""
        first, terms = self.first, self.first.terms
        if terms.run is not None:
            terms = replace(terms, run={**terms.run, "name": run_name(self.link(one.number) + self.generation)})
        return first.after(one.t, first.chain, terms=terms)


class OjaRecords(Records):
    """Records of `PrivateOja`: states of its processor, which takes every row in a step of its own."""

    def _columns(self, d: int) -> dict[str, Any]:
        k = self.algorithm.n_components
        self.every, self.limit = 2**62, self.horizon or 2**62  # the processor knows when it releases
        # ``shown`` are the columns of the latest release with their values, after ``at`` rows and ``stepped`` steps.
        counts = dict.fromkeys(("steps", "end", "waits", "at", "stepped"), "i8")
        columns: dict[str, Any] = counts | {"collected": ("f8", k), "variance": "f8", "shown": ("f8", (d + 1, k))}
        return columns | dict.fromkeys(("basis", "total"), ("f8", (k, d))) | {"waiting": ("f8", (CHUNK, d))}

    def _add(self, draft: dict[str, Any], where: IntArray, rows: FloatArray, start: int, outlet: Outlet) -> int:
        first = cast(PrivateOjaProcessor, self.first)
        for at in range(start, len(rows)):
            i = max(int(where[at]), ~int(where[at]))
            one = {name: draft[name][i].copy() for name in self.dtype.names or ()}
            if one["t"] >= self.limit:
                draft["over"][i] += 1
                continue
            now = first.after(0, Chain(0, self.link(int(one["number"]))))
            if one["t"]:
                steps, variance, waiting = int(one["steps"]), float(one["variance"]), one["waiting"][: one["waits"]]
                now = first.after(
                    int(one["t"]), Chain(steps, one["link"].tobytes()), basis=one["basis"].T, total=one["total"].T,
                    rates=replace(first.rates, collected=one["collected"], variance=variance, steps=steps),
                    end=int(one["end"]), waiting=Rows(first.n_features, waiting),
                )  # fmt: skip
            outlet.chain = now.chain
            now, release = now.step(rows[at : at + 1], outlet)
            draft["waiting"][i, : now.waiting.count] = now.waiting.array
            after = {
                "t": now.t, "bad": one["bad"] + (where[at] < 0), "link": now.chain.link, "end": now.end,
                "basis": now.basis.T, "total": now.total.T, "waits": now.waiting.count,
                "collected": now.rates.collected, "variance": now.rates.variance, "steps": now.rates.steps,
            }  # fmt: skip
            if release is not None:
                shown = np.vstack([np.asarray(part) for part in (release.own_basis, release.own_eigenvalues)])
                after |= {"shown": shown, "at": now.t, "stepped": now.rates.steps, "n": one["n"] + 1}
            for name, value in after.items():
                draft[name][i] = value
            if release is not None:
                return at
        return len(rows)

    def _release(self, draft: dict[str, Any], i: int, order: int, outlet: Outlet) -> Published:
        draft["order"][i] = order
        return cast(Published, self.latest(i, draft))

    def latest(self, i: int, draft: Any = None) -> Published | None:
        of = self.all if draft is None else draft
        order, number, t, n = (int(of[name][i]) for name in ("order", "number", "at", "n"))
        return Published(order, number, t, n, of["stepped"][[i]] * 1.0, of["shown"][i].copy()) if n else None

    def release(self, one: Published) -> Release:
        assert one.span is not None
        named = self._named(one)
        details = {"steps": int(one.packed[0]), "gradient_clip": named.algorithm.clip}
        return Release(
            t=one.t, n_components=named.algorithm.n_components, terms=named.terms, basis=one.span[:-1].copy(),
            eigenvalues=one.span[-1].copy(), details=details,
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class FleetStep:
    """A tenant, or a total, after one of its rows. Releases are computed when they are read.

    Attributes
    ----------
    key : key of the tenant; of a total, the first parts of the keys, a tuple.
    t : number of its rows.
    bad_rows, dropped : in ``fleet[key]``, numbers of bad rows and of rows after the horizon. Curator only.
    """

    key: Any
    t: int
    _records: Records = field(repr=False)
    _published: Published | None = field(default=None, repr=False)
    bad_rows: int | None = None
    dropped: int | None = None

    @property
    def number(self) -> int | None:
        """Number of the release in the fleet, or None."""
        return None if self._published is None else self._published.order

    @property
    def release(self) -> Release | None:
        """The release that the row completed, or None; in ``fleet[key]`` the latest. Publishable."""
        return None if self._published is None else self._records.release(self._published)

    @property
    def subspace(self) -> Subspace:
        """Subspace of the release; the first coordinate axes without one. Publishable."""
        first, release = self._records.first, self.release
        d, k = first.n_features - int(first.algorithm.center), first.algorithm.n_components
        return Subspace(np.eye(d, k)) if release is None else release.subspace

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all releases of the fleet together."""
        return cast(Guarantee, self._records.first.terms.guarantee)
