"""The lane: rows that are releases, each in two calls of the compiled kernels around the hiding of the exact sums.

An `Engine` has a lane between two rows that need more than that: `PrivateFPL` with noise `BLT`, a release every row,
compiled kernels, and nothing that records rows. All other rows take the general path, whose bits
the lane has: exact sums, chain values, noise, releases and rewards. A privacy claim about the general path therefore
holds for the lane: equal chain values show that the same exact bytes were hidden in the same order, and equal secret
state that the noise drawn for them was added once. The auditor's tape and commit logs see the general path only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streampca import _native
from streampca.errors import StreamBusyError
from streampca.linalg.centering import CONSTANT, MEAN_WEIGHT, least_count, sum_variance
from streampca.linalg.eigen import top_pairs
from streampca.linalg.lattice import UNIT, GramSum
from streampca.linalg.svec import entry_weights, svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.blt import BufferedNoise
from streampca.privacy.outlet import EPOCH_BITS, Chain
from streampca.privacy.randomness import NAME_BYTES, ZIGGURAT
from streampca.processors.base import Processor
from streampca.processors.leader import PANEL_ENDS, with_spectrum
from streampca.processors.private_fpl import FPLProcessor
from streampca.processors.solvers import Exact, Reading, Smoothed, Tracked, Tracking
from streampca.regret.regret import RegretSums
from streampca.release.release import Release
from streampca.release.scoring import Scoring
from streampca.release.subspace import Subspace
from streampca.rows.admission import Admission, Counts
from streampca.stream.step import State, Step

#: Most features of a lane or of the records of a fleet in the compiled kernels, and most components.
_FEATURES, _COMPONENTS = 256, 16
_new = tuple.__new__
#: First number and values of a chunk of `InChunks`.
Chunk = tuple[int, Sequence[float]]
#: Set the slots of a release, which its class refuses: a tenth of a call of `Release`.
_T, _K, _TERMS, _PACKED, _BASIS, _SPAN, _VALUES, _STD, _DETAILS, _SMOOTHED, _ENTRIES, _GRAM, _PAIR = (
    getattr(Release, name).__set__ for name in Release.__slots__
)


class LaneState(NamedTuple):
    """State of a stream within a lane: a value, whose arena is never written again."""

    t: int
    chain: Chain
    arena: Any  # exact sums, noise, buffers, span and scoring, as bytes (`_native/plan.h`)
    reward: float  # of all rows so far
    squares: int  # lattice squares of the rows since the lane began, which the counts lack
    counts: Counts
    release: Release | None
    reading: Reading  # of a solver that observes every release; others have theirs in the arena
    spectra: FloatArray  # those of the `LeaderProcessor`
    regret: RegretSums | None  # up to the latest record, or the beginning of the lane


class Lane:
    """Consecutive rows of one stream that `fits`, each absorbed and released by compiled kernels."""

    # The parameters are its `plan_of` and the `reach` of the lane.

    def __init__(self, now: State, plan: Any, until: int, stds: Chunk, scales: Chunk | None) -> None:
        processor = now.processor
        assert isinstance(processor, FPLProcessor)
        assert isinstance(processor.noise, BufferedNoise)
        algorithm, noise, source = processor.algorithm, processor.noise, processor.source
        rule, admission = noise.rule, now.admission
        self.start, self.source, self.admission, self.plan = now, source, admission, plan
        self.is_open = True  # until the state of the stream is assigned
        self.center = center = algorithm.center
        self.d = d = processor.n_features - int(center)
        self.k = k = algorithm.n_components
        self.tracking = isinstance(processor.reading, Tracked)
        self.scored = now.regret is not None
        self.algorithm = algorithm
        size, self.packed = svec_size(d + int(center)), svec_size(d)
        self.hidden = 16 * size  # bytes of the exact sums
        self.spans = (3 + rule.mix.size) * size
        self.scoring = self.spans + d * k
        self.bytes = 8 * (self.scoring + d * k + (d + 1) * int(center))
        self.public = self.packed + d * k * int(self.tracking) + 2 * d * int(center)
        arena = np.zeros(self.bytes // 8)
        # Order of the arena, in units of a packed matrix: exact sums (2), noise (1), buffers, then span and scoring.
        arena[: 2 * size] = processor.gram.parts.reshape(-1)
        arena[2 * size : 3 * size] = noise.noise
        arena[3 * size : self.spans] = noise.buffers.reshape(-1)
        if processor.reading.span is not None:
            arena[self.spans : self.scoring] = processor.reading.span.T.reshape(-1)
        if self.scored:
            assert now.release is not None
            self._put_scoring(arena, now.scoring or Scoring.of_release(now.release))
        # The noise counts releases and the stream rows: they differ by the rows of a warm-up.
        self.offset = noise.n - now.t  # of the release's number from the row's
        self.words, self.more = source.epoch[1].first, source.epoch[1].more
        self.factor = math.nan if admission.bounds is not None else float(admission.factor)
        self.unit, self.terms = now.unit, processor.terms
        self.details = {} if processor.reading.name is None else {"solver": processor.reading.name}
        self.rule, self.until, self.stds, self.scales = rule, until, stds, scales
        reward = 0.0 if now.regret is None else now.regret.reward
        self.state = LaneState(
            now.t, processor.chain, arena.view(np.uint8), reward, 0, now.counts, now.release, processor.reading,
            processor.spectra, now.regret,
        )  # fmt: skip
        self._views = {now.t: now}  # by row: what `now` returned

    def _gram(self, arena: Any) -> GramSum:
        """Return the exact sums in an arena, which is not written any more."""
        return GramSum(self.d + int(self.center), arena[: self.hidden].view(np.float64).reshape(2, -1))

    def _put_scoring(self, arena: FloatArray, scoring: Scoring) -> None:
        end = self.scoring + self.d * self.k
        arena[self.scoring : end] = scoring.basis[: self.d].T.reshape(-1)
        if scoring.linear is not None:
            arena[end:] = scoring.linear

    def push(self, row: Any) -> Step | None:
        """Absorb a row and release; None where the row needs the general path. Called by `Engine.push`, which locks."""
        state = self.state
        t, chain, arena, reward, squares, counts, _, reading, spectra, regret = state
        if t >= self.until:
            return None
        plan, source, center = self.plan, self.source, self.center
        new: Any = np.empty(self.bytes, np.uint8)
        # Privacy: the buffer of a masked array, a subclass, has the values behind its mask, which are missing.
        taken = plan.take(row, self.factor, arena, new) if type(row) is np.ndarray else None
        if taken is None or not taken[0] <= 1.0:  # of another kind, long, bad, or outside its bounds
            # Raises for a row of another shape; the arena is a new one, so that nothing has changed.
            admitted, more = self.admission.row(row, t + 1)
            # A factor of 0 is an absent row: without the constant, it adds nothing.
            factor = 0.0 if center and admitted[0, -1] == 0.0 else 1.0
            square, gain = plan.take(admitted[0, : self.d], factor, arena, new)
            counts = counts.plus(more)
        else:
            square, gain = taken
            squares += int(square * UNIT)
        t += 1
        # Privacy: the noise of a release is keyed by all exact sums and fresh bytes up to it, as in `Outlet`.
        fresh = source.fresh(chain.n + 1) if source.is_seeded else source.random(NAME_BYTES)
        chain, name = source.link(chain, b"gram", fresh, source.tag(memoryview(new)[: self.hidden]))
        n = t + self.offset
        first, stds = self.stds
        std, scale = stds[n - first], self.rule.scale
        if self.scales is not None:
            start, scales = self.scales
            scale = scales[n - start]
        rows: float = 1
        least = variance = 0.0
        if center:
            rows, least, variance = self.terms.count(1, t), least_count(std), sum_variance(std)
        public = np.empty(self.public)
        about = plan.release(name, self.words, self.more, scale, std, arena, new, public, rows, least, variance)
        # From here on the arrays are part of a release, which its reader must not be able to change.
        public.setflags(write=False)
        if reading.noise_std is not None:  # it observes every release
            reading = reading.observe(public[: self.packed], 1.0)
        release = self._release(t, public, std, about, new, reading)
        if n in PANEL_ENDS:  # of the regret bound, which may need the spectrum of the exact sum
            spectra = with_spectrum(spectra, self.algorithm, n, self._gram(new))
        after = _new(LaneState, (t, chain, new, reward + gain, squares, counts, release, reading, spectra, regret))
        if regret is not None and t == regret.next:
            observed = replace(regret, t=t, reward=reward + gain)
            after = after._replace(regret=observed.recorded(self._processor(after), release.subspace, self.unit))
        # A nested call or a fork in between has changed the stream. This row number may be released already.
        if self.state is not state or not self.is_open:
            raise StreamBusyError("the stream changed while a row was absorbed, by a fork. Push the row again")
        self.state = after  # the commit
        return Step(t, release, gain * self.unit if self.scored else math.nan)

    def _release(
        self, t: int, public: FloatArray, std: float, about: tuple[float, float, float] | None, new: Any,
        reading: Reading,
    ) -> Release:  # fmt: skip
        """Return the release of public numbers. Without a span, write the scoring of the next row into the arena."""
        # ``about`` are the bound on the noise, the count and the noisy count of a release about the mean.
        d, k = self.d, self.k
        details: dict[str, Any] = self.details
        packed, at_mean, mean = public[: self.packed], self.packed, None
        span = None
        if self.tracking:
            at_mean += d * k
            span = public[self.packed : at_mean].reshape(k, d).T
        if about is not None:
            mean, sums = public[at_mean : at_mean + d], public[at_mean + d :]
            bound, count, noisy = about
            details = {
                **details, "centered": True, "mean": mean.tolist(), "count": count, "sums": sums.tolist(),
                "noisy_count": noisy, "joint_noise_std": std * self.terms.row_norm**2,
            }  # fmt: skip
            std = bound
        estimate = None
        if reading.noise_std is not None:
            details = {**details, "smoothed_noise_std": reading.noise_std * self.terms.row_norm**2}
            estimate = reading.estimate
            assert estimate is not None
            estimate.flags.writeable = False
        pair = None
        if span is None and self.scored:
            values, basis, own = np.empty(k), np.empty((d, k)), packed if estimate is None else estimate
            if not self.plan.top(own, values, basis, new, mean):
                values, basis = top_pairs(own, k)
                scoring = Scoring.of(basis, None if mean is None else mean / self.terms.row_norm)
                self._put_scoring(new.view(np.float64), scoring)
            basis.setflags(write=False)
            values.setflags(write=False)
            subspace = Subspace.__new__(Subspace)
            object.__setattr__(subspace, "basis", basis)
            pair = values, subspace
        release = Release.__new__(Release)  # this runs once a row: no call of __init__
        _T(release, t)
        _K(release, k)
        _TERMS(release, self.terms)
        _PACKED(release, packed)
        _BASIS(release, None)
        _SPAN(release, span)
        _VALUES(release, None)
        _STD(release, std)
        _DETAILS(release, details)
        _SMOOTHED(release, estimate)
        _ENTRIES(release, None)
        _GRAM(release, None)
        _PAIR(release, pair)
        return release

    def _processor(self, state: LaneState) -> FPLProcessor:
        """Return the processor after the row of a state, as the general path has it: views of the arena."""
        before = self.start.processor
        assert isinstance(before, FPLProcessor)
        # Invariant: an arena is written before its row is committed and never after, so that views of it may be shared.
        state.arena.flags.writeable = False
        arena = state.arena.view(np.float64)
        size = self.hidden // 16
        buffers, total = arena[3 * size : self.spans].reshape(-1, size), arena[2 * size : 3 * size]
        span = arena[self.spans : self.scoring].reshape(self.k, self.d).T
        return before.after(
            state.t, state.chain, gram=self._gram(state.arena),
            noise=BufferedNoise(self.rule, state.t + self.offset, buffers, total),
            reading=Tracked(span) if self.tracking else state.reading, spectra=state.spectra,
        )  # fmt: skip

    def now(self) -> State:
        """Return the state of the stream as the general path has it: created when it is read."""
        state, views, start = self.state, self._views, self.start
        if (known := views.get(state.t)) is not None:
            return known
        processor, regret, scoring = self._processor(state), state.regret, None
        t, due = state.t, processor.rows_until_release
        if regret is not None:
            regret, due = replace(regret, t=t, reward=state.reward), min(due, regret.next - t)
            arena, end, linear = state.arena.view(np.float64), self.scoring + self.d * self.k, None
            basis = arena[self.scoring : end].reshape(self.k, self.d).T
            if self.center:
                basis, linear = np.vstack([basis, np.zeros(self.k)]), arena[end:]
            scoring = Scoring(np.ascontiguousarray(basis), linear)
        # Exact integers: the sum of the squares does not depend on when it is taken.
        counts = state.counts._replace(squares=state.counts.squares + state.squares)
        now = start._replace(
            t=t, processor=processor, release=state.release, regret=regret, scoring=scoring, counts=counts, due=due,
            entries=start.entries + t - start.t,
        )  # fmt: skip
        # Threads that read at the same time must get one object: the general path compares states by identity.
        now = views.setdefault(t, now)
        for row in [row for row in tuple(views) if row < t]:
            views.pop(row, None)
        return now


def has_size(n_features: int, n_components: int) -> bool:
    """Return whether the compiled kernels have plans of this size."""
    return n_features <= _FEATURES and n_components <= _COMPONENTS


def fits(now: State) -> bool:
    """Return whether rows of this stream may take a lane, as far as that is constant during a run."""
    processor, admission = now.processor, now.admission
    if not isinstance(processor, FPLProcessor) or processor.source.tape is not None:
        return False
    algorithm = processor.algorithm
    # The lane has the bits of the general path for these settings only.
    # A smoothed sum about the mean needs the released matrix before the mean is taken out, which stays in C.
    solvers = (Exact, Tracking) if algorithm.center else (Exact, Tracking, Smoothed)
    return (
        type(algorithm.solver) in solvers
        and isinstance(processor.noise, BufferedNoise)
        and algorithm.noise.arithmetic is None
        and algorithm.release_every == 1
        and not algorithm.publish_regret
        and algorithm.unit is None
        and admission.on_missing == "bad"
        and (now.regret is None or now.regret.own is None)
        and admission.n_features is not None
        and has_size(admission.n_features, algorithm.n_components)
    )


def reach(now: State) -> tuple[int, Chunk, Chunk | None]:
    """Return the last row of a lane, the standard deviations of its rows, and the scales of the noise if they vary."""
    # A lane ends at the horizon, and before other keys, other scales or empty buffers.
    processor = now.processor
    assert isinstance(processor, FPLProcessor)
    assert isinstance(processor.noise, BufferedNoise)
    n, rule, drawn = processor.noise.n, processor.noise.rule, processor.chain.n
    # Streams share the chunks of their algorithm, and another one may replace them at any time. So they are read once.
    stds = processor.algorithm.mechanism.std_chunks.latest
    scales = None if isinstance(rule.scale, float) else rule.scale.latest
    chunks = [stds] if scales is None else [stds, scales]
    if processor.source.epoch[0] != drawn + 1 >> EPOCH_BITS or any(n + 1 < first for first, _ in chunks):
        return now.t, stds, scales
    # The key of the noise changes with the epoch, and the compiled step holds one key.
    left = [((drawn >> EPOCH_BITS) + 1 << EPOCH_BITS) - 1 - drawn]
    left += [first + len(values) - 1 - n for first, values in chunks]
    if rule.restart_after is not None:
        left.append(rule.restart_after - n % rule.restart_after)
    if processor.algorithm.horizon is not None:
        left.append(processor.algorithm.horizon - now.t)
    return now.t + min(left), stds, scales


def plan_of(processor: Processor | None, admission: Admission) -> Any:
    """Return the constants of all lanes of a stream that `fits`, or of a fleet, for the compiled kernels."""
    assert isinstance(processor, FPLProcessor)
    assert isinstance(processor.noise, BufferedNoise)
    assert _native.compiled is not None
    algorithm, rule = processor.algorithm, processor.noise.rule
    center, d = algorithm.center, processor.n_features - int(algorithm.center)
    bounds = [np.empty(0), np.empty(0)]
    if admission.bounds is not None:
        ends = admission.middle, admission.factor
        bounds = [np.array(np.broadcast_to(end, (d,)), np.float64) for end in ends]
    return _native.compiled.Plan(
        d, algorithm.n_components, np.ascontiguousarray(rule.mix), np.ascontiguousarray(rule.rate),
        np.ascontiguousarray(entry_weights(d + int(center))), float(rule.keep), *ZIGGURAT,
        int(isinstance(algorithm.solver, Tracking)), CONSTANT if center else 0.0, MEAN_WEIGHT**2,
        admission.row_norm, *bounds,
    )  # fmt: skip
