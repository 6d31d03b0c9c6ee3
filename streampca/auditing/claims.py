"""Claims, computed a second time, without the formulas of the calibration.

- *mu, epsilon and delta*: quadrature of the privacy loss.
- *Sums over time*: unit vectors in place of random ones give the matrix B of the noise as it runs. With A the sums,
  ``A^T (B B^T)^-1 A`` holds what each row, and each pattern of rows, costs. For users, patterns are enumerated.
- *Sensitivities*: the largest move over a grid of pairs of rows.
- *Phases*: parts on the same rows add up; of parts on different rows the costliest one counts.

Neighbors reach each value that is found here, so a value above the claim refutes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from streampca.linalg.centering import with_constant
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.tree import ExactTree
from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance
from streampca.mechanisms.adaptive_laplace import AdaptiveLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace, TruncatedLaplace
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.histogram import GaussianHistograms, StabilityHistogram
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.norm_maps import lost_energy, norm_counts
from streampca.papers.approximate_subspace import WIDTHS, ApproximateSubspace
from streampca.papers.doubling import DoublingFPL
from streampca.papers.laplace import LaplaceCovariance
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.papers.wishart import WishartCovariance
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Note
from streampca.processors.dp_pca import DPPCA
from streampca.processors.dp_pca_tangent import TangentPlan
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.rewards import REWARD_WEIGHT, reward_scale
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling
from streampca.rows.bounds import PrivateBounds

#: Relative error of what is computed here.
ROUNDING = 1e-6
#: Inputs of a dense matrix, and patterns of a user's rows that are all tried, at most.
_INPUTS, _PATTERNS = 64, 4000


class Claim(NamedTuple):
    """A claimed number, and what was found for it.

    Attributes
    ----------
    what : its name, with the way it was found.
    claimed, found : mu, epsilon or delta. A larger ``found`` refutes the claim.
    tight : True if the two are equal for correct code, up to rounding.
    """

    what: str
    claimed: float
    found: float
    tight: bool = True

    @property
    def refuted(self) -> bool:
        """True if neighbors lose more than was claimed."""
        return not self.found <= self.claimed * (1.0 + ROUNDING)

    @property
    def deviation(self) -> float:
        """Relative difference."""
        return abs(self.found / self.claimed - 1.0) if self.claimed else abs(self.found)

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.6g}, {self.claimed:.6g} claimed"


def recomputed(subject: Any, d: int, claim: Guarantee, notes: Sequence[Note]) -> list[Claim]:
    """Compute the claims of one subject again.

    Parameters
    ----------
    subject : an algorithm or a mechanism.
    d : number of features.
    claim : the guarantee that is audited; that of ``subject``, or of several runs of it.
    notes : of a run, for the standard deviations as they were used.
    """
    found = []
    for one in dict.fromkeys((claim, subject.guarantee)):
        if one.mu is not None and one.delta > 0.0:
            delta = profile(one.mu, one.epsilon) + one.slack
            what = f"delta of mu = {one.mu:.4g} at epsilon = {one.epsilon:.4g}, by quadrature"
            found.append(Claim(what, one.delta, delta))
    warmup = [note for note in notes if note.kind == "bounds"]
    own = [note for note in notes if note.exact is not None and note.kind != "bounds"]
    if subject.guarantee.is_private:
        if warmup:
            found += _bounds(subject.guarantee, warmup)
        found += _parts(subject, d, own)
    return found


# -- privacy losses -------------------------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def _integral(values: Callable[[FloatArray], FloatArray], edges: FloatArray) -> float:
    """Integrate over panels with these edges."""
    half = 0.5 * np.diff(edges)[:, None]
    at = edges[:-1, None] + half * (1.0 + _NODES)
    return float((half * values(at) * _WEIGHTS).sum())


@lru_cache(maxsize=512)
def profile(mu: float, epsilon: float) -> float:
    """Return delta of N(mu, 1) against N(0, 1) at epsilon.

    At u beyond the point where the loss is epsilon, the loss is ``epsilon + mu u``. So delta is the integral of
    ``phi(s + u) (1 - exp(-mu u))`` over u > 0, with ``s = epsilon / mu - mu / 2``.
    """
    s = epsilon / mu - 0.5 * mu
    last = max(0.0, -s) + 40.0 / max(1.0, s)

    def values(u: FloatArray) -> FloatArray:
        return np.exp(-0.5 * (s + u) ** 2) * -np.expm1(-mu * u) / math.sqrt(2.0 * math.pi)

    return _integral(values, np.linspace(0.0, last, 401))


def epsilon_of(mu: float, delta: float) -> float:
    """Return epsilon of N(mu, 1) against N(0, 1) at delta, by bisection of `profile`."""
    if profile(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while profile(mu, high) > delta:
        high *= 2.0
    return float(brentq(lambda epsilon: profile(mu, epsilon) - delta, 0.0, high, xtol=1e-14, rtol=1e-13))


Density = Callable[[FloatArray], FloatArray]


def hockey_stick(first: Density, second: Density, epsilon: float, breaks: Sequence[float]) -> float:
    """Integrate ``max(0, first - e**epsilon second)`` between the least and the largest break."""
    edges = np.unique(np.concatenate([np.linspace(min(breaks), max(breaks), 801), breaks]))

    def apart(x: Any) -> Any:
        return first(x) - math.exp(epsilon) * second(x)

    inside = apart(0.5 * (edges[:-1] + edges[1:]))
    near = np.flatnonzero(np.diff(np.sign(inside)))
    middles = 0.5 * (edges[:-1] + edges[1:])
    roots = [brentq(apart, middles[i], middles[i + 1]) for i in near if apart(middles[i]) * apart(middles[i + 1]) < 0.0]
    return _integral(lambda x: np.maximum(apart(x), 0.0), np.unique(np.append(edges, roots)))


def shuffled_delta(mu: float, n: int, epsilon: float) -> float:
    """Return the least delta that n shuffled Gaussian steps are proved for at epsilon.

    Feldman, McMillan and Talwar 2021, Theorem 3.1, at the best of many splits of delta; 1 if nothing is proved.
    """
    least = 1.0
    for hat in np.geomspace(1e-12, 0.4, 400):
        log, low, high = math.log(4.0 / hat), 0.0, math.log(max(n / (16.0 * math.log(4.0 / hat)), 1.0))

        def total(local: float, log: float = log) -> float:
            e = math.exp(local)
            return math.log(1.0 + (e - 1.0) / (e + 1.0) * (8.0 * math.sqrt(e * log / n) + 8.0 * e / n))

        if total(high) > epsilon:  # the largest local epsilon that this split allows
            high = float(brentq(lambda local: total(local) - epsilon, low, high)) if high > low else 0.0
        rest = (math.exp(epsilon) + 1.0) * (1.0 + 0.5 * math.exp(-high)) * n * profile(mu, high)
        least = min(least, hat + rest)
    return least


# -- rows found by search ---------------------------------------------------------------------------------


def _pairs(d: int, adjacency: str) -> tuple[FloatArray, FloatArray]:
    """Pairs of rows of the unit ball of a plane, or of a line if d is 1: each (n, min(d, 2))."""
    angles = np.linspace(0.0, math.pi, 2 if d == 1 else 1025)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, : min(d, 2)]
    if adjacency == "replace":
        other = np.concatenate([length * directions for length in (0.0, 0.5, 1.0)])
    else:
        other = np.zeros((1, min(d, 2)))
    return np.broadcast_to(directions[:1], other.shape), other


def _outer(rows: FloatArray) -> FloatArray:
    made: FloatArray = rows[:, :, None] * rows[:, None, :]
    return made


def gram_move(d: int, adjacency: str, *, center: bool = False, rewards: bool = False) -> float:
    """Return the largest move of a Gram matrix in Frobenius norm, with the sum of rows and of rewards beside it."""
    first, other = _pairs(d, adjacency)
    moved = _outer(first) - _outer(other)
    joint = _outer(with_constant(first)) - _outer(with_constant(other)) if center else moved
    square = np.sum(joint**2, axis=(1, 2))
    if rewards:
        top = np.linalg.eigvalsh(moved)[:, -1]  # of the subspace in play that tells the rows apart best
        aside = 2.0 * np.linalg.norm(first - other, axis=1) if center and d > 1 else 0.0
        best = np.maximum(top, aside) / reward_scale(center=center, replace=adjacency == "replace")
        square = square + (REWARD_WEIGHT * np.minimum(best, 1.0)) ** 2
    return math.sqrt(float(square.max()))


@lru_cache(maxsize=64)
def gradient_move(d: int, k: int, clip: float, adjacency: str) -> float:
    """Return the largest move of a clipped gradient ``a a^T W`` in Frobenius norm."""
    angles = np.linspace(0.0, 2.0 * math.pi, 3 if d == 1 else 361)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, : min(d, 2)]
    rows = np.concatenate([length * circle for length in (0.0, 0.7, 1.0)])
    basis = np.eye(min(d, 2))[:, :k]
    made = (rows[:, :, None] * (rows @ basis)[:, None, :]).reshape(len(rows), -1)
    made *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-300))
    if adjacency == "zero-out":
        return float(np.linalg.norm(made, axis=1).max())
    squares = np.einsum("ij,ij->i", made, made)
    return math.sqrt(float((squares[:, None] + squares - 2.0 * made @ made.T).max()))


@lru_cache(maxsize=64)
def entries_move(d: int, adjacency: str) -> float:
    """Return the largest move of the upper triangle of a Gram matrix in l1 norm that the search finds."""
    ones = np.ones(d) / math.sqrt(d)
    signs = np.where(np.arange(d) < (d + 1) // 2, 1.0, -1.0)
    some = np.random.default_rng(0).normal(size=(400, d))
    rows = np.vstack([ones, signs / math.sqrt(d), np.eye(d)[:2], some / np.linalg.norm(some, axis=1, keepdims=True)])
    turns = np.linspace(0.0, math.pi, 181)[:, None]
    halves = (np.abs(signs + 1.0) / 2.0, np.abs(signs - 1.0) / 2.0)
    two = [half / max(float(np.linalg.norm(half)), 1e-300) for half in halves]
    rows = np.vstack([rows, np.cos(turns) * two[0] + np.sin(turns) * two[1]])
    upper = _outer(rows)[:, *np.triu_indices(d)]
    if adjacency == "zero-out":
        return float(np.abs(upper).sum(axis=1).max())
    return float(max(np.abs(upper - one).sum(axis=1).max() for one in upper))


def norms_move(adjacency: str) -> FloatArray:
    """Return the moves of the histogram of norms that are the largest in l1 and in Euclidean norm."""
    sizes = [0.0, 1.0, 0.5, 1e-3]
    counts = [norm_counts(np.array([[size, 0.0]])) for size in sizes]
    others = counts if adjacency == "replace" else counts[:1]
    apart = [one - other for one in counts for other in others]
    return np.array([max(np.abs(x).sum() for x in apart), max(np.linalg.norm(x) for x in apart)])


def lost_move() -> float:
    """Return the largest move of the lost energy."""
    return float(lost_energy(np.array([[1.0, 0.0]]), 1e-6)[0])


def _bounds(promised: Guarantee, notes: Sequence[Note]) -> Iterator[Claim]:
    """The histogram of magnitudes, on rows that nothing else sees."""
    d = notes[0].exact.values.shape[0]
    bounds = PrivateBounds.of(promised, 1, None)
    mu = bounds.mu
    rows = [np.zeros((1, d)), np.full((1, d), 0.3), np.geomspace(1e-9, 1.0, d)[None], np.full((1, d), -5.0)]
    votes = [np.array([bounds.votes(row)[0]]) for row in rows]

    def counts(bins: Any) -> FloatArray:
        return np.array([(bins == value) for value in range(255)], dtype=np.float64)  # those who do not vote have 255

    others = votes if promised.adjacency == "replace" else votes[:1]
    move = max(float(np.linalg.norm(counts(one) - counts(other))) for one in votes for other in others)
    std = min(note.std for note in notes)
    yield Claim("mu of the histogram of private bounds, by search", mu, move / std)


# -- sums over time ---------------------------------------------------------------------------------------


class _Units:
    """Vectors of noise with one 1 for each coordinate, each in a step of its own: what is made of them is a matrix.

    Parameters
    ----------
    size : coordinates of a sum. A step may draw several numbers for each.
    """

    def __init__(self, size: int) -> None:
        self.size, self.slots = size, 1

    def draws(self, n: int, name: bytes = b"") -> _Unit:
        """The vector of a step."""
        return _Unit(self, n)


class _Unit(NamedTuple):
    """The vector of one step, in place of `randomness.Draws`."""

    units: _Units
    n: int

    @property
    def name(self) -> bytes:
        """Its 16 bytes."""
        return self.n.to_bytes(16, "little")

    def normal(self, count: int) -> FloatArray:
        """The vector."""
        slots = self.units.slots = count // self.units.size
        made, slot = np.zeros((slots, self.units.size)), np.arange(slots)
        place = self.n * slots + slot
        kept = place < self.units.size
        made[slot[kept], place[kept]] = 1.0
        return made.reshape(-1)


def dense(mechanism: MatrixFactorization) -> FloatArray:
    """Return B, a row for each of at most 64 sums, from the noise as it runs."""
    n = min(mechanism.horizon or _INPUTS, _INPUTS)
    if isinstance(mechanism, ExactTree):  # of integers, which have no matrix
        return mechanism.reconstruction(n)

    def rows(units: _Units, steps: int) -> FloatArray:
        noise: Any = mechanism.start(units.size, units)  # type: ignore[arg-type]
        made = []
        for step in range(steps):
            noise = noise.advance(units.draws(step))
            made.append(noise.noise)
        return np.array(made)

    probe = _Units(1)
    rows(probe, 1)
    return rows(_Units(n * probe.slots), n)


def products(mechanism: MatrixFactorization) -> FloatArray:
    """Return ``C^T C`` for ``B C = A``: squared losses of rows, and their products. Infinite where noise is missing."""
    b = dense(mechanism)
    try:
        root = np.linalg.cholesky(b @ b.T)
    except np.linalg.LinAlgError:
        return np.full((len(b), len(b)), math.inf)
    c = np.linalg.solve(root, mechanism.workload(len(b)))
    return np.asarray(c.T @ c, dtype=np.float64)


def columns_norm(mechanism: MatrixFactorization, max_rows: int = 1, rows_per_input: int = 1) -> tuple[float, str]:
    """Return the most that rows of one user move the outputs, in units of the noise, and which rows do.

    Parameters
    ----------
    mechanism : the matrix factorization.
    max_rows : rows of a user.
    rows_per_input : rows summed into an input.
    """
    found = np.abs(products(mechanism))
    rows = len(found) * rows_per_input
    m = min(max_rows, rows)
    patterns: Sequence[tuple[int, ...]]
    if math.comb(rows, m) <= _PATTERNS:
        patterns = list(combinations(range(rows), m))
    else:  # rows in succession, or at equal distances
        ends = [(start, step) for step in range(1, rows // m + 1) for start in range(rows - (m - 1) * step)]
        patterns = [tuple(range(start, start + m * step, step)) for start, step in ends]
    inputs = np.array(patterns) // rows_per_input
    squares = found[inputs[:, :, None], inputs[:, None, :]].sum(axis=(1, 2))
    worst = int(squares.argmax())
    named = ", ".join(str(row + 1) for row in patterns[worst][:8])
    return math.sqrt(float(squares[worst])), f"row{'s' if m > 1 else ''} {named}"


def _over_time(
    what: str, mechanism: MatrixFactorization, move: float, claimed: float, max_rows: int = 1, rows_per_input: int = 1
) -> Claim:
    norm, rows = columns_norm(mechanism, max_rows, rows_per_input)
    tight = max_rows == 1 and mechanism.horizon is not None
    return Claim(f"mu of {what} by dense matrices, {rows}", claimed, move * norm, tight)


# -- one subject ------------------------------------------------------------------------------------------


def _parts(subject: Any, d: int, notes: Sequence[Note]) -> Iterator[Claim]:
    """The noise of a subject against its claim."""
    promised: Guarantee = subject.guarantee
    adjacency, mu = promised.adjacency, promised.mu or 0.0
    gram = gram_move(d, adjacency)
    match subject:
        case Tumbling():
            yield from _parts(subject.mechanism, d, notes)
        case PrivateFPL():
            move = gram_move(d, adjacency, center=subject.center, rewards=subject.publish_regret)
            users = subject.max_rows_per_user or 1
            made = _over_time("running sums", subject.mechanism, move, mu, users, subject.release_every)
            both_rewards = subject.center and subject.publish_regret  # which the bound on their moves does not meet
            yield made._replace(tight=made.tight and d > 1 and not both_rewards)
        case DoublingFPL():
            mechanism = subject.first_epoch(d).mechanism
            yield _over_time("running sums of an epoch", mechanism, gram, mu)._replace(tight=False)
        case SlidingWindowPCA():
            move = gram_move(d, adjacency, center=subject.center)
            if subject.method == "once":
                yield Claim("mu of the window, by search", mu, move / subject.followed.std(1))
            else:
                yield _over_time("windows", subject.followed.noise, move, mu)._replace(tight=False)
        case PrivateOja():
            step = gradient_move(d, subject.n_components, subject.bound, adjacency) / subject.noise_std(d)
            yield Claim("mu of a step, by search", subject.mu, step, d > 1)
            if subject.shuffle is not None:
                delta = shuffled_delta(subject.mu, subject.shuffle, subject.epsilon)
                yield Claim(f"delta of {subject.shuffle} shuffled steps", subject.delta, delta, tight=False)
        case DPPCA():
            yield from _dp_pca(subject, d)
        case GaussianCovariance():
            move = gram_move(d, adjacency, center=subject.center)
            std = min((note.std for note in notes if note.kind == "gram"), default=subject.sigma)
            yield Claim("mu of the Gram matrix, by search", mu, move / std, d > 1)
        case AdaptiveCovariance():
            moves = {"norms": norms_move(adjacency)[1], "lost": lost_move()}
            for phase in _phases(notes):
                spent = math.hypot(*(moves.get(kind, gram) / std for kind, std in phase.items()))
                yield Claim(f"mu of {', '.join(phase)} together", mu, spent)
        case SubspacePerturbation():
            for phase in _phases(notes):
                if "gram" in phase:
                    gap = 2.0 if adjacency == "replace" else 1.0  # Weyl, met by e1 against e2
                    spent = math.hypot(gap / phase["gap"], gram / phase["gram"])
                    yield Claim("mu of gap and Gram matrix together", mu, spent)
        case AdaptiveLaplaceCovariance():
            for phase in _phases(notes):
                yield Claim(f"epsilon of {', '.join(phase)} together", subject.epsilon, _pure(phase, d, adjacency))
        case LaplaceCovariance():
            found = entries_move(d, adjacency) / subject.scale(d)
            yield Claim("epsilon of the entries, by search", subject.epsilon, found, adjacency == "zero-out")
        case MatrixLaplaceCovariance():
            found = _trace_move(d, adjacency) / (2.0 * subject.scale(d))
            yield Claim("epsilon of the matrix, by search", subject.epsilon, found)
        case WishartCovariance():
            delta = _wishart(subject.degrees(d) - d + 1, 1.0 / subject.scale(d), subject.epsilon)
            yield Claim("delta of the noise, by quadrature", subject.delta, delta, adjacency == "zero-out")
        case ExactSubspace():
            sensitivity = 2.0 if adjacency == "replace" else 1.0
            delta = _truncated(subject.gap_noise, sensitivity, subject.epsilon)
            yield Claim("delta of the gap, by quadrature", subject.delta, delta)
            delta = 2.0 * _truncated(subject.vote_noise, 1.0, 0.5 * subject.epsilon)
            yield Claim("delta of two votes, by quadrature", subject.delta, delta)
        case ApproximateSubspace():
            widths = WIDTHS if subject.widths is None else len(subject.widths)
            yield from _votes(subject.histogram, subject.epsilon / widths, subject.delta / widths)
        case StabilityHistogram():
            yield from _votes(subject, subject.epsilon, subject.delta)


def _phases(notes: Sequence[Note]) -> list[Mapping[str, float]]:
    """Standard deviations by kind, for each block of rows: a kind that comes again begins another block."""
    phases: list[dict[str, float]] = [{}]
    for note in notes:
        if note.kind in phases[-1]:
            phases.append({})
        phases[-1][note.kind] = note.std
    return list(phases)


def _trace_move(d: int, adjacency: str) -> float:
    """The largest move of a Gram matrix in trace norm."""
    first, other = _pairs(d, adjacency)
    return float(np.abs(np.linalg.eigvalsh(_outer(first) - _outer(other))).sum(axis=1).max())


def _pure(phase: Mapping[str, float], d: int, adjacency: str) -> float:
    """Epsilon of the parts of `AdaptiveLaplaceCovariance`, from their standard deviations."""
    spent = 0.0
    for kind, std in phase.items():
        if kind == "gram":  # a difference of two Wishart matrices of d + 1 degrees
            spent += _trace_move(d, adjacency) / (std / math.sqrt(d + 1.0))
        else:
            spent += (norms_move(adjacency)[0] if kind == "norms" else lost_move()) / (std / math.sqrt(2.0))
    return spent


def _wishart(degrees: int, shift: float, epsilon: float) -> float:
    """Delta of a chi-square against its shift, the larger of both directions."""
    chi = stats.chi2(degrees)
    breaks = (0.0, shift, float(chi.isf(1e-14)) + shift)
    both: tuple[Density, Density] = (chi.pdf, lambda x: chi.pdf(x - shift))
    return max(hockey_stick(*both, epsilon, breaks), hockey_stick(*both[::-1], epsilon, breaks))


def _truncated(noise: TruncatedLaplace, move: float, epsilon: float) -> float:
    """Delta of truncated Laplace noise on a number that moves by so much."""
    scale, bound = noise.sensitivity / noise.epsilon, noise.bound
    whole = 2.0 * scale * -math.expm1(-bound / scale)

    def density(x: FloatArray) -> FloatArray:
        return np.where(np.abs(x) <= bound, np.exp(-np.abs(x) / scale), 0.0) / whole

    # At the epsilon of the noise both densities have one ratio on a whole interval: rounding decides there.
    breaks = (-bound, move - bound, 0.0, move, bound, bound + move)
    return hockey_stick(density, lambda x: density(x - move), epsilon * (1.0 + 1e-12), breaks)


def _votes(histogram: StabilityHistogram, epsilon: float, delta: float) -> Iterator[Claim]:
    """A stability histogram: a vote that moves between two bins, and a bin of one vote."""
    yield Claim("epsilon of a vote that moves", epsilon, 2.0 / histogram.scale)
    beyond = (histogram.threshold - 1.0) / histogram.scale  # in units of the noise's scale
    shown = _integral(lambda x: 0.5 * np.exp(-np.abs(x)), np.linspace(beyond, beyond + 60.0, 401))
    yield Claim("delta of a lone vote, by quadrature", delta, shown if beyond >= 0.0 else 1.0)


def _centers(histograms: GaussianHistograms, epsilon: float, delta: float) -> Iterator[Claim]:
    """Gaussian histograms: votes in all of them, and bins of one vote."""
    n = histograms.n_histograms
    mu = math.sqrt(n * (2 if histograms.adjacency == "replace" else 1)) / histograms.std
    lone = n * float(stats.norm.sf((histograms.threshold - 1.0) / histograms.std))
    yield Claim("delta of the center, by quadrature", delta, profile(mu, epsilon) + lone)


def _dp_pca(subject: DPPCA, d: int) -> Iterator[Claim]:
    """Segments of `DPPCA`, which share no rows: each may cost the whole claim."""
    plan: Any = subject.plan(d)
    epsilon, delta, adjacency = subject.epsilon, subject.delta, subject.adjacency
    tangent = isinstance(plan, TangentPlan)
    for votes in (plan.votes,) if tangent else (plan.top, plan.range):
        yield from _votes(votes.histogram, epsilon, delta)
    if tangent:
        inside = gram_move(subject.n_components, adjacency) / plan.inside_std
        yield Claim("delta of the scale, by search and quadrature", delta, profile(inside, epsilon), tight=False)
        # ||(I - W W^T) a|| ||a^T W|| is sin x cos x for a unit row at angle x.
        largest, twice, means = 0.5, 2.0 if adjacency == "replace" else 1.0, plan.across
    else:
        yield from _centers(plan.center.histograms, epsilon, delta)
        # Gradients a (a . w) are at most 1 apart.
        largest, twice, means = 1.0, 2.0 if adjacency == "replace" else 1.0, plan.mean
    for radius in (0.1, 0.25, largest):
        mean = means(radius)
        move = min(twice * min(radius, largest), 1.0)
        spent = profile(move / mean.std, epsilon)
        yield Claim(f"delta of a mean clipped to {radius:g}, by quadrature", delta, spent, tight=False)
