"""Planted bugs at the edges: in what is resumed, in what is decided, in what of names and ledgers is said.

Like those of `planted.bugs`, which they are added to.
"""

import logging
import math
import sys
import warnings
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from planted.bugs import BUGS, Patch, after, bug, const, put, stale, times, with_release
from planted.edges import CASES  # all of them
from streampca.errors import StreamPCAWarning
from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.memory import Recent
from streampca.linalg.svec import unpack_entries
from streampca.matrix_factorization.tree import TreeNoise
from streampca.matrix_factorization.window import TwinNoise
from streampca.mechanisms import adaptive, recentering
from streampca.mechanisms.adaptive import PURE_NORMS_SHARE, AdaptiveCovariance, AdaptiveLaplaceCovariance
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.mechanisms.norm_maps import NormEstimate, Norms, norm_counts
from streampca.mechanisms.recentering import Recentering
from streampca.papers.doubling import DoublingProcessor
from streampca.privacy import budget, gaussian
from streampca.privacy.accounting import Event
from streampca.privacy.outlet import LatticeSum, Outlet
from streampca.processors import sliding_window
from streampca.processors.base import Processor
from streampca.processors.dp_pca import SUBSAMPLE, DPPCAProcessor
from streampca.processors.private_fpl import FPLProcessor, RewardSum
from streampca.processors.private_oja import PrivateOja, PrivateOjaProcessor, clipped_gradients, gradient_sensitivity
from streampca.processors.sliding_window import ForgettingProcessor, RingProcessor
from streampca.processors.tumbling import TumblingProcessor
from streampca.regret.regret import Regret
from streampca.rows import admission, bounds
from streampca.rows.bounds import BINS, PrivateBounds
from streampca.rows.people import People
from streampca.store.ledger import Balance
from streampca.stream import periods
from streampca.stream.engine import Engine

__all__ = ["BUGS", "CASES"]

# fmt: off
# -- resumed runs -----------------------------------------------------------------------------------


def _step_twice(made: PrivateOjaProcessor, self: PrivateOjaProcessor, *_: Any) -> Any:
    if made.waiting.count:
        made.total = made.total + clipped_gradients(made.waiting.array, made.basis, made.algorithm.clip)
    return made


