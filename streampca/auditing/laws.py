"""Laws of noise: how a part is expected to be noised, what a neighbor loses under it, and tests that it is so.

Every law turns noise into numbers that are independent and standard normal if the noise follows it. One
set of tests (`p_values`) then serves all laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats
from scipy.linalg import block_diag

from streampca.linalg.lattice import GramInParts
from streampca.linalg.svec import entry_weights, svec_size, unpack_entries
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.adaptive_laplace import AdaptiveLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace, TruncatedLaplace
from streampca.mechanisms.histogram import GRID, GaussianHistograms, StabilityHistogram
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.mean import PrivateCenter
from streampca.papers.doubling import DoublingFPL
from streampca.papers.laplace import LaplaceCovariance
from streampca.papers.wishart import WishartCovariance, profile
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import LatticeSum
from streampca.privacy.randomness import Note
from streampca.processors.dp_pca import DPPCA
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.rewards import REWARD_WEIGHT
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling

Groups = dict[str, FloatArray]
#: Coordinates of two runs, or of a coordinate in all of them, that are compared with each other.
_MOST = 500
#: Standard deviation at which the grid of a release is the finest there is.
_NO_NOISE = 1e-300


def mu_of(claim: Guarantee) -> float:
    """The mu that spends a claim."""
    return gaussian.mu_of(claim.epsilon, claim.delta) if claim.mu is None else claim.mu


class Loss(NamedTuple):
    """What a neighbor moves: the loss by the law over the claim, the move in units of Gaussian noise, and a text."""

    ratio: float
    moved: Groups
    text: str


# -- what a note says, in numbers -----------------------------------------------------------------


def noiseless(note: Note) -> Any:
    """The exact value as the outlet would release it with no noise."""
    if isinstance(note.exact, LatticeSum):  # its lattice may be finer than that of releases
        return note.exact.values
    return note.exact.noisy(np.zeros_like(note.noise), _NO_NOISE)


def groups(note: Note, value: Any) -> Groups:
    """Released numbers, by group of equal noise."""
    extra: Groups = {}
    if isinstance(value, tuple):
        value, told = value
        extra["rewards"] = np.array([told["sum"]]) / note.exact.rewards.scale
    if isinstance(note.exact, GramInParts):
        value = value.sum(axis=0)
    d = getattr(getattr(note.exact, "gram", note.exact), "n_features", None)
    if d is None:
        return {"": np.asarray(value, dtype=np.float64).reshape(-1)}
    diagonal = entry_weights(d) == 1.0
    return {"diagonal": value[diagonal]} | ({"off-diagonal": value[~diagonal]} if d > 1 else {}) | extra


def noise_of(note: Note) -> Groups:
    """What was really added: released less exact."""
    released, exact = groups(note, note.value), groups(note, noiseless(note))
    return {name: released[name] - exact[name] for name in released}


def shift(note: Note, other: Note) -> Groups:
    """How far the exact values of two runs are apart."""
    first, second = groups(note, noiseless(note)), groups(other, noiseless(other))
    return {name: second[name] - first[name] for name in first}


# -- laws -------------------------------------------------------------------------------------------


class Law(NamedTuple):
    """How the noise of one part is distributed, by what the algorithm says of itself.

    ``standard(notes)`` turns the noise of a run into standard normals by group, (T, n): rows in time, independent
    columns. ``loss(notes, others, claim)`` is what tells two neighbors apart.
    """

    standard: Callable[[Sequence[Note]], Groups]
    loss: Callable[[Sequence[Note], Sequence[Note], Guarantee], Loss]


#: Noise of a group times this has the standard deviation of noise on the diagonal.
_WEIGHTS = {"off-diagonal": math.sqrt(2.0), "rewards": REWARD_WEIGHT}


def _gaussian(scale: Callable[[Sequence[Note], Sequence[FloatArray]], FloatArray]) -> Law:
    """Gaussian noise; ``scale`` divides values of each note by the standard deviation, or root of the covariance."""

    def scaled(notes: Sequence[Note], parts: Sequence[Groups]) -> Groups:
        return {name: scale(notes, [_WEIGHTS.get(name, 1.0) * part[name] for part in parts]) for name in parts[0]}

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        moved = scaled(notes, list(map(shift, notes, others)))
        mu = math.sqrt(sum(float(np.sum(part * part)) for part in moved.values()))
        return Loss(mu / mu_of(claim), moved, f"mu = {mu:.4g}")

    return Law(lambda notes: scaled(notes, list(map(noise_of, notes))), loss)


def correlated(reconstruction: Callable[[int], FloatArray]) -> Law:
    """Gaussian noise B z over time: ``reconstruction(T)`` is B for a diagonal entry."""

    def whitened(notes: Sequence[Note], parts: Sequence[FloatArray]) -> FloatArray:
        b = reconstruction(len(parts))
        return np.linalg.solve(np.linalg.cholesky(b @ b.T), np.array(parts))

    return _gaussian(whitened)


def in_epochs(subject: DoublingFPL, d: int) -> Law:
    """Gaussian noise of a `DoublingFPL`: each epoch has its own, and released values end it."""
    horizon, every = subject.horizon, subject.release_every

    def whitened(notes: Sequence[Note], parts: Sequence[FloatArray]) -> FloatArray:
        epoch, first, blocks = subject.first_epoch(d), 0, list[FloatArray]()
        for i, note in enumerate(notes, 1):
            t = min(i * every, horizon)
            left = subject.leaves(horizon - t)
            passed = left > 0 and epoch.passed(note.value, i - first)
            if passed or i == len(notes):
                blocks.append(epoch.mechanism.reconstruction(i - first))
            if passed:
                epoch, first = epoch.restarted(t, left, epoch.released, 0.0), i
        b = block_diag(*blocks)
        return np.linalg.solve(np.linalg.cholesky(b @ b.T), np.array(parts))

    return _gaussian(whitened)


def _divided(notes: Sequence[Note], parts: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([part / note.std for note, part in zip(notes, parts, strict=True)])[None]


def of_each(law: Law) -> Law:
    """A law of one release, for the releases of a `Tumbling`: a row is in one of them."""

    def standard(notes: Sequence[Note]) -> Groups:
        parts = [law.standard([note]) for note in notes]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        pairs = zip(notes, others, strict=True)
        return max((law.loss([note], [other], claim) for note, other in pairs), key=lambda loss: loss.ratio)

    return Law(standard, loss)


#: Gaussian noise, fresh each time, of the standard deviation that the outlet was told.
independent = _gaussian(_divided)


def shuffled(rows: FloatArray) -> Law:
    """Independent Gaussian noise in steps on busy rows in a secret order.

    Gradients are multiples of rows, so the order shows in what the steps hide: for busy rows, the group "order" is
    its rank correlation with the order of the rows, and the place of the first.
    """
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def standard(notes: Sequence[Note]) -> Groups:
        found, steps = independent.standard(notes), np.array([note.exact.values[:, 0] for note in notes])
        norms = np.linalg.norm(steps, axis=1, keepdims=True)
        if norms.all():
            order = np.abs(directions @ (steps / norms).T).argmax(axis=1)
            n = len(order)
            correlation = np.corrcoef(order, np.arange(n))[0, 1] * math.sqrt(n - 1.0)
            found["order"] = np.array([[correlation, special.ndtri((order[0] + 0.5) / n)]])
        return found

    return Law(standard, independent.loss)


def _by_quantiles(above: Callable[[FloatArray], FloatArray]) -> Callable[[Sequence[Note]], Groups]:
    """Standard normals made of independent noise with ``above(x) = P(noise > x)``."""

    def standard(notes: Sequence[Note]) -> Groups:
        noise = np.concatenate([part for note in notes for part in noise_of(note).values()])
        return {"": -special.ndtri(np.clip(above(noise), 1e-300, 1.0 - 1e-16))[None]}

    return standard


def _laplace_above(scale: float, noise: FloatArray) -> FloatArray:
    tail = 0.5 * np.exp(-np.abs(noise) / scale)
    return np.where(noise > 0.0, tail, 1.0 - tail)


def laplace(scale: float) -> Law:
    """Laplace noise on every entry."""

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        moved = map(shift, notes, others)
        epsilon = sum(float(np.abs(part).sum()) for one in moved for part in one.values()) / scale
        return _lost(claim, epsilon)

    return Law(_by_quantiles(partial(_laplace_above, scale)), loss)


def _moved_counts(note: Note, other: Note) -> tuple[FloatArray, list[FloatArray]]:
    """By how much counts move that both have; and the counts that only one of them has, and only the other."""
    values = [(e.names or range(e.counts.size), e.counts.flat) for e in (note.exact, other.exact)]
    one, two = ({name: float(x) for name, x in zip(*value, strict=True) if x} for value in values)
    lone = [np.array([of[name] for name in of.keys() - less.keys()]) for of, less in ((one, two), (two, one))]
    return np.array([two[name] - one[name] for name in one.keys() & two.keys()]), lone


def _lost(claim: Guarantee, epsilon: float = 0.0, delta: float = 0.0) -> Loss:
    """The loss of what is not Gaussian."""
    ratio = max(epsilon / claim.epsilon, delta / claim.delta if delta else 0.0)
    spent = {"epsilon": epsilon, "delta": delta}
    return Loss(ratio, {}, ", ".join(f"{name} = {value:.4g}" for name, value in spent.items() if value))


def votes(histogram: StabilityHistogram) -> Law:
    """A stability histogram: Laplace noise, and a threshold under which a count of one vote stays hidden."""
    above, threshold = partial(_laplace_above, histogram.scale), histogram.threshold + 0.5 * GRID

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        epsilon, deltas = 0.0, np.zeros(2)
        for note, other in zip(notes, others, strict=True):
            moved, lone = _moved_counts(note, other)
            epsilon += float(np.abs(moved).sum()) / histogram.scale
            # Bins that one side alone has count for that side only: the deltas of two sides do not add up.
            deltas += [1.0 - float(np.prod(1.0 - above(threshold - counts))) for counts in lone]
        return _lost(claim, epsilon, float(deltas.max()))

    return Law(_by_quantiles(above), loss)


def _centers(histograms: GaussianHistograms) -> Law:
    """Gaussian counts above a threshold; empty bins have no noise."""

    def standard(notes: Sequence[Note]) -> Groups:
        kept = [noise_of(note)[""][note.exact.counts.reshape(-1) > 0] / histograms.std for note in notes]
        return {"": np.concatenate(kept)[None]}

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        mu, deltas = 0.0, np.zeros(2)
        for note, other in zip(notes, others, strict=True):
            moved, lone = _moved_counts(note, other)
            mu = math.hypot(mu, float(np.linalg.norm(moved)) / histograms.std)
            limit = histograms.threshold + 0.5 * GRID
            deltas += [float(special.ndtr((counts - limit) / histograms.std).sum()) for counts in lone]
        delta = float(deltas.max())
        ratio = max(mu / gaussian.mu_of(claim.epsilon, claim.delta - histograms.delta), delta / histograms.delta)
        return Loss(ratio, {}, f"mu = {mu:.4g}, delta = {delta:.3g}")

    return Law(standard, loss)


def _truncated(law: TruncatedLaplace, threshold: float) -> Law:
    """Truncated Laplace noise on a gap or on votes, and a threshold that a single row never passes."""

    def above(noise: FloatArray) -> FloatArray:  # beyond its bound there is no noise: that counts as the rarest event
        tails = np.array([law.above(float(x)) for x in noise])
        return np.where(np.abs(noise) > law.bound * (1.0 + 1e-12), 1e-300, tails)

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        epsilon, delta = 0.0, 0.0
        for note, other in zip(notes, others, strict=True):
            moved, lone = _moved_counts(note, other)
            if note.exact.names is None:
                moved, lone = other.exact.counts - note.exact.counts, []
            epsilon += float(np.abs(moved).sum()) * law.epsilon / law.sensitivity
            delta += sum(law.above(law.bound - abs(float(x))) for x in moved)
            delta += max((law.above(threshold - float(x)) for counts in lone for x in counts), default=0.0)
        return _lost(claim, epsilon, delta)

    return Law(_by_quantiles(above), loss)


def _matrix(values: Groups, d: int) -> FloatArray:
    """The matrix of diagonal and other entries."""
    packed, diagonal = np.empty(svec_size(d)), entry_weights(d) == 1.0
    packed[diagonal] = values["diagonal"]
    if d > 1:
        packed[~diagonal] = values["off-diagonal"]
    return unpack_entries(packed, d)


def _apart(notes: Sequence[Note], others: Sequence[Note], d: int) -> FloatArray:
    """Sizes of the eigenvalues of what one released matrix moves by."""
    values: FloatArray = np.abs(np.linalg.eigvalsh(_matrix(shift(notes[0], others[0]), d)))
    return values


def _wishart(mechanism: WishartCovariance, d: int) -> Law:
    """One Wishart matrix."""
    scale, degrees = mechanism.scale(d), mechanism.degrees(d)

    def standard(notes: Sequence[Note]) -> Groups:
        """Bartlett's decomposition: the factor has independent normals and roots of chi-squares."""
        made = _matrix(noise_of(notes[0]), d) / scale
        low = float(np.linalg.eigvalsh(made)[0])
        factor = np.linalg.cholesky(made + max(0.0, 1e-9 - low) * np.eye(d))
        tails = stats.chi2.sf(np.diag(factor) ** 2, degrees - np.arange(d))
        roots = -special.ndtri(np.clip(tails, 1e-300, 1.0 - 1e-16))
        return {"": np.concatenate([roots, factor[np.tril_indices(d, -1)]])[None]}

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        size = float(_apart(notes, others, d).max())
        # Under replace the profile is of both steps together; the row taken out and the row put in are of one length.
        delta = profile(claim.epsilon, degrees, scale / size, d, mechanism.adjacency) if size else 0.0
        return _lost(claim, delta=delta)

    return Law(standard, loss)


