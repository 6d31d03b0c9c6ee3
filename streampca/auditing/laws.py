"""Laws of noise: the distribution of the noise of each kind of private value, and the loss of two neighbors under it.

A law turns noise into numbers that are independent and standard normal if the noise follows the law, so one set of
tests (`statistics.p_values`) serves all laws.
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
from streampca.linalg.svec import PRESENCE, entry_weights, svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms.adaptive import AdaptiveLaplaceCovariance
from streampca.mechanisms.covariance import MatrixLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.histogram import GRID, StabilityHistogram
from streampca.papers.covariance import LaplaceCovariance, WishartCovariance, profile
from streampca.papers.doubling import DoublingFPL
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import LatticeSum
from streampca.privacy.randomness import Note
from streampca.processors.base import REWARD_WEIGHT
from streampca.processors.dp_pca import DPPCA
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_sketch import PrivateSketch
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling

Notes = Sequence[Note]
Groups = dict[str, FloatArray]
#: Standard deviation at which the grid of a release is the finest.
_NO_NOISE = 1e-300
#: Factor that gives the noise of a group the standard deviation of the noise on the diagonal.
_WEIGHTS = {"off-diagonal": math.sqrt(2.0), "rewards": REWARD_WEIGHT}


class Loss(NamedTuple):
    """Privacy loss of two neighbors over the claim, their distance in units of the noise, and the loss in words."""

    ratio: float
    moved: Groups
    text: str


class Law(NamedTuple):
    """Distribution of the noise of one kind of private value, from the parameters that the algorithm publishes."""

    # Maps the notes of a run to standard normals by group, each (T, n): rows in time, independent columns.
    standard: Callable[[Notes], Groups]
    loss: Callable[[Notes, Notes, Guarantee], Loss]  # of the notes of two neighbors, for a claim


def mu_of(claim: Guarantee) -> float:
    """Return the mu that spends a claim."""
    return gaussian.mu_of(claim.epsilon, claim.delta) if claim.mu is None else claim.mu


def noiseless(note: Note) -> Any:
    """Return the exact value as the outlet would release it without noise."""
    if isinstance(note.exact, LatticeSum):  # its lattice may be finer than that of releases
        return note.exact.values
    return note.exact.noisy(np.zeros_like(note.noise), _NO_NOISE)


def groups(note: Note, value: Any) -> Groups:
    """Return released numbers by group of equal noise."""
    extra: Groups = {}
    if isinstance(value, tuple):  # a Gram matrix with the sum of rewards
        value, more = value
        extra["rewards"] = np.array([more["sum"]]) / note.exact.rewards.scale
    if isinstance(note.exact, GramInParts):
        value = value.sum(axis=0)
    d = getattr(getattr(note.exact, "gram", note.exact), "n_features", None)
    if d is None:
        return {"": np.asarray(value, dtype=np.float64).reshape(-1)}
    if further := len(value) - svec_size(d):
        extra["cells"] = value[-further:] * math.sqrt(PRESENCE / further)
        value = value[:-further]
    diagonal = entry_weights(d) == 1.0
    return {"diagonal": value[diagonal]} | ({"off-diagonal": value[~diagonal]} if d > 1 else {}) | extra


def noise_of(note: Note) -> Groups:
    """Return the noise of a release: released minus exact numbers, by group."""
    released, exact = groups(note, note.value), groups(note, noiseless(note))
    return {name: released[name] - exact[name] for name in released}


def shift(note: Note, other: Note) -> Groups:
    """Return the differences of the exact values of two runs, by group."""
    first, second = groups(note, noiseless(note)), groups(other, noiseless(other))
    return {name: second[name] - first[name] for name in first}


def _matrix(values: Groups, d: int) -> FloatArray:
    """Return the symmetric matrix of diagonal and off-diagonal entries."""
    packed = np.empty(svec_size(d))
    packed[entry_weights(d) == 1.0] = values["diagonal"]
    packed[entry_weights(d) != 1.0] = values.get("off-diagonal", [])
    return unpack_entries(packed, d)


def _gaussian(root: Callable[[Notes], FloatArray] | None = None) -> Law:
    """Gaussian noise B z over time, where ``root`` is B for a diagonal entry; None if releases are independent."""

    def scaled(notes: Notes, parts: Sequence[Groups]) -> Groups:
        b, found = None if root is None else root(notes), Groups()
        for name in parts[0]:
            values = [_WEIGHTS.get(name, 1.0) * part[name] for part in parts]
            if b is None:  # the outlet received the standard deviation of each release
                found[name] = np.concatenate([x / note.std for note, x in zip(notes, values, strict=True)])[None]
            else:  # L^-1 X for L L^T = B B^T: rows of noise become independent and standard normal
                found[name] = np.linalg.solve(np.linalg.cholesky(b @ b.T), np.array(values))
        return found

    def loss(notes: Notes, others: Notes, claim: Guarantee) -> Loss:
        # Two Gaussians of equal covariance are mu-GDP for mu the norm of the whitened difference of their means.
        moved = scaled(notes, list(map(shift, notes, others)))
        mu = math.sqrt(sum(float(np.sum(part * part)) for part in moved.values()))
        return Loss(mu / mu_of(claim), moved, f"mu = {mu:.4g}")

    return Law(lambda notes: scaled(notes, list(map(noise_of, notes))), loss)


def correlated(reconstruction: Callable[[int], FloatArray]) -> Law:
    """Gaussian noise B z over time, where ``reconstruction(T)`` is B for a diagonal entry."""
    return _gaussian(lambda notes: reconstruction(len(notes)))


def _root_of_epochs(subject: DoublingFPL, d: int, notes: Notes) -> FloatArray:
    """Return B of a `DoublingFPL`: each epoch has its own noise, and ends by its released values."""
    epoch, first, blocks = subject.first_epoch(d), 0, list[FloatArray]()
    for i, note in enumerate(notes, 1):
        t = min(i * subject.every, subject.horizon)
        left = subject.leaves(subject.horizon - t)
        passed = left > 0 and epoch.passed(note.value, i - first)
        if passed or i == len(notes):
            blocks.append(epoch.mechanism.reconstruction(i - first))
        if passed:
            epoch, first = epoch.restarted(t, left, epoch.released, 0.0), i
    return np.asarray(block_diag(*blocks))


#: Gaussian noise that is independent in each release, with the standard deviation that the outlet received.
independent = _gaussian()


def _by_quantiles(above: Callable[[FloatArray], FloatArray]) -> Callable[[Notes], Groups]:
    """Return the map from independent noise with ``above(x) = P(noise > x)`` to standard normals."""

    def standard(notes: Notes) -> Groups:
        noise = np.concatenate([part for note in notes for part in noise_of(note).values()])
        # Clipped tails keep impossible noise finite: it is then 37 standard deviations away.
        return {"": -special.ndtri(np.clip(above(noise), 1e-300, 1.0 - 1e-16))[None]}

    return standard


def _laplace_above(scale: float, noise: FloatArray) -> FloatArray:
    tail = 0.5 * np.exp(-np.abs(noise) / scale)
    return np.where(noise > 0.0, tail, 1.0 - tail)


def _spent(claim: Guarantee, epsilon: float = 0.0, delta: float = 0.0) -> Loss:
    """Return the loss of noise that is not Gaussian: the larger of the shares of epsilon and of delta."""
    ratio = max(epsilon / claim.epsilon, delta / claim.delta if delta else 0.0)
    spent = {"epsilon": epsilon, "delta": delta}
    return Loss(ratio, {}, ", ".join(f"{name} = {value:.4g}" for name, value in spent.items() if value))


def laplace(scale: float) -> Law:
    """Laplace noise in every entry."""

    def loss(notes: Notes, others: Notes, claim: Guarantee) -> Loss:
        # The log-density changes by at most the l1 distance over the scale.
        moved = map(shift, notes, others)
        return _spent(claim, sum(float(np.abs(part).sum()) for one in moved for part in one.values()) / scale)

    return Law(_by_quantiles(partial(_laplace_above, scale)), loss)


def in_ball(scale: float) -> Law:
    """Noise of density proportional to ``exp(-|z| / scale)`` in the Euclidean norm."""

    def standard(notes: Notes) -> Groups:
        found = []
        for note in notes:
            noise = np.concatenate(list(noise_of(note).values())) / scale
            length = float(np.linalg.norm(noise))
            # The length is Gamma(size), of a uniform direction: with the length of a normal vector it is one.
            tail = np.clip(special.gammaincc(noise.size, length), 1e-300, 1.0)
            found.append(noise * math.sqrt(stats.chi2.isf(tail, noise.size)) / max(length, 1e-300))
        return {"": np.concatenate(found)[None]}

    def loss(notes: Notes, others: Notes, claim: Guarantee) -> Loss:
        # The log-density changes by at most the Euclidean distance over the scale.
        moved = [np.concatenate(list(part.values())) for part in map(shift, notes, others)]
        return _spent(claim, sum(float(np.linalg.norm(one)) for one in moved) / scale)

    return Law(standard, loss)


def _thresholded(above: Callable[[FloatArray], FloatArray], scale: float, threshold: float, bound: float = 0.0) -> Law:
    """Laplace noise of counts, of which one vote stays below the threshold; truncated at a ``bound`` that is not 0."""

    def loss(notes: Notes, others: Notes, claim: Guarantee) -> Loss:
        epsilon, truncated, deltas = 0.0, 0.0, np.zeros(2)
        for note, other in zip(notes, others, strict=True):
            values = [(e.names or range(e.counts.size), e.counts.flat) for e in (note.exact, other.exact)]
            one, two = ({name: float(x) for name, x in zip(*value, strict=True) if x} for value in values)
            moved = np.array([abs(two[name] - one[name]) for name in one.keys() & two.keys()])
            epsilon += float(moved.sum()) / scale
            if bound:  # the tails of truncated noise that moves end at different places
                truncated += float(above(bound - moved).sum())
            # Bins of one side only count for that side: the deltas of the two directions do not add up.
            lone = [np.array([of[name] for name in of.keys() - less.keys()]) for of, less in ((one, two), (two, one))]
            shown = [np.minimum(above(threshold - counts), 1.0 - 1e-16) for counts in lone]
            deltas += [-math.expm1(float(np.log1p(-p).sum())) for p in shown] or 0.0
        return _spent(claim, epsilon, truncated + float(deltas.max()))

    return Law(_by_quantiles(above), loss)


def _of_matrices(
    d: int,
    scale: Callable[[Note], float],
    normals: Callable[[FloatArray], Groups],
    lost: Callable[[FloatArray, Guarantee], Loss],
) -> Law:
    """Law of matrices in units of their scale; ``lost`` maps the absolute eigenvalues of a move to its loss."""

    def standard(notes: Notes) -> Groups:
        parts = [normals(_matrix(noise_of(note), d) / scale(note)) for note in notes]
        return {name: np.concatenate([part[name] for part in parts])[None] for name in parts[0]}

    def loss(notes: Notes, others: Notes, claim: Guarantee) -> Loss:
        # A row is in one release of a `Tumbling` only, so the largest loss counts (parallel composition).
        moved = [_matrix(shift(note, other), d) / scale(note) for note, other in zip(notes, others, strict=True)]
        sizes = [np.abs(np.linalg.eigvalsh(one)) for one in moved]
        return max((lost(one, claim) for one in sizes), key=lambda loss: loss.ratio)

    return Law(standard, loss)


def _wishart(mechanism: WishartCovariance, d: int) -> Law:
    """One Wishart matrix."""
    # Its density depends on eigenvalues only, so the loss does not depend on the direction of the row.
    scale, degrees = mechanism.scale(d), mechanism.degrees(d)

    def normals(noise: FloatArray) -> Groups:
        # Bartlett's decomposition: the Cholesky factor has independent normals below the diagonal, and roots of
        # chi-squares on it. The shift keeps the matrix definite where a mutant has too little noise.
        low = float(np.linalg.eigvalsh(noise)[0])
        factor = np.linalg.cholesky(noise + max(0.0, 1e-9 - low) * np.eye(d))
        tails = stats.chi2.sf(np.diag(factor) ** 2, degrees - np.arange(d))
        roots = -special.ndtri(np.clip(tails, 1e-300, 1.0 - 1e-16))
        return {"": np.concatenate([roots, factor[np.tril_indices(d, -1)]])}

    def lost(sizes: FloatArray, claim: Guarantee) -> Loss:
        # Under replace the profile covers both steps together: the row removed and the row added have one length.
        delta = profile(claim.epsilon, degrees, 1.0 / sizes.max(), d, mechanism.adjacency) if sizes.any() else 0.0
        return _spent(claim, delta=delta)

    return _of_matrices(d, lambda note: scale, normals, lost)


def _matrix_laplace(d: int, scale: Callable[[Note], float]) -> Law:
    """The difference of two Wishart matrices of d + 1 degrees."""

    def normals(noise: FloatArray) -> Groups:
        # One diagonal entry and the trace are differences of two chi-squares. Both are tested and no more: a law of the
        # whole matrix has no closed form.
        values = {"entry": (noise[0, 0], d + 1), "trace": (np.trace(noise), (d + 1) * d)}
        tails = {name: np.interp(abs(x), *difference_tails(degrees)) for name, (x, degrees) in values.items()}
        return {name: np.array([math.copysign(special.ndtri(tails[name]), x)]) for name, (x, _) in values.items()}

    # The log-density changes by at most the trace norm over 2c.
    return _of_matrices(d, scale, normals, lambda sizes, claim: _spent(claim, 0.5 * float(sizes.sum())))


@lru_cache(maxsize=16)
def difference_tails(degrees: int) -> tuple[FloatArray, FloatArray]:
    """Return P(X - Y > x) for independent chi-squares X and Y, on a grid of x from 0."""
    # The mean of the tail of X over 2000 quantiles of Y, by the midpoint rule.
    grid = np.linspace(0.0, 40.0, 1001) * math.sqrt(degrees)
    values = stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, degrees)
    return grid, special.chdtrc(degrees, grid[:, None] + values).mean(axis=1)


def law_of(subject: Any, d: int, kind: str) -> Law:
    """Return the law of one kind of private value of an algorithm or mechanism, for rows of d features."""
    if kind == "bounds":
        return independent
    votes: Any = getattr(subject, "histogram", None)
    match subject:
        case Tumbling():
            return law_of(subject.mechanism, d, kind)
        case DoublingFPL():
            return _gaussian(partial(_root_of_epochs, subject, d))
        case PrivateFPL() | SlidingWindowPCA():
            return correlated(subject.mechanism.reconstruction)
        case PrivateSketch():
            return correlated(subject.mechanism(d).reconstruction)
        case LaplaceCovariance():
            return laplace(subject.scale(d))
        case MatrixLaplaceCovariance():
            return _matrix_laplace(d, lambda note: subject.scale(d))
        case AdaptiveLaplaceCovariance() if kind == "gram":
            # The scale depends on the number of stages before, which the standard deviation at the outlet shows.
            stages = [subject.on_gram(stages) for stages in range(3)]
            scales = {one.noise_std(d): one.scale(d) for one in stages}
            return _matrix_laplace(d, lambda note: scales[note.std])
        case AdaptiveLaplaceCovariance() if kind == "mean":
            return in_ball(subject.mean_scale)
        case AdaptiveLaplaceCovariance():
            return laplace(subject.norms_scale if kind == "norms" else subject.lost_scale)
        case WishartCovariance():
            return _wishart(subject, d)
        case ExactSubspace():
            # Truncated noise on votes, with a threshold that one row never exceeds. Noise beyond the bound has
            # probability 0 and counts as the rarest event.
            noise, outside = subject.noise, subject.noise.bound * (1.0 + 1e-12)
            above = np.vectorize(noise.above, otypes=[np.float64])
            standard = _by_quantiles(lambda x: np.where(np.abs(x) > outside, 1e-300, above(x)))
            return _thresholded(above, 1.0 / noise.epsilon, subject.threshold, noise.bound)._replace(standard=standard)
        case StabilityHistogram():
            votes = subject
        case DPPCA() if kind == "norm":
            votes = subject.plan(d).votes
    if not isinstance(votes, StabilityHistogram):
        return independent
    return _thresholded(partial(_laplace_above, votes.scale), votes.scale, votes.threshold + 0.5 * GRID)