def _rows_twice(made: DPPCAProcessor, *_: Any) -> Any:
    if made.waiting.count:
        made.take(made.plan.segments[made.at], made.waiting.array[: made.waiting.count // SUBSAMPLE * SUBSAMPLE])
    return made


def _twice(made: RewardSum, *_: Any) -> RewardSum:
    return RewardSum(2 * made.total, made.scoring, made.scale)


def _all_rows(made: Any, *_: Any) -> Any:
    made.window = GramSum.of(made.ring.latest * 2.0**-20)
    return made


def _nodes_anew(self: TreeNoise, snapshot: Any, source: Any) -> Any:
    names = snapshot["names"] ^ np.uint8(1)
    return _NODES(self, {**snapshot, "names": names}, source)


_NODES = vars(TreeNoise)["restored"]

bug("the leaving rows' noise lost by a resume", "resumed-SlidingWindowPCA-ring",
    after(TwinNoise, "restored", lambda made, *_: TwinNoise(
        made.rule, made.source, made.n, made.lead, 0.0 * made.lag, made.noise, made.names)))
bug("nodes drawn anew by a resume", "resumed-PrivateFPL-tree", put(TreeNoise, "restored", _nodes_anew))
bug("draws of the start used again by a resume",
    "resumed-PrivateOja resumed-PrivateFPL-tree resumed-PrivateFPL-smoothed resumed-SlidingWindowPCA-histogram", stale,
    after(Processor, "restored", lambda made, *_: made.after(made.t, made.source.first)))
bug("rows that wait added twice by a resume", "resumed-PrivateOja", after(PrivateOjaProcessor, "restored", _step_twice))
bug("rows that wait added twice by a resume", "resumed-DPPCA", after(DPPCAProcessor, "restored", _rows_twice))
bug("rewards doubled by a resume", "resumed-PrivateFPL-rewards", after(RewardSum, "restored", _twice))
bug("rows that left the window back by a resume", "resumed-SlidingWindowPCA-ring",
    after(RingProcessor, "restored", _all_rows))

# -- decisions by exact values ------------------------------------------------------------------------------


def _found_by(**exact: bool) -> Patch:
    def found(self: PrivateBounds, bins: Any, outlet: Outlet) -> tuple[Any, Any]:
        d, std = bins.shape[1], self.std(bins.shape[1])
        places = bins + 256 * np.arange(d)
        counts = np.bincount(places.reshape(-1), minlength=256 * d).reshape(d, 256)[:, :BINS].astype(np.float64)
        noisy = outlet.gaussian("bounds", counts, std, 2.0**-20)
        together = bounds._occupied((counts if "together" in exact else noisy).sum(axis=0), std * math.sqrt(d), 1)
        voters = counts.sum(axis=1) if "voters" in exact else np.full(d, len(bins))
        pairs = []
        for column, told, voted in zip(noisy, counts, voters, strict=True):
            occupied = bounds._occupied(told if "bins" in exact else column, std, d)
            if (told if "covered" in exact else column)[occupied].sum() < bounds._COVERED * voted:
                occupied |= together & (column > bounds._SHARED * std)
            pairs.append(bounds._range_of(occupied) or bounds._range_of(together) or (-1.0, 1.0))
        lower, upper = np.array(pairs).T
        return lower, upper

    return put(PrivateBounds, "found", found)


def _counted(released: Any) -> Any:
    def made(self: AdaptiveLaplaceCovariance, rows: Any, *given: Any) -> Any:
        enough = np.count_nonzero(rows.any(axis=1)) * self.epsilon >= 500.0
        with mock.patch.object(adaptive, "_FEWEST", 0.0 if enough else math.inf):
            return released(self, rows, *given)

    return made


def _of_exact_norms(of: Any) -> Any:
    def made(cls: Any, rows: Any, release: Any, norms_std: float, *given: Any) -> NormEstimate:
        gauge: NormEstimate = of.__func__(cls, rows, release, norms_std, *given)
        return gauge._replace(norms=Norms.read(norm_counts(rows), norms_std, len(rows)))

    return classmethod(made)


def _zero_moved(self: Recentering, rows: Any) -> Any:
    return (rows[:, :-1] - self.mean) / (1.0 + self.length) * (rows[:, -1:] != 0.0)


def _about_exact(mapped: Any) -> Any:
    return lambda self, rows: mapped(self._replace(mean=rows[:, :-1].mean(axis=0)), rows)


def _first_by_votes(release: Any) -> Any:
    def made(self: StabilityHistogram, labels: Any, outlet: Outlet, kind: str) -> Any:
        labels = list(labels)
        return sorted(release(self, labels, outlet, kind), key=lambda pair: -labels.count(pair[0]))

    return made


def _epoch_by_sums(following: Any) -> Any:
    return lambda self, own, *given: following(self, self.gram.packed(), *given)


bug("bins of private bounds from exact counts", "edge-private-bounds", _found_by(bins=True))
bug("coverage of private bounds from exact voters", "edge-private-bounds", _found_by(voters=True))
bug("coverage of private bounds from exact counts", "edge-private-bounds", _found_by(covered=True))
bug("bins of all columns from exact counts", "edge-private-bounds", _found_by(together=True))
bug("enough rows by those that are not zero", "edge-adaptive-laplace edge-adaptive-laplace-replace",
    (AdaptiveLaplaceCovariance, "released", _counted))
bug("map chosen from the exact norms", "edge-adaptive", (NormEstimate, "of", _of_exact_norms))
bug("mean not counted in the budget", "AdaptiveCovariance-centered AdaptiveCovariance-centered-replace",
    const(AdaptiveCovariance, "_mu", lambda self: self.mu))
bug("mean not counted in the budget", "AdaptiveLaplaceCovariance-centered AdaptiveLaplaceCovariance-centered-replace",
    const(AdaptiveLaplaceCovariance, "_left", lambda self: self.epsilon))
bug("a zero row moved with the others", "AdaptiveCovariance-centered AdaptiveLaplaceCovariance-centered",
    put(Recentering, "mapped", _zero_moved))
bug("rows mapped about their exact mean", "AdaptiveCovariance-centered AdaptiveLaplaceCovariance-centered-replace",
    (Recentering, "mapped", _about_exact))
bug("mean of zero-out under replace", "AdaptiveCovariance-centered-replace AdaptiveLaplaceCovariance-centered-replace",
    (recentering.SENSITIVITY, "replace", lambda before: recentering.SENSITIVITY["zero-out"]))
bug("the count forgotten in the sensitivity", "AdaptiveCovariance-centered AdaptiveLaplaceCovariance-centered",
    (recentering.SENSITIVITY, "zero-out", lambda before: 1.0))
bug("popular bins in the order of their exact votes", "DPPCA edge-cells",
    (StabilityHistogram, "release", _first_by_votes))
bug("epochs begun by exact sums", "edge-doubling", (DoublingProcessor, "next_epoch", _epoch_by_sums))

# -- noise, windows and blocks ------------------------------------------------------------------------------


def _leaves(late: int) -> Patch:
    def shift(self: RingProcessor) -> None:
        every = self.algorithm.release_every
        last = self.t - self.algorithm.window - late * every
        if last > 0:
            rows = self.ring.between(last - every + 1, last)
            self.window = sliding_window.without(self.window, GramSum.of(rows * 2.0**-20))

    return put(RingProcessor, "_shift", shift)


def _longer_ring(made: Any, self: RingProcessor) -> None:
    self.ring = Recent(self.algorithm.window + 2 * self.algorithm.release_every, (self.n_features,), np.int32)


def _leaf_kept(close: Any) -> Any:
    def made(self: ForgettingProcessor, outlet: Outlet) -> Any:
        leaf = self.leaf
        view = close(self, outlet)
        self.leaf = leaf
        return view

    return made


def _held_on(made: Any, self: TumblingProcessor, rows: Any, outlet: Outlet) -> Any:
    if made[1] is not None:
        made[0].held = made[0].held.append(rows[-1:])
    return made


def _warm_rows_too(made: Any, self: admission.Admission, rows: Any, number: int) -> Any:
    return (onto_ball(np.nan_to_num(rows)), made[1]) if self.is_warming_up else made


def _finer(self: LatticeSum, noise: Any, std: float) -> Any:
    return self.values + np.rint(noise.reshape(self.values.shape) * (1.0 / self.grid)) * self.grid


bug("sensitivity of zero-out for norms under replace", "AdaptiveLaplaceCovariance-replace",
    const(AdaptiveLaplaceCovariance, "norms_scale", lambda self: 1.0 / (PURE_NORMS_SHARE * self.epsilon)))
bug("sensitivity of zero-out for bounds under replace", "PrivateFPL-private-bounds-replace",
    put(PrivateBounds, "std", lambda self, n_features: math.sqrt(n_features) / self.mu))
bug("rows of the warm-up in the sums", "PrivateFPL-private-bounds", after(admission.Admission, "block", _warm_rows_too))
bug("the count forgotten under replace", "PrivateFPL-centered-replace",
    put(budget, "JOINT_FACTOR", math.sqrt(1.0 + 2.0 * CONSTANT**2)))
bug("a row that leaves its window a release late", "SlidingWindowPCA-ring", _leaves(1),
    after(RingProcessor, "begin", _longer_ring))
bug("a row that leaves its window a release early", "SlidingWindowPCA-ring", _leaves(-1))
bug("rows that never leave their window", "SlidingWindowPCA-ring", put(RingProcessor, "_shift", lambda self: None))
bug("rows of a leaf in the next one, too", "SlidingWindowPCA-forgetting", (ForgettingProcessor, "close", _leaf_kept))
bug("a row of the block before in the next one", "Tumbling", after(TumblingProcessor, "step", _held_on),
    const(TumblingProcessor, "rows_until_release", lambda self: self.algorithm.release_every - self.held.count))
bug("the allowance for rounding left out", "PrivateOja-clipped",
    put(PrivateOja, "noise_std",
        lambda self, *_: gradient_sensitivity(self.n_components, self.clip, self.adjacency) / self.budget.mu))
bug("sums not coarsened", "PrivateOja PrivateFPL-private-bounds", put(LatticeSum, "noisy", _finer))


def _logged(made: Any, self: Engine, *_: Any, **__: Any) -> Any:
    if self.now.regret is not None and self.regret_log is not None:
        regret = Regret(self.regret_log, self.moment).now()
        logging.getLogger("streampca.stream.stream").info("regret so far: %s", regret)
    return made


def _said(made: Any, *_: Any) -> Any:
    if made[1].scaled is not None:
        print(f"{np.count_nonzero(made[1].scaled)} rows were too long", file=sys.stderr)
    return made


def _warned(release: Any, gram: GramSum) -> dict[str, Any]:
    if gram.packed()[0] > 0.25:
        warnings.warn("the first feature decides", StreamPCAWarning, stacklevel=2)
    return {}


def _exact_matrix(made: Any, self: Any, t: int, gram: GramSum, outlet: Outlet) -> Any:
    object.__setattr__(made[1], "_gram", unpack_entries(gram.packed(), gram.n_features))
    return made


def _by_any_row(fixed_by: Any) -> Any:
    return lambda self, row, *given: fixed_by(self, row, *given) if self.features else self.fixed(tuple(row))


# -- what is released beside ----------------------------------------------------------------------------------

bug("the exact sum in the smoothed matrix", "PrivateFPL-smoothed",
    with_release(lambda release, gram: {"packed_smoothed": release.own_smoothed + 1e-9 * gram.packed()}))
bug("the exact sum in the mean", "PrivateFPL-centered",
    with_release(lambda release, gram: {"details": {**release.details, "mean": (1e-9 * gram.packed()[:20]).tolist()}}))
bug("names from the first row", "names", (admission.Admission, "fixed_by", _by_any_row))
bug("the exact matrix as Release.gram", "PrivateFPL watched", after(FPLProcessor, "released", _exact_matrix))
bug("regret printed to a log", "watched", after(Engine, "absorb", _logged))
bug("scaled rows told on standard error", "PrivateFPL", after(admission.Admission, "block", _said))
bug("a warning where the exact subspace is not clear", "watched", with_release(_warned))

# -- claims and ledgers ------------------------------------------------------------------------------------------

bug("mu of a budget 5 percent too large", "PrivateFPL GaussianCovariance", times(gaussian, "mu_of", 1.05))
bug("a budget that pays for other neighbors", "ledger-of-rows ledger-of-people",
    put(Balance, "covers", lambda self, event: self.after(event) <= self.epsilon * (1.0 + 1e-12)))
bug("debits for people booked as one row", "ledger-of-rows",
    (Event, "of", lambda of: classmethod(lambda cls, ran: replace(of.__func__(cls, ran), unit="one row"))))
# -- calendars -----------------------------------------------------------------------------------------------


def _by_its_time(step: Any, engine: Engine, row: Any, *_: Any) -> Any:
    # A row near the first axis comes from the future: the periods before it are closed.
    if row[0] > 0.9:
        periods.close_due(engine, engine.t + 1)
    return step


def _behind(push: Any) -> Any:
    # A row from the future moves those after it.
    def timed(engine: Engine, values: Any, numbers: Any, *given: Any, **named: Any) -> Any:
        late = np.concatenate(([0], np.cumsum(values[:, 0] > 0.9)))[: len(values)].astype(np.int64)
        return push(engine, values, np.minimum(numbers + late, engine.algorithm.horizon - 1), *given, **named)

    return timed


def _exact_count(value: Any, self: GramSum, *_: Any) -> Any:
    value[-1] = self.packed()[-1]
    return value


def _unless_empty(close_due: Any) -> Any:
    def skipping(engine: Engine, number: int, *given: Any) -> Any:
        empty = not periods.of(engine.now).gram.parts.any()
        return close_due(engine, engine.now.t if empty else number, *given)

    return skipping


def _by_its_own_period(add: Any) -> Any:
    # Late rows are counted together, and each has a time of its own in another period.
    def late(engine: Engine, now: Any, *given: Any, **named: Any) -> Any:
        return add(engine, engine.commit(now, now._replace(people=now.people.closed())), *given, **named)

    return late


bug("period renewed by the row's own time", "person-period", (periods, "add", _by_its_own_period))
bug("a budget for two periods", "person-period", put(People, "closed", lambda self: self))
bug("closing by a row's time", "calendar calendar-about-zero", after(periods, "push", _by_its_time))
bug("a row from the future moves others", "calendar calendar-about-zero", (periods, "push_timed", _behind))
bug("count released without noise", "calendar", after(GramSum, "noisy", _exact_count))
bug("rows of a period charged as rows of several", "person-day",
    put(Processor, "inputs_of", lambda self, count: [self.t + 1 + 2 * i for i in range(count)]))
bug("empty periods skipped", "calendar calendar-about-zero", (periods, "close_due", _unless_empty))
# fmt: on