def _matrix_laplace(mechanism: MatrixLaplaceCovariance, d: int) -> Law:
    """The difference of two Wishart matrices of d + 1 degrees."""
    scale = mechanism.scale(d)

    def standard(notes: Sequence[Note]) -> Groups:
        """One diagonal entry and the trace are differences of chi-squares."""
        made = _matrix(noise_of(notes[0]), d) / scale
        shown = {"entry": (float(made[0, 0]), d + 1), "trace": (float(np.trace(made)), (d + 1) * d)}
        tails = {
            name: (value, np.interp(abs(value), *difference_tails(degrees))) for name, (value, degrees) in shown.items()
        }
        return {
            name: np.array([[-math.copysign(special.ndtri(tail), -value)]]) for name, (value, tail) in tails.items()
        }

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        # The log-density changes by at most the trace norm over 2c.
        return _lost(claim, float(_apart(notes, others, d).sum()) / (2.0 * scale))

    return Law(standard, loss)


def _either_matrix_laplace(mechanism: AdaptiveLaplaceCovariance, d: int) -> Law:
    """The noise after that many stages, by the standard deviation that the outlet was told."""
    made = [mechanism.on_gram(stages) for stages in range(3)]
    laws = {one.noise_std(d): _matrix_laplace(one, d) for one in made}

    def loss(notes: Sequence[Note], others: Sequence[Note], claim: Guarantee) -> Loss:
        return laws[notes[0].std].loss(notes, others, claim)

    return Law(lambda notes: laws[notes[0].std].standard(notes), loss)


