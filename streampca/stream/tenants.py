"""Records of the tenants of a fleet: exact sums, noise and latest releases in one array (`streampca.fleet`)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import numpy as np

from streampca.errors import HorizonReachedError
from streampca.linalg.lattice import BITS, LOW, UNIT, UNIT_BITS, GramSum
from streampca.linalg.types import FloatArray, IntArray, Mask
from streampca.matrix_factorization.blt import BufferedNoise
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Chain, Outlet
from streampca.processors.base import Setting, run_name
from streampca.processors.private_fpl import FPLProcessor, PrivateFPL
from streampca.processors.solvers import Reading, Tracked
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.rows.admission import Admission

#: Assignments ``target[place] = value``. Making them twice has the effect of making them once.
Change = list[tuple[Any, Any, Any]]

#: Rows of a tenant up to which its sum fits 64 bits: entries of at most one unit a row, in units of 2**-40.
MOST_ROWS = 2**23 - 1
_NUMBERS = 2**17  # products that are summed together, which fit the cache


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

    def __init__(
        self, algorithm: PrivateFPL, admission: Admission, guarantee: Guarantee, source: Any, depth: int
    ) -> None:  # fmt: skip
        self.algorithm, self.depth, d = algorithm, depth, admission.admitted_features or 0
        terms = Terms(guarantee, admission.row_norm, admission.features, *admission.ranges())
        setting = Setting(terms, (*admission.settings, "fleet", depth))
        self.first = first = cast(FPLProcessor, algorithm.start(d, source[0], setting, start=source[1]))
        self.limit = min(MOST_ROWS, algorithm.horizon or MOST_ROWS)
        # ``n`` releases, the last one the fleet's of number ``order``; ``over`` rows after the limit.
        columns: dict[str, Any] = dict.fromkeys(("number", "order", "n", "t", "bad", "over"), "i8")
        buffers, span = first.noise.buffers, first.reading.span  # type: ignore[attr-defined]
        columns |= {"link": "V32", "sum": ("i8", buffers.shape[1]), "buffers": ("f8", buffers.shape)}
        columns |= dict.fromkeys(("noise", "packed"), ("f8", buffers.shape[1]))
        columns |= {} if span is None else {"span": ("f8", span.shape[::-1])}
        self.dtype = np.dtype(list(columns.items()))
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
        steps = (rows * 2.0**BITS).astype(np.int64)
        first, second = self._pairs
        return steps.take(first, axis=-1) * steps.take(second, axis=-1)

    def absorb(
        self,
        places: IntArray,
        rows: FloatArray,
        bad: Mask | None,
        drop: bool,
        before: int,
        fresh: Sequence[bytes] | None,
    ) -> tuple[Change, list[tuple[int, Published]], list[bytes]]:
        """Return the change that absorbs rows, the releases with the row that completed each, and fresh bytes.

        Raises `HorizonReachedError` before any row unless rows past the limit are dropped.
        """
        algorithm, every = self.algorithm, self.algorithm.every
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
        part = np.cumsum((np.diff(group, prepend=-1) != 0) | np.append(False, ends)[:-1]) - 1
        last = np.flatnonzero(np.diff(part, append=len(part)))
        sums = np.zeros((len(last), self.sums.shape[1]), np.int64)
        for start in range(0, len(part), step := max(1, _NUMBERS // sums.shape[1])):
            some = part[start : start + step]
            cuts = np.flatnonzero(np.diff(some, prepend=-1))
            sums[some[cuts]] += np.add.reduceat(self.products(rows[order[start : start + step]]), cuts)
        done, owner = ends[last], group[last]
        sums_after, drawn, released = self.sums[touched], list[bytes](), list[tuple[int, Published]]()
        # Only records that release are copied as a whole.
        those, copied = np.unique(owner[done], return_inverse=True)
        draft = self.draft(touched[those])
        # In the order of arrival, so that the fresh bytes of a replay meet their vectors.
        arrived = np.argsort(order[last[done]])
        due = np.flatnonzero(done)[arrived]
        found = due, owner[due], copied[arrived], t[last[due]], order[last[due]]
        for j, g, i, at_row, row in zip(*(each.tolist() for each in found), strict=True):
            sums_after[g] += sums[j]
            one = self.release_in(draft, i, sums_after[g], at_row, before + len(released), fresh, drawn)
            released.append((row, one))
        sums_after[owner[~done]] += sums[~done]
        change: Change = [(self.all, touched[those], draft[""])] if released else []
        change += [(self.sums, touched, sums_after), (self.t, touched, rows_after), *further]
        return change, released, drawn

    def draft(self, places: IntArray) -> dict[str, Any]:
        """Return copies of some records, which the next releases change, and of each column a view of them."""
        records = self.all[places]
        return {name: records[name] for name in self.dtype.fields or ()} | {"": records}

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
        span = record["span"].copy().T if self.first.reading.span is not None else None
        t = min(n * algorithm.every, algorithm.horizon or MOST_ROWS)
        return Published(int(record["order"]), int(record["number"]), t, n, record["packed"].copy(), span)

    def release(self, one: Published) -> Release:
        """Return a release with its public facts. Only releases of one tenant have one name of a run."""
        first, std = self.first, self.algorithm.mechanism.std_chunks.at(one.n)
        run = {**(first.terms.run or {}), "name": run_name(self.link(one.number) + self.generation)}
        named = first.after(one.t, first.chain, terms=replace(first.terms, run=run))
        reading = Reading() if one.span is None else _Known(one.span)
        return named.published(one.t, one.packed, std, reading, {})[1]