@lru_cache(maxsize=16)
def difference_tails(degrees: int) -> tuple[FloatArray, FloatArray]:
    """P(X - Y > x) for independent chi-squares, on a grid of x from 0."""
    grid = np.linspace(0.0, 40.0, 1001) * math.sqrt(degrees)
    values = stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, degrees)
    return grid, special.chdtrc(degrees, grid[:, None] + values).mean(axis=1)


def law_of(subject: Any, d: int, kind: str) -> Law:
    """The law of one part of an algorithm or mechanism, for rows of d features."""
    if kind == "bounds":
        return independent
    match subject:
        case Tumbling():
            return law_of(subject.mechanism, d, kind)
        case DoublingFPL():
            return in_epochs(subject, d)
        case PrivateFPL():
            return correlated(subject.mechanism.reconstruction)
        case SlidingWindowPCA() if subject.method != "once":
            return correlated(subject.followed.noise.reconstruction)
        case LaplaceCovariance():
            return laplace(subject.scale(d))
        case MatrixLaplaceCovariance():
            return of_each(_matrix_laplace(subject, d))
        case AdaptiveLaplaceCovariance() if kind == "gram":
            return of_each(_either_matrix_laplace(subject, d))
        case AdaptiveLaplaceCovariance():
            return laplace(subject.norms_scale if kind == "norms" else subject.lost_scale)
        case WishartCovariance():
            return of_each(_wishart(subject, d))
        case ExactSubspace() if kind == "gap":
            return _truncated(subject.gap_noise, subject.gap_threshold)
        case ExactSubspace():
            return _truncated(subject.vote_noise, subject.vote_threshold)
        case StabilityHistogram():
            return votes(subject)
        case PrivateCenter():
            return _centers(subject.histograms)
        case DPPCA() if kind in ("norm", "top", "range", "center"):
            return law_of(getattr(subject.plan(d), "votes" if kind == "norm" else kind), d, kind)
    histogram = getattr(subject, "histogram", None)
    return votes(histogram) if isinstance(histogram, StabilityHistogram) else independent


# -- tests that numbers are independent and standard normal -----------------------------------------


def p_values(runs: Sequence[FloatArray], busy: Sequence[bool]) -> dict[str, float]:
    """P-values of the hypothesis that all numbers are independent standard normals.

    ``runs`` are (T, n) arrays; T and n may differ from run to run. T may depend on the numbers of earlier times: those
    of one time, of the runs that have it, are lawful nonetheless. ``busy`` says which runs were of busy rows.
    """
    shortest, width = (min(run.shape[axis] for run in runs) for axis in (0, 1))
    z = np.array([run[:shortest, :width] for run in runs])  # (R, T, n)
    every = np.concatenate([run.reshape(-1) for run in runs])
    times = _by_time(runs, width)
    counts = np.isfinite(times).sum(axis=1)
    halves = [z[np.array(busy) == half] for half in set(busy)]
    cells = [np.nansum(times, axis=1) / np.sqrt(counts), every.sum(keepdims=True) / math.sqrt(every.size)]
    cells += [(half.sum(axis=0) / math.sqrt(len(half))).reshape(-1) for half in halves]
    size = [_variance(np.sum(every**2, keepdims=True), every.size), _variance(np.nansum(times**2, axis=1), counts)]
    size += [_variance(np.sum(z**2, axis=axes), z.size // z.shape[3 - sum(axes)]) for axes in _PLANES]
    size += [_variance(np.sum(half**2, axis=(0, 2)), len(half) * width) for half in halves]
    small = int((np.abs(every) < _SMALL).sum())
    chosen = every if every.size <= 20_000 else every[:: every.size // 10_000]
    return {
        "variance": min(1.0, len(size) * min(size)),
        "mean": min(1.0, len(cells) * min(_normal(cell) for cell in cells)),
        "shape": float(stats.kstest(chosen, "norm", method="asymp").pvalue),
        "no noise": float(stats.binom.sf(small - 1, every.size, _SMALL * math.sqrt(2.0 / math.pi))),
        "outliers": _normal(every),
        "equal in time": min(1.0, 2.0 * min(_correlated(times), _follows(times[:-1:2], times[1::2]))),
        "equal over coordinates": _correlated(np.moveaxis(z, 2, 0).reshape(width, -1)[:_MOST]),
        "equal over runs": _correlated(z.reshape(len(z), -1)[:_MOST]),
        "repeated in runs": _repeated(z.reshape(len(z), -1)),
    }


def _by_time(runs: Sequence[FloatArray], width: int) -> FloatArray:
    """Numbers by time, (T, columns of all runs); nan where a run is shorter."""
    times = np.full((max(map(len, runs)), len(runs), width), np.nan)
    for i, run in enumerate(runs):
        times[: len(run), i] = run[:, :width]
    return times.reshape(len(times), -1)


#: Pairs of axes (runs, times, coordinates) that a sum of squares is over.
_PLANES = ((0, 1), (1, 2))
#: Numbers smaller than this count as no noise, and such differences as equal noise.
_SMALL = 1e-3
#: How many p-values `p_values` gives, and the most sums of squares in its "variance".
_TESTS, _SUMS = 9, 6


def chance_to_miss(runs: Sequence[FloatArray], level: float) -> dict[str, float]:
    """The most that the chances to miss mutants of lawful noise can be, by the laws of the statistics in `p_values`.

    Half the noise: the sum of all N squares is a quarter of a chi-square of N degrees. A time, or a coordinate, without
    noise: its sum of squares is 0, and so is the p-value; where runs have different numbers of coordinates or times,
    there are as many zeros as runs. Noise repeated in time: the correlation of each of t // 2 independent pairs is the
    root of a chi-square, and the sum of all their products is one. Noise repeated in runs: all differences are 0. Of
    ``runs``, (T, n) arrays, only the shapes count; ``level`` is the significance of all tests of them together.
    """
    lengths, widths = [len(run) for run in runs], {run.shape[1] for run in runs}
    t, width, count = max(lengths), min(widths), sum(run.size for run in runs)
    each = level / _TESTS
    least = stats.chi2.ppf(0.5 * each / _SUMS, count)
    bare = len(set(lengths)) == 1 and (t > 1 or len(widths) == 1)
    zeros = 0.0 if bare else stats.binom.sf(len(runs) - 1, count, _SMALL * math.sqrt(2.0 / math.pi))
    if t > 1:
        limit = special.ndtri(0.5 * each / (t * (t - 1)))
        pairs = [sum(length > i for length in lengths) * width for i in range(1, t, 2)]
        x = _rate(sum(pairs))
        together = stats.chi2.cdf(-math.log(0.25 * each) / (x - 0.5 * x * x), sum(pairs))  # S is V
        repeated = float(min(together, np.prod(stats.chi2.cdf(limit**2, pairs))))
    else:
        twice = len(runs) // 2 * width
        repeated = float(0.5 * each < (_SMALL / math.sqrt(math.pi)) ** twice)
    return {
        "half the noise": float(stats.chi2.sf(4.0 * least, count)),
        "last release bare": float(zeros >= each),
        "noise repeated": repeated,
    }


def _variance(squares: FloatArray, degrees: IntArray | int) -> float:
    """The least two-sided p-value of sums of squares, by Bonferroni."""
    tails = np.minimum(stats.chi2.sf(squares, degrees), stats.chi2.cdf(squares, degrees))
    return float(min(1.0, 2.0 * tails.size * tails.min()))


def _normal(values: FloatArray) -> float:
    """The least two-sided p-value of standard normals, by Bonferroni."""
    return float(min(1.0, 2.0 * values.size * special.ndtr(-np.abs(values).max())))


def _correlated(rows: FloatArray) -> float:
    """Whether two rows are correlated. A product with another row, over that one's norm, is standard normal.

    What is nan is left out: of a row, where an earlier one is, it may be.
    """
    if len(rows) < 2:
        return 1.0
    there = np.isfinite(rows)
    known = np.where(there, rows, 0.0)
    products, norms = known @ known.T, np.sqrt(there.astype(np.float64) @ (known**2).T)
    return _normal((products / np.maximum(norms, 1e-300))[np.tril_indices(len(rows), -1)])


def _follows(before: FloatArray, after: FloatArray) -> float:
    """Whether numbers resemble those of the time before, over all these pairs of times together.

    For S the sum of all products and V that of the squares of what comes before, exp(x S - x**2 V / 2) is a martingale
    for every x, whatever ends a run: it exceeds 1 / p with probability at most p.
    """
    there = np.isfinite(after)
    before, after = (np.where(there, part, 0.0) for part in (before[: len(after)], after))
    x = _rate(int(there.sum()))
    size, square = abs(float(np.vdot(before, after))), float(np.vdot(before, before))
    return float(min(1.0, 2.0 * math.exp(min(0.0, 0.5 * x * x * square - x * size))))


def _rate(count: int) -> float:
    """The x of `_follows` for a sum of so many products."""
    return _RATE / math.sqrt(max(count, 1.0, _RATE**2))


#: Standard deviations of a sum of products at which `_follows` sees most.
_RATE = 8.0


def across_groups(groups: Sequence[Sequence[FloatArray]]) -> float:
    """P-value of the hypothesis that coordinates of different groups are uncorrelated."""
    if len(groups) < 2 or len({len(runs) for runs in groups}) > 1:
        return 1.0
    width = [min(run.shape[1] for run in runs) for runs in groups]
    both = [np.concatenate([run[:, :n] for run in runs]) for runs, n in zip(groups, width, strict=True)]
    return _correlated(np.concatenate(both, axis=1).T[:_MOST]) if len({len(one) for one in both}) == 1 else 1.0


def _repeated(rows: FloatArray) -> float:
    """Whether numbers of one run come again in another one: small differences in two runs in turn, or of any two."""
    if len(rows) < 2:
        return 1.0
    near = int((np.abs(rows[1::2] - rows[: len(rows) // 2 * 2 : 2]) < _SMALL).sum())
    found = float(stats.binom.sf(near - 1, rows[1::2].size, _SMALL / math.sqrt(math.pi)))
    if rows.shape[1] < 3:  # so few numbers meet on their lattice by chance
        return found
    rows = rows[:_MOST]
    squares = np.einsum("ij,ij->i", rows, rows)
    apart = (squares[:, None] + squares - 2.0 * rows @ rows.T)[np.tril_indices(len(rows), -1)]
    least = 0.5 * (math.sqrt(max(0.0, float(apart.min()))) + 1e-5 * math.sqrt(rows.shape[1])) ** 2
    return float(min(1.0, 2.0 * min(found, apart.size * float(stats.chi2.cdf(least, rows.shape[1])))))


class Spectrum:
    """Lower bounds on mu from noise alone.

    With X the noise, (T, N) with independent columns of any covariance, and S = X X^T, the ratio
    a^T Sigma^-1 a / a^T S^-1 a is chi-square of N - T + 1 degrees, for each column a of what moved. Where
    columns are few, the shape is that of the law and only the scale is measured: a^T a / tr S is chi-square of N T.
    ``runs`` are (T, n) arrays of standardized noise; T is 1 if ``joined``: then each is one row.
    """

    def __init__(self, runs: Sequence[FloatArray], *, joined: bool = False) -> None:
        noise = np.concatenate([run.reshape(1, -1) if joined else run for run in runs], axis=1)
        self.t, self.n = noise.shape
        self.values, self.vectors = np.linalg.eigh(noise @ noise.T)
        self.values = np.maximum(self.values, 1e-13 * max(float(self.values[-1]), 1e-300))

    def mu_squared(self, moved: FloatArray, error: float) -> float:
        """Less than mu**2 of what moved, (T, n) in units of the noise, but for the probability ``error``."""
        moved = moved[:, np.abs(moved).any(axis=0)]
        if not moved.size or self.n < 4:
            return 0.0
        if self.t > 1 and self.n < 200 * self.t:
            return float(stats.chi2.ppf(error, self.n * self.t) * np.sum(moved**2) / self.values.sum())
        columns = 1 if self.t == 1 else moved.shape[1]
        sizes = (self.vectors.T @ moved) ** 2 / self.values[:, None]
        return float(stats.chi2.ppf(error / columns, self.n - self.t + 1) * sizes.sum())
